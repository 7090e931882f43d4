"""Agreement with accasim (https://pypi.org/project/accasim, 1.1.3), an independent simulator, on the KTH log.

accasim is older than Python 3.10, so it runs in an environment of its own, which ``make test`` builds from
``requirements/accasim.lock``. Three of its rules differ from ours. Those of EASY are restated in plain Python
(``easy_rules.py``), and every job whose start differs is explained by them: with its rules the restatement gives
accasim's start of every job, with ours it gives hindcast's.

``HINDCAST_PEER_JOBS`` says how many jobs of the log are replayed (28,489 is all of it; accasim takes a minute then).
"""

from __future__ import annotations

import csv
import gzip
import os
import subprocess

import polars as pl
import pytest

from analysis import Cluster
from analysis.loaders import load
from analysis.replay import replay
from tests.accasim.easy_rules import Easy, Job
from tests.conftest import ROOT

PYTHON = ROOT / ".venv" / "accasim" / "bin" / "python"
NUM_JOBS = int(os.environ.get("HINDCAST_PEER_JOBS", "3000"))
NUM_NODES = 100
SITE = Cluster.uniform(num_nodes=NUM_NODES, num_gpus=1)

pytestmark = pytest.mark.full_trace


class Log:
    """The first jobs of KTH as an SWF file, as a jobs table, and as accasim schedules them."""

    def __init__(self, path, folder, *, with_empty):
        self.folder = folder
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
        header = [line for line in lines if line.startswith(";")]
        # Field 4 is the length.
        jobs = [line.split() for line in lines if line.strip() and not line.startswith(";")]
        jobs = [fields for fields in jobs if with_empty or int(fields[3]) > 0][:NUM_JOBS]
        for fields in jobs:
            # A few got more processors than they asked for: accasim takes the one number, our loader the other.
            fields[7] = fields[4]
        self.swf = folder / "log.swf"
        self.swf.write_text("\n".join([*header, *map(" ".join, jobs)]) + "\n")
        self.jobs = load("swf", self.swf, processors_as_gpus=True).jobs

    def theirs(self, policy):
        output = self.folder / f"{policy}.csv"
        script = ROOT / "tests" / "accasim" / "run_accasim.py"
        command = [str(PYTHON), "-W", "ignore", str(script), str(self.swf), str(NUM_NODES), policy, str(output)]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**os.environ, "MPLBACKEND": "agg"}
        )
        assert done.returncode == 0, done.stderr
        with output.open() as file:
            return {row["job_id"]: int(row["start_s"]) for row in csv.DictReader(file)}

    def ours(self, policy):
        table = replay(self.jobs, cluster=SITE, policy=policy, predicted="time_limit_s").schedule
        return dict(table.select("job_id", "start_s").iter_rows())

    def restated(self, **rules):
        first = self.jobs["submit_time"].min()
        submits = (self.jobs["submit_time"] - first).dt.total_seconds()
        columns = self.jobs.select("job_id", submits, "duration_s", "time_limit_s", "num_gpus")
        jobs = [Job(name, *map(int, numbers)) for name, *numbers in columns.iter_rows()]
        return Easy(NUM_NODES, **rules).run(jobs)


@pytest.fixture(scope="module")
def log(real_data, tmp_path_factory):
    path = real_data("swf/KTH-SP2-1996-2.swf.gz")
    if not PYTHON.exists():
        pytest.skip("accasim is not installed: 'make accasim' builds its environment")
    return Log(path, tmp_path_factory.mktemp("accasim"), with_empty=False)


def test_fifo_starts_every_job_in_the_same_second(log):
    theirs = log.theirs("fifo")
    assert len(theirs) == log.jobs.height
    assert log.ours("fifo") == theirs


def test_easy_differs_by_two_rules_and_by_nothing_else(log):
    theirs, ours = log.theirs("easy"), log.ours("easy")
    assert log.restated(keeps_reservation=True, ignores_reservation=True) == theirs
    assert log.restated(keeps_reservation=False, ignores_reservation=False) == ours
    # Both rules matter: neither alone makes the two agree.
    assert log.restated(keeps_reservation=True, ignores_reservation=False) not in (theirs, ours)
    assert log.restated(keeps_reservation=False, ignores_reservation=True) not in (theirs, ours)


@pytest.mark.usefixtures("log")
def test_accasim_lets_an_empty_job_cost_a_pass(real_data, tmp_path):
    """A job of length 0 frees nothing for those behind it until something else happens; here another pass follows."""
    whole = Log(real_data("swf/KTH-SP2-1996-2.swf.gz"), tmp_path, with_empty=True)
    empty = whole.jobs.filter(pl.col("duration_s") == 0)["job_id"].to_list()
    assert empty
    theirs, ours = whole.theirs("fifo"), whole.ours("fifo")
    order = whole.jobs["job_id"].to_list()
    differs = [job_id for job_id in order if ours[job_id] != theirs[job_id]]
    # All is alike until the first empty job that somebody waits behind; from there on accasim is later.
    assert order[: order.index(differs[0])][-1] in empty
    assert ours[differs[0]] < theirs[differs[0]]
