"""The engine run by Python itself gives what the compiled one gives, byte by byte."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import polars as pl
import pytest

from analysis.errors import UnknownNameError
from analysis.replay import PLACEMENTS, POLICIES, Cluster, _plain, engine, replay
from analysis.replay.policies import MovingKey
from tests.replay_cases import PREDICTED, Case, crowd
from tests.replay_checks import schedule_bytes

SEEDS = range(3)
IN_PYTHON = [name for name, one in POLICIES.items() if not isinstance(one.rule, pl.Expr | MovingKey)]


def both_ways(monkeypatch: pytest.MonkeyPatch, case: Case, **how: object) -> tuple[bytes, bytes]:
    """The schedules as files."""
    made = []
    for way in ("plain", "compiled"):
        monkeypatch.setenv("HINDCAST_ENGINE", way)
        made.append(schedule_bytes(replay(case.jobs, cluster=case.cluster, **how)))
    return made[0], made[1]


@pytest.mark.parametrize("policy", [name for name in POLICIES if name not in IN_PYTHON])
def test_every_policy(policy: str, monkeypatch: pytest.MonkeyPatch):
    for seed in SEEDS:
        plain, compiled = both_ways(monkeypatch, crowd(seed), policy=policy, predicted=PREDICTED)
        assert plain == compiled


@pytest.mark.parametrize("policy", ["fifo", "sjf_skip", "easy", "srtf_skip"])
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_every_placement(policy: str, placement: str, monkeypatch: pytest.MonkeyPatch):
    for seed in SEEDS:
        plain, compiled = both_ways(monkeypatch, crowd(seed), policy=policy, placement=placement)
        assert plain == compiled


@pytest.mark.parametrize("policy", ["fifo_skip", "easy", "conservative", "las"])
def test_nodes_that_fail(policy: str, monkeypatch: pytest.MonkeyPatch):
    for seed in SEEDS:
        case = crowd(seed)
        first, last = case.jobs["submit_time"].min(), case.jobs["submit_time"].max()
        failing = case.cluster.with_failures(mtbf_s=20, mttr_s=5, seed=seed, since=first, until=last)
        assert failing.outages.height > 0
        plain, compiled = both_ways(monkeypatch, Case(case.jobs, failing), policy=policy)
        assert plain == compiled


FIRST_RUN = """
import polars as pl
from datetime import datetime
from analysis.replay import Cluster, replay, _loop
jobs = pl.DataFrame({"job_id": ["a", "b"], "submit_time": [datetime(2024, 1, 1)] * 2, "num_gpus": [4, 1],
                     "duration_s": [2.0, 3.0]})
result = replay(jobs, cluster=Cluster.uniform(num_nodes=1, num_gpus=4))
print(result.schedule["end_s"].to_list(), len(_loop.run.overloads))
"""


def test_a_first_small_replay_compiles_nothing(tmp_path: Path):
    env = {**os.environ, "HINDCAST_ENGINE": "auto", "NUMBA_CACHE_DIR": str(tmp_path)}
    told = subprocess.run([sys.executable, "-c", FIRST_RUN], env=env, capture_output=True, text=True, check=True)
    assert told.stdout.split("\n")[0] == "[2.0, 5.0] 0"


def test_an_unknown_way_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HINDCAST_ENGINE", "quick")
    case = crowd(0)
    with pytest.raises(UnknownNameError, match="HINDCAST_ENGINE"):
        replay(case.jobs, cluster=Cluster.uniform(num_nodes=1, num_gpus=8))


def test_half_a_copy_is_not_kept(monkeypatch: pytest.MonkeyPatch):
    """Ctrl-C, or a fault, while a module is copied: the next time it is copied anew, and whole."""
    monkeypatch.setattr(_plain, "_COPIES", {})
    real = builtins.__import__

    def interrupted(name: str, *args: object, **kwargs: object) -> object:
        if name == "analysis.replay.result":
            raise KeyboardInterrupt
        return real(name, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(builtins, "__import__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            _plain.plain_module("analysis.replay.engine")
    assert callable(_plain.plain_module("analysis.replay.engine").carry_out)


def test_a_loader_without_code(monkeypatch: pytest.MonkeyPatch):
    """As pytest's, which imports modules for their doctests."""
    monkeypatch.setattr(_plain, "_COPIES", {})
    monkeypatch.setattr(engine.__spec__, "loader", object())
    assert callable(_plain.plain_module("analysis.replay.engine").carry_out)


def test_threads_wait_for_a_whole_copy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_plain, "_COPIES", {})
    together = Barrier(4)

    def first(_: int) -> object:
        together.wait()
        return _plain.plain_module("analysis.replay.engine").carry_out

    with ThreadPoolExecutor(4) as threads:
        assert len(set(threads.map(first, range(4)))) == 1
