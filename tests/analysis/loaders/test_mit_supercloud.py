"""MIT Supercloud: the numbers of Slurm's database, both layouts, the GPU series, and counts of the real file."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl
import pytest

from analysis.errors import UsageError
from analysis.loaders import load
from analysis.loaders.mit_supercloud_tres import BASES, with_states

HEADER = (
    "id_job,id_user,state,time_submit,time_start,time_end,time_suspended,timelimit,tres_alloc,tres_req,mem_req,cpus_req,"
    "nodes_alloc,nodelist,partition,gres_alloc"
)


@pytest.fixture
def log(tmp_path):
    def make(*rows, header=HEADER, name="slurm-log.csv"):
        path = tmp_path / name
        path.write_text("\n".join([header, *rows]) + "\n")
        return load("mit_supercloud", path)

    return make


def one(trace):
    assert trace.jobs.height == 1
    return trace.jobs.row(0, named=True)


def test_a33_tres_by_number(log):
    trace = log(
        '1,9,3,1600000000,1600000010,1600000020,0,60,"1=4,2=38400,4=2,5=4,1002=3","1=4,4=2",,4,2,[],normal,',
        '2,9,3,1600000001,1600000010,1600000020,0,60,"1=8,2=9600,4=1","1=8,4=1",,8,1,[],normal,',
    )
    columns = ("num_cpus", "mem_gib", "num_nodes", "num_gpus")
    assert trace.jobs.select(columns).rows() == [(4, 38_400 / 1024, 2, 3), (8, 9600 / 1024, 1, 0)]


def test_states_are_a_byte_and_flags():
    states = {
        **{str(number): status for number, status in BASES.items()},
        "1024": "preempted",
        "2048": "preempted",
        "32771": "completed",  # completing, on 3
        "256": "failed",  # launch failed, on 0
        "524288": "cancelled",  # revoked
        "77": "unknown",
        "soon": "unknown",
    }
    found = with_states(pl.DataFrame({"state": list(states)}))
    assert dict(found.select("status_raw", "status").iter_rows()) == states


@pytest.mark.parametrize(
    ("limit", "seconds"), [("4320", 259_200), ("4294967295", None), ("4294967294", None), ("0", None), ("", None)]
)
def test_limits_and_their_sentinels(log, limit, seconds):
    assert one(log(f"1,9,3,1600000000,1600000010,1600000020,0,{limit},,,,,,[],normal,"))["time_limit_s"] == seconds


@pytest.mark.parametrize(
    ("memory", "gib"),
    [
        (str((1 << 63) + 10_000), 40 * 10_000 / 1024),  # per processor
        ("8000", 8000 / 1024),
        ("9.22337e+18", None),  # a float has swallowed the number
        ("0", None),
    ],
)
def test_memory_with_the_highest_bit_is_per_processor(log, memory, gib):
    assert one(log(f"1,9,3,1600000000,1600000010,1600000020,0,60,,,{memory},40,1,[],normal,"))["mem_gib"] == gib


def test_a_row_without_any_resources_has_unknown_gpus(log):
    job = one(log("1,9,3,1600000000,1600000010,1600000020,0,60,,,,,,[],normal,"))
    assert (job["num_gpus"], job["flags"]) == (None, ["unknown_gpus"])
    assert one(log("1,9,3,1600000000,1600000010,1600000020,0,60,,,,,,[],normal,gpu:volta:2"))["num_gpus"] == 2


def test_a_requeue_is_a_second_run_and_another_user_another_job(log):
    trace = log(
        "1,9,1024,1600000000,1600000010,1600000110,0,60,,,,,,['a'],normal,",
        "1,9,3,1600000110,1600000200,1600000300,40,60,,,,,,\"['a', 'b']\",normal,",
        "2,9,3,1600000000,1600000010,1600000110,0,60,,,,,,['a'],normal,",
        "2,8,3,1600000050,1600000060,1600000070,0,60,,,,,,['a'],normal,",
    )
    jobs = {row["job_id"]: row for row in trace.jobs.iter_rows(named=True)}
    assert set(jobs) == {"1", "2/2020-09-13T12:26:40Z", "2/2020-09-13T12:27:30Z"}
    assert (jobs["1"]["duration_s"], jobs["1"]["num_attempts"], jobs["1"]["status"]) == (160, 2, "completed")
    assert trace.attempts.filter(job_id="1")["nodes"].to_list() == [["a"], ["a", "b"]]
    report = trace.meta.load_report
    assert (report.rows_in, report.rows_used, report.rows_merged) == (4, 4, 1)


def test_the_relative_layout_has_its_id_last_and_minus_one_for_missing(log):
    header = "id_user,state,time_submit,time_start,time_end,timelimit,tres_alloc,tres_req,gres_req,gres_alloc,nodelist"
    header += ",id_job"
    trace = log(
        "9,3,0,0,100,60,,,gpu:volta:2,gpu:volta:2,['r0-n1'],1",
        "9,4,5,-1,20,60,,,,,[],2",
        header=header,
        name="scheduler_data.csv",
    )
    jobs = trace.jobs
    assert trace.meta.clock == "relative"
    assert jobs["num_gpus"].to_list() == [2, None]
    assert jobs["censoring"].to_list() == ["none", "never_started"]
    assert (jobs["duration_s"][0], jobs["queueing_delay_s"][0]) == (100, 0)


def test_gpu_series_become_usage_and_series(tmp_path):
    header = "timestamp,gpu_index,utilization_gpu_pct,utilization_memory_pct,memory_used_MiB,power_draw_W"
    rows = [f"{1_614_556_800 + i / 10:.1f},{i % 2},{i},0,{1024 * i},{100 + i}" for i in range(101)]
    folder = tmp_path / "gpu" / "0001"
    folder.mkdir(parents=True)
    (folder / "42-r1-n1.csv").write_text("\n".join([header, *rows, "x,0,1,1,1,1"]) + "\n")
    trace = load("auto", tmp_path)
    usage = trace.usage.row(0, named=True)
    assert usage["job_id"] == "42"
    assert usage["gpu_utilization_mean"] == pytest.approx(0.5)
    # Of 0, 1 … 100 percent, 51 samples are at most 50 % and 96 at most 95 %.
    assert (usage["gpu_utilization_p50"], usage["gpu_utilization_p95"]) == (0.5, 0.95)
    assert usage["gpu_mem_gib_max"] == 100
    series = trace.table("usage_series")
    power = series.filter((pl.col("metric") == "gpu_power_w") & (pl.col("entity") == "42-r1-n1/1")).sort("time")
    assert power.height == 50
    assert power.row(0)[1:] == (datetime(2021, 3, 1, 0, 0, 0, 100_000, tzinfo=UTC), "gpu_power_w", 101)
    report = trace.meta.load_report
    assert (report.rows_in, report.rows_set_aside, report.rejected_by_reason) == (102, 1, {"unreadable_timestamp": 1})


def test_a_time_of_no_century_is_set_aside(log):
    trace = log(
        "1,9,3,1600000000,99999999999999999999,1600000020,0,60,,,,,,[],normal,",
        "2,9,3,1600000000,1600000010,1600000020,0,60,,,,,,[],normal,",
    )
    assert trace.jobs["job_id"].to_list() == ["2"]
    assert trace.meta.load_report.rejected_by_reason == {"unreadable_time_start": 1}


def test_two_job_tables_are_too_many(tmp_path):
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(HEADER + "\n")
    with pytest.raises(UsageError, match="found several job tables"):
        load("mit_supercloud", tmp_path)


@pytest.mark.full_trace
def test_the_real_file_has_9628_jobs_of_9582_ids(real_data):
    path = real_data("mit_supercloud/slurm-log-clean.csv")
    trace = load("auto", path)
    report = trace.meta.load_report
    assert (report.rows_in, report.rows_used, report.rows_set_aside, report.num_jobs) == (9628, 9628, 0, 9628)
    assert any("9628 jobs of 9582 distinct ids, 9628 runs" in note for note in report.notes)
    assert trace.attempts.height == 9628
    assert trace.jobs["user"].n_unique() == 322
    # Counted in the file by an independent reader: the third-party columns, and the texts themselves.
    raw = pl.read_csv(path, infer_schema=False)
    assert trace.jobs.filter(pl.col("num_gpus") > 0).height == raw["tres_alloc"].str.contains("100[12]=").sum()
    seconds = raw["service_time"].cast(pl.Float64)
    assert trace.jobs["duration_s"].sum() == pytest.approx(seconds.sum())
    assert trace.jobs["status"].value_counts().sort("status").rows() == [
        ("completed", 5784),
        ("failed", 1098),
        ("cancelled", 1893),
        ("timeout", 841),
        ("node_fail", 12),
    ]
