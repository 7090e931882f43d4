"""Tables of replays for figures and comparison: over time, quantiles, by VC and user, bars of a Gantt chart."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from analysis.errors import UnknownNameError, UsageError
from analysis.replay import Cluster, ReplayResult, replay
from analysis.replay.gantt import gantt, gantt_window
from analysis.replay.groups import metrics_by
from analysis.replay.over_time import over_time
from analysis.replay.quantiles import quantiles
from tests.contracts.test_every_policy import make_log
from tests.jobs import make_jobs
from tests.replay_cases import START

SITE = Cluster.uniform(num_nodes=3, num_gpus=8)


@pytest.fixture(scope="module")
def log() -> pl.DataFrame:
    return make_log(num_jobs=200, seed=3)


@pytest.fixture(scope="module")
def results(log: pl.DataFrame) -> dict[str, ReplayResult]:
    return {policy: replay(log, cluster=SITE, policy=policy) for policy in ("fifo", "sjf_skip", "srtf_skip")}


def jobs_of(*rows: tuple[float, float, float]) -> pl.DataFrame:
    """Jobs 0, 1, … of (submission [s], GPUs, duration [s])."""
    table = [
        {"submit_time": START + timedelta(seconds=at), "num_gpus": gpus, "duration_s": length}
        for at, gpus, length in rows
    ]
    return make_jobs(table)


def events_of(*rows: tuple[float, str, str, float], nodes: list[str] | None = None) -> pl.DataFrame:
    table = pl.DataFrame(rows, schema=["time_s", "event", "job_id", "num_gpus"], orient="row")
    time = START + pl.duration(microseconds=(pl.col("time_s") * 1e6).cast(pl.Int64))
    nodes = nodes or ["n0"]
    has = pl.col("event").is_in(["started", "preempted", "ended"])
    return table.with_columns(time=time, nodes=pl.when(has).then(pl.lit(nodes)))


# --- over time -------------------------------------------------------------------------------------------------------


def test_a_bin_holds_the_mean_of_what_happened_in_it():
    # 8 GPUs: 6 GPUs 0-10 s, then 8 GPUs 10-15 s, which waited since 5 s; bins of 5 s.
    found = over_time(
        {"fifo": replay(jobs_of((0, 6, 10), (5, 8, 5)), cluster=Cluster.uniform(num_nodes=1, num_gpus=8))}, num_bins=3
    )
    assert found["bin_s"].to_list() == [5.0] * 3
    assert found["time"].to_list() == [START + timedelta(seconds=s) for s in (0, 5, 10)]
    assert found["num_gpus"].to_list() == [6.0, 6.0, 8.0]
    assert found["gpu_allocation"].to_list() == [0.75, 0.75, 1.0]
    assert found["num_waiting"].to_list() == [0.0, 1.0, 0.0]
    assert found["waiting_gpus"].to_list() == [0.0, 8.0, 0.0]


@pytest.mark.parametrize("num_bins", [1, 7, 300])
def test_areas_are_gpu_time_and_waits(results: dict[str, ReplayResult], num_bins: int):
    found = over_time(results, num_bins=num_bins)
    assert found["schedule"].unique(maintain_order=True).to_list() == list(results)
    assert found.height == num_bins * len(results)
    for name, result in results.items():
        done, part = result.job_metrics(), found.filter(pl.col("schedule") == name)
        areas = {
            column: float((part[column] * part["bin_s"]).sum())
            for column in ("num_gpus", "num_waiting", "waiting_gpus")
        }
        waited = done["jct_s"] - done["run_s"]
        assert areas["num_gpus"] == pytest.approx((done["num_gpus"] * done["run_s"]).sum())
        assert areas["num_waiting"] == pytest.approx(waited.sum())
        assert areas["waiting_gpus"] == pytest.approx((done["num_gpus"] * waited).sum())
        assert part["is_averaged"].unique().to_list() == [name == "srtf_skip"]


def test_an_event_log_says_the_same_where_nobody_was_stopped(results: dict[str, ReplayResult]):
    result = results["sjf_skip"]
    table = pl.concat([result.schedule, result.jobs], how="horizontal").filter(pl.col("state") != "rejected")
    names = {"submitted": "submit_time", "started": "start_time", "ended": "end_time"}
    parts = [
        table.select(pl.col(column).alias("time"), "num_gpus", event=pl.lit(name)) for name, column in names.items()
    ]
    events = pl.concat(parts).sort("time")
    expected = over_time({"sjf_skip": result}, num_bins=50)
    found = over_time({"sjf_skip": result}, events={"sjf_skip": events}, num_bins=50)
    for column in ("num_gpus", "num_waiting", "waiting_gpus"):
        np.testing.assert_allclose(found[column], expected[column], atol=1e-6)


def test_with_an_event_log_a_stopped_job_counts_when_it_ran():
    # One GPU: job 0 (10 s) is stopped at 2 s for job 1 (2 s), which ends at 4; job 0 ends at 12. Bins of 2 s.
    site = Cluster.uniform(num_nodes=1, num_gpus=1)
    result = replay(jobs_of((0, 1, 10), (2, 1, 2)), cluster=site, policy="srtf")
    events = events_of(
        (0, "submitted", "0", 1), (0, "started", "0", 1), (2, "submitted", "1", 1), (2, "preempted", "0", 1),
        (2, "started", "1", 1), (4, "ended", "1", 1), (4, "started", "0", 1), (12, "ended", "0", 1),
    )  # fmt: skip
    exact = over_time({"srtf": result}, events={"srtf": events}, num_bins=6)
    assert exact["num_gpus"].to_list() == [1.0] * 6
    assert exact["num_waiting"].to_list() == [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert not exact["is_averaged"].any()
    smoothed = over_time({"srtf": result}, num_bins=6)
    assert smoothed["num_gpus"].to_list() == pytest.approx([10 / 12, 1 + 10 / 12, *[10 / 12] * 4])
    assert smoothed["is_averaged"].all()


@pytest.mark.parametrize("name", [None, "events.parquet"], ids=["memory", "file"])
def test_the_event_log_of_the_replay_is_used_where_it_kept_one(log: pl.DataFrame, name: str | None, tmp_path: Path):
    kept = True if name is None else tmp_path / name
    result = replay(log, cluster=SITE, policy="srtf_skip", events=kept)
    assert result.schedule["num_preemptions"].sum() > 0
    found = over_time({"srtf_skip": result}, num_bins=40)
    assert not found["is_averaged"].any()
    assert found["gpu_allocation"].max() <= 1 + 1e-9
    done = result.job_metrics()
    assert (found["num_gpus"] * found["bin_s"]).sum() == pytest.approx((done["num_gpus"] * done["run_s"]).sum())
    bars = gantt(result, log, window=(START, START + timedelta(days=30)))
    assert bars["num_left_out"].unique().to_list() == [0]
    span = (bars["end_time"] - bars["start_time"]).dt.total_microseconds() / 1e6
    assert (bars["num_gpus"] * span).sum() == pytest.approx((done["num_gpus"] * done["run_s"]).sum())


def test_a_replay_that_was_stopped_ends_there(log: pl.DataFrame):
    until = START + timedelta(minutes=100)
    whole = replay(log, cluster=SITE, policy="fifo")
    for events in (False, True):
        result = replay(log, cluster=SITE, policy="fifo", until=until, events=events)
        found = over_time({"fifo": result}, num_bins=1)
        end = found["time"][0] + timedelta(seconds=found["bin_s"][0])
        assert end <= until + timedelta(seconds=1)
        ran = whole.schedule.filter(pl.col("start_time") < end)
        gpus = ran.join(log.select("job_id", "num_gpus"), on="job_id")
        held = (pl.min_horizontal(pl.col("end_time"), pl.lit(end)) - pl.col("start_time")).dt.total_microseconds() / 1e6
        assert found["num_gpus"][0] * found["bin_s"][0] == pytest.approx(
            gpus.select((held * pl.col("num_gpus")).sum()).item()
        )


def test_rejected_jobs_count_nowhere_and_no_job_is_no_row():
    result = replay(jobs_of((0, 9, 10), (0, 1, 10)), cluster=Cluster.uniform(num_nodes=1, num_gpus=8))
    assert over_time({"fifo": result}, num_bins=1)["num_waiting"].to_list() == [0.0]
    empty = replay(jobs_of((0, 1, 1)).clear(), cluster=SITE)
    assert over_time({"fifo": empty}).height == 0
    assert quantiles({"fifo": empty}).height == 0
    assert gantt(empty).height == 0
    with pytest.raises(UsageError, match="num_bins is 0"):
        over_time({"fifo": result}, num_bins=0)
    with pytest.raises(
        UnknownNameError, match=r"no event of a replay is named 'lost' \(known: ended, killed, preempted"
    ):
        over_time({"fifo": result}, events={"fifo": events_of((0, "lost", "0", 1))})


# --- quantiles -------------------------------------------------------------------------------------------------------


def test_quantiles_are_those_of_the_empirical_distribution(results: dict[str, ReplayResult]):
    found = quantiles(results, num_points=21)
    for name, result in results.items():
        part, done = found.filter(pl.col("schedule") == name), result.job_metrics()
        for column in ("queueing_delay_s", "jct_s", "bounded_slowdown"):
            expected = np.quantile(done[column], np.linspace(0, 1, 21), method="inverted_cdf")
            assert part[column].to_list() == expected.tolist()
    with pytest.raises(UsageError, match="num_points is 1"):
        quantiles(results, num_points=1)


# --- by VC and user --------------------------------------------------------------------------------------------------


def test_one_group_is_the_whole_replay(results: dict[str, ReplayResult], log: pl.DataFrame):
    found = metrics_by(results, log.with_columns(vc=pl.lit("all")), by="vc")
    for row in found.iter_rows(named=True):
        whole = results[row["schedule"]].metrics()
        same = set(row) & set(whole)
        assert len(same) == 20
        assert {name: row[name] for name in same} == pytest.approx({name: whole[name] for name in same})
        assert row["gpu_hours_share"] == 1.0


def test_groups_by_hand():
    jobs = jobs_of((0, 8, 3600), (0, 4, 1800), (0, 4, 1800), (0, 16, 60)).with_columns(
        user=pl.Series(["ann", "bob", None, "bob"])
    )
    found = metrics_by({"fifo": replay(jobs, cluster=Cluster.uniform(num_nodes=1, num_gpus=8))}, jobs, by="user")
    rows = found.select(
        "user", "num_jobs", "num_rejected", "gpu_hours", "gpu_hours_share", "mean_queueing_delay_s"
    ).rows()
    assert rows == [
        ("ann", 1, 0, 8.0, pytest.approx(2 / 3), 0.0),
        ("bob", 2, 1, 2.0, pytest.approx(1 / 6), 3600.0),
        (None, 1, 0, 2.0, pytest.approx(1 / 6), 3600.0),
    ]


def test_groups_keep_one_order_and_need_not_that_of_the_rows(results: dict[str, ReplayResult], log: pl.DataFrame):
    found = metrics_by(results, log, by="vc")
    order = found.filter(pl.col("schedule") == "fifo")
    assert order["gpu_hours"].to_list() == sorted(order["gpu_hours"], reverse=True)
    assert found["vc"].to_list() == order["vc"].to_list() * 3
    assert metrics_by(results, log.sample(fraction=1, shuffle=True, seed=1), by="vc").equals(found)
    totals = found.group_by("schedule", maintain_order=True).agg(pl.col("num_jobs", "gpu_hours").sum())
    for name, num_jobs, gpu_hours in totals.iter_rows():
        done = results[name].job_metrics()
        assert num_jobs == results[name].schedule.height
        assert gpu_hours == pytest.approx((done["num_gpus"] * done["run_s"]).sum() / 3600)
    with pytest.raises(UnknownNameError, match="no column of the jobs table is named 'team'"):
        metrics_by(results, log, by="team")


# --- Gantt -----------------------------------------------------------------------------------------------------------


def overlaps(bars: pl.DataFrame) -> list[Any]:
    """Pairs of bars that hold the same part of a lane at the same time."""
    rows = bars.select("job_id", "start_time", "end_time", "lane", "num_gpus").rows()
    return [
        (a[0], b[0])
        for i, a in enumerate(rows)
        for b in rows[i + 1 :]
        if a[1] < b[2] and b[1] < a[2] and a[3] < b[3] + b[4] - 1e-9 and b[3] < a[3] + a[4] - 1e-9
    ]


def test_bars_do_not_overlap_and_hold_all_gpu_time(log: pl.DataFrame):
    whole = log.filter(pl.col("num_gpus") == pl.col("num_gpus").round())
    for policy in ("fifo", "sjf_skip"):
        result = replay(whole, cluster=SITE, policy=policy)
        bars = gantt(result, whole, window=(START.replace(tzinfo=None), START + timedelta(days=30)))
        assert overlaps(bars) == []
        span = (bars["end_time"] - bars["start_time"]).dt.total_microseconds() / 1e6
        done = result.job_metrics()
        assert (bars["num_gpus"] * span).sum() == pytest.approx((done["num_gpus"] * done["run_s"]).sum())
        inside = bars.with_columns(last=pl.col("lane") + pl.col("num_gpus"))
        assert (inside["lane"] >= inside["first_lane"]).all()
        assert (inside["last"] <= inside["first_lane"] + 8).all()
        of_job = bars.group_by("job_id").agg(pl.col("node").unique().sort())
        places = result.schedule.join(of_job, on="job_id")
        assert places["nodes"].list.sort().to_list() == places["node"].to_list()


def test_fractions_share_a_lane():
    jobs = jobs_of((0, 0.5, 10), (0, 0.25, 10), (0, 0.5, 10), (0, 1, 10))
    bars = gantt(replay(jobs, cluster=Cluster.uniform(num_nodes=1, num_gpus=3)))
    assert bars.select("job_id", "lane", "num_gpus").rows() == [
        ("0", 0.0, 0.5),
        ("1", 0.5, 0.25),
        ("2", 1.0, 0.5),
        ("3", 2.0, 1.0),
    ]


def test_colours_are_vc_then_user_then_size(log: pl.DataFrame, results: dict[str, ReplayResult]):
    result = results["fifo"]
    assert gantt(result, log)["grouped_by"].unique().to_list() == ["vc"]
    users = log.with_columns(vc=pl.lit("one"), user=pl.col("job_id"))
    assert gantt(result, users)["grouped_by"].unique().to_list() == ["user"]
    sizes = gantt(result)
    assert sizes["grouped_by"].unique().to_list() == ["size"]
    assert set(sizes["group"]) == {"1 GPU", "2-4 GPUs", "5-8 GPUs", "over 8 GPUs"}
    assert gantt(result, log, color_by="num_gpus")["grouped_by"][0] == "num_gpus"
    with pytest.raises(UnknownNameError, match="no column to colour by is named 'team'"):
        gantt(result, log, color_by="team")


def test_a_long_log_is_shown_around_its_longest_queue():
    # A job every 100 s, and at 50,000 s a crowd that waits.
    quiet = [(100.0 * i, 1.0, 10.0) for i in range(1000)]
    jobs = jobs_of(*quiet, *[(50_000.5, 24.0, 50.0)] * 20)
    result = replay(jobs, cluster=SITE)
    low, high = gantt_window(result, most_bars=60)
    assert low < START + timedelta(seconds=50_001) < high
    bars = gantt(result, window=(low, high))
    assert 40 <= bars["job_id"].n_unique() <= 60
    assert bars["window_start"].unique().to_list() == [low]
    everything = gantt_window(result, most_bars=5000)
    assert gantt(result, window=everything)["job_id"].n_unique() == 1020


def test_who_was_stopped_is_left_out_and_counted_unless_events_tell():
    site = Cluster.uniform(num_nodes=1, num_gpus=1)
    result = replay(jobs_of((0, 1, 10), (2, 1, 2)), cluster=site, policy="srtf")
    bars = gantt(result)
    assert bars["job_id"].to_list() == ["1"]
    assert bars["num_left_out"].to_list() == [1]
    events = events_of(
        (0, "submitted", "0", 1), (0, "started", "0", 1), (2, "submitted", "1", 1), (2, "preempted", "0", 1),
        (2, "started", "1", 1), (4, "ended", "1", 1), (4, "started", "0", 1), (12, "ended", "0", 1),
    )  # fmt: skip
    bars = gantt(result, events=events)
    seconds = [(pl.col(name) - pl.lit(START)).dt.total_seconds() for name in ("start_time", "end_time")]
    assert bars.select("job_id", *seconds).rows() == [("0", 0, 2), ("1", 2, 4), ("0", 4, 12)]
    assert bars["num_left_out"].unique().to_list() == [0]


def test_a_schedule_without_nodes_is_one_pool(log: pl.DataFrame, results: dict[str, ReplayResult]):
    from dataclasses import replace

    result = results["fifo"]
    nameless = replace(result, schedule=result.schedule.with_columns(nodes=pl.lit([], dtype=pl.List(pl.String))))
    bars = gantt(nameless, log)
    assert bars["node"].null_count() == bars.height > 0
    assert bars["lane"].max() < 24
    assert isinstance(bars["start_time"][0], datetime)
