"""Delays by virtual cluster and hour, slowdowns, and what jobs wait for: cases drawn and counted by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from analysis import schema
from analysis.characterize import gpu_intervals, queueing_by_hour, queueing_by_vc, slowdowns, what_jobs_wait_for
from analysis.characterize.quotas import gpu_quotas
from analysis.loaders import load
from analysis.metrics import bounded_slowdown, jct_s
from analysis.trace import Trace, TraceMeta
from tests.jobs import make_jobs

T0 = datetime(2024, 1, 1, 23, tzinfo=UTC)


def job(submit, wait, run, gpus=1.0, **more):
    """Times in seconds from T0."""
    begin = T0 + timedelta(seconds=submit + wait)
    return {
        "submit_time": T0 + timedelta(seconds=submit),
        "start_time": begin,
        "end_time": begin + timedelta(seconds=run),
        "duration_s": float(run),
        "queueing_delay_s": float(wait),
        "num_gpus": gpus,
        **more,
    }


def trace(rows, *, clock="absolute", zone="UTC", **tables):
    return Trace(make_jobs(rows), meta=TraceMeta(name="t", clock=clock, time_zone=zone), tables=tables)


def test_delays_by_vc():
    rows = [job(0, 0, 5, vc="a"), job(0, 10, 5, vc="a"), job(0, 90, 5, vc="b"), job(0, 7, 5, vc="b", num_gpus=0.0)]
    never = {"submit_time": T0, "num_gpus": 1.0, "vc": "b", "censoring": "never_started"}
    table = queueing_by_vc(trace([*rows, never]))
    assert table.select("vc", "kind", "num_jobs", "waited_share", "mean_s", "p50_s", "max_s").rows() == [
        ("a", "gpu", 2, 0.5, 5.0, 5.0, 10.0),
        ("b", "gpu", 1, 1.0, 90.0, 90.0, 90.0),
        ("b", "cpu", 1, 1.0, 7.0, 7.0, 7.0),
    ]
    assert queueing_by_vc(trace([job(0, 1, 1)])).height == 0


def test_delays_by_hour_are_in_the_logs_own_zone():
    rows = [job(0, 0, 5), job(60, 700, 5), job(3600, 30, 5), job(24 * 3600, 50, 5)]
    table = queueing_by_hour(trace(rows, zone="Europe/Oslo"))
    # 23:00 UTC is midnight in Oslo.
    assert table.select("hour", "num_jobs", "waited_share", "long_share", "mean_s", "max_s").rows() == [
        (0, 3, pytest.approx(2 / 3), pytest.approx(1 / 3), 250.0, 700.0),
        (1, 1, 1.0, 0.0, 30.0, 30.0),
    ]
    assert queueing_by_hour(trace(rows, clock="relative")).height == 0


def test_slowdowns_by_hand():
    rows = [job(0, 60, 1), job(0, 0, 5), job(0, 100, 100), job(0, 0, 0), job(0, 300, 100, 2.0)]
    table = slowdowns(trace(rows))
    one = table.filter(bucket="1").row(0, named=True)
    # 61 s of JCT over the floor of 10 s; 1; 2; 1.
    assert one["mean"] == pytest.approx((6.1 + 1 + 2 + 1) / 4)
    assert (one["p50"], one["max"], one["num_jobs"]) == (1.5, 6.1, 4)
    assert one["mean_queueing_share"] == pytest.approx((60 / 61 + 0 + 0.5 + 0) / 4)
    assert one["queueing_share_of_jct"] == pytest.approx(160 / (61 + 5 + 200))
    assert table.filter(bucket="all")["num_jobs"].item() == 5
    assert table.filter(bucket="2")["mean"].item() == 4


@pytest.mark.full_trace
def test_slowdowns_of_kth_are_those_of_the_metric(real_data):
    log = load("swf", real_data("swf/KTH-SP2-1996-2.swf.gz"), processors_as_gpus=True)
    exact = log.jobs.with_columns(jct_s()).select(bounded_slowdown()).to_series()
    row = slowdowns(log).filter(bucket="all").row(0, named=True)
    assert row["mean"] == pytest.approx(exact.mean(), rel=1e-6)
    for name, at in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        assert row[name] == pytest.approx(exact.quantile(at, interpolation="linear"), rel=5e-3)
    assert row["max"] == pytest.approx(exact.max())


class TestWhatJobsWaitFor:
    """Four GPUs. 0-100: a holds 3. b asks for 2 at 10, c for 1 at 20; both start at 100, at 105 d (4) is submitted."""

    ROWS = (
        job(0, 0, 100, 3.0, job_id="a", vc="x"),
        job(10, 90, 100, 2.0, job_id="b", vc="x"),
        job(20, 80, 200, 1.0, job_id="c", vc="y"),
        job(105, 195, 50, 4.0, job_id="d", vc="y"),
    )

    def nodes(self, **gpus):
        rows = [{"node_id": vc, "num_gpus": number, "vc": vc} for vc, number in gpus.items()]
        return pl.DataFrame(rows, schema=schema.NODES)

    def test_the_cluster(self):
        table = what_jobs_wait_for(trace(self.ROWS, nodes=self.nodes(x=2, y=2))).filter(scope="cluster")
        rows = {row["bucket"]: row for row in table.iter_rows(named=True)}
        assert list(rows) == ["all", "1", "2", "3-4"]
        # One is free while a runs: enough for c all its wait, too few for b; d needs all four, which are free at 300.
        assert [rows[name]["num_enough_free"] for name in ("1", "2", "3-4")] == [1, 0, 0]
        assert rows["1"]["enough_free_hours"] == pytest.approx(80 / 3600)
        assert rows["2"]["enough_free_hours"] == 0
        assert rows["all"]["wait_hours"] == pytest.approx((90 + 80 + 195) / 3600)
        assert rows["all"]["enough_free_time_share"] == pytest.approx(80 / 365)
        assert rows["all"]["is_capacity_known"]

    def test_virtual_clusters_of_two_gpus_each(self):
        table = what_jobs_wait_for(trace(self.ROWS, nodes=self.nodes(x=2, y=2))).filter(scope="vc", bucket="all")
        # x is 1 over its quota until 100; y has 2 free for c, and never 4 for d.
        assert table.select("num_jobs", "num_enough_free").row(0) == (3, 1)
        assert table["enough_free_hours"].item() == pytest.approx(80 / 3600)

    def test_a_quota_that_grows(self):
        grown = [("x", T0, 3.0), ("y", T0, 1.0), ("x", T0 + timedelta(seconds=40), 5.0)]
        capacity = pl.DataFrame(grown, schema=schema.CAPACITY, orient="row")
        log = trace(self.ROWS, capacity=capacity)
        start = int(T0.timestamp() * 1e6)
        assert gpu_quotas(log).filter(pl.col("vc").is_null())["milli_gpus"].to_list() == [4000, 6000]
        assert gpu_quotas(log)["time_us"].max() == start + 40_000_000
        # From 40 on, x has two free, which is enough for b, for 60 of its 90 seconds.
        table = what_jobs_wait_for(log)
        two = table.filter(scope="vc", bucket="2")
        assert two.select("num_enough_free", "enough_free_hours").row(0) == (0, pytest.approx(60 / 3600))
        assert table.filter(scope="cluster", bucket="2")["enough_free_hours"].item() == pytest.approx(60 / 3600)

    def test_a_grouping_asks_about_some_jobs_and_all_hold_gpus(self):
        log = trace(self.ROWS, nodes=self.nodes(x=2, y=2))
        table = what_jobs_wait_for(log, by="vc").filter(scope="cluster", bucket="all")
        assert table.select("vc", "num_jobs", "num_enough_free").rows() == [("x", 1, 0), ("y", 2, 1)]

    def test_without_known_gpus_the_peak_stands_for_them(self):
        table = what_jobs_wait_for(trace(self.ROWS)).filter(bucket="all")
        assert table.select("scope", "is_capacity_known").rows() == [("cluster", False)]

    @pytest.mark.full_trace
    def test_kth_against_a_count_at_single_moments(self, real_data):
        log = load("swf", real_data("swf/KTH-SP2-1996-2.swf.gz"), processors_as_gpus=True)
        held = gpu_intervals(log.jobs)
        begin, end = held["begin_us"].to_numpy(), held["end_us"].to_numpy()
        milli = held["milli_gpus"].to_numpy()
        waited = log.jobs.filter(pl.col("queueing_delay_s") > 1)
        submits = waited["submit_time"].dt.timestamp("us").to_numpy()
        used = np.array([milli[(begin <= moment) & (moment < end)].sum() for moment in submits])
        enough = 100_000 - used >= 1000 * waited["num_gpus"].to_numpy()
        row = what_jobs_wait_for(log).filter(scope="cluster", bucket="all").row(0, named=True)
        assert (row["num_jobs"], row["num_enough_free"]) == (waited.height, enough.sum())


def test_a_job_that_ended_when_it_was_submitted_spent_no_share_waiting() -> None:
    """Clocks that differ: the start lies after the end, and the log is kept as it is."""
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    job = {"submit_time": moment, "start_time": moment + timedelta(seconds=5), "end_time": moment, "num_gpus": 1.0}
    jobs = pl.DataFrame([{**job, "queueing_delay_s": 5.0, "duration_s": 3.0}])
    assert slowdowns(jobs).filter(bucket="all")["mean_queueing_share"].to_list() == [0.0]
