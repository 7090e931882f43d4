"""GPUs in use by type, load of virtual clusters, and what was measured: small cases counted by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from analysis import schema
from analysis.characterize import (
    allocation_by_gpu_type,
    allocation_over_time,
    idle_gpu_hours,
    loads_of_vcs,
    measured_series,
    running_gpus_summary,
    use_of_devices,
    vc_imbalance,
)
from analysis.loaders import load
from analysis.trace import Trace, TraceMeta
from tests.conftest import ROOT
from tests.jobs import make_jobs

T0 = datetime(2024, 1, 1, tzinfo=UTC)


def at(seconds):
    return T0 + timedelta(seconds=seconds)


def job(job_id, start, end, gpus, **more):
    times = {"submit_time": at(start), "start_time": at(start), "end_time": at(end), "duration_s": float(end - start)}
    return {"job_id": job_id, "num_gpus": gpus, **times, **more}


def trace(rows, *, window=(0, 200), **tables):
    ends = tuple(at(moment).isoformat() for moment in window)
    return Trace(make_jobs(rows), meta=TraceMeta(name="t", window=ends), tables=tables)


def nodes(*rows):
    names = ("node_id", "gpu_type", "num_gpus", "vc")
    return pl.DataFrame([dict(zip(names, row, strict=True)) for row in rows], schema=schema.NODES)


class TestAllocation:
    LOG = trace(
        [job("a", 0, 100, 8.0, gpu_type="V100"), job("b", 50, 150, 4.0, gpu_type="V100"), job("c", 0, 50, 1.0)],
        nodes=nodes(("n1", "V100", 16, None), ("n2", "T4", 4, None), ("n3", None, 0, None)),
    )

    def test_by_type(self):
        table = allocation_by_gpu_type(self.LOG)
        assert table["gpu_type"].to_list() == ["T4", "V100", None]
        idle, used, unsaid = table.iter_rows(named=True)
        assert (idle["num_jobs"], idle["mean_gpus"], idle["gpu_allocation"]) == (0, 0, 0)
        assert (used["mean_gpus"], used["peak_gpus"]) == (1200 / 200, 12)
        assert (used["gpu_allocation"], used["peak_allocation"]) == (6 / 16, 12 / 16)
        assert used["capacity_share"] == 0.8
        assert used["gpu_time_share"] == pytest.approx(1200 / 1250)
        assert (unsaid["mean_gpus"], unsaid["total_gpus"], unsaid["gpu_allocation"]) == (0.25, None, None)

    def test_where_no_job_says_its_type_all_gpus_stand_together(self):
        untyped = self.LOG.replace_jobs(self.LOG.jobs.with_columns(gpu_type=pl.lit(None, pl.String)))
        table = allocation_by_gpu_type(untyped)
        assert table.select("gpu_type", "total_gpus", "gpu_allocation").rows() == [(None, 20.0, 1250 / 200 / 20)]

    def test_over_time(self):
        table = allocation_over_time(self.LOG, max_bins=4).filter(gpu_type="V100")
        assert table.select("time", "bin_s", "mean_gpus", "max_gpus", "gpu_allocation").rows() == [
            (at(0), 60.0, pytest.approx((8 * 50 + 12 * 10) / 60), 12, pytest.approx((8 * 50 + 12 * 10) / 960)),
            (at(60), 60.0, pytest.approx((12 * 40 + 4 * 20) / 60), 12, pytest.approx((12 * 40 + 4 * 20) / 960)),
            (at(120), 60.0, 2, 4, 0.125),
            (at(180), 20.0, 0, 0, 0),
        ]

    def test_a12_average_and_peak_are_both_told(self):
        # Capacity 16; 8 GPUs in [0, 100) and in [50, 150); window [0, 200): half on average, all at one time.
        rows = [job("a", 0, 100, 8.0), job("b", 50, 150, 8.0)]
        log = trace(rows, nodes=nodes(("n1", None, 16, None)))
        row = running_gpus_summary(log).row(0, named=True)
        assert (row["gpu_allocation"], row["peak_allocation"], row["peak_time"]) == (0.5, 1.0, at(50))
        assert allocation_by_gpu_type(log).select("gpu_allocation", "peak_allocation").row(0) == (0.5, 1.0)


class TestVcLoad:
    ROWS = (
        job("a", 0, 100, 4.0, vc="x"),
        job("b", 100, 200, 2.0, vc="x"),
        job("c", 150, 200, 4.0, vc="y"),
        job("d", 0, 200, 1.0),
    )
    NODES = nodes(("n1", None, 2, "x"), ("n2", None, 4, "y"), ("n3", None, 4, "z"), ("n4", None, 8, None))

    def test_against_quotas(self):
        table = loads_of_vcs(trace(self.ROWS, nodes=self.NODES))
        x, y = table.iter_rows(named=True)
        assert (x["vc"], x["num_jobs"], x["quota_gpus"], x["mean_gpus"], x["peak_gpus"]) == ("x", 2, 2, 3, 4)
        assert (x["mean_load"], x["peak_load"], x["over_quota_time_share"], x["idle_time_share"]) == (1.5, 2, 0.5, 0)
        assert (y["mean_load"], y["peak_load"], y["idle_time_share"]) == (0.25, 1, 0.75)
        assert x["gpu_time_share"] == pytest.approx(600 / 800)
        assert x["gpu_hours"] == pytest.approx(600 / 3600)

    def test_without_quotas_only_the_use_is_known(self):
        table = loads_of_vcs(trace(self.ROWS))
        assert table["mean_gpus"].to_list() == [3, 1]
        assert table["mean_load"].null_count() == table["over_quota_time_share"].null_count() == 2
        assert vc_imbalance(trace(self.ROWS)).height == 0

    def test_a_quota_over_time(self):
        changes = [("x", at(0), 2.0), ("x", at(150), 4.0), ("y", at(0), 0.0), ("y", at(100), 8.0)]
        log = trace(self.ROWS, capacity=pl.DataFrame(changes, schema=schema.CAPACITY, orient="row"))
        x, y = loads_of_vcs(log).iter_rows(named=True)
        assert (x["quota_gpus"], x["mean_load"], x["peak_load"]) == (2.5, 3 / 2.5, 2)
        assert (y["quota_gpus"], y["peak_load"]) == (4, 0.5)

    def test_imbalance_over_time(self):
        table = vc_imbalance(trace(self.ROWS, nodes=self.NODES), max_bins=20)
        rows = {row["time"]: row for row in table.iter_rows(named=True)}
        assert table.height == 20
        first, last = rows[at(0)], rows[at(190)]
        # x has twice its quota in use; y and z, which nobody ever used, nothing.
        assert (first["num_vcs"], first["load"]) == (3, 0.4)
        assert (first["min_vc_load"], first["max_vc_load"], first["mean_vc_load"]) == (0, 2, pytest.approx(2 / 3))
        # Loads 2, 0, 0: mean 2/3, variance 8/9.
        assert first["coefficient_of_variation"] == pytest.approx((8 / 9) ** 0.5 / (2 / 3))
        assert (first["full_vc_share"], last["full_vc_share"]) == (pytest.approx(1 / 3), pytest.approx(2 / 3))
        assert last["load"] == 0.6


def usage(*rows):
    names = ("job_id", "gpu_utilization_mean", "gpu_mem_gib_max")
    return pl.DataFrame([dict(zip(names, row, strict=True)) for row in rows], schema=schema.USAGE)


class TestMeasuredUse:
    ROWS = (
        job("a", 0, 3600, 4.0),
        job("b", 0, 3600, 2.0),
        job("c", 0, 3600, 1.0),
        job("d", 0, 3600, 0.0),
        job("e", 0, 7200, 1.0),
    )
    # B60: 396 % over four GPUs is 0.99; b was not measured; c's 0 is a 0; d is a CPU job; e used 120 % of its share.
    LOG = trace(ROWS, usage=usage(("a", 0.99, 30.0), ("c", 0.0, None), ("d", None, None), ("e", 1.2, 2.0)))

    def test_b60_missing_is_not_zero_and_cpu_jobs_are_not_listed(self):
        rows = {row["metric"]: row for row in use_of_devices(self.LOG).iter_rows(named=True)}
        assert set(rows) == {"gpu_utilization_mean", "gpu_mem_gib_max"}
        share = rows["gpu_utilization_mean"]
        assert (share["num_jobs"], share["num_measured"], share["coverage"]) == (4, 3, 0.75)
        assert share["mean"] == pytest.approx((0.99 + 0 + 1.2) / 3)
        assert share["gpu_time_weighted_mean"] == pytest.approx((4 * 0.99 + 0 + 2 * 1.2) / (4 + 1 + 2))
        assert (share["p50"], share["max"]) == (0.99, 1.2)
        # Memory of a job for which nothing was allocated is null, not 0.
        assert (rows["gpu_mem_gib_max"]["num_measured"], rows["gpu_mem_gib_max"]["num_above_one"]) == (2, None)

    def test_a18_use_above_what_was_asked_for_is_flagged_not_clipped(self):
        row = use_of_devices(self.LOG).filter(metric="gpu_utilization_mean").row(0, named=True)
        assert (row["num_above_one"], row["max"]) == (1, 1.2)
        assert idle_gpu_hours(self.LOG).filter(bucket="all")["num_above_one"].item() == 1

    def test_a20_a_measurement_of_one_of_three_covers_a_third(self):
        log = trace([job(name, 0, 60, 1.0) for name in "abc"], usage=usage(("a", 0.4, None)))
        row = use_of_devices(log).row(0, named=True)
        assert (row["mean"], row["num_measured"], row["num_jobs"]) == (0.4, 1, 3)
        assert row["coverage"] == pytest.approx(1 / 3)

    def test_idle_gpu_hours(self):
        rows = {row["bucket"]: row for row in idle_gpu_hours(self.LOG).iter_rows(named=True)}
        assert list(rows) == ["all", "1", "3-4"]
        whole = rows["all"]
        assert (whole["num_jobs"], whole["num_measured"], whole["gpu_hours"]) == (4, 3, 9)
        assert whole["measured_gpu_hours"] == 7
        # 4 h of a at 1 %, 1 h of c all idle, none of e.
        assert whole["idle_gpu_hours"] == pytest.approx(0.04 + 1)
        assert whole["idle_share"] == pytest.approx(1.04 / 7)
        assert whole["gpu_utilization"] == pytest.approx(6.36 / 7)
        assert rows["1"]["low_use_job_share"] == 0.5

    def test_a_log_without_usage_has_empty_tables_of_the_same_columns(self):
        for item in (use_of_devices, idle_gpu_hours):
            assert item(trace(self.ROWS)).schema == item(self.LOG).schema
            assert item(trace(self.ROWS)).height == 0


class TestSeries:
    def series(self, *rows):
        return pl.DataFrame(rows, schema=schema.USAGE_SERIES, orient="row")

    def test_counts_shares_and_quantiles(self):
        values = [0.0, 0.0, 0.5, 1.0, 1.5]
        rows = [(f"g{n % 2}", at(n), "gpu_utilization", value) for n, value in enumerate(values)]
        rows += [("g0", at(9), "gpu_utilization", None), ("g0", at(0), "gpu_power_w", 312.4)]
        log = trace([job("a", 0, 1, 1.0)], usage_series=self.series(*rows))
        power, share = measured_series(log).iter_rows(named=True)
        assert (share["num_entities"], share["num_samples"], share["num_missing"]) == (2, 5, 1)
        assert (share["mean"], share["p50"], share["max"]) == (0.6, 0.5, 1.5)
        assert (share["zero_share"], share["above_one_share"]) == (0.4, 0.2)
        assert (power["mean"], power["max"], power["above_one_share"]) == (312.4, 312.4, None)
        assert measured_series(log, by="vc").equals(measured_series(log))

    def test_a21_a_machines_sample_counts_once_though_each_of_its_workers_repeats_it(self, tmp_path):
        # Two workers overlap on a machine of two GPUs, and both rows say machine_gpu 80: 0.40 of it, not 0.80.
        (tmp_path / "pai_job_table.csv").write_text("j1,i1,u1,Terminated,500000.0,503600.0\n")
        (tmp_path / "pai_machine_spec.csv").write_text("m1,T4,96,512,2\n")
        row = "m1,500000.0,503600.0,0.0,1.0,9.0,80.0,4.0,1.0e7,2.0,10.0\n"
        (tmp_path / "pai_machine_metric.csv").write_text(f"w1,{row}w2,{row}")
        table = measured_series(load("pai", tmp_path))
        share = table.filter(metric="gpu_utilization").row(0, named=True)
        assert (share["num_samples"], share["mean"]) == (1, 0.4)

    @pytest.mark.parametrize("sample", ["acme", "genai", "mit_supercloud"])
    def test_the_hand_made_samples_of_sources_with_series(self, sample):
        folder = ROOT / "tests" / "golden" / sample / "raw"
        log = load(sample, folder)
        series = log.scan("usage_series").collect()
        table = measured_series(log)
        assert table["metric"].to_list() == sorted(series["metric"].unique())
        for row in table.iter_rows(named=True):
            values = series.filter(metric=row["metric"])["value"]
            assert row["num_samples"] + row["num_missing"] == len(values)
            assert row["mean"] == pytest.approx(values.mean())
            assert row["p50"] == pytest.approx(values.median(), rel=0.005)

    def test_phillys_minutes(self, tmp_path):
        # NA is no sample of 0: of four GPU-minutes three were measured, one of them idle.
        rows = ["2017-10-09 07:05:00 PDT,m7,50.0,0.0,", "2017-10-09 07:06:00 PDT,m7,100.0,NA,"]
        (tmp_path / "cluster_gpu_util").write_text("time,machineId,gpu0_util,gpu1_util\n" + "\n".join(rows) + "\n")
        row = measured_series(load("philly", tmp_path)).row(0, named=True)
        assert (row["metric"], row["num_entities"], row["num_samples"], row["num_missing"]) == (
            "gpu_utilization",
            2,
            3,
            1,
        )
        assert (row["mean"], row["p50"], row["max"], row["zero_share"]) == (0.5, 0.5, 1.0, pytest.approx(1 / 3))
