"""The log's own schedule, and how like it a simulated one is."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from analysis import Cluster, schema, synthesize
from analysis.cli import main
from analysis.errors import SchemaError, UsageError
from analysis.loaders import load
from analysis.replay import fidelity, recorded, replay
from analysis.replay.result import SCHEDULE
from analysis.trace import Trace, TraceMeta

T0 = datetime(2024, 1, 1, tzinfo=UTC)
ONE_NODE = Cluster.uniform(num_nodes=1, num_gpus=4)


def log(*rows):
    """Jobs of (submit, start, end, GPUs) in seconds; a null start or end is not known."""
    return pl.DataFrame(
        [
            {
                "job_id": str(number),
                "submit_time": T0 + timedelta(seconds=submit),
                "start_time": None if start is None else T0 + timedelta(seconds=start),
                "end_time": None if end is None else T0 + timedelta(seconds=end),
                "num_gpus": float(gpus),
                "duration_s": None if start is None or end is None else float(end - start),
                "queueing_delay_s": None if start is None else float(start - submit),
            }
            for number, (submit, start, end, gpus) in enumerate(rows)
        ],
        schema={name: schema.JOBS[name] for name in ("job_id", "submit_time", "start_time", "end_time", "num_gpus")}
        | {"duration_s": pl.Float64(), "queueing_delay_s": pl.Float64()},
    )


def test_starts_and_ends_are_the_logs_own():
    result = recorded(log((0, 0, 10, 4), (0, 30, 40, 2), (5, 30, 35, 2), (0, 0, 1, 0)), cluster=ONE_NODE)
    assert result.schedule.schema == pl.Schema(SCHEDULE)
    assert result.schedule["start_s"].to_list() == [0.0, 30.0, 30.0]
    metrics = result.metrics()
    assert metrics["mean_queueing_delay_s"] == pytest.approx((0 + 30 + 25) / 3)
    assert (metrics["max_queue_length"], metrics["num_cpu_jobs_left_out"]) == (2, 1)
    # 4 GPUs for 10 s, 2 for 10 s, 2 for 5 s of 4 GPUs for 40 s.
    assert metrics["gpu_allocation"] == pytest.approx((40 + 20 + 10) / 160)


def test_jobs_without_a_start_or_an_end_are_told_apart():
    table = log((0, None, None, 1), (0, 5, None, 1), (0, 5, None, 1)).with_columns(
        duration_s=pl.Series([None, 20.0, None])
    )
    result = recorded(table, cluster=ONE_NODE)
    assert result.schedule["state"].to_list() == ["rejected", "finished", "unfinished"]
    assert result.schedule["reason"].to_list() == ["unknown_start", "right_censored", "right_censored"]
    assert result.schedule["end_s"].to_list() == [None, 25.0, None]


def test_nodes_come_from_the_attempts():
    attempts = pl.DataFrame({"job_id": ["0", "0", "1"], "attempt": [1, 2, 1], "nodes": [["a"], ["b", "c"], []]})
    result = recorded(log((0, 0, 10, 4), (0, 30, 40, 2)), cluster=ONE_NODE, attempts=attempts)
    assert result.schedule["nodes"].to_list() == [["b", "c"], []]


def test_a_missing_column_is_named():
    with pytest.raises(SchemaError, match="start_time"):
        recorded(log((0, 0, 10, 4)).drop("start_time"), cluster=ONE_NODE)


def test_a_replay_of_what_the_log_did_agrees_with_it_fully():
    """A log that FIFO itself scheduled: every wait is alike, in every group."""
    jobs = synthesize(num_jobs=400, seed=5).jobs.filter(pl.col("num_gpus") <= 4)
    done = replay(jobs, cluster=ONE_NODE, policy="fifo")
    times = done.schedule.select("job_id", "start_time", "end_time")
    ran = jobs.drop("start_time", "end_time", "queueing_delay_s").join(times, on="job_id", how="left")
    ran = ran.with_columns(
        queueing_delay_s=(pl.col("start_time") - pl.col("submit_time")).dt.total_microseconds() / 1e6
    )
    own = recorded(ran, cluster=ONE_NODE).metrics()
    assert own["mean_queueing_delay_s"] == pytest.approx(done.metrics()["mean_queueing_delay_s"])
    table = fidelity(ran, {"fifo": done, "sjf": replay(jobs, cluster=ONE_NODE, policy="sjf")})
    fifo, sjf = table.filter(pl.col("policy") == "fifo"), table.filter(pl.col("policy") == "sjf")
    assert fifo["within_2x_share"].to_list() == [1.0] * fifo.height
    assert fifo["ks_distance"].max() == 0
    assert sjf.filter(pl.col("group") == "all")["ks_distance"].item() > 0


def test_fidelity_counts_what_is_worked_out_by_hand():
    table = log((0, 0, 10, 4), (0, 100, 110, 4), (0, 400, 410, 4))
    row = fidelity(table, {"fifo": replay(table, cluster=ONE_NODE, policy="fifo")}).row(0, named=True)
    # Simulated waits: 0, 10, 20 s; recorded: 0, 100, 400 s.
    assert (row["recorded_mean_s"], row["simulated_mean_s"]) == (pytest.approx(500 / 3), 10)
    assert row["mean_ratio"] == pytest.approx(0.06)
    assert row["rank_correlation"] == pytest.approx(1)
    # (60 / 60), (70 / 160) and (80 / 460): one of three within a factor of 2.
    assert row["within_2x_share"] == pytest.approx(1 / 3)
    assert row["ks_distance"] == pytest.approx(2 / 3)


def test_a_log_without_waits_is_refused_with_a_sentence():
    table = log((0, None, None, 4)).with_columns(duration_s=pl.lit(5.0))
    with pytest.raises(UsageError, match="says when jobs started"):
        fidelity(table, {"fifo": replay(table, cluster=ONE_NODE)})


def test_the_command_writes_both(tmp_path):
    table = log((0, 0, 10, 4), (0, 100, 110, 4), (0, 400, 410, 4))
    full = load("table", table.drop("duration_s", "queueing_delay_s")).jobs
    Trace(full, meta=TraceMeta(name="t")).write(tmp_path / "T")
    argv = ["replay", str(tmp_path / "T"), "--policy", "recorded,fifo", "--cluster", "1x4", "-o", str(tmp_path / "R")]
    assert main(argv) == 0
    rows = {row["schedule"]: row for row in json.loads((tmp_path / "R" / "metrics.json").read_text())}
    assert rows["recorded"]["mean_queueing_delay_s"] == pytest.approx(500 / 3)
    assert rows["fifo"]["mean_queueing_delay_s"] == pytest.approx(10)
    assert pl.read_csv(tmp_path / "R" / "fidelity.csv")["policy"].unique().to_list() == ["fifo"]
    assert (tmp_path / "R" / "figures" / "fidelity.svg").exists()


@pytest.mark.full_trace
def test_kth_under_easy_is_nearer_to_the_log_than_under_fifo(real_data):
    """The machine ran EASY: under strict FIFO its queue would have grown without end (load 0.69 of 100 nodes)."""
    jobs = load("swf", real_data("swf/KTH-SP2-1996-2.swf.gz"), processors_as_gpus=True).jobs
    site = Cluster.uniform(num_nodes=100, num_gpus=1)
    own = recorded(jobs, cluster=site).metrics()
    assert (own["num_finished"], round(own["mean_queueing_delay_s"])) == (28_489, 15_390)
    table = fidelity(jobs, {name: replay(jobs, cluster=site, policy=name) for name in ("fifo", "easy")})
    ratio = dict(table.filter(pl.col("group") == "all").select("policy", "mean_ratio").iter_rows())
    assert 0.3 < ratio["easy"] < 1
    assert ratio["fifo"] > 20
