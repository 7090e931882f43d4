"""What a real Slurm writes, in the forms that sites export, loads to what was submitted."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from analysis.loaders import load
from analysis.loaders.slurm import read_partition_limits, read_scontrol_nodes, read_sinfo
from analysis.loaders.slurm.layout import HOW, KNOWN_FIELDS
from analysis.replay import Cluster, replay

pytestmark = pytest.mark.full_trace

NUM_JOBS = 9 + 3 + 8 + 1  # single ones, an array that ran, one that waits, one cancelled before it could start
ZONE = "Europe/Oslo"
FIELDS = (
    "JobID,JobIDRaw,JobName,User,Account,Partition,QOS,Submit,Eligible,Start,End,Elapsed,Timelimit,Suspended,State,"
    "ExitCode,NNodes,NCPUS,ReqTRES,AllocTRES,NodeList"
)
ALL = ("sacct", "-a", "-D", "-S", "2020-01-01", "-o", FIELDS)


def submit(slurm, name, *options, run="true"):
    return slurm.run("sbatch", "--parsable", "-J", name, "-o", "/dev/null", *options, "--wrap", run).strip()


def state(slurm, job):
    return slurm.run("squeue", "-h", "-t", "all", "-o", "%T", "-j", job).split()


def wait(slurm, job, *states, seconds=60):
    slurm.wait_for(f"{job} as {states}", lambda: set(state(slurm, job)) <= set(states) != set(), seconds=seconds)


@pytest.fixture(scope="module")
def logged(slurm, tmp_path_factory):
    """Submit one job of each kind, wait, and export them in three forms; the paths and the ids."""
    folder = tmp_path_factory.mktemp("exports")
    ids = {
        "timeout": submit(slurm, "timeout", "--time=1", "--gres=gpu:a100:1", run="sleep 300"),
        "cancelled": submit(slurm, "cancelled", "--gres=gpu:v100:1", run="sleep 300"),
        "requeued": submit(slurm, "requeued", "--requeue", "--gres=gpu:v100:1", run="sleep 4"),
        "single": submit(slurm, "single", "--gres=gpu:a100:2", "--time=10", run="sleep 2"),
        "untyped": submit(slurm, "untyped", "--gres=gpu:1", "--time=10"),
        "mixed": submit(slurm, "mixed", "--gres=gpu:a100:1,gpu:v100:1", run="sleep 1"),
        "cpu": submit(slurm, "a|name;with,marks", "-p", "long", "-n", "2", "--time=UNLIMITED"),
        "failing": submit(slurm, "failing", "--gres=gpu:a100:1", run="exit 3"),
        "array": submit(slurm, "array", "--array=1-3%2", "--gres=gpu:1", run="sleep 1"),
        "waiting": submit(slurm, "waiting", "-p", "closed", "--array=3-10%2", "--gres=gpu:a100:1"),
        "never": submit(slurm, "never", "-p", "closed", "--gres=gpu:v100:4"),
    }
    script = folder / "het.sh"
    script.write_text("#!/bin/sh\nsleep 1\n")
    parts = ("--gres=gpu:a100:1", "-J", "het", "-o", "/dev/null", ":", "--gres=gpu:v100:2", "-J", "het")
    ids["het"] = slurm.run("sbatch", "--parsable", *parts, str(script)).strip()
    wait(slurm, ids["requeued"], "RUNNING")
    wait(slurm, ids["cancelled"], "RUNNING")
    wait(slurm, ids["timeout"], "RUNNING")
    time.sleep(1.5)
    slurm.run("scontrol", "requeue", ids["requeued"])
    slurm.run("scancel", ids["cancelled"], ids["never"])
    # A limit is at least a minute long; its end may be moved.
    slurm.run("scontrol", "update", f"JobId={ids['timeout']}", "EndTime=now+2seconds")
    for name in ("single", "untyped", "mixed", "cpu", "het"):
        wait(slurm, ids[name], "COMPLETED")
    wait(slurm, ids["array"], "COMPLETED")
    wait(slurm, ids["failing"], "FAILED")
    wait(slurm, ids["requeued"], "COMPLETED")
    wait(slurm, ids["timeout"], "TIMEOUT")
    time.sleep(1.5)  # the daemon of the accounting has it a moment later
    forms = {
        "bar": (("-P",), {"TZ": ZONE}),
        "other": (("-p", "--delimiter=@@"), {"TZ": ZONE}),
        "bare": (("-n", "-P"), {"SLURM_TIME_FORMAT": "%s"}),
    }
    paths = {name: folder / f"{name}.txt" for name in forms}
    for name, (options, env) in forms.items():
        paths[name].write_text(slurm.run(*ALL, *options, **env))
    return paths, ids


@pytest.fixture(scope="module")
def traces(logged):
    paths, _ = logged
    return {
        "bar": load("auto", paths["bar"], timezone=ZONE),
        "other": load("slurm", paths["other"], timezone=ZONE, delimiter="@@"),
        "bare": load("slurm", paths["bare"], fields=FIELDS, timezone=ZONE),
    }


def test_three_forms_of_one_log_are_one_trace(traces):
    one, *others = traces.values()
    assert one.jobs.height == NUM_JOBS
    for other in others:
        assert_frame_equal(one.jobs, other.jobs)
        assert_frame_equal(one.attempts, other.attempts)
        assert one.rejects.height == other.rejects.height == 0
    report = one.meta.load_report
    assert report.rows_in == report.rows_used
    assert report.rows_expanded == 7  # eight waiting tasks of one line


def test_each_job_is_what_was_submitted(traces, logged):
    jobs, ids = traces["bar"].jobs, logged[1]

    def of(name, task=""):
        return jobs.row(by_predicate=pl.col("job_id") == f"{ids[name]}{task}", named=True)

    wanted = {
        "single": ("completed", 2, "a100"),
        "untyped": ("completed", 1, None),
        "mixed": ("completed", 2, "mixed"),
        "cpu": ("completed", 0, None),
        "failing": ("failed", 1, "a100"),
        "cancelled": ("cancelled", 1, "v100"),
        "timeout": ("timeout", 1, "a100"),
        "requeued": ("completed", 1, "v100"),
        "het": ("completed", 3, "mixed"),
    }
    for name, (status, gpus, kind) in wanted.items():
        job = of(name)
        assert (job["status"], job["num_gpus"]) == (status, gpus), name
        assert kind is None or job["gpu_type"] == kind, name
        assert job["censoring"] == "none", name
        assert job["start_time"] >= job["submit_time"], name
    assert of("single")["duration_s"] in (2, 3)
    assert (of("single")["time_limit_s"], of("single")["allowed_gpu_types"]) == (600, ["a100"])
    assert of("untyped")["allowed_gpu_types"] is None
    assert (of("cpu")["job_name"], of("cpu")["vc"], of("cpu")["num_cpus"]) == ("a|name;with,marks", "long", 2)
    assert of("cpu")["time_limit_s"] is None
    assert of("failing")["extra"]["ExitCode"] == "3:0"
    assert {of("array", f"_{i}")["status"] for i in (1, 2, 3)} == {"completed"}
    assert {of("waiting", f"_{i}")["status"] for i in range(3, 11)} == {"pending"}
    never = of("never")
    assert (never["status"], never["censoring"], never["start_time"]) == ("cancelled", "never_started", None)
    assert never["num_gpus"] == 4


def test_a_requeued_job_has_both_runs(traces, logged):
    job_id = logged[1]["requeued"]
    trace = traces["bare"]
    job = trace.jobs.row(by_predicate=pl.col("job_id") == job_id, named=True)
    runs = trace.attempts.filter(job_id=job_id)
    spans = [(end - start).total_seconds() for start, end in runs.select("start_time", "end_time").iter_rows()]
    assert job["num_attempts"] == runs.height == 2
    assert job["duration_s"] == sum(spans)
    assert spans[1] >= 4 > spans[0]
    assert job["submit_time"] <= runs["start_time"][0] < runs["end_time"][0] <= runs["start_time"][1]


def test_times_are_instants_whatever_the_zone_of_the_export(traces):
    now = datetime.now(UTC)
    first = traces["bar"].jobs["submit_time"].min()
    assert 0 < (now - first).total_seconds() < 600


def test_all_fields_that_this_slurm_knows_are_known_here(slurm):
    assert set(slurm.run("sacct", "-e").split()) <= set(KNOWN_FIELDS)


def test_the_command_that_errors_recommend_works(slurm, tmp_path):
    command = HOW.split("'")[1]
    path = tmp_path / "sacct.txt"
    path.write_text(slurm.run("sh", "-c", command))
    trace = load("auto", path)
    assert trace.jobs.height == NUM_JOBS
    assert trace.meta.time_zone_certainty == "declared"


def test_nodes_and_limits_from_the_tools(slurm, tmp_path):
    scontrol, sinfo, partitions = (tmp_path / name for name in ("scontrol", "sinfo", "partitions"))
    scontrol.write_text(slurm.run("scontrol", "show", "nodes", "-o"))
    sinfo.write_text(slurm.run("sinfo", "-N", "-o", "%N|%P|%c|%m|%G|%t"))
    partitions.write_text(slurm.run("scontrol", "show", "partition", "-o"))
    nodes = read_scontrol_nodes(scontrol)
    assert nodes.select("node_id", "num_gpus", "gpu_type", "num_cpus", "mem_gib").rows() == [
        ("n1", 4, "a100", 32, 4),
        ("n2/a100", 2, "a100", 32 / 3, 4 / 3),
        ("n2/v100", 4, "v100", 64 / 3, 8 / 3),
    ]
    assert_frame_equal(read_sinfo(sinfo), nodes)
    assert read_partition_limits(partitions) == {"gpu": 86_400}


def test_the_log_can_be_replayed_on_its_nodes(traces, slurm, tmp_path):
    path = tmp_path / "nodes"
    path.write_text(slurm.run("scontrol", "show", "nodes", "-o"))
    ended = traces["bar"].jobs.filter((pl.col("num_gpus") > 0) & (pl.col("duration_s") > 0))
    result = replay(ended, cluster=Cluster(read_scontrol_nodes(path)))
    assert set(result.schedule["state"]) == {"finished"}
