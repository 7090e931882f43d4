"""What the losses of experts have come to, as a Parquet file of the stored model."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from analysis.errors import BadFileError
from predictors.mixing import KEEP, Experience

__all__ = ["read_experience", "write_experience"]

_FIX: Final = "Fit the model again with 'hindcast train'."


def write_experience(experience: Experience, path: Path) -> None:
    """Write a row for each level and key, levels in order, within them keys in order."""
    num_experts = experience.total.shape[2]
    columns = {
        "weight": experience.weight.ravel(),
        "last": experience.last.ravel(),
        "run": experience.run.ravel(),
        **{_name(expert): experience.total[:, :, expert].ravel() for expert in range(num_experts)},
    }
    pl.DataFrame(columns, schema=_schema(num_experts)).write_parquet(path, compression="zstd", statistics=False)


def _name(expert: int) -> str:
    return f"total_{expert}"


def _schema(num_experts: int) -> dict[str, pl.DataType]:
    told = {_name(expert): pl.Float64() for expert in range(num_experts)}
    return {"weight": pl.Float64(), "last": pl.Int64(), "run": pl.Float64(), **told}


def read_experience(path: Path, *, num_experts: int) -> Experience:
    """Read what ``write_experience`` wrote.

    Raises
    ------
    BadFileError
        If it is no such file, of another number of experts, or holds what no losses come to.
    """
    expected = _schema(num_experts)
    try:
        table = pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _bad(path, "damaged", "a file that is not readable as Parquet") from error
    if dict(table.schema) != expected:
        raise _bad(path, "wrong_columns", f"the columns {', '.join(table.columns)}")
    numbers = table.select(pl.exclude("last"))
    sound = numbers.select((pl.all().is_finite() & (pl.all() >= 0)).all()).row(0)
    if table.null_count().sum_horizontal().sum() or table.height % len(KEEP) or not all(sound):
        raise _bad(path, "damaged", "losses with gaps or out of range")
    shape = (len(KEEP), table.height // len(KEEP))
    totals = [table[_name(expert)].to_numpy().reshape(shape) for expert in range(num_experts)]
    weight, last, run = (table[name].to_numpy().reshape(shape).copy() for name in ("weight", "last", "run"))
    return Experience(np.stack(totals, axis=2), weight, last, run)


def _bad(path: Path, kind: str, found: str) -> BadFileError:
    return BadFileError(path, kind=kind, found=found, expected="losses as hindcast stores them", fix=_FIX)
