"""Agreement with evalys (https://pypi.org/project/evalys), an independent tool, on the Parallel Workloads Archive.

evalys needs an older pandas than this project, so it runs in an environment of its own, which ``make test`` builds from
``requirements/evalys.lock``. Two of its habits are allowed for, and pinned by a test: it drops the first job of every
log, and every job of status 5 (cancelled), also those that ran.
"""

from __future__ import annotations

import gzip
import os
import subprocess
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from analysis.characterize import gpu_intervals, running_gpus, running_gpus_summary
from analysis.loaders import load
from analysis.metrics import jct_s
from tests.conftest import ROOT

LOGS = ("KTH-SP2-1996-2", "RICC-2010-2")
PYTHON = ROOT / ".venv" / "evalys" / "bin" / "python"
US = 1_000_000

pytestmark = pytest.mark.full_trace


class Pair:
    """One log as hindcast and as evalys see it."""

    def __init__(self, path: Path, folder: Path) -> None:
        plain, arrays = folder / "log.swf", folder / "evalys.npz"
        plain.write_bytes(gzip.decompress(path.read_bytes()))
        command = [str(PYTHON), "-W", "ignore", str(ROOT / "tests" / "evalys" / "run_evalys.py"), plain, arrays]
        environment = {**os.environ, "MPLBACKEND": "agg"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        self.evalys = dict(np.load(arrays))
        self.trace = load("swf", path, processors_as_gpus=True)
        #: The jobs that evalys keeps, in its order.
        order = pl.DataFrame({"job_id": [str(number) for number in self.evalys["ids"]]})
        self.jobs = order.join(self.trace.jobs, on="job_id", how="left", maintain_order="left")

    def moments(self, name: str) -> np.ndarray:
        """evalys' event times as microseconds since 1970."""
        return (self.evalys[name] + self.evalys["unix_start"]).astype(np.int64) * US


@pytest.fixture(scope="module", params=LOGS)
def pair(request, real_data, tmp_path_factory):
    path = real_data(f"swf/{request.param}.swf.gz")
    if not PYTHON.exists():
        pytest.skip("evalys is not installed: 'make peers' builds its environment")
    return Pair(path, tmp_path_factory.mktemp(request.param))


def step(begin_us, end_us, amount, moments):
    """Sum over the intervals that hold at each moment (begin included, end excluded)."""
    starts, ends = np.argsort(begin_us, kind="stable"), np.argsort(end_us, kind="stable")
    taken = np.concatenate([[0], np.cumsum(amount[starts])])
    given = np.concatenate([[0], np.cumsum(amount[ends])])
    return (
        taken[np.searchsorted(begin_us[starts], moments, side="right")]
        - given[np.searchsorted(end_us[ends], moments, side="right")]
    )


def test_evalys_loses_the_first_job_and_all_cancelled_ones_and_nothing_else(pair):
    ours = pair.trace.jobs
    kept = ours.filter(pl.col("status").cast(pl.String) != "cancelled")["job_id"]
    assert sorted(map(int, kept)) == sorted(pair.evalys["ids"].tolist())
    first = min(map(int, ours["job_id"]))
    assert set(pair.evalys["ids"].tolist()) - set(pair.evalys["as_read_ids"].tolist()) == {first}


def test_waits_turnarounds_and_slowdowns_are_evalys(pair):
    jobs, theirs = pair.jobs.with_columns(jct_s()), pair.evalys
    assert jobs["job_id"].null_count() == jobs["status"].null_count() == 0
    assert np.array_equal(jobs["queueing_delay_s"].to_numpy(), theirs["waiting"])
    assert np.array_equal(jobs["jct_s"].to_numpy(), theirs["turnaround"])
    ran = jobs["duration_s"].to_numpy() > 0
    slowdown = (jobs["jct_s"] / jobs["duration_s"]).to_numpy()
    assert np.array_equal(slowdown[ran], theirs["slowdown"][ran])
    assert not np.isfinite(theirs["slowdown"][~ran]).any()  # 0 s long: no slowdown without a floor


def test_the_utilization_series_is_evalys_at_every_event(pair):
    held = gpu_intervals(pair.jobs)
    columns = (held[name].to_numpy() for name in ("begin_us", "end_us", "milli_gpus"))
    ours = step(*columns, pair.moments("load_time"))
    assert np.array_equal(ours, pair.evalys["load"] * 1000)
    assert ours.max() / 1000 == running_gpus_summary(pair.jobs)["peak_gpus"].item()


def test_the_mean_and_every_bin_of_the_utilization_are_those_of_evalys_series(pair):
    moments, load = pair.moments("load_time"), pair.evalys["load"].astype(float)
    window = tuple(pl.Series([moments[0], moments[-1]]).cast(pl.Datetime("us")).dt.replace_time_zone("UTC"))
    summary = running_gpus_summary(pair.jobs, window=window).row(0, named=True)
    assert summary["mean_gpus"] == pytest.approx(float(pair.evalys["load_mean"]), rel=1e-12)
    table = running_gpus(pair.jobs, window=window)
    area = np.concatenate([[0.0], np.cumsum(load[:-1] * np.diff(moments))])
    begin = table["time"].dt.timestamp("us").to_numpy()
    end = begin + (table["bin_s"].to_numpy() * US).round().astype(np.int64)
    mean = (np.interp(end, moments, area) - np.interp(begin, moments, area)) / (end - begin)
    assert table["mean_gpus"].to_numpy() == pytest.approx(mean, rel=1e-9, abs=1e-9)


def test_the_queue_series_is_evalys_at_every_event(pair):
    # evalys counts the processors asked for, and the allocated ones of all jobs if one job does not say (RICC).
    waiting = pair.jobs.unnest("extra").filter(pl.col("start_time") > pl.col("submit_time"))
    asked = pair.jobs["extra"].struct.field("requested_processors")
    chosen = "allocated_processors" if asked.null_count() else "requested_processors"
    asked = waiting[chosen].to_numpy()
    columns = (waiting[name].dt.timestamp("us").to_numpy() for name in ("submit_time", "start_time"))
    assert np.array_equal(step(*columns, asked, pair.moments("queue_time")), pair.evalys["queue"])
