"""Small random logs with many equal times, nulls and odd ids, for the tests of history and in-flight features."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
from hypothesis import strategies as st

START = datetime(2024, 1, 1, 23, 59, 50, tzinfo=UTC)
TIME = pl.Datetime("us", "UTC")
NAMES = ("train1", "train22", "Trains", "traim_7", "eval", "Évalué")


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


#: Times from the start of the log [s]; every choice is often the same as that of another job.
job = st.fixed_dictionaries(
    {
        "submit": st.integers(0, 12) | st.sampled_from([40, 70, 100]) | st.none(),
        "wait": st.none() | st.integers(-1, 6),
        "run": st.none() | st.integers(0, 8) | st.floats(0.1, 90, allow_nan=False),
        "user": st.none() | st.sampled_from("ab"),
        "vc": st.none() | st.sampled_from("vw"),
        "num_gpus": st.none() | st.sampled_from([0.0, 0.5, 1.0, 2.0]),
        "num_cpus": st.none() | st.sampled_from([1.0, 2.0]),
        "job_name": st.none() | st.sampled_from(NAMES),
        "group": st.none() | st.sampled_from("gh"),
        "time_limit_s": st.none() | st.sampled_from([3.0, 90.0]),
        "status": st.none() | st.sampled_from(["completed", "failed", "cancelled", "node_fail", "timeout", "unknown"]),
        "censoring": st.sampled_from(["none"] * 5 + ["right", "left", "never_started"]),
    }
)
logs = st.lists(job, min_size=1, max_size=25)
FLOATS = ("num_gpus", "num_cpus", "time_limit_s")
TEXTS = ("user", "vc", "job_name", "group", "status", "censoring")


def as_log(jobs: list[dict], *, prefix: str = "") -> pl.DataFrame:
    """A jobs table; a third of the ids are text if ``prefix`` is given."""
    submit = [j["submit"] for j in jobs]
    came = [0 if s is None else s for s in submit]
    start = [None if j["wait"] is None else at(c + j["wait"]) for j, c in zip(jobs, came, strict=True)]
    ends = [None if j["run"] is None else at(c + (j["wait"] or 0) + j["run"]) for j, c in zip(jobs, came, strict=True)]
    return pl.DataFrame(
        {
            "job_id": [f"{prefix}{i}" if prefix and i % 3 == 0 else str(i) for i in range(len(jobs))],
            "submit_time": pl.Series([None if s is None else at(s) for s in submit], dtype=TIME),
            "start_time": pl.Series(start, dtype=TIME),
            "end_time": pl.Series(ends, dtype=TIME),
            "duration_s": pl.Series([j["run"] for j in jobs], dtype=pl.Float64),
            **{name: pl.Series([j[name] for j in jobs], dtype=pl.Float64) for name in FLOATS},
            **{name: pl.Series([j[name] for j in jobs], dtype=pl.String) for name in TEXTS},
        }
    )
