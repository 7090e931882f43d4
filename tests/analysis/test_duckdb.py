"""A written Trace opens in DuckDB, an engine of its own, with the right types and the same values."""

from __future__ import annotations

import duckdb
import polars as pl
import pytest

from analysis import metrics
from analysis.loaders.synthetic import synthesize
from analysis.trace import Trace

TYPES = {
    "job_id": "VARCHAR",
    "submit_time": "TIMESTAMP WITH TIME ZONE",
    "end_time": "TIMESTAMP WITH TIME ZONE",
    "num_gpus": "DOUBLE",
    "allowed_gpu_types": "VARCHAR[]",
    "num_tasks": "BIGINT",
    "is_single_node": "BOOLEAN",
    "duration_s": "DOUBLE",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return synthesize(like="venus", num_jobs=500, seed=4).write(tmp_path_factory.mktemp("duckdb") / "T")


@pytest.fixture
def database():
    with duckdb.connect() as connection:
        yield connection


def test_columns_have_the_right_types(folder, database):
    rows = database.execute(f"describe select * from '{folder}/jobs.parquet'").fetchall()
    found = {row[0]: row[1] for row in rows}
    assert {name: found[name] for name in TYPES} == TYPES
    assert found["status"] in ("VARCHAR",) or found["status"].startswith("ENUM")
    assert found["flags"].endswith("[]")


def test_sums_counts_and_instants_are_those_of_polars(folder, database):
    jobs = Trace.read(folder).jobs
    query = f"""
        select count(*), sum(num_gpus * duration_s), count(*) filter (status::varchar = 'completed'),
               epoch_us(min(submit_time)), count(time_limit_s), avg(len(flags))
        from '{folder}/jobs.parquet'
    """
    count, gpu_s, completed, first, limits, flags = database.execute(query).fetchone()
    assert count == jobs.height
    assert gpu_s == pytest.approx(jobs.select(metrics.gpu_s().sum()).item(), rel=1e-12)
    assert completed == jobs.filter(pl.col("status") == "completed").height
    assert first == jobs["submit_time"].dt.epoch("us").min()
    assert (limits, flags) == (0, 0)


def test_tables_join_by_node_and_vc(folder, database):
    query = f"""
        select sum(n.num_gpus) from '{folder}/nodes.parquet' n
        where n.vc in (select distinct vc from '{folder}/jobs.parquet')
    """
    trace = Trace.read(folder)
    used = trace.nodes.filter(pl.col("vc").is_in(trace.jobs["vc"].unique().to_list()))
    assert database.execute(query).fetchone()[0] == used["num_gpus"].sum()
