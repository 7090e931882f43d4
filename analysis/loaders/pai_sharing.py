"""Which PAI workers shared a GPU: on the same machine, on the same device, at the same time."""

from __future__ import annotations

import polars as pl

__all__ = ["sharing_pairs"]


def sharing_pairs(workers: pl.DataFrame) -> pl.DataFrame:
    """Pairs of workers that had the same device of the same machine at the same time.

    Parameters
    ----------
    workers : DataFrame, one row per worker
        The jobs table of the loader "pai" at level "instance" with sensors: ``job_id``, ``start_time``, ``end_time``
        (null = still running) and, in ``extra``, ``machine`` and ``gpu_name``; without a device or a start a worker
        shares with nobody. A worker whose sensor names several devices is known on one of them only.

    Returns
    -------
    DataFrame
        ``job_id``, ``other_id``, ``machine``, ``gpu_name``; each pair once, sorted. Two that only touch (one ends when
        the other starts) are no pair.
    """
    place = ["machine", "gpu_name"]
    uses = workers.select("job_id", "start_time", "end_time", pl.col("extra").struct.field(place))
    uses = uses.drop_nulls([*place, "start_time"])
    others = uses.rename({"job_id": "other_id", "start_time": "other_start", "end_time": "other_end"})
    pairs = uses.join(others, on=place).filter(pl.col("job_id") < pl.col("other_id"))
    starts_in_time = (pl.col("start_time") < pl.col("other_end")).fill_null(value=True)
    is_still_there = (pl.col("other_start") < pl.col("end_time")).fill_null(value=True)
    return pairs.filter(starts_in_time & is_still_there).select("job_id", "other_id", *place).sort(pl.all())
