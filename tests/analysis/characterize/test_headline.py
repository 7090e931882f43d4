"""Headline figures by hand, and the published ones against each other."""

from __future__ import annotations

import polars as pl
import pytest

from analysis import schema
from analysis.characterize import headline_figures
from analysis.trace import Trace, TraceMeta
from tests.jobs import make_jobs


def jobs():
    """Invented rows of the kind of Helios: two clusters, GPU and CPU jobs, the rare outcomes."""
    rows = [
        # cluster, GPUs, status, run, wait
        ("A", 8.0, "completed", 7200.0, 600.0),
        ("A", 0.0, "failed", 1.0, 0.0),
        ("A", 16.0, "timeout", 172_800.0, 60.0),
        ("A", 1.0, "suspended", 1800.0, 0.0),
        ("B", 4.0, "node_fail", 30.0, 10.0),
        ("B", 1.0, "cancelled", 0.0, 0.0),
        ("B", 0.0, "completed", 9.0, 4.0),
        ("B", 0.5, "cancelled", None, None),
    ]
    names = ("cluster", "num_gpus", "status", "duration_s", "queueing_delay_s")
    return make_jobs([dict(zip(names, row, strict=True)) for row in rows])


def test_one_row_by_hand_with_the_suspended_job_dropped_as_the_authors_do():
    table = headline_figures(jobs(), where=pl.col("status") != "suspended", name="two", total_gpus=64.0)
    row = table.row(0, named=True)
    assert table.height == 1
    assert (row["trace"], row["total_gpus"]) == ("two", 64.0)
    assert (row["num_jobs"], row["num_cpu_jobs"], row["num_gpu_jobs"]) == (7, 2, 5)
    assert row["mean_gpu_duration_s"] == pytest.approx((7200 + 172_800 + 30 + 0) / 4)
    assert (row["median_gpu_duration_s"], row["max_gpu_duration_s"]) == ((30 + 7200) / 2, 172_800)
    assert (row["mean_cpu_duration_s"], row["median_cpu_duration_s"]) == (5, 5)
    assert (row["mean_gpu_queueing_delay_s"], row["median_gpu_queueing_delay_s"]) == (670 / 4, 35)
    assert (row["mean_cpu_queueing_delay_s"], row["max_cpu_queueing_delay_s"]) == (2, 4)
    assert (row["mean_gpus"], row["median_gpus"], row["max_gpus"]) == (29.5 / 5, 4, 16)
    shares = [row[f"gpu_{name}_share"] for name in ("completed", "cancelled", "failed")]
    assert shares == pytest.approx([1 / 5, 2 / 5, 2 / 5])
    assert [row[f"all_{name}_share"] for name in ("completed", "failed")] == pytest.approx([2 / 7, 3 / 7])
    assert row["cpu_failed_share"] == 0.5
    work = [8 * 7200, 0, 16 * 172_800 + 4 * 30]
    assert [row[f"{name}_gpu_s"] for name in ("completed", "cancelled", "failed")] == pytest.approx(work)
    assert row["failed_gpu_time_share"] == pytest.approx(work[2] / sum(work))


def test_a_row_a_cluster_and_one_for_all():
    table = headline_figures(jobs(), by="cluster", total_gpus=64.0)
    assert table.select("cluster", "num_jobs", "max_gpus", "total_gpus").rows() == [
        ("A", 4, 16, None),
        ("B", 4, 4, None),
    ]
    whole = headline_figures(jobs()).row(0, named=True)
    mean = sum(table["mean_gpu_duration_s"] * pl.Series([3, 2])) / 5
    assert whole["mean_gpu_duration_s"] == pytest.approx(mean)


def test_a_trace_brings_its_name_and_its_gpus():
    nodes = pl.DataFrame([{"node_id": "n", "num_gpus": 8}], schema=schema.NODES)
    trace = Trace(jobs(), meta=TraceMeta(name="mine"), tables={"nodes": nodes})
    assert headline_figures(trace).select("trace", "total_gpus").row(0) == ("mine", 8.0)


def test_nothing_is_not_zero():
    table = headline_figures(make_jobs([{"num_gpus": 0.0, "status": "completed"}])).row(0, named=True)
    assert table["num_gpu_jobs"] == 0
    for name in ("mean_gpu_duration_s", "median_gpu_duration_s", "max_gpus", "gpu_completed_share"):
        assert table[name] is None
    assert table["completed_gpu_time_share"] is None
    assert headline_figures(make_jobs([])).height == 0


@pytest.mark.full_trace
def test_the_published_rows_of_helios_add_up_to_their_total_under_our_definitions(real_data):
    # What the table means by a mean and a share is what the authors mean: their total follows from their rows.
    rows = pl.read_csv(real_data("helios/published_cluster_summary.csv"))
    total = rows.filter(pl.col("id").str.to_lowercase() == "total").row(0, named=True)
    parts = rows.filter(pl.col("id").str.to_lowercase() != "total")
    for kind in ("cpu", "gpu"):
        count = parts[f"{kind}_job_num"]
        assert count.sum() == total[f"{kind}_job_num"]
        for name in (f"avg_run_time_{kind}", f"avg_que_time_{kind}"):
            assert (parts[name] * count).sum() / count.sum() == pytest.approx(total[name], abs=0.001)
        for name in ("complete", "cancel", "fail"):
            mean = (parts[f"{name}_rate_{kind}"] * count).sum() / count.sum()
            assert mean == pytest.approx(total[f"{name}_rate_{kind}"], abs=0.001)
    gpu_jobs = parts["gpu_job_num"]
    assert (parts["avg_gpu_num"] * gpu_jobs).sum() / gpu_jobs.sum() == pytest.approx(total["avg_gpu_num"], abs=0.001)


def test_shares_of_a_log_that_says_no_end_are_unknown_and_not_0():
    ends = ("completed", "cancelled", "failed")
    shares = [f"{part}_{end}_share" for part in ("all", "cpu", "gpu") for end in ends]
    shares += [f"{end}_{part}" for part in ("gpu_s", "gpu_time_share") for end in ends]
    for nothing in (pl.lit(None, schema.STATUS), pl.lit("unknown", schema.STATUS)):
        row = headline_figures(jobs().with_columns(status=nothing)).row(0, named=True)
        assert [row[name] for name in shares] == [None] * len(shares)
    half = pl.when(pl.col("num_gpus") > 0).then("status")
    row = headline_figures(jobs().with_columns(status=half)).row(0, named=True)
    assert row["cpu_completed_share"] is None
    assert row["gpu_completed_share"] == pytest.approx(1 / 6)
