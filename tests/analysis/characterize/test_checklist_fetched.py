"""Published summaries of Helios, Kalos, Seren, Philly and MIT Supercloud.

The same checks run twice: on the whole traces, where ``hindcast fetch`` has put them (skipped otherwise, with the name
of the file), against the figures that their authors publish; and on small invented files of the same format, against
figures counted by hand, so that the arithmetic is tested on every machine.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from analysis.characterize import gpu_demand, gpus_per_node, headline_figures, status_shares, summary
from analysis.errors import BadFileError
from analysis.fetch import find_data
from analysis.loaders import load
from analysis.trace import Trace
from tests.conftest import ROOT

SHARES = [f"{kind}_{name}_share" for kind in ("all", "cpu", "gpu") for name in ("completed", "cancelled", "failed")]
OUTCOMES = ("completed", "cancelled", "failed")


@pytest.fixture
def fetched(monkeypatch):
    """Find the files of a fetched trace below the project's data folders, or skip."""
    monkeypatch.chdir(ROOT)

    def find(name: str, *members: str) -> list[Path]:
        try:
            places = find_data(name)
        except BadFileError:
            pytest.skip(f"missing data: {name if '/' in name else f'{name}/{members[0]}'}")
        files = [path for place in places for path in ([place] if place.is_file() else sorted(place.rglob("*")))]
        return [path for path in files if path.name in members]

    return find


# --- Helios -----------------------------------------------------------------------------------------------------------

#: GPUs; jobs, CPU jobs, GPU jobs; mean run CPU, GPU; mean delay CPU, GPU; mean GPUs; median run CPU, GPU; shares of
#: completed, cancelled, failed of all, CPU and GPU jobs; GPU-seconds of each. From helios_cluster_summary.csv.
HELIOS = {
    "Venus": (
        *(246_708, 121_405, 125_303, 1649.859, 13040.598, 773.009, 1253.288, 6.736, 21, 204),
        *((0.690, 0.186, 0.124, 0.860, 0.097, 0.043, 0.526, 0.272, 0.202),),
        *((6_373_315_670, 4_920_266_598, 1_052_030_340),),
    ),
    "Earth": (
        *(872_886, 445_738, 427_148, 162.730, 5130.609, 3.281, 319.483, 2.101, 1, 234),
        *((0.812, 0.069, 0.119, 0.885, 0.005, 0.110, 0.735, 0.136, 0.129),),
        *((5_713_038_873, 4_793_853_520, 932_310_362),),
    ),
    "Saturn": (
        *(1_753_078, 1_054_182, 698_896, 619.062, 5252.927, 16.255, 611.561, 4.010, 2, 124),
        *((0.799, 0.120, 0.080, 0.943, 0.019, 0.037, 0.582, 0.272, 0.145),),
        *((14_375_709_962, 10_733_792_235, 2_542_859_066),),
    ),
    "Uranus": (
        *(490_309, 161_192, 329_117, 1211.799, 9163.725, 119.704, 1949.182, 4.038, 32, 280),
        *((0.668, 0.173, 0.159, 0.791, 0.116, 0.092, 0.607, 0.201, 0.192),),
        *((13_532_231_815, 10_267_196_772, 2_761_134_934),),
    ),
    "total": (
        *(3_362_981, 1_782_517, 1_580_464, 628.759, 6651.681, 73.907, 862.047, 3.716, 2, 206),
        *((0.775, 0.119, 0.105, 0.909, 0.030, 0.061, 0.624, 0.221, 0.155),),
        *((39_994_296_320, 30_715_109_125, 7_288_334_702),),
    ),
}
MEASURES = (
    *("num_jobs", "num_cpu_jobs", "num_gpu_jobs", "mean_cpu_duration_s", "mean_gpu_duration_s"),
    *("mean_cpu_queueing_delay_s", "mean_gpu_queueing_delay_s", "mean_gpus"),
    *("median_cpu_duration_s", "median_gpu_duration_s"),
)


