"""A fitted histogram gradient boosting in a ``.skops`` file: the same model gives the same bytes; a file is checked.

skops stores no pickle: loading runs no code of the file. But scikit-learn follows the node numbers of its trees without
looking whether they exist, so a forged file could make it read foreign memory; hence every tree is checked here.
"""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path
from typing import Any, Final

import numpy as np
import skops.io
from sklearn.ensemble import HistGradientBoostingRegressor
from skops.io.exceptions import UntrustedTypesFoundException

from analysis.errors import BadFileError

__all__ = ["TRUSTED", "read_skops", "write_skops"]

#: All that skops 0.16 does not trust by itself in a HistGradientBoostingRegressor (scikit-learn 1.9) without
#: categories; anything else in a file is refused.
TRUSTED: Final = ("sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",)
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_FIX: Final = "Fit the model again with 'hindcast train'."


def write_skops(model: HistGradientBoostingRegressor, path: Path) -> None:
    """Write a fitted model; the same model gives the same bytes."""
    path.write_bytes(_canonical(skops.io.dumps(model)))


def _canonical(raw: bytes) -> bytes:
    """Number objects in order of appearance, where skops takes memory addresses, and drop the time of writing."""
    source = zipfile.ZipFile(io.BytesIO(raw))
    text = source.read("schema.json").decode("utf-8")
    numbers: dict[str, str] = {}
    for found in re.finditer(r'"__id__": (\d+)|"file": "(\d+)\.npy"', text):
        numbers.setdefault(found[1] or found[2], str(len(numbers)))

    def renumber(found: re.Match[str]) -> str:
        return f"{found[1]}{numbers[found[2]]}"

    text = re.sub(r'("__id__": |"file": ")(\d+)', renumber, text)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as target:
        entries = [
            (f"{numbers[n.removesuffix('.npy')]}.npy", source.read(n)) for n in source.namelist() if n != "schema.json"
        ]
        entries.sort(key=lambda entry: int(entry[0].removesuffix(".npy")))
        for name, content in [*entries, ("schema.json", text.encode("utf-8"))]:
            info = zipfile.ZipInfo(name, date_time=_EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            target.writestr(info, content)
    return out.getvalue()


def read_skops(path: Path, *, num_features: int) -> HistGradientBoostingRegressor:
    """Read a model that ``write_skops`` wrote.

    Parameters
    ----------
    path : Path
        The file.
    num_features : int
        Columns of the matrix that the model must take.

    Raises
    ------
    BadFileError
        If it is no such file, holds a type that is not in ``TRUSTED``, or a tree that points outside of itself.
    """
    try:
        model = skops.io.load(path, trusted=list(TRUSTED))
    except UntrustedTypesFoundException as error:
        raise _bad(
            path, "unexpected_type", f"types that are not part of such a model ({_first_line(error)})"
        ) from error
    except (
        zipfile.BadZipFile,
        KeyError,
        ValueError,
        TypeError,
        AttributeError,
        OSError,
        EOFError,
        ImportError,
    ) as error:
        raise _bad(
            path, "damaged", f"a file that skops cannot read ({type(error).__name__}: {_first_line(error)})"
        ) from error
    if type(model) is not HistGradientBoostingRegressor:
        raise _bad(path, "unexpected_type", f"a {type(model).__name__}")
    if getattr(model, "n_features_in_", None) != num_features:
        raise _bad(
            path, "wrong_columns", f"a model of {getattr(model, 'n_features_in_', 'no')} features, not {num_features}"
        )
    if not _is_sound(model, num_features):
        raise _bad(path, "damaged", "trees whose nodes point outside of the tree or its features")
    return model


def _is_sound(model: Any, num_features: int) -> bool:
    """Whether every tree ends in leaves and reads only features that exist."""
    trees = [tree for stage in getattr(model, "_predictors", []) for tree in stage]
    return bool(trees) and all(_is_sound_tree(getattr(tree, "nodes", None), num_features) for tree in trees)


def _is_sound_tree(nodes: Any, num_features: int) -> bool:
    if (
        not isinstance(nodes, np.ndarray)
        or nodes.ndim != 1
        or not len(nodes)
        or "left" not in (nodes.dtype.names or ())
    ):
        return False
    inner = nodes[nodes["is_leaf"] == 0]
    place = np.flatnonzero(nodes["is_leaf"] == 0)
    children = np.stack([inner["left"], inner["right"]]).astype(np.int64)
    # A child comes after its parent: so no walk can go round.
    falls = (children > place).all() and (children < len(nodes)).all()
    in_range = ((inner["feature_idx"] >= 0) & (inner["feature_idx"] < num_features)).all()
    return bool(falls and in_range and not nodes["is_categorical"].any() and np.isfinite(nodes["value"]).all())


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0][:160]


def _bad(path: Path, kind: str, found: str) -> BadFileError:
    return BadFileError(
        path, kind=kind, found=found, expected="the boosted model that its manifest describes", fix=_FIX
    )
