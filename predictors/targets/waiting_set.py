"""What can be seen of a queue at a job's submission: who waits and runs, with how much work, how long waits were."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from predictors.features import feature_table
from predictors.history import PAST, past_features
from predictors.jobs_table import microseconds
from predictors.targets.waits import log_of

__all__ = ["QUEUE_FEATURES", "RECENT", "WAIT_FEATURES", "queue_features", "recent_waits"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
US_PER_S: Final = 1e6
HOUR_US: Final = 3_600_000_000
#: Plain numbers of the job, and the history of waits by key.
WAIT_FEATURES: Final = (
    *("num_gpus", "num_tasks", "num_cpus", "mem_gib", "time_limit_s", "hour", "weekday"),
    *(
        f"{key}__{stat}"
        for key in ("user", "user_size", "vc", "vc_size", "all")
        for stat in ("last", "mean_5", "median_20", "max_20", "since_last_s")
    ),
    "user__count",
)
_QUEUE_STATS: Final = (
    *("pending", "pending_gpus", "pending_cpus", "pending_gpu_s", "pending_cpu_s"),
    *("running", "running_gpus", "running_cpus", "elapsed_mean_s", "since_submit_s"),
)
#: Who waits and runs: everybody, the VC's, the user's; work of those that wait as it was predicted when they came.
QUEUE_FEATURES: Final = (
    *(f"{key}__{stat}" for key in ("all", "vc", "user") for stat in _QUEUE_STATS),
    "batch__position",
)
#: Of all jobs: mean wait of those started in the last hour and how many they were, how long those waiting have waited.
RECENT: Final = ("recent_wait_mean_s", "recent_starts", "waiting_age_mean_s")


def queue_features(waits: pl.DataFrame, past: pl.DataFrame) -> pl.DataFrame:
    """All features of the submissions of a view of waits.

    Parameters
    ----------
    waits : DataFrame
        From ``waits_of``: only what is known at the submission is read.
    past : DataFrame
        From ``past_of_waits``. What lies at or after a submission does not count for it, but submissions at the very
        instant that come before it in the order (submission, id).

    Returns
    -------
    DataFrame of float64, same length and order
        ``WAIT_FEATURES``, ``QUEUE_FEATURES``, ``RECENT``; null where not known.
    """
    asked = log_of(waits)
    of_waits = feature_table(asked, past=past, names=WAIT_FEATURES, failures="keep")
    log = past.with_columns(
        pl.col(name).alias(name.removeprefix("run_")) for name in past.columns if name[:4] == "run_"
    )
    flight = past_features(asked, past=log.select(*PAST), names=QUEUE_FEATURES, at="submission")
    return pl.concat([of_waits, flight, recent_waits(waits["submit_time"], past)], how="horizontal")


def recent_waits(at: pl.Series, past: pl.DataFrame) -> pl.DataFrame:
    """How long jobs waited that started in the hour before each instant, and how long those have that wait then.

    Returns
    -------
    DataFrame of float64, a row per instant
        ``RECENT``. The means are null where no job started, or waits; all is null where the instant is.
    """
    now, known = microseconds(at)
    started = past.filter(pl.col("end_time").is_not_null()).sort("end_time", maintain_order=True)
    start_us = started["end_time"].dt.epoch("us").to_numpy()
    total = np.concatenate([[0.0], np.cumsum(started["duration_s"].to_numpy())])
    stop, begin = (np.searchsorted(start_us, each) for each in (now, now - HOUR_US))
    num = (stop - begin).astype(np.float64)
    mean = np.divide(total[stop] - total[begin], num, out=np.full(len(now), np.nan), where=num > 0)
    found = np.column_stack([np.maximum(mean, 0.0), num, _ages(now, past)])
    found[~known] = np.nan
    return pl.DataFrame(found, schema=dict.fromkeys(RECENT, pl.Float64)).fill_nan(None)


def _ages(now: Ints, past: pl.DataFrame) -> Floats:
    """Mean time that jobs submitted before each instant, and neither started nor gone by then, have waited [s]."""
    came_us, has_come = microseconds(past["submit_time"])
    gone_us, is_gone = microseconds(past.select(pl.min_horizontal("end_time", "run_leave_time")).to_series())
    sums, counts = np.zeros(len(now)), np.zeros(len(now))
    base = int(came_us[has_come].min(initial=2**62))
    for when, sign in ((came_us, 1), (gone_us, -1)):
        rows = has_come if sign == 1 else has_come & is_gone
        order = np.argsort(when[rows], kind="stable")
        # Whole microseconds: what came and went leaves nothing behind.
        total = np.concatenate([[0], np.cumsum((came_us[rows] - base)[order])])
        place = np.searchsorted(when[rows][order], now)
        counts += sign * place
        sums += sign * total[place].astype(np.float64)
    age = (now - base) - np.divide(sums, counts, out=np.zeros(len(now)), where=counts > 0)
    return np.where(counts > 0, age / US_PER_S, np.nan)