def helios_row(logs: list[Path]) -> dict[str, Any]:
    """Headline figures of some Helios clusters together, the suspended job dropped as the authors do."""
    jobs = pl.concat([load("helios", log).jobs for log in logs])
    return headline_figures(jobs, where=pl.col("status") != "suspended").row(0, named=True)


def check_helios(row: dict[str, Any], expected: tuple[Any, ...]) -> None:
    *measures, shares, gpu_s = expected
    assert [row[name] for name in MEASURES] == pytest.approx(measures, abs=0.0006)
    assert [row[name] for name in SHARES] == pytest.approx(shares, abs=0.0006)
    assert [row[f"{name}_gpu_s"] for name in OUTCOMES] == pytest.approx(gpu_s, abs=0.5)


@pytest.mark.full_trace
@pytest.mark.parametrize("cluster", HELIOS)
def test_helios_whole(fetched, cluster):
    logs = fetched("helios", "cluster_log.csv")
    chosen = [log for log in logs if cluster in (log.parent.name, "total")]
    check_helios(helios_row(chosen), HELIOS[cluster])


HELIOS_LOG = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
1,ua,va,8,64,1,COMPLETED,2020-05-01 08:00:00,2020-05-01 08:10:00,2020-05-01 10:10:00,7200,600
2,ua,va,0,4,1,FAILED,2020-05-01 08:00:05,2020-05-01 08:00:05,2020-05-01 08:00:06,1,0
3,ub,vb,16,128,2,TIMEOUT,2020-05-02 23:59:00,2020-05-03 00:00:00,2020-05-04 00:00:00,86400,60
4,uc,vb,1,8,1,SUSPENDED,2020-05-03 01:00:00,2020-05-03 01:00:00,2020-05-03 01:30:00,1800,0
5,uc,vb,2,8,1,NODE_FAIL,2020-05-03 02:00:00,2020-05-03 02:00:30,2020-05-03 02:01:30,60,30
6,uc,vb,1,8,1,CANCELLED,2020-05-03 02:00:00,2020-05-03 02:00:00,2020-05-03 02:00:00,0,0
7,uc,vb,0,8,1,COMPLETED,2020-05-03 02:00:00,2020-05-03 02:00:10,2020-05-03 02:00:13,3,10
"""


def test_helios_small(tmp_path):
    log = tmp_path / "Venus" / "cluster_log.csv"
    log.parent.mkdir()
    log.write_text(HELIOS_LOG)
    run_gpu, delay_gpu = (7200 + 86_400 + 60 + 0) / 4, (600 + 60 + 30 + 0) / 4
    shares = (2 / 6, 1 / 6, 3 / 6, 1 / 2, 0, 1 / 2, 1 / 4, 1 / 4, 2 / 4)
    gpu_s = (8 * 7200, 0, 16 * 86_400 + 2 * 60)
    check_helios(helios_row([log]), (6, 2, 4, 2, run_gpu, 5, delay_gpu, 27 / 4, 2, 3630, shares, gpu_s))


@pytest.mark.full_trace
def test_helios_jobs_of_several_gpus_take_as_few_nodes_as_can_be(fetched):
    # A third party counts 99.66 % of the multi-GPU jobs of September.
    logs = fetched("helios", "cluster_log.csv")
    september = pl.col("submit_time").dt.convert_time_zone("Asia/Shanghai").dt.month() == 9
    jobs = pl.concat([load("helios", log).jobs for log in logs])
    table = gpus_per_node(jobs, where=september, node_gpus=8).filter(bucket="all")
    share = (table["fewest_share"] * table["num_jobs"]).sum() / table["num_jobs"].sum()
    assert share == pytest.approx(0.9966, abs=0.005)


# --- AcmeTrace --------------------------------------------------------------------------------------------------------


def published_view(trace: Trace) -> pl.DataFrame:
    """Jobs with the durations and delays that the source publishes, which in Kalos hold the queueing too."""
    extra = pl.col("extra").struct
    return trace.jobs.with_columns(duration_s=extra.field("duration"), queueing_delay_s=extra.field("queue"))


@pytest.mark.full_trace
def test_kalos_whole(fetched):
    trace = load("acme", fetched("kalos", "trace_kalos.csv"))
    row = headline_figures(published_view(trace)).row(0, named=True)
    assert (row["num_jobs"], row["num_cpu_jobs"], row["num_gpu_jobs"]) == (62_413, 42_506, 19_907)
    names = [
        f"{how}_{what}" for what in ("gpu_duration_s", "gpu_queueing_delay_s", "gpus") for how in ("mean", "median")
    ]
    assert [row[name] for name in names] == pytest.approx([1259.689, 124, 214.179, 17, 26.77, 1], abs=0.006)
    assert (row["max_gpu_duration_s"], row["max_gpus"]) == (625_740, 1024)
    assert [row[name] for name in SHARES[6:]] == pytest.approx([0.541, 0.062, 0.397], abs=0.0006)
    assert [row[name] for name in SHARES[3:6]] == pytest.approx([0.860, 0.001, 0.140], abs=0.0006)
    assert [row[f"{name}_gpu_s"] for name in OUTCOMES] == pytest.approx([1_667_685_146, 3_239_202_064, 426_292_851])
    cpu = [f"{how}_cpu_{what}_s" for how in ("mean", "median") for what in ("duration", "queueing_delay")]
    assert [row[name] for name in cpu] == pytest.approx([118.352, 88.401, 22, 9], abs=0.0006)
    # Beside them, what the time stamps say: shorter, since the delay is out of it.
    own = headline_figures(trace).row(0, named=True)
    assert own["mean_gpu_duration_s"] < row["mean_gpu_duration_s"]


KALOS_LOG = """\
job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,end_time,\
fail_time,stop_time,duration,queue,gpu_time
dlc1,u1,2,16,240,1000,100.0,Pretrain,FAILED,2023-06-02 03:00:00+00:00,2023-06-02 03:00:40+00:00,\
2023-06-02 03:02:00+00:00,2023-06-02 03:02:00+00:00,,120,40.0,1920.0
dlc2,u1,1,1,15,100,,Eval,COMPLETED,2023-06-03 04:00:00+00:00,2023-06-03 04:00:10+00:00,2023-06-03 04:01:00+00:00,\
,,60,10.0,60.0
dlc3,u2,1,0,8,50,,Other,CANCELLED,2023-06-04 04:00:00+00:00,2023-06-04 04:00:05+00:00,2023-06-04 04:00:35+00:00,\
,2023-06-04 04:00:35+00:00,35,5.0,0.0
"""


def test_kalos_small(tmp_path):
    (tmp_path / "trace_kalos.csv").write_text(KALOS_LOG)
    trace = load("acme", tmp_path / "trace_kalos.csv")
    published = headline_figures(published_view(trace)).row(0, named=True)
    own = headline_figures(trace).row(0, named=True)
    names = ("mean_gpu_duration_s", "mean_cpu_duration_s", "mean_gpu_queueing_delay_s", "failed_gpu_s")
    assert [published[name] for name in names[:3]] == [90, 35, 25]
    # The case of pitfall A10: 80 s of the 120 are running, 1280 GPU-seconds instead of 1920.
    assert [own[name] for name in names] == [65, 30, 25, 1280]


@pytest.mark.full_trace
def test_seren_whole(fetched):
    # The released file is another population than the authors' summary: only a third party's split, to a percent.
    trace = load("acme", fetched("seren", "trace_seren.csv"))
    rows = status_shares(trace).filter(kind="gpu")
    shares = {str(row["status"]): row["job_share"] for row in rows.iter_rows(named=True)}
    names = ("completed", "failed", "cancelled", "preempted")
    assert [shares[name] for name in names] == pytest.approx([0.461, 0.339, 0.102, 0.097], abs=0.01)


# --- Philly -----------------------------------------------------------------------------------------------------------


def philly_counts(files: list[Path]) -> tuple[int, int, int, int]:
    """Records, jobs without attempts, machines, and the GPUs that the list gives them (the log shows more)."""
    trace = load("philly", files)
    rows = {file["name"]: file["rows"] for file in trace.meta.load_report.files}
    without = trace.jobs.filter(pl.col("num_attempts") == 0).height
    machines = next(path for path in files if path.name == "cluster_machine_list").read_text().splitlines()[1:]
    listed = [int(line.split(",")[1]) for line in machines if line]
    assert trace.nodes["num_gpus"].sum() >= sum(listed)
    assert trace.nodes.height >= rows["cluster_machine_list"]
    return rows["cluster_job_log"], without, rows["cluster_machine_list"], sum(listed)


@pytest.mark.full_trace
def test_philly_whole(fetched):
    files = fetched("philly", "cluster_job_log", "cluster_machine_list")
    assert philly_counts(files) == (117_325, 5_236, 552, 2_490)


def test_philly_small(tmp_path):
    used = [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]
    tried = [{"start_time": "2017-10-09 07:05:30", "end_time": "2017-10-09 09:05:30", "detail": used}]
    base = {"vc": "v", "user": "u", "submitted_time": "2017-10-09 07:00:00"}
    records = [
        {**base, "jobid": "application_1_1", "status": "Pass", "attempts": tried},
        {**base, "jobid": "application_1_2", "status": "Killed", "attempts": []},
        {**base, "jobid": "application_1_3", "status": "Killed", "attempts": []},
    ]
    (tmp_path / "cluster_job_log").write_text(json.dumps(records))
    (tmp_path / "cluster_machine_list").write_text(
        "machineId, number of GPUs, single GPU mem\nm1, 2, 12GB\nm2, 8, 24GB\n"
    )
    assert philly_counts(sorted(tmp_path.iterdir())) == (3, 2, 2, 10)
    row = summary(load("philly", tmp_path)).row(0, named=True)
    assert (row["mean_duration_s"], row["mean_queueing_delay_s"], row["mean_gpus"]) == (7200, 330, 2)


# --- MIT Supercloud, the table of HPCA 2022 ---------------------------------------------------------------------------


def supercloud_shares(path: Path) -> tuple[int, dict[str, float], int, dict[str, float]]:
    """Rows; status shares of what started and ended; GPU jobs above 30 s, and their shares by GPU count."""
    trace = load("mit_supercloud", path)
    ran = pl.col("start_time").is_not_null() & pl.col("end_time").is_not_null()
    statuses = status_shares(trace, where=ran).group_by("status").agg(pl.col("num_jobs").sum())
    shares = {str(status): count / statuses["num_jobs"].sum() for status, count in statuses.rows()}
    demand = gpu_demand(trace, where=ran & (pl.col("duration_s") > 30))
    sizes = {str(bucket): share for bucket, share in demand.select("bucket", "job_share").rows()}
    wide = {"1": sizes.get("1", 0), "2": sizes.get("2", 0), "3-8": sizes.get("3-4", 0) + sizes.get("5-8", 0)}
    return trace.meta.load_report.rows_in, shares, demand["num_jobs"].sum(), {**wide, ">8": sizes.get(">8", 0)}


@pytest.mark.full_trace
def test_supercloud_whole(fetched):
    # The authors count rows, of requeued jobs one each; jobs put together differ by less than a percent.
    rows, shares, gpu_jobs, sizes = supercloud_shares(fetched("mit_hpca22", "scheduler_data.csv")[0])
    assert rows == 287_173
    names = ("completed", "failed", "cancelled", "timeout")
    assert [shares[name] for name in names] == pytest.approx([0.598, 0.1902, 0.1772, 0.0327], abs=0.01)
    assert gpu_jobs == pytest.approx(47_120, rel=0.02)
    assert list(sizes.values()) == pytest.approx([0.8416, 0.1351, 0.0165, 0.0067], abs=0.01)


SUPERCLOUD_LOG = """\
id_user,state,time_submit,time_start,time_end,timelimit,tres_req,tres_alloc,gres_alloc,nodes_alloc,cpus_req,mem_req,nodelist,id_job
1,3,0,5,105,60,"1=4,1002=1","1=4,1002=1",gpu:volta:1,1,4,100,['r0-n1'],1
1,3,0,5,1005,60,"1=4,1002=2","1=4,1002=2",gpu:volta:2,1,4,100,['r0-n1'],2
2,5,10,15,20,60,"1=4,1002=1","1=4,1002=1",gpu:volta:1,1,4,100,['r0-n1'],3
2,6,10,15,3615,60,"1=4,1002=16","1=4,1002=16",gpu:volta:8,2,4,100,"['r0-n1', 'r0-n2']",4
3,4,10,-1,50,60,"1=4","",,0,4,100,[],5
3,4,10,20,50,60,"1=4","1=4",,1,4,100,['r0-n1'],6
"""


def test_supercloud_small(tmp_path):
    (tmp_path / "scheduler_data.csv").write_text(SUPERCLOUD_LOG)
    rows, shares, gpu_jobs, sizes = supercloud_shares(tmp_path / "scheduler_data.csv")
    assert (rows, gpu_jobs) == (6, 3)
    assert shares == pytest.approx({"completed": 0.4, "failed": 0.2, "timeout": 0.2, "cancelled": 0.2})
    assert sizes == pytest.approx({"1": 1 / 3, "2": 1 / 3, "3-8": 0, ">8": 1 / 3})


# --- Alibaba's files that are not among the usual ones ----------------------------------------------------------------

OPENB_ROWS = {
    **{"cpu0": 7064, "cpu037": 7336, "cpu050": 7439, "cpu072": 7608, "cpu100": 7853, "cpu200": 8832, "cpu235": 9240},
    **{"cpu250": 9420, "cpu300": 10_094, "gpushare20": 8152, "gpushare40": 8152, "gpushare60": 8152},
    **{"gpushare80": 8152, "gpushare100": 8152, "gpuspec05": 8152, "gpuspec10": 8152, "gpuspec20": 8152},
    **{"gpuspec25": 8152, "gpuspec33": 8152, "multigpu20": 8324, "multigpu30": 8508, "multigpu40": 8746},
    "multigpu50": 9061,
}
GENAI_ROWS = {
    **{"qps": 24_627, "queue_size_raw_anon": 1_434, "queue_rt_raw_anon": 23_478},
    **{"pipeline_update_latency_anon": 36_046, "basemodel_update_latency_anon": 7_531},
    **{"lora_update_latency_anon": 27_415, "controlnet_latency_data_anon": 29_221, "model_predict_data_anon": 6_254},
    **{"pipeline_inference_data_anon": 34_421, "pod_memory_util_anon": 214_890, "pod_gpu_duty_cycle_anon": 157_417},
    "pod_gpu_memory_used_bytes_anon": 161_413,
}


@pytest.mark.full_trace
@pytest.mark.parametrize("variant", OPENB_ROWS)
def test_rows_of_the_openb_variants(fetched, variant):
    name = f"openb_pod_list_{variant}.csv"
    assert load("openb", fetched(f"openb/{name}", name)).jobs.height == OPENB_ROWS[variant]


@pytest.mark.full_trace
@pytest.mark.parametrize("series", GENAI_ROWS)
def test_rows_of_the_genai_series(fetched, series):
    files = fetched(f"genai/{series}.tar.gz", f"{series}.csv")
    assert load("genai", files).meta.load_report.rows_in == GENAI_ROWS[series]
