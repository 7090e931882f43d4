"""Stored models: what was changed, cut off, forged or written by a newer program is refused in one sentence."""

from __future__ import annotations

import hashlib
import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import skops.io
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

from analysis.errors import BadFileError, SchemaVersionError, UsageError
from predictors import PREDICTORS, DurationPredictor, load_model, make_predictor, predictor, save_model
from predictors.skops_file import TRUSTED
from predictors.store import _checksum

START = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def jobs() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    return pl.DataFrame(
        {
            "submit_time": [START + timedelta(minutes=7 * i) for i in range(300)],
            "duration_s": np.exp(rng.normal(5, 1, 300)),
            "num_gpus": rng.choice([1.0, 2.0, 8.0], 300),
            "vc": rng.choice(["a", "b"], 300),
        }
    )


@pytest.fixture(scope="module")
def stored(jobs, tmp_path_factory) -> Path:
    return save_model(make_predictor("boosted", num_trees=10).fit(jobs), tmp_path_factory.mktemp("s") / "model")


@pytest.fixture
def folder(stored, tmp_path) -> Path:
    return Path(shutil.copytree(stored, tmp_path / "model"))


def forge(folder: Path, **changes: object) -> None:
    """Change the manifest as someone who knows its checksum would."""
    path = folder / "manifest.json"
    manifest = {**json.loads(path.read_text()), **changes}
    manifest["checksum"] = _checksum(manifest)
    path.write_text(json.dumps(manifest))


def forge_file(folder: Path, name: str, content: bytes) -> None:
    """Replace a file and its checksum in the manifest."""
    (folder / name).write_bytes(content)
    files = json.loads((folder / "manifest.json").read_text())["files"]
    files[name] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
    forge(folder, files=files)


def refused(folder: Path, kind: str, match: str) -> None:
    with pytest.raises(BadFileError, match=match) as error:
        load_model(folder)
    assert error.value.kind == kind
    assert "\n" not in str(error.value)


def test_the_manifest_says_what_the_model_is(stored):
    manifest = json.loads((stored / "manifest.json").read_text())
    assert (manifest["format"], manifest["format_version"], manifest["predictor"]) == ("hindcast-model", 2, "boosted")
    assert manifest["time_zone"] == "UTC"
    assert "vc__median_20" in manifest["features"]
    assert manifest["fitted"]["window_"] == ["2024-01-01 00:00:00+00:00", "2024-01-02 10:53:00+00:00"]
    assert {"scikit-learn", "skops", "numpy", "polars"} <= set(manifest["versions"])
    for name in ("model.skops", "history.parquet", "scores.parquet"):
        assert manifest["files"][name]["sha256"] == hashlib.sha256((stored / name).read_bytes()).hexdigest()


def test_skops_trusts_exactly_what_it_must(stored):
    assert tuple(skops.io.get_untrusted_types(file=stored / "model.skops")) == TRUSTED


def test_a_missing_folder_a_file_and_another_folder(tmp_path):
    refused(tmp_path / "nowhere", "missing", r"nowhere: found nothing there; expected a model.*hindcast train")
    (tmp_path / "file").write_text("x")
    refused(tmp_path / "file", "not_a_model", "found a file")
    refused(tmp_path, "not_a_model", "found a folder without manifest.json")
    (tmp_path / "manifest.json").write_text('{"format": "something-else"}')
    refused(tmp_path, "not_a_model", "JSON that is not a model's manifest")


@pytest.mark.parametrize("name", ["model.skops", "history.parquet", "scores.parquet"])
def test_a_changed_truncated_or_missing_file(folder, name):
    content = (folder / name).read_bytes()
    middle = len(content) // 2
    (folder / name).write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    refused(folder, "tampered", rf"{name} was changed after it was written")
    (folder / name).write_bytes(content[:middle])
    refused(folder, "tampered", rf"{name} is truncated \({middle} of {len(content)} bytes\)")
    (folder / name).unlink()
    refused(folder, "missing", rf"{name} is missing")


