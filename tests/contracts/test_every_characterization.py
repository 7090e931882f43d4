"""Every registered table: its columns whatever the log holds, by= and where=, any kind of input, any order of rows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from analysis import schema
from analysis.characterize import CHARACTERIZATIONS, GROUPS, Characterization, characterize, gpu_bucket
from analysis.errors import UnknownNameError
from analysis.trace import Trace, TraceMeta

NAMES = sorted(CHARACTERIZATIONS)
T0 = datetime(2024, 1, 1, tzinfo=UTC)
CARDS = ("V100", "A100", None)
ENDS = ("completed", "failed", "cancelled", "completed", "timeout")


def make_jobs(num: int = 400) -> pl.DataFrame:
    """Three weeks of jobs of all kinds: fractions, CPU jobs, unknown GPUs, waits, running ones, never started ones."""
    rows = []
    for n in range(num):
        submit = T0 + timedelta(seconds=4_500 * n + n * n % 977)
        wait, run = float(n * 37 % 1_000), float(3 + n * n * 7_919 % 40_000)
        begin = submit + timedelta(seconds=wait)
        row = {
            "job_id": f"j{n}",
            "cluster": "earth" if n % 3 else "venus",
            "user": f"u{n % 7}" if n % 11 else None,
            "vc": f"vc{n % 4}",
            "job_name": f"train_{n % 9}",
            "group": f"g{n % 13}",
            "workload": ("pretrain", "eval")[n % 2],
            "submit_time": submit,
            "start_time": begin,
            "end_time": begin + timedelta(seconds=run),
            "num_gpus": (0.0, 0.25, 1.0, 2.0, 4.0, 8.0, 16.0, None)[n % 8],
            "gpu_type": CARDS[n % 3],
            "allowed_gpu_types": [["V100"], [], None, ["A100", "V100"]][n % 4],
            "num_tasks": 1 + n % 2,
            "num_nodes": 1 + (n % 8 == 6),
            "num_cpus": 4.0,
            "mem_gib": 32.0,
            "time_limit_s": 86_400.0 if n % 5 else None,
            "status": ENDS[n % 5] if n % 17 else None,
            "duration_s": run,
            "queueing_delay_s": wait,
            "num_attempts": 1 + (n % 10 == 0),
            "censoring": "none",
            "flags": ["times_assumed"] if n % 29 == 0 else [],
        }
        if n % 41 == 0:
            row |= {"end_time": None, "status": "running", "censoring": "right"}
        if n % 43 == 0:
            row |= dict.fromkeys(("start_time", "end_time", "duration_s", "queueing_delay_s"))
            row |= {"status": "pending", "censoring": "never_started"}
        rows.append(row)
    return schema.sort_jobs(pl.DataFrame(rows, schema=schema.JOBS))


JOBS = make_jobs()
EMPTY = schema.empty_table("jobs")
CPU_ONLY = JOBS.with_columns(num_gpus=pl.lit(0.0), gpu_type=pl.lit(None, pl.String))
ONLY_IDS = pl.DataFrame([{"job_id": f"j{n}", "censoring": "none", "flags": []} for n in range(3)], schema=schema.JOBS)


GROUPS_OF = {name: pl.col(name) for name in GROUPS if name != "gpu_bucket"} | {
    "gpu_bucket": gpu_bucket().alias("gpu_bucket")
}


def trace_of(jobs: pl.DataFrame) -> Trace:
    return Trace(jobs, meta=TraceMeta(name="made"))


@pytest.fixture(scope="module")
def tables() -> dict[str, pl.DataFrame]:
    return characterize(trace_of(JOBS))


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_it_is(name: str) -> None:
    item = CHARACTERIZATIONS[name]
    assert isinstance(item, Characterization)
    assert item.title
    assert item.definition.endswith(".")
    assert "Returns\n" in str(item.function.__doc__) or "olumns as in" in str(item.function.__doc__)
    assert set(item.needs) <= set(schema.JOBS)
    assert set(item.own_groups) <= set(GROUPS)
    assert len({source.name for source in item.inputs}) == len(item.inputs)


@pytest.mark.parametrize("jobs", [EMPTY, ONLY_IDS, CPU_ONLY], ids=["empty", "only_ids", "cpu_only"])
def test_columns_do_not_depend_on_what_the_log_holds(jobs: pl.DataFrame, tables: dict[str, pl.DataFrame]) -> None:
    found = characterize(trace_of(jobs))
    assert {n: t.schema for n, t in found.items()} == {n: t.schema for n, t in tables.items()}


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_table_has_a_reason(name: str) -> None:
    item = CHARACTERIZATIONS[name]
    assert item.missing(trace_of(EMPTY)) == "The log holds no jobs."
    bare = trace_of(ONLY_IDS)
    assert (item.missing(bare) is None) == (item.table(bare).height > 0)


@pytest.mark.parametrize("group", sorted(GROUPS))
def test_every_table_of_each_group(group: str, tables: dict[str, pl.DataFrame]) -> None:
    grouped = characterize(trace_of(JOBS), by=group)
    empty = characterize(trace_of(EMPTY), by=group)
    for name, table in grouped.items():
        item = CHARACTERIZATIONS[name]
        if group in item.own_groups:
            assert table.equals(tables[name]), name
            continue
        assert table.columns == [group, *tables[name].columns], name
        assert empty[name].schema == table.schema, name
        assert not empty[name].height, name
        assert set(table[group].cast(pl.String)) <= set(JOBS.select(GROUPS_OF[group])[group].cast(pl.String)), name


@pytest.mark.parametrize("name", NAMES)
def test_a_group_of_its_own_is_the_whole(name: str) -> None:
    """A log of one VC, by VC, is the log: nothing is lost or counted twice by the grouping."""
    one = JOBS.with_columns(cluster=pl.lit("only"))
    item = CHARACTERIZATIONS[name]
    by = item.groups(("cluster",))
    assert item(trace_of(one), by=by).drop(by).equals(item(trace_of(one)))


def test_two_groups_come_in_the_order_asked_for(tables: dict[str, pl.DataFrame]) -> None:
    for name, table in characterize(trace_of(JOBS), by=("workload", "cluster")).items():
        by = CHARACTERIZATIONS[name].groups(("workload", "cluster"))
        assert table.columns == [*by, *tables[name].columns], name


def test_a_filter_is_the_same_as_fewer_jobs() -> None:
    chosen = pl.col("num_gpus") > 1
    filtered, fewer = characterize(trace_of(JOBS), where=chosen), characterize(trace_of(JOBS.filter(chosen)))
    assert [name for name in filtered if not filtered[name].equals(fewer[name])] == []


def test_the_order_of_the_rows_does_not_matter() -> None:
    plain = characterize(JOBS)
    for seed in (1, 2):
        shuffled = characterize(JOBS.sample(fraction=1.0, shuffle=True, seed=seed))
        assert [name for name in plain if not shuffled[name].equals(plain[name])] == []


def test_polars_lazy_and_pandas_give_the_same() -> None:
    eager = characterize(JOBS)
    lazy = characterize(JOBS.lazy())
    pandas = characterize(JOBS.drop("extra").to_pandas())
    for other in (lazy, pandas):
        assert [name for name in eager if not other[name].equals(eager[name])] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_table_alone_is_the_table_among_all(name: str, tables: dict[str, pl.DataFrame]) -> None:
    assert CHARACTERIZATIONS[name](trace_of(JOBS)).equals(tables[name])


def test_an_unknown_group_lists_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="no grouping of the jobs is named 'vcs' .*Did you mean 'vc'"):
        characterize(JOBS, by="vcs")


def test_an_unknown_engine_lists_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="no engine is named 'spark' .known: dask, polars"):
        characterize(JOBS, names=("summary",), engine="spark")
