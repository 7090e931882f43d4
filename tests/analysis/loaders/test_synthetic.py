"""Synthetic traces against the published figures, and against what real logs look like."""

from __future__ import annotations

from collections import deque
from datetime import UTC, datetime
from functools import cache

import numpy as np
import polars as pl
import pytest

from analysis import schema
from analysis.errors import UnknownNameError, UsageError
from analysis.loaders.synthetic import _utc, synthesize
from analysis.loaders.synthetic_cluster import assign_vcs, plan_cluster
from analysis.loaders.synthetic_law import delay_law, job_law
from analysis.loaders.synthetic_published import published_log, published_logs
from analysis.trace import Trace

LIKES = ("venus", "earth", "saturn", "uranus", "helios", "philly", "seren", "kalos")
SEEDS = (0, 1, 2)
NUM_JOBS = 100_000
FOLDED = {"timeout": "failed", "node_fail": "failed"}


@cache
def small(like: str) -> Trace:
    return synthesize(like=like, num_jobs=20_000, seed=3)


def by_status(jobs: pl.DataFrame) -> dict[str, tuple[float, float]]:
    """Share of jobs and of GPU time, with timeouts and node failures folded into failed."""
    status = pl.col("status").cast(pl.String).replace(FOLDED)
    gpu_s = pl.col("num_gpus") * pl.col("duration_s")
    table = jobs.group_by(status).agg(
        count=pl.len() / jobs.height, gpu_s=gpu_s.sum() / (jobs.select(gpu_s.sum()).item())
    )
    return {status: (count, gpu_time) for status, count, gpu_time in table.iter_rows()}


