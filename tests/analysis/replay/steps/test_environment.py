"""The Gymnasium environment: its checker, random agents, strict FIFO by action 0, and rewards that add up."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from gymnasium.utils.env_checker import check_env

from analysis.errors import UnknownNameError, UsageError
from analysis.replay import Cluster, replay
from analysis.replay.steps import Episode, SchedulingEnv
from tests.replay_cases import PREDICTED, cluster_of, crowd, trouble

REWARDS = ("jct", "wait", "slowdown")


def env_of(seed: int = 1, *, predicted: str | None = None, **episode) -> SchedulingEnv:
    """A crowd on an undivided cluster of several types."""
    jobs, cluster = crowd(seed)
    told = Episode(**({"num_jobs": None, "num_slots": 4} | episode))
    return SchedulingEnv(jobs, cluster=Cluster(cluster.nodes, speed=cluster.speed), episode=told, predicted=predicted)


def undivided(seed: int) -> SchedulingEnv:
    """Odd seeds of crowds have no VCs."""
    return env_of(2 * seed + 1)


def play(env: SchedulingEnv, choose) -> list[float]:
    """Rewards of an episode; ``choose`` gets the mask."""
    rewards, is_over, is_cut = [], False, False
    while not (is_over or is_cut):
        observation, reward, is_over, is_cut, info = env.step(choose(env.action_masks()))
        assert env.observation_space.contains(observation)
        assert info["action_mask"].tolist() == env.action_masks().astype(int).tolist()
        rewards.append(reward)
    return rewards


def head_first(mask: np.ndarray) -> int:
    return 0 if mask[0] else len(mask) - 1


def at_random(rng: np.random.Generator):
    return lambda mask: int(rng.choice(np.flatnonzero(mask)))


@pytest.mark.parametrize("reward", REWARDS)
def test_gymnasiums_own_checker(reward: str):
    """Warnings are errors here."""
    check_env(env_of(num_jobs=20, reward=reward), skip_render_check=True)


def failing(seed: int = 1, **episode) -> SchedulingEnv:
    """The same on nodes that come, go and fail."""
    case = trouble(crowd(seed), seed)
    told = Episode(**({"num_jobs": None, "num_slots": 4} | episode))
    cluster = Cluster(case.cluster.nodes.drop("vc"), speed=case.cluster.speed, outages=case.cluster.outages)
    return SchedulingEnv(case.jobs, cluster=cluster, episode=told, checkpoint_interval_s=1.0)


def test_gymnasiums_own_checker_where_nodes_fail():
    check_env(failing(num_jobs=20), skip_render_check=True)


def test_strict_fifo_where_nodes_fail():
    """Kills or not, rewards add up where all jobs end; those that miss a node for good do not keep it going."""
    kills = num_whole = 0
    for seed in (1, 3, 5, 9, 13, 15):
        env = failing(seed)
        env.reset(seed=0)
        rewards = play(env, head_first)
        cluster = env.simulation.result().cluster
        expected = replay(crowd(seed).jobs, cluster=cluster, policy="fifo", checkpoint_interval_s=1.0).schedule
        kills += expected["num_restarts"].sum()
        expected = expected.filter(pl.col("state") != "rejected").drop("start_s", "end_s")
        assert env.result().schedule.drop("start_s", "end_s").equals(expected)
        done = env.result().job_metrics()
        if done.height == expected.height:
            num_whole += 1
            jct = (done["end_time"] - done["submit_time"]).dt.total_microseconds().sum()
            assert -sum(round(value * 1e6) for value in rewards) == jct
    assert kills > 5
    assert 0 < num_whole < 6


@pytest.mark.parametrize("seed", range(6))
def test_whoever_always_takes_the_first_job_is_strict_fifo(seed: int):
    env = undivided(seed)
    env.reset(seed=0)
    play(env, head_first)
    jobs, cluster = crowd(2 * seed + 1)
    assert cluster.vcs == []
    expected = replay(jobs, cluster=cluster, policy="fifo").schedule.filter(pl.col("state") == "finished")
    # Seconds are counted from the first job of all, or of those that can run.
    assert env.result().schedule.drop("start_s", "end_s").equals(expected.drop("start_s", "end_s"))
    assert expected.height > 40


@pytest.mark.parametrize("seed", range(4))
def test_a_random_agent_gets_to_the_end(seed: int):
    """VCs or not, shares of GPUs or not; the same seed plays the same episode."""
    told = []
    for _ in range(2):
        env = env_of(seed, num_jobs=30)
        env.reset(seed=seed)
        rewards = play(env, at_random(np.random.default_rng(seed)))
        assert (env.result().schedule["state"] == "finished").all()
        assert env.result().schedule.height == 30
        told.append((rewards, env.result().schedule))
    assert told[0][0] == told[1][0]
    assert told[0][1].equals(told[1][1])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("reward", REWARDS)
def test_rewards_add_up(seed: int, reward: str):
    """To minus the total, to the microsecond where it is a time."""
    env = env_of(seed, reward=reward)
    env.reset(seed=seed)
    rewards = play(env, at_random(np.random.default_rng(seed)))
    done = env.result().job_metrics()
    assert done.height > 40
    if reward == "slowdown":
        expected = (done["jct_s"] / done["duration_s"].clip(lower_bound=10.0)).sum()
        assert -sum(rewards) == pytest.approx(expected, rel=1e-9)
        return
    until = "end_time" if reward == "jct" else "start_time"
    expected = (done[until] - done["submit_time"]).dt.total_microseconds().sum()
    assert -sum(round(value * 1e6) for value in rewards) == expected


def test_the_window_is_drawn_from_the_seed():
    env = env_of(num_jobs=10)
    drawn = [env.reset(seed=seed)[1]["first_job_id"] for seed in range(20)]
    assert drawn == [env.reset(seed=seed)[1]["first_job_id"] for seed in range(20)]
    assert len(set(drawn)) > 5
    going_on = [env.reset(seed=3)[1]["first_job_id"], *(env.reset()[1]["first_job_id"] for _ in range(9))]
    assert len(set(going_on)) > 3
    fixed = env.reset(options={"first": 2})[1]["first_job_id"]
    assert fixed == env.reset(options={"first": 2})[1]["first_job_id"]
    with pytest.raises(UsageError, match="found first=100000; expected 0 to"):
        env.reset(options={"first": 100_000})


def test_what_cannot_be_done_changes_nothing_and_steps_are_counted():
    env = env_of(num_jobs=20, max_steps=7)
    before, _ = env.reset(seed=1)
    wrong = int(np.flatnonzero(~env.action_masks())[0])
    for k in range(7):
        after, reward, is_over, is_cut, info = env.step(wrong)
        assert (reward, is_over, is_cut, info["is_invalid"]) == (0.0, False, k == 6, True)
    assert all((before[name] == after[name]).all() for name in before)


def test_what_an_agent_sees():
    """Two nodes of 4 GPUs; a takes 2, b asks for 8 and cannot have them, c for half a GPU."""
    start = crowd(1).jobs["submit_time"].min()
    jobs = pl.DataFrame(
        {
            "job_id": ["a", "b", "c"],
            "submit_time": [start] * 3,
            "num_gpus": [2.0, 8.0, 0.5],
            "duration_s": [3600.0, 3600.0, 1200.0],
            PREDICTED: [3600.0, 10_800.0, 0.0],
        }
    )
    cluster = cluster_of([(4, "V100", "a"), (4, "V100", "a")])
    env = SchedulingEnv(jobs, cluster=cluster, episode=Episode(num_slots=4), predicted=PREDICTED)
    env.reset(seed=0)
    seen, _, _, _, info = env.step(0)
    assert seen["jobs"].tolist() == [[1, 1, 0.75, 0, 0], [1, 0.0625, 0, 0, 1], [0] * 5, [0] * 5]
    assert seen["free"].tolist() == [0.75]
    assert seen["load"].tolist() == pytest.approx([8.5 / 16.5, 2 / 6])
    assert info["action_mask"].tolist() == [0, 1, 0, 0, 1]
    seen, reward, _, _, info = env.step(4)
    assert (info["now_s"], reward) == (3600.0, -3 * 3600.0)
    assert seen["jobs"][0].tolist() == [1, 1, 0.75, 0.5, 1]


def test_errors_say_what_to_do():
    with pytest.raises(UnknownNameError, match="jct, slowdown, wait"):
        Episode(reward="makespan")
    with pytest.raises(UsageError, match="num_slots is 0, max_steps is -1; expected 1 or more"):
        Episode(num_slots=0, max_steps=-1)
    jobs, _ = crowd(1)
    with pytest.raises(UsageError, match="none of the jobs can run"):
        SchedulingEnv(jobs.head(3).with_columns(num_gpus=pl.lit(99.0)), cluster=cluster_of([(1, None, "a")]))


def test_without_gymnasium_the_error_names_the_extra():
    code = (
        "import sys; sys.modules['gymnasium'] = None\n"
        "from analysis.replay.steps import Simulation\n"
        "from analysis.errors import UsageError\n"
        "try:\n"
        "    from analysis.replay.steps import SchedulingEnv\n"
        "except UsageError as error:\n"
        "    sys.exit(str(error))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'gpu-hindcast[gym]'" in run.stderr
    assert "Traceback" not in run.stderr
