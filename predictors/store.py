"""Fitted predictors on disk, without pickle: a folder with a manifest, checksums, and files that run no code."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import polars as pl
from sklearn.utils.validation import check_is_fitted

from analysis.errors import BadFileError, HindcastError, SchemaVersionError, UnknownNameError, UsageError
from analysis.trace import write_folder
from predictors.asking import INSTANTS
from predictors.base import DurationPredictor, make_predictor
from predictors.calibration import SCORES_TABLE, Stream

__all__ = ["FORMAT_VERSION", "load_model", "save_model"]

FORMAT: Final = "hindcast-model"
#: 2: how far predictions of the training log were off is kept, for intervals.
FORMAT_VERSION: Final = 2
MANIFEST: Final = "manifest.json"
HISTORY: Final = "history.parquet"
SCORES: Final = "scores.parquet"
_SCORES_COLUMNS: Final = {"at": pl.String(), **SCORES_TABLE}
LIBRARIES: Final = ("gpu-hindcast", "lightgbm", "numpy", "polars", "scikit-learn", "skops")
#: A file's name in a manifest: no folder, no dots but the ending's.
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*\.[a-z]+")
_FITTED: Final = ("fallback_s_", "num_known_", "num_censored_", "num_excluded_", "window_")
_FIX: Final = "Fit the model again with 'hindcast train'."


def save_model(model: DurationPredictor, folder: Path | str) -> Path:
    """Store a fitted predictor as a folder; a model that is there already is replaced as a whole.

    The folder holds ``manifest.json`` (format, predictor, parameters, features, training window, time zone, versions of
    libraries, checksums), ``history.parquet`` (the ended jobs that history features need: users and durations of the
    training log are in it), ``scores.parquet`` (how far predictions of them were off), and the learner in its own text
    or skops form. Nothing in it depends on the clock: the same log and parameters give the same bytes.

    Parameters
    ----------
    model : DurationPredictor
        Fitted and registered.
    folder : path
        Written under a temporary name, then renamed: it is never half there.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    NotFittedError
        If the model was not fitted.
    UsageError
        If something else than a model is there, or a parameter cannot be written as JSON.
    """
    check_is_fitted(model, "past_")

    def fill(target: Path) -> None:
        model.past_.write_parquet(target / HISTORY, compression="zstd", statistics=False)
        _scores_table(model).write_parquet(target / SCORES, compression="zstd", statistics=False)
        model._write_parts(target)
        names = [HISTORY, SCORES, *model._part_names()]
        manifest = _describe(model, {name: _fingerprint(target / name) for name in names})
        manifest["checksum"] = _checksum(manifest)
        (target / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n", encoding="utf-8")

    return write_folder(Path(folder), fill, marker=MANIFEST)


def _describe(model: DurationPredictor, files: dict[str, dict[str, Any]]) -> dict[str, Any]:
    state = model._state()
    manifest = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "predictor": model.name,
        "params": model.get_params(),
        "time_zone": model.get_params().get("time_zone"),
        "features": state.get("features", []),
        "fitted": {name: getattr(model, name) for name in _FITTED} | {"trained_until_": _iso(model.trained_until_)},
        "state": state,
        "files": files,
        "versions": _versions(),
    }
    try:
        return dict(json.loads(json.dumps(manifest, allow_nan=False)))
    except (TypeError, ValueError) as error:
        msg = f"save_model: a parameter of {model.name!r} cannot be written as JSON ({error}); use plain values."
        raise UsageError(msg) from error


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def _scores_table(model: DurationPredictor) -> pl.DataFrame:
    parts = [model.scores_[at].to_table().select(pl.lit(at).alias("at"), pl.all()) for at in INSTANTS]
    return pl.concat(parts)


def _versions() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # an optional library, or hindcast from a source folder
            continue
    return found


def _fingerprint(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    return {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}


def _checksum(manifest: dict[str, Any]) -> str:
    rest = {name: value for name, value in manifest.items() if name != "checksum"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def load_model(folder: Path | str) -> DurationPredictor:
    """Load a predictor that ``save_model`` stored; it predicts exactly what it predicted before.

    Loading runs no code from the folder. Checksums tell damage and careless changes, not a forger who makes a whole new
    folder: trust a model as far as its source.

    Parameters
    ----------
    folder : path
        The folder.

    Returns
    -------
    DurationPredictor
        Fitted.

    Raises
    ------
    BadFileError
        If the folder is missing, no model, changed, truncated, refers to files outside of itself, holds types that do
        not belong there, or was fitted with another release of scikit-learn.
    SchemaVersionError
        If it was written by a newer hindcast.
    """
    folder = Path(folder)
    manifest = _read_manifest(folder)
    _check_files(folder, manifest["files"])
    try:
        model = make_predictor(manifest["predictor"], **manifest["params"])
        model._restore(manifest["state"])
        for name in _FITTED:
            setattr(model, name, manifest["fitted"][name])
        model.fallback_s_ = float(model.fallback_s_)
        model.window_ = tuple(manifest["fitted"]["window_"])
        until = manifest["fitted"]["trained_until_"]
        model.trained_until_ = None if until is None else datetime.fromisoformat(until)
    except UnknownNameError as error:
        raise _bad(folder / MANIFEST, "unknown_predictor", str(error), expected="a registered predictor") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _bad(folder / MANIFEST, "damaged", f"a manifest whose parts do not fit ({error})") from error
    # Only files that the manifest vouches for are ever read.
    if set(manifest["files"]) != {HISTORY, SCORES, *model._part_names()}:
        raise _bad(folder / MANIFEST, "damaged", f"the files {', '.join(manifest['files'])}")
    _check_versions(folder, manifest)
    model.past_ = _read_table(folder / HISTORY, model.past_columns)
    model.scores_ = _read_scores(folder / SCORES, num_levels=len(model.levels))
    model._read_parts(folder)
    return model


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        there = (
            "nothing there"
            if not folder.exists()
            else "a folder without manifest.json"
            if folder.is_dir()
            else "a file"
        )
        kind = "missing" if not folder.exists() else "not_a_model"
        raise _bad(folder, kind, there, fix="Make one with 'hindcast train TRACE -o MODEL'.")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _bad(path, "damaged", f"text that is not JSON ({error})") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise _bad(path, "not_a_model", "JSON that is not a model's manifest")
    found = manifest.get("format_version")
    if not isinstance(found, int) or found < 1:
        raise _bad(path, "damaged", f"format_version {found!r}")
    if found < FORMAT_VERSION:
        was = f"a model of format {found}, written by an older hindcast"
        raise _bad(path, "old_format", was, expected=f"format {FORMAT_VERSION}")
    if found > FORMAT_VERSION:
        raise SchemaVersionError(path, found=found, supported=FORMAT_VERSION)
    if manifest.get("checksum") != _checksum(manifest):
        raise _bad(path, "tampered", "a manifest that was changed after it was written (its checksum differs)")
    return manifest


def _check_files(folder: Path, files: Any) -> None:
    """Look at every file before any is read; all that is wrong at once."""
    if not isinstance(files, dict) or HISTORY not in files:
        raise _bad(folder / MANIFEST, "damaged", f"a manifest without {HISTORY}")
    escapes = [name for name in files if not _NAME.fullmatch(name) or (folder / name).is_symlink()]
    if escapes:
        found = f"files outside of the folder: {', '.join(map(repr, escapes))}"
        raise _bad(folder / MANIFEST, "path_escape", found, expected="plain files of the folder")
    wrong = {name: _what_is_wrong(folder / name, expected) for name, expected in files.items()}
    told = [f"{name} {what}" for name, what in wrong.items() if what]
    if told:
        kind = "missing" if all("missing" in what for what in told) else "tampered"
        raise _bad(folder, kind, "; ".join(told), expected="the files as they were written")


def _what_is_wrong(path: Path, expected: Any) -> str:
    if not path.is_file():
        return "is missing"
    found = _fingerprint(path)
    if found == expected:
        return ""
    size = expected.get("size") if isinstance(expected, dict) else None
    if isinstance(size, int) and found["size"] < size:
        return f"is truncated ({found['size']} of {size} bytes)"
    return "was changed after it was written (its sha256 differs)"


def _check_versions(folder: Path, manifest: dict[str, Any]) -> None:
    """A stored learner is promised to work in the release of scikit-learn that fitted it, in no other."""
    if not any(name.endswith(".skops") for name in manifest["files"]):
        return
    then, now = str(manifest["versions"].get("scikit-learn")), version("scikit-learn")
    if then.split(".")[:2] != now.split(".")[:2]:
        raise _bad(
            folder / MANIFEST,
            "other_library",
            f"a model fitted with scikit-learn {then}",
            expected=f"scikit-learn {now}, which is installed",
            fix=f"{_FIX[:-1]}, or install scikit-learn {then}.",
        )


def _read_table(path: Path, columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
    try:
        table = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _bad(path, "damaged", "a file that is not readable as Parquet") from error
    if dict(table.schema) != dict(columns):
        found = f"the columns {', '.join(table.columns)}"
        raise _bad(path, "wrong_columns", found, expected=f"the columns {', '.join(columns)} with their types")
    return table


def _read_scores(path: Path, *, num_levels: int) -> dict[str, Stream]:
    table = _read_table(path, _SCORES_COLUMNS)
    whole = (
        table.drop("owner", "start_time").null_count().sum_horizontal().sum() == 0
        and (table["raw_log"].list.len() == num_levels).all()
    )
    sorted_each = all(table.filter(pl.col("at") == at)["end_time"].is_sorted() for at in INSTANTS)
    if not whole or not sorted_each:
        raise _bad(path, "damaged", "scores with gaps or out of order")
    return {at: Stream.of_table(table.filter(pl.col("at") == at), num_levels=num_levels) for at in INSTANTS}


def _bad(
    path: Path, kind: str, found: str, *, expected: str = "a model written by hindcast", fix: str = _FIX
) -> HindcastError:
    return BadFileError(path, kind=kind, found=found, expected=expected, fix=fix)