def test_all_that_is_wrong_is_told_at_once(folder):
    (folder / "model.skops").unlink()
    (folder / "history.parquet").write_bytes(b"")
    refused(
        folder, "tampered", r"history.parquet is truncated.*model.skops is missing|model.skops is missing.*truncated"
    )


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_truncated_manifest(folder, share):
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(text[: int(share * len(text))])
    refused(folder, "damaged", "text that is not JSON")


def test_a_changed_manifest(folder):
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace('"fallback_s_": 1', '"fallback_s_": 2'))
    refused(folder, "tampered", "a manifest that was changed after it was written")


def test_a_newer_version(folder):
    forge(folder, format_version=3)
    with pytest.raises(SchemaVersionError, match="found schema version 3; expected at most 2.*pip install -U"):
        load_model(folder)


def test_an_older_version(folder):
    forge(folder, format_version=1)
    refused(folder, "old_format", "a model of format 1.*expected format 2.*Fit the model again")


@pytest.mark.parametrize(
    "name", ["../secret.txt", "/etc/passwd", "a/b.txt", "..", "C:\\x.txt", ".hidden", "x.skops/.."]
)
def test_files_outside_of_the_folder(folder, name):
    files = json.loads((folder / "manifest.json").read_text())["files"]
    forge(folder, files={**files, name: {"sha256": "0" * 64, "size": 1}})
    refused(folder, "path_escape", "files outside of the folder")


def test_a_link_out_of_the_folder(folder, tmp_path):
    shutil.move(folder / "model.skops", tmp_path / "elsewhere.skops")
    (folder / "model.skops").symlink_to(tmp_path / "elsewhere.skops")
    refused(folder, "path_escape", "model.skops")


def test_a_file_that_the_manifest_does_not_vouch_for_is_not_read(folder):
    files = json.loads((folder / "manifest.json").read_text())["files"]
    forge(folder, files={"history.parquet": files["history.parquet"]})
    refused(folder, "damaged", "found the files history.parquet")


def test_types_that_are_no_part_of_a_boosted_model(folder):
    class Trap(HistGradientBoostingRegressor):
        pass

    forge_file(folder, "model.skops", skops.io.dumps(Trap()))
    refused(folder, "unexpected_type", "types that are not part of such a model.*Trap")
    forge_file(folder, "model.skops", skops.io.dumps(LinearRegression()))
    refused(folder, "unexpected_type", "found a LinearRegression")
    forge_file(folder, "model.skops", b"PK\x03\x04 but no archive")
    refused(folder, "damaged", "a file that skops cannot read")


@pytest.mark.parametrize(
    ("field", "value"), [("left", 10_000), ("right", 0), ("feature_idx", 500), ("feature_idx", -1), ("value", np.nan)]
)
def test_trees_that_point_outside_of_themselves(folder, field, value):
    """scikit-learn follows these numbers without a check: this file would read foreign memory or run for ever."""
    model = skops.io.load(folder / "model.skops", trusted=list(TRUSTED))
    model._predictors[0][0].nodes[field][0] = value
    forge_file(folder, "model.skops", skops.io.dumps(model))
    refused(folder, "damaged", "trees whose nodes point outside")


def test_a_model_of_other_features(folder):
    matrix = np.random.default_rng(0).normal(size=(100, 2))
    other = HistGradientBoostingRegressor(max_iter=2).fit(matrix, matrix[:, 0])
    forge_file(folder, "model.skops", skops.io.dumps(other))
    refused(folder, "wrong_columns", "a model of 2 features, not")


def test_another_release_of_scikit_learn(folder):
    versions = json.loads((folder / "manifest.json").read_text())["versions"]
    forge(folder, versions={**versions, "scikit-learn": "1.2.3"})
    refused(
        folder, "other_library", "fitted with scikit-learn 1.2.3; expected scikit-learn .*install scikit-learn 1.2.3"
    )


