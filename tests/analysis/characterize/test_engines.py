"""A log counted in parts, on this machine or on a Dask cluster, gives the tables of the log counted at once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from analysis import schema
from analysis.characterize import (
    CHARACTERIZATIONS,
    GROUPS,
    characterize,
    duration_quantiles,
    engines,
    prepare,
    registry,
)
from analysis.errors import UsageError
from analysis.loaders.synthetic import synthesize
from analysis.trace import Trace

distributed = pytest.importorskip("distributed")


def requeued(trace: Trace) -> Trace:
    """The trace with every seventh job tried twice, with a pause between."""
    jobs = trace.jobs.filter(pl.col("duration_s") > 100, pl.int_range(pl.len()) % 7 == 0)
    half = pl.col("start_time") + pl.duration(seconds=(pl.col("duration_s") // 3))
    tries = [
        jobs.select("job_id", start_time="start_time", end_time=half, attempt=1),
        jobs.select("job_id", start_time=half + timedelta(seconds=30), end_time="end_time", attempt=2),
    ]
    columns = [pl.col(name).cast(dtype) if name in tries[0].columns else pl.lit(None, dtype).alias(name)
               for name, dtype in schema.ATTEMPTS.items()]  # fmt: skip
    return trace.with_tables(attempts=pl.concat(tries).select(columns))


@pytest.fixture(scope="module")
def trace() -> Trace:
    return requeued(synthesize(like="saturn", num_jobs=5_000, seed=3, cpu_jobs=True))


@pytest.fixture(scope="module")
def partitioned(trace: Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trace as a folder whose jobs lie in seven Parquet files."""
    folder = trace.write(tmp_path_factory.mktemp("partitioned") / "T")
    (folder / "jobs.parquet").unlink()
    (folder / "jobs.parquet").mkdir()
    for number, start in enumerate(range(0, trace.jobs.height, 800)):
        trace.jobs.slice(start, 800).write_parquet(folder / "jobs.parquet" / f"part.{number}.parquet")
    return folder


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    made = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, worker_dashboard_address=None
    )
    with made, distributed.Client(made):
        yield


def different(one: dict[str, pl.DataFrame], other: dict[str, pl.DataFrame]) -> list[str]:
    assert list(one) == list(other)
    return [name for name in one if not one[name].equals(other[name])]


def test_dask_without_a_client_says_what_to_do(trace: Trace) -> None:
    # First of all: the client of the other tests stays until the last of them.
    with pytest.raises(UsageError, match="there is no Dask client .* start a scheduler"):
        characterize(trace, names=("summary",), engine="dask")


def test_parts_give_what_the_whole_gives(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = characterize(trace)
    grouped = characterize(trace, by=("gpu_bucket", "status"), where=pl.col("duration_s") > 60)
    monkeypatch.setattr(engines, "BATCH_JOBS", 700)
    assert different(whole, characterize(trace)) == []
    assert different(grouped, characterize(trace, by=("gpu_bucket", "status"), where=pl.col("duration_s") > 60)) == []


def test_a_folder_of_parts_is_a_trace(trace: Trace, partitioned: Path) -> None:
    assert different(characterize(trace), characterize(Trace.read(partitioned))) == []


@pytest.mark.usefixtures("cluster")
def test_two_dask_workers_give_what_one_machine_gives(trace: Trace, partitioned: Path) -> None:
    whole = characterize(trace)
    assert set(whole) == set(CHARACTERIZATIONS)
    assert different(whole, characterize(Trace.read(partitioned), engine="dask")) == []
    assert different(whole, characterize(trace, engine="dask")) == []


@pytest.mark.parametrize("group", sorted(GROUPS))
@pytest.mark.usefixtures("cluster")
def test_dask_gives_the_same_for_each_group(group: str, trace: Trace, partitioned: Path) -> None:
    where = pl.col("num_gpus") > 0
    whole = characterize(trace, by=group, where=where)
    assert different(whole, characterize(Trace.read(partitioned), by=group, where=where, engine="dask")) == []


@pytest.mark.usefixtures("cluster")
def test_parts_of_a_large_trace_are_cut_before_they_are_sent(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    from analysis.characterize import engine_dask

    whole = characterize(trace)
    for size in (1, 10**9):
        monkeypatch.setattr(engine_dask, "LARGE_QUERY", size)
        assert different(whole, characterize(trace, engine="dask")) == []


@pytest.mark.usefixtures("cluster")
def test_an_empty_log_on_dask() -> None:
    jobs = schema.empty_table("jobs")
    assert different(characterize(jobs), characterize(jobs, engine="dask")) == []


def test_in_a_huge_log_fractions_of_seconds_are_rounded_and_whole_seconds_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = pl.DataFrame({"num_gpus": 1.0, "duration_s": [12_345.678, 123_456.0, 0.123456]})
    exact = duration_quantiles(jobs).filter(bucket="all")
    assert exact["max_s"].to_list() == [123_456.0] * 2
    assert exact["min_s"].to_list() == [0.123456] * 2
    monkeypatch.setattr(prepare, "EXACT_JOBS", 2)
    monkeypatch.setattr(engines, "BATCH_JOBS", 2)
    rough = duration_quantiles(jobs).filter(bucket="all")
    assert rough["p50_s"].to_list()[0] == 12_350.0
    assert rough["min_s"].to_list() == [0.1235] * 2
    # GPU time is summed exactly all the same.
    assert_frame_equal(rough.select("num_jobs", "gpu_hours", "max_s"), exact.select("num_jobs", "gpu_hours", "max_s"))


def test_rows_that_are_not_read_are_not_collected(trace: Trace) -> None:
    item = CHARACTERIZATIONS["gpu_demand"]
    request = engines.Request(tuple((source, ()) for source in item.inputs))
    log = prepare.as_log(trace)
    names = request.prepared(log.jobs, num_jobs=1).columns
    # Of the log: what has no other name.
    needed = {"bucket", "status", "duration_s", "gpu_us", "milli_gpus", "is_right_censored"}
    assert set(names) == needed | {"submit_time", "start_time", "end_time"}


def test_a_huge_log_is_counted_in_rounds_and_gives_the_same_tables(monkeypatch):
    trace = synthesize(num_jobs=2_000, seed=4)
    names = ("summary", "nearest_history", "what_jobs_wait_for", "top_users")
    whole = characterize(trace, names)
    rounds = []
    counted = registry._counted

    def noted(log, items, *rest):
        rounds.append([*items])
        return counted(log, items, *rest)

    monkeypatch.setattr(registry, "MANY_JOBS", 1_000)
    monkeypatch.setattr(registry, "_counted", noted)
    again = characterize(trace, names)
    assert rounds == [["summary", "top_users"], ["nearest_history"], ["what_jobs_wait_for"]]
    assert list(again) == list(names)
    for name, table in whole.items():
        assert_frame_equal(again[name], table)
