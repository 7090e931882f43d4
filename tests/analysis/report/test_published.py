"""Published rows: the figures of the authors' own files, and a log of ours beside them."""

from __future__ import annotations

import csv

import polars as pl
import pytest

from analysis.characterize import characterize
from analysis.loaders.synthetic import synthesize
from analysis.report import compare_with_published, published_gains, published_rows
from analysis.report.published import COLUMNS, describe

#: Our column -> theirs.
THEIRS = {
    "num_jobs": "job_num",
    "num_gpu_jobs": "gpu_job_num",
    "mean_duration_s": "avg_run_time_gpu",
    "median_duration_s": "med_run_time_gpu",
    "mean_queueing_delay_s": "avg_que_time_gpu",
    "median_queueing_delay_s": "med_que_time_gpu",
    "mean_gpus": "avg_gpu_num",
    "median_gpus": "med_gpu_num",
    "completed_share": "complete_rate_gpu",
    "cancelled_share": "cancel_rate_gpu",
    "failed_share": "fail_rate_gpu",
}


@pytest.mark.parametrize("file", ["published_acme_cluster_summary.csv", "published_cluster_summary.csv"])
def test_every_figure_is_that_of_the_authors_file(real_data, file):
    rows = {row["trace"]: row for row in published_rows().iter_rows(named=True)}
    with real_data(f"helios/{file}").open(encoding="utf-8") as lines:
        theirs = list(csv.DictReader(lines))
    assert len(theirs) == 5
    for row in theirs:
        ours = rows["Helios" if row["id"] == "total" else row["id"]]
        for our_name, their_name in THEIRS.items():
            if row[their_name]:
                assert ours[our_name] == pytest.approx(float(row[their_name]), abs=1e-9), (row["id"], our_name)
        spent = [float(row[f"{end}_gpu_time"] or 0) for end in ("complete", "cancel", "fail")]
        if all(spent):
            for name, part in zip(("completed", "cancelled", "failed"), spent, strict=True):
                assert ours[f"{name}_gpu_time_share"] == pytest.approx(part / sum(spent))


def test_every_row_says_where_it_comes_from():
    rows = published_rows()
    assert rows["trace"].n_unique() == rows.height
    assert rows["citation"].str.len_chars().min() > 20
    assert set(rows["certainty"]) <= {"authors", "computed", "secondary"}
    assert {"Philly", "Helios", "Venus", "Earth", "Saturn", "Uranus", "Seren", "Kalos", "PAI"} <= set(rows["trace"])
    shares = rows.select(pl.selectors.ends_with("_share")).to_numpy()
    assert ((shares >= 0) & (shares <= 1) | (shares != shares)).all()
    assert published_gains()["citation"].str.len_chars().min() > 10
    assert (published_gains()["times_shorter"] > 1).all()


def test_openb_is_what_a_count_of_its_file_gives(real_data):
    pods = pl.read_csv(real_data("alibaba/openb_pod_list_default.csv"))
    gpus = pods.filter(pl.col("num_gpu") > 0)
    asked = gpus["num_gpu"] * gpus["gpu_milli"] / 1000
    row = published_rows().filter(pl.col("trace") == "openb").row(0, named=True)
    assert (row["num_jobs"], row["num_gpu_jobs"]) == (pods.height, gpus.height)
    assert row["mean_gpus"] == pytest.approx(asked.mean(), abs=5e-4)
    assert row["single_gpu_share"] == pytest.approx((asked <= 1).mean(), abs=5e-4)
    ran = gpus["deletion_time"] - gpus["scheduled_time"]
    assert row["median_duration_s"] == ran.median()
    assert row["mean_duration_s"] == pytest.approx(ran.mean(), abs=0.005)


def test_a_log_calibrated_to_venus_stands_beside_venus():
    table = compare_with_published({"mine": characterize(synthesize(like="venus", num_jobs=20_000, seed=1))})
    assert list(table.schema) == list(COLUMNS)
    mine, venus = (table.filter(pl.col("trace") == name).row(0, named=True) for name in ("mine", "Venus"))
    assert (mine["is_published"], venus["is_published"]) == (False, True)
    for outcome in ("completed", "cancelled", "failed"):
        assert mine[f"{outcome}_share"] == pytest.approx(venus[f"{outcome}_share"], abs=0.02)
    assert mine["median_duration_s"] == pytest.approx(venus["median_duration_s"], rel=0.1)


def test_outcomes_are_null_where_most_of_them_are_not_known():
    tables = characterize(synthesize(like="venus", num_jobs=300, seed=1))
    status = tables["status"]
    blind = {**tables, "status": status.with_columns(status=pl.lit("unknown").cast(status["status"].dtype))}
    assert describe(tables, name="x")["completed_share"] is not None
    assert describe(blind, name="x")["completed_share"] is None
