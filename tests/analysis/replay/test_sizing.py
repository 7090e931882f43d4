"""A cluster from a trace: its nodes, else its quotas, else what is in use or submitted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from analysis import schema
from analysis.errors import UnknownNameError, UsageError
from analysis.replay import Cluster
from analysis.trace import Trace, TraceMeta
from tests.jobs import make_jobs

T0 = datetime(2024, 1, 1, tzinfo=UTC)


def at(seconds):
    return T0 + timedelta(seconds=seconds)


def trace_of(rows, **tables):
    full = {
        name: pl.DataFrame(values, schema={column: schema.TABLES[name][column] for column in values[0]}).select(
            pl.col(column) if column in values[0] else pl.lit(None, dtype=dtype).alias(column)
            for column, dtype in schema.TABLES[name].items()
        )
        for name, values in tables.items()
    }
    return Trace(make_jobs(rows), meta=TraceMeta(name="t"), tables=full)


def test_the_nodes_table_is_taken_as_it_is():
    nodes = [{"node_id": "b", "num_gpus": 2, "gpu_type": "T4"}, {"node_id": "a", "num_gpus": 0, "gpu_type": None}]
    cluster = Cluster.from_trace(trace_of([{}], nodes=nodes))
    assert cluster.num_gpus == 2
    assert cluster.gpu_types == ["T4"]
    assert cluster.notes == ()


def test_quotas_become_nodes_of_eight_and_one_for_the_rest():
    quotas = [
        {"vc": "v", "time": at(0), "num_gpus": 20.0},
        {"vc": "v", "time": at(9), "num_gpus": 12.0},
        {"vc": "w", "time": at(0), "num_gpus": 8.0},
    ]
    cluster = Cluster.from_trace(trace_of([{}], capacity=quotas))
    assert cluster.nodes.select("vc", "num_gpus").rows() == [("v", 8), ("v", 8), ("v", 4), ("w", 8)]
    assert "largest quota" in cluster.notes[0]


def test_quotas_over_time_drain_the_last_nodes_of_a_vc():
    """a has 20 GPUs as nodes of 8, 8 and 4; 9 of them suffice for one node only, 16 for two, and 20 for all."""
    rows = [("a", 0, 20), ("a", 1, 9), ("a", 3, 16), ("a", 4, 16), ("a", 5, 20), ("b", 0, 8), ("b", 2, 0)]
    trace = trace_of([{}], capacity=[{"vc": vc, "time": at(s), "num_gpus": float(gpus)} for vc, s, gpus in rows])
    cluster = Cluster.from_trace(trace, quotas="over_time")
    assert sorted(cluster.outages.select("node_id", "down", "up", "kind").rows(), key=str) == [
        ("a-001", at(1), at(3), "drain"),
        ("a-002", at(1), at(5), "drain"),
        ("b-000", at(2), None, "drain"),
    ]
    assert Cluster.from_trace(trace).is_steady
    with pytest.raises(UnknownNameError, match="over_time"):
        Cluster.from_trace(trace, quotas="never")  # type: ignore[arg-type]


def test_the_peak_in_use_is_rounded_up_to_whole_nodes_and_an_end_comes_before_a_start():
    # 6 GPUs in [0, 10), 5 in [10, 20), 4 in [12, 20): at most 9 at once, so two nodes of 8
    spans = [(6.0, 0, 10), (5.0, 10, 20), (4.0, 12, 20)]
    rows = [
        {"job_id": str(i), "num_gpus": gpus, "submit_time": T0, "start_time": at(start), "end_time": at(end)}
        for i, (gpus, start, end) in enumerate(spans)
    ]
    cluster = Cluster.from_trace(trace_of(rows))
    assert cluster.num_gpus == 16
    assert "at most 9 GPUs in use" in cluster.notes[0]


def test_without_start_times_submitted_work_is_a_load_of_nine_tenths():
    # 100 jobs of 9 GPU x 8 s over 99 s: 7,200 GPU-s / (0.9 x 99 s) = 80.8 GPUs, so eleven nodes
    rows = [
        {"job_id": str(i), "num_gpus": 9.0, "duration_s": 8.0, "submit_time": at(i), "flags": ["times_assumed"]}
        for i in range(100)
    ]
    cluster = Cluster.from_trace(trace_of(rows))
    assert cluster.num_gpus == 88
    assert "no start times" in cluster.notes[0]


def test_it_is_never_narrower_than_the_widest_job():
    rows = [{"job_id": "1", "num_gpus": 17.0, "duration_s": 1.0, "submit_time": T0}]
    assert Cluster.from_trace(trace_of(rows)).num_gpus == 24


def test_a_trace_without_gpus_has_no_cluster():
    with pytest.raises(UsageError, match="no node, no quota and no job with a GPU.*--cluster 52x8"):
        Cluster.from_trace(trace_of([{"num_gpus": 0.0}]))
