"""Jobs of an SWF log that ran in several pieces (status 2, 3, 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import polars as pl

from analysis import schema
from analysis.loaders.rows import LINE
from analysis.loaders.zones import to_utc

__all__ = ["Folded", "fold_pieces"]

PIECES: Final = ("2", "3", "4")
#: What the last piece says of its job; after a 2 more should have come.
OUTCOMES: Final = {"3": "1", "4": "0", "2": None}


@dataclass(frozen=True)
class Folded:
    """One row per job, and the pieces.

    Attributes
    ----------
    jobs : DataFrame
        The cells, with ``span_time`` [s] from first start to last end, ``num_pieces`` (null if it was no such job) and
        ``is_whole`` (false: pieces are missing at its end).
    pieces : DataFrame
        The cells of the pieces.
    num_merged : int
        Pieces that were folded into the row of another line.
    """

    jobs: pl.DataFrame
    pieces: pl.DataFrame
    num_merged: int

    def attempts(self, *, start_s: float, processors_as_gpus: bool) -> pl.DataFrame:
        """The pieces as the attempts table, their times shifted by ``start_s`` [s]."""
        start = pl.col("submit_time") + pl.col("wait_time") + start_s
        table = self.pieces.sort("job_id", LINE).select(
            "job_id",
            attempt=pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("job_id"),
            start_time=start,
            end_time=start + pl.col("run_time"),
            nodes=pl.lit(None, dtype=pl.List(pl.String)),
            gpus=pl.col("allocated_processors") if processors_as_gpus else pl.lit(0.0),
        )
        times = [to_utc(table[name], zone="UTC") for name in ("start_time", "end_time")]
        return table.with_columns(times).select(*schema.ATTEMPTS)


def fold_pieces(cells: pl.DataFrame) -> Folded:
    """Put jobs together that are written as several lines.

    Parameters
    ----------
    cells : DataFrame, one row per line
        ``job_id``, ``submit_time``, ``wait_time``, ``run_time`` [s], ``status_raw`` (the code), ``_line``,
        ``_problem``, and others.

    Returns
    -------
    Folded
        A job's own line counts where there is one. Else submission, wait and all else are those of its first piece,
        its run time is the sum, and its outcome the last piece's.
    """
    usable = pl.col("_problem").is_null() & pl.col("job_id").is_not_null()
    is_piece = (pl.col("status_raw").is_in(PIECES) & usable).fill_null(value=False)
    pieces = cells.filter(is_piece)
    whole = cells.filter(~is_piece).with_columns(
        span_time="run_time", is_whole=pl.lit(value=True), num_pieces=pl.lit(None, dtype=pl.Int64)
    )
    if not pieces.height:
        return Folded(whole, pieces, 0)
    counts = pieces.group_by("job_id").agg(pl.len().cast(pl.Int64).alias("_pieces"))
    whole = whole.join(counts, on="job_id", how="left", maintain_order="left").with_columns(num_pieces="_pieces")
    alone = pieces.join(whole.filter(usable).select("job_id"), on="job_id", how="anti").sort(LINE)
    end = pl.col("submit_time") + pl.col("wait_time") + pl.col("run_time")
    start = pl.col("submit_time") + pl.col("wait_time")
    others = [name for name in cells.columns if name not in ("job_id", "run_time", "status_raw")]
    built = alone.group_by("job_id", maintain_order=True).agg(
        pl.col(others).first(),
        run_time=pl.when(pl.col("run_time").is_not_null().all()).then(pl.col("run_time").sum()),
        span_time=end.max() - start.first(),
        is_whole=pl.col("status_raw").last() != "2",
        num_pieces=pl.len().cast(pl.Int64),
        status_raw=pl.col("status_raw").last().replace_strict(OUTCOMES, return_dtype=pl.String),
    )
    jobs = pl.concat([whole.drop("_pieces"), built.select(whole.drop("_pieces").columns)])
    return Folded(jobs, pieces, pieces.height - built.height)