def top_users_share(jobs: pl.DataFrame) -> float:
    """Share of the jobs that the busiest 5 % of users submit."""
    busy = jobs.group_by("user").len().sort("len", descending=True)
    return float(busy.head(max(1, busy.height // 20))["len"].sum() / jobs.height)


def log_errors(jobs: pl.DataFrame) -> tuple[float, float]:
    """Log-MAE of the global median and of the user's last 20 ended jobs, on the last 40 % in submission order.

    Written anew here, one job after the other, so that it shares nothing with the predictors.
    """
    submit = jobs["submit_time"].to_physical().to_numpy()
    end = jobs["end_time"].to_physical().to_numpy()
    log_s = np.log1p(jobs["duration_s"].to_numpy())
    user = jobs["user"].to_list()
    first = int(0.6 * len(log_s))
    middle = float(np.median(log_s[end < submit[first]]))
    ended, position = np.argsort(end, kind="stable"), 0
    past: dict[str, deque[float]] = {}
    predicted = np.full(len(log_s), middle)
    for job in range(len(log_s)):
        while end[ended[position]] < submit[job]:
            other = ended[position]
            past.setdefault(user[other], deque(maxlen=20)).append(float(log_s[other]))
            position += 1
        if job >= first and user[job] in past:
            known = sorted(past[user[job]])
            predicted[job] = (known[len(known) // 2] + known[(len(known) - 1) // 2]) / 2
    errors = np.abs(log_s - predicted)[first:]
    return float(np.abs(log_s[first:] - middle).mean()), float(errors.mean())


@pytest.mark.parametrize("like", LIKES)
@pytest.mark.parametrize("seed", SEEDS)
def test_figures_are_the_published_ones(like, seed):
    jobs = synthesize(like=like, num_jobs=NUM_JOBS, seed=seed).jobs
    published = published_log(like)
    assert jobs.height == NUM_JOBS
    assert jobs["num_gpus"].min() >= 1
    assert jobs["duration_s"].mean() == pytest.approx(published.mean_duration_s, rel=0.10)
    assert jobs["duration_s"].median() == pytest.approx(published.median_duration_s, rel=0.10)
    assert jobs["duration_s"].max() <= published.max_duration_s
    assert jobs["num_gpus"].mean() == pytest.approx(published.mean_gpus, rel=0.10)
    assert jobs["num_gpus"].median() == 1
    shares = by_status(jobs)
    names = ("completed", "cancelled", "failed")
    assert [shares[name][0] for name in names] == pytest.approx(published.status_shares, rel=0.10)
    time_shares = [part / sum(published.gpu_time) for part in published.gpu_time]
    assert [shares[name][1] for name in names] == pytest.approx(time_shares, rel=0.10)
    gpu_s = (jobs["num_gpus"] * jobs["duration_s"]).mean()
    assert gpu_s == pytest.approx(sum(published.gpu_time) / published.num_gpu_jobs, rel=0.15)

    assert top_users_share(jobs) > 0.5

    of_global, of_user = log_errors(jobs)
    assert 1.8 <= of_global <= 2.4
    assert 1.0 <= of_user <= 1.4


def test_published_figures_are_those_of_the_authors_files(real_data):
    helios = pl.read_csv(real_data("helios/published_cluster_summary.csv"))
    acme = pl.read_csv(real_data("helios/published_acme_cluster_summary.csv"))
    rows = {row["id"].lower(): row for row in [*acme.iter_rows(named=True), *helios.iter_rows(named=True)]}
    rows["helios"] = {**rows["helios"], **rows["total"]}
    for name, log in published_logs().items():
        row = rows[name]
        outcomes = ("complete", "cancel", "fail")
        assert (log.num_jobs, log.num_gpu_jobs) == (row["job_num"], row["gpu_job_num"]), name
        assert log.num_cpu_jobs == row["cpu_job_num"], name
        assert (log.mean_duration_s, log.median_duration_s) == (row["avg_run_time_gpu"], row["med_run_time_gpu"]), name
        assert log.mean_queueing_delay_s == row["avg_que_time_gpu"], name
        assert log.median_queueing_delay_s == row["med_que_time_gpu"], name
        assert log.mean_gpus == row["avg_gpu_num"], name
        assert list(log.status_shares) == [row[f"{outcome}_rate_gpu"] for outcome in outcomes], name
        assert list(log.gpu_time) == [row[f"{outcome}_gpu_time"] for outcome in outcomes], name
        longest = rows["helios"] if name in {"venus", "earth", "saturn", "uranus"} else row
        assert (log.max_duration_s, log.max_gpus) == (longest["max_run_time_gpu"], longest["max_gpu"]), name
        if log.cpu:
            assert log.cpu.mean_duration_s == row["avg_run_time_cpu"], name
            assert log.cpu.median_duration_s == row["med_run_time_cpu"], name
            assert list(log.cpu.status_shares) == [row[f"{outcome}_rate_cpu"] for outcome in outcomes], name


@pytest.mark.parametrize("like", LIKES)
def test_the_law_is_solved_before_the_draw(like):
    # The moments of the law against plain Monte Carlo on its own quantile function, for the log's full cluster.
    log = published_log(like)
    law = job_law(like, max_gpus=plan_cluster(log, num_gpu_jobs=log.num_gpu_jobs).max_gpus)
    rng = np.random.default_rng(7)
    size = 2_000_000
    cell = rng.choice(law.probability.size, p=law.probability.ravel(), size=size)
    status, width = np.divmod(cell, len(law.gpus))
    seconds = law.quantile(1 - rng.random(size), status=status, width=width)
    assert np.median(seconds) == pytest.approx(log.median_duration_s, rel=0.02)
    assert seconds.mean() == pytest.approx(log.mean_duration_s, rel=0.03)
    assert law.gpus[width].mean() == pytest.approx(log.mean_gpus, rel=0.03)
    moments = law.moments(median_s=log.median_duration_s)
    assert moments.mean_duration_s == pytest.approx(log.mean_duration_s, rel=1e-4)
    assert moments.mean_gpu_s == pytest.approx(log.mean_gpu_s, rel=1e-4)
    assert moments.gpu_time_shares == pytest.approx(log.gpu_time_shares, rel=1e-3)
    assert law.probability.sum(axis=1) == pytest.approx(np.array(log.status_shares) / sum(log.status_shares), rel=1e-6)


def test_delay_law_against_its_figures():
    law = delay_law(mean_s=500.0, median_s=0.0)
    share = (np.arange(1_000_000) + 0.5) / 1_000_000
    assert law.quantile(share).mean() == pytest.approx(500, rel=0.01)
    assert law.quantile(np.array([0.5])).item() == 0


@pytest.mark.parametrize("like", LIKES)
def test_no_more_gpus_are_in_use_than_a_vc_has(like):
    trace = small(like)
    owned = dict(trace.nodes.group_by("vc").agg(pl.col("num_gpus").sum()).iter_rows())
    changes = pl.concat(
        [
            trace.jobs.select("vc", time="start_time", change="num_gpus"),
            trace.jobs.select("vc", time="end_time", change=-pl.col("num_gpus")),
        ]
    ).sort("vc", "time", "change")
    peaks = changes.group_by("vc").agg(pl.col("change").cum_sum().max())
    assert peaks.height == len(owned)
    assert all(peak <= owned[vc] for vc, peak in peaks.iter_rows())


def test_cpu_jobs_wait_as_published():
    jobs = synthesize(like="venus", num_jobs=40_000, seed=0, cpu_jobs=True).jobs.filter(pl.col("num_gpus") == 0)
    published = published_log("venus").cpu
    assert jobs["queueing_delay_s"].mean() == pytest.approx(published.mean_queueing_delay_s, rel=0.15)
    assert jobs["queueing_delay_s"].median() == pytest.approx(published.median_queueing_delay_s, abs=1)


@pytest.mark.parametrize("like", LIKES)
def test_tables_obey_the_schema(like):
    trace = small(like)
    schema.validate_jobs(trace.jobs)
    assert sum(schema.count_violations(trace.jobs).values()) == 0
    jobs = trace.jobs
    assert jobs["job_id"].to_list() == [str(number) for number in range(1, jobs.height + 1)]
    delay = (jobs["start_time"] - jobs["submit_time"]).dt.total_seconds()
    assert delay.cast(pl.Float64).equals(jobs["queueing_delay_s"])
    assert (jobs["end_time"] - jobs["start_time"]).dt.total_seconds().cast(pl.Float64).equals(jobs["duration_s"])
    report = trace.meta.load_report
    assert (report.rows_in, report.rows_used, report.rows_set_aside) == (20_000, 20_000, 0)
    assert report.num_jobs == jobs.height
    assert trace.meta.name == f"synthetic-{like}"
    assert "synthetic" in trace.meta.source
    assert trace.meta.clock == "absolute"
    assert trace.meta.time_zone == ("America/Los_Angeles" if like == "philly" else "Asia/Shanghai")


@pytest.mark.parametrize("like", LIKES)
def test_no_job_is_wider_than_its_vc_and_the_load_is_the_published_one(like):
    trace = small(like)
    size = trace.nodes.group_by("vc").agg(size=pl.col("num_gpus").sum())
    widths = trace.jobs.group_by("vc").agg(widest=pl.col("num_gpus").max())
    joined = widths.join(size, on="vc", how="left")
    assert joined["size"].null_count() == 0
    assert (joined["widest"] <= joined["size"]).all()
    assert trace.nodes["num_gpus"].unique().to_list() == [8]
    assert trace.nodes["node_id"].is_unique().all()
    assert (trace.jobs["num_nodes"] == (trace.jobs["num_gpus"] / 8).ceil()).all()

    begin, end = (datetime.fromisoformat(text) for text in trace.meta.window)
    assert begin <= trace.jobs["submit_time"].min() <= trace.jobs["submit_time"].max() < end
    assert (end - begin).days >= 28
    capacity = trace.nodes["num_gpus"].sum() * (end - begin).total_seconds()
    load = (trace.jobs["num_gpus"] * trace.jobs["duration_s"]).sum() / capacity
    assert 0.6 <= load <= 0.95
    main = trace.jobs.group_by("user").agg(pl.col("vc").mode().first().alias("main")).join(trace.jobs, on="user")
    assert (main["main"] == main["vc"]).mean() > 0.85


@pytest.mark.parametrize(("like", "num_nodes"), [("venus", 128), ("philly", 312), ("kalos", 302), ("helios", 778)])
def test_as_many_jobs_as_published_get_the_published_cluster(like, num_nodes):
    log = published_log(like)
    plan = plan_cluster(log, num_gpu_jobs=log.num_gpu_jobs)
    assert plan.num_nodes == num_nodes
    if log.window_days:
        assert plan.window_days == pytest.approx(log.window_days, abs=1)


def test_vcs_grow_with_the_load_of_their_users():
    # Two users of equal width, one with nine tenths of the GPU time.
    plan = plan_cluster(published_log("philly"), num_gpu_jobs=1000)
    user, gpus = np.repeat([0, 1], 50), np.full(100, 8)
    gpu_s = np.where(user == 0, 9.0, 1.0)
    vc, nodes = assign_vcs(plan, user=user, num_gpus=gpus, gpu_s=gpu_s, rng=np.random.default_rng(0))
    home = [int(np.bincount(vc[user == one]).argmax()) for one in (0, 1)]
    assert home[0] != home[1]
    assert nodes.sum() == plan.num_nodes
    assert nodes[home[0]] > 3 * nodes[home[1]]


@pytest.mark.parametrize("like", ["venus", "philly"])
def test_submissions_follow_the_local_day_and_week(like):
    trace = small(like)
    local = trace.jobs["submit_time"].dt.convert_time_zone(trace.meta.time_zone)
    hours = np.bincount(local.dt.hour(), minlength=24)
    assert hours[10:18].mean() > 2.5 * hours[2:7].mean()
    begin, end = (datetime.fromisoformat(text) for text in trace.meta.window)
    weekdays = pl.date_range(begin.date(), end.date(), closed="left", eager=True).dt.weekday()
    per_day = np.bincount(local.dt.weekday(), minlength=8)[1:] / np.bincount(weekdays, minlength=8)[1:]
    assert per_day[:5].mean() > 1.3 * per_day[5:].mean()


@pytest.mark.parametrize("like", ["venus", "kalos"])
def test_users_repeat_their_jobs_in_bursts(like):
    jobs = small(like).jobs.with_columns(family=pl.col("job_name").str.replace(r"-[0-9]+_v[0-9]+$", ""))
    assert jobs["job_name"].str.contains(r"^[a-z]+-[a-z]+-[a-z]+-[0-9]+_v[0-9]+$").all()
    seen = pl.struct("user", "family").is_first_distinct().not_()
    assert jobs.select(seen.mean()).item() > 0.9
    assert 0.35 < top_users_share(jobs) < 0.8
    # Sessions: half of all jobs come within a few minutes of the same user's previous one.
    gap = jobs.select((pl.col("submit_time") - pl.col("submit_time").shift().over("user")).dt.total_minutes())
    assert gap.to_series().median() < 10
    # Names mean something: of a user's jobs, those of one family differ less in duration than all of them do.
    log_s = pl.col("duration_s").log1p()
    within = jobs.select((log_s - log_s.median().over("user", "family")).abs().mean()).item()
    of_user = jobs.select((log_s - log_s.median().over("user")).abs().mean()).item()
    anywhere = jobs.select((log_s - log_s.median()).abs().mean()).item()
    assert within < 0.9 * of_user < 0.75 * anywhere


@pytest.mark.parametrize("like", ["venus", "saturn", "helios", "seren"])
def test_failed_jobs_are_mostly_short_and_cancelled_ones_long(like):
    jobs = small(like).jobs.with_columns(pl.col("status").cast(pl.String).replace(FOLDED))
    median = dict(jobs.group_by("status").agg(pl.col("duration_s").median()).iter_rows())
    mean = dict(jobs.group_by("status").agg(pl.col("duration_s").mean()).iter_rows())
    assert median["failed"] < median["completed"]
    assert mean["cancelled"] > mean["completed"]


@pytest.mark.parametrize("like", ["helios", "philly"])
def test_same_arguments_same_bytes(like):
    first, again = (synthesize(like=like, num_jobs=3000, seed=5) for _ in range(2))
    assert first.jobs.equals(again.jobs)
    assert first.nodes.equals(again.nodes)
    assert first.meta == again.meta
    other = synthesize(like=like, num_jobs=3000, seed=6)
    assert not first.jobs["duration_s"].equals(other.jobs["duration_s"])


@pytest.mark.parametrize("like", LIKES)
@pytest.mark.parametrize("num_jobs", [1, 2, 10])
def test_a_handful_of_jobs(like, num_jobs, tmp_path):
    trace = synthesize(like=like, num_jobs=num_jobs, seed=0)
    schema.validate_jobs(trace.jobs)
    assert trace.jobs.height == num_jobs
    assert Trace.read(trace.write(tmp_path / "t")).jobs.equals(trace.jobs)


def test_jobs_without_gpus_come_in_the_published_proportion():
    trace = synthesize(like="uranus", num_jobs=40_000, seed=0, cpu_jobs=True)
    schema.validate_jobs(trace.jobs)
    assert trace.jobs.height == 40_000
    cpu = trace.jobs.filter(pl.col("num_gpus") == 0)
    assert cpu.height / 40_000 == pytest.approx(161_192 / 490_309, rel=0.001)
    assert cpu["duration_s"].mean() == pytest.approx(1211.799, rel=0.10)
    assert cpu["duration_s"].median() == pytest.approx(32, rel=0.10)
    assert cpu["gpu_type"].null_count() == cpu.height
    assert {name: count for name, (count, _) in by_status(cpu).items()} == pytest.approx(
        {"completed": 0.791, "cancelled": 0.116, "failed": 0.092}, rel=0.02
    )


def test_a_clock_change_keeps_order_and_instants():
    # Worked by hand: in Los Angeles 2017-11-05 01:30 came twice (the first is -0700) and 2018-03-11 02:30 never.
    log = published_log("philly")
    naive = [datetime(2017, 11, 5, 1, 30), datetime(2017, 11, 5, 2, 0), datetime(2018, 3, 11, 2, 30)]
    first_day = datetime(2017, 8, 7)
    seconds = pl.DataFrame({"second": [int((when - first_day).total_seconds()) for when in naive]})
    found = seconds.select(_utc(pl.col("second"), log)).to_series().to_list()
    expected = [(2017, 11, 5, 8, 30), (2017, 11, 5, 10, 0), (2018, 3, 11, 10, 30)]
    assert found == [datetime(*when, tzinfo=UTC) for when in expected]


def test_bad_arguments_say_what_is_expected():
    with pytest.raises(
        UnknownNameError, match=r"no published log is named 'venis' .*known: earth.*Did you mean 'venus'"
    ):
        synthesize(like="venis", num_jobs=10)
    with pytest.raises(UsageError, match=r"num_jobs is 0; it must be at least 1; seed is -1; .*no jobs without GPUs"):
        synthesize(like="philly", num_jobs=0, seed=-1, cpu_jobs=True)