@pytest.mark.parametrize(
    ("changes", "kind", "match"),
    [
        ({"predictor": "oracle"}, "unknown_predictor", "no predictor is named 'oracle'"),
        ({"params": {"depth": 3}}, "unknown_predictor", "no parameter of predictor 'boosted'"),
        ({"state": {}}, "damaged", "parts do not fit"),
        (
            {"state": {"features": ["end_time"], "categories": {}, "has_model": True}},
            "damaged",
            "'end_time' is known only",
        ),
        ({"fitted": {}}, "damaged", "parts do not fit"),
        ({"files": {}}, "damaged", "a manifest without history.parquet"),
        ({"format_version": "one"}, "damaged", "format_version 'one'"),
    ],
)
def test_manifests_whose_parts_do_not_fit(folder, changes, kind, match):
    forge(folder, **changes)
    refused(folder, kind, match)


def test_a_history_of_other_columns(folder):
    pl.DataFrame({"a": [1]}).write_parquet(folder / "other.parquet")
    forge_file(folder, "history.parquet", (folder / "other.parquet").read_bytes())
    refused(folder, "wrong_columns", "found the columns a; expected the columns job_id, submit_time")
    forge_file(folder, "history.parquet", b"PAR1 nothing PAR1")
    refused(folder, "damaged", "not readable as Parquet")


@pytest.mark.parametrize("change", ["gap", "levels", "order"])
def test_scores_with_gaps_or_out_of_order(folder, change):
    scores = pl.read_parquet(folder / "scores.parquet")
    assert scores.height > 20
    changes = {
        "gap": scores.with_columns(true_log=pl.lit(None, dtype=pl.Float64)),
        "levels": scores.with_columns(raw_log=pl.lit([1.0, 2.0])),
        "order": scores.reverse(),
    }
    changes[change].write_parquet(folder / "other.parquet")
    forge_file(folder, "scores.parquet", (folder / "other.parquet").read_bytes())
    refused(folder, "damaged", "scores with gaps or out of order")


def test_lightgbm_text_that_is_none(jobs, tmp_path):
    pytest.importorskip("lightgbm")
    folder = save_model(make_predictor("boosted_lightgbm", num_trees=5).fit(jobs), tmp_path / "model")
    assert (folder / "model.txt").read_text().startswith("tree\nversion=")
    forge_file(folder, "model.txt", b"no trees here")
    refused(folder, "damaged", "text that LightGBM cannot read")


def test_a_model_is_replaced_as_a_whole_and_nothing_else_ever_is(folder, jobs, tmp_path):
    save_model(make_predictor("vc_median").fit(jobs), folder)
    assert sorted(path.name for path in folder.iterdir()) == ["history.parquet", "manifest.json", "scores.parquet"]
    assert load_model(folder).name == "vc_median"
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("precious")
    with pytest.raises(UsageError, match="found something that hindcast did not write"):
        save_model(make_predictor("vc_median").fit(jobs), tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "precious"


def test_what_cannot_be_stored_leaves_nothing_behind(jobs, tmp_path):
    with pytest.raises(NotFittedError):
        save_model(make_predictor("vc_median"), tmp_path / "model")
    model = make_predictor("boosted", num_trees=2).fit(jobs).set_params(time_zone=START)
    with pytest.raises(UsageError, match="cannot be written as JSON"):
        save_model(model, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_a_predictor_of_the_user_is_stored_too(jobs, tmp_path, monkeypatch):
    monkeypatch.setattr("predictors.registry.PREDICTORS", dict(PREDICTORS))

    @predictor("twice_the_median")
    class Twice(DurationPredictor):
        """Twice the training median."""

        def _fit(self, known, censored):  # noqa: ARG002
            self.factor_ = 2.0

        def _predict(self, jobs, past):  # noqa: ARG002
            return np.full(jobs.height, self.factor_ * self.fallback_s_)

        def _state(self):
            return {"factor": self.factor_}

        def _restore(self, state):
            self.factor_ = float(state["factor"])

    model = make_predictor("twice_the_median").fit(jobs)
    loaded = load_model(save_model(model, tmp_path / "model"))
    assert np.array_equal(loaded.predict(jobs), model.predict(jobs))
