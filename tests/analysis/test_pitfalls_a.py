"""Cases of part A that cross several parts of the road."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl

from analysis import schema
from analysis.characterize import characterize
from analysis.replay import Cluster, replay
from analysis.trace import Trace, TraceMeta
from tests.jobs import make_jobs

T0 = datetime(2024, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_a9_a_tenant_without_capacity_is_refused_by_name_and_too_much_use_is_shown_not_clipped():
    quotas = pl.DataFrame(
        [{"vc": "vcA", "time": T0, "num_gpus": 8.0}, {"vc": "vcB", "time": T0, "num_gpus": 0.0}],
        schema=schema.CAPACITY,
    )
    ran = {"submit_time": T0, "start_time": T0, "end_time": T0 + HOUR, "duration_s": 3600.0, "vc": "vcA"}
    jobs = make_jobs(
        [
            {"job_id": "j1", "num_gpus": 4.0, "submit_time": T0, "duration_s": 60.0, "vc": "vcB"},
            {"job_id": "j2", "num_gpus": 8.0, **ran},
            {"job_id": "j3", "num_gpus": 4.0, **ran},
        ]
    )
    trace = Trace(jobs, meta=TraceMeta(name="a9"), tables={"capacity": quotas})
    schedule = replay(trace.jobs, cluster=Cluster.from_trace(trace), policy="fifo").schedule
    refused = schedule.filter(pl.col("state") == "rejected")
    assert refused.select("job_id", "reason").rows() == [("j1", "exceeds_capacity")]
    assert schedule.filter(pl.col("state") == "finished").height == 2
    summary = characterize(trace, names=("running_gpus_summary",))["running_gpus_summary"]
    assert summary["peak_gpus"].item() == 12
    assert summary["peak_allocation"].item() == 1.5
