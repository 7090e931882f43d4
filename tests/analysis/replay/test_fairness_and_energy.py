"""Fairness between users, service by price, and energy: on paper."""

from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl
import pytest

from analysis import metrics as m
from analysis.errors import UnknownNameError
from analysis.replay import Cluster, energy, fairness, replay
from tests.jobs import make_jobs
from tests.replay_cases import START


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def test_d87_jains_index_and_the_worst_user():
    """100-s jobs on two GPUs: a and b at once, c after one of them. Slowdowns 1, 1, 2; d's job cannot run."""
    rows = [("1", "a", 1), ("2", "b", 1), ("3", "c", 1), ("4", "d", 9), ("5", None, 1)]
    jobs = make_jobs(
        [
            {"job_id": i, "user": user, "submit_time": START, "num_gpus": float(gpus), "duration_s": 100.0}
            for i, user, gpus in rows
        ]
    )
    result = replay(jobs, cluster=Cluster.uniform(num_nodes=1, num_gpus=2))
    row = fairness({"fifo": result}, jobs).row(0, named=True)
    assert row["jain"] == pytest.approx(16 / 18)
    assert (row["mean"], row["max"], row["worst"], row["max_over_mean"]) == (4 / 3, 2.0, "c", 1.5)
    assert (row["num_groups"], row["num_groups_left_out"], row["num_jobs_of_nobody"]) == (3, 1, 1)
    one = jobs.filter(pl.col("user") == "c")
    alone = fairness({"x": replay(one, cluster=result.cluster)}, one).row(0, named=True)
    assert (alone["jain"], alone["max_over_mean"], alone["num_groups"]) == (1.0, 1.0, 1)
    with pytest.raises(UnknownNameError, match="jct_s"):
        fairness({"x": result}, jobs, measure="happiness")


def test_d87_nobody_has_no_fairness_and_all_zero_is_equal():
    frame = pl.DataFrame({"x": [0.0, 0.0], "y": pl.Series([None, None], dtype=pl.Float64)})
    assert frame.select(x=m.jain_index(pl.col("x")), y=m.jain_index(pl.col("y"))).row(0) == (1.0, None)


def test_d88_service_by_price():
    jobs = pl.DataFrame({"gpu_type": ["T4", "A100", None], "num_gpus": [1.0] * 3, "duration_s": [20 * 3600.0] * 3})
    cost = jobs.select(m.weighted_gpu_hours({"T4": 1.0, "A100": 8.0})).to_series()
    assert cost.to_list() == [20.0, 160.0, None]
    assert (cost / cost.sum()).round(3).to_list() == [0.111, 0.889, None]


def test_d89_energy_of_busy_and_idle_nodes():
    """a draws 100 W idle and 700 W busy, for 2 GPUs; 1 of them works for 1800 s of 3600; of b it is not stated."""
    nodes = pl.DataFrame(
        {
            "node_id": ["a", "b", "c"],
            "num_gpus": [2, 1, 4],
            "gpu_type": ["V100", "K80", "A100"],
            "idle_w": [100.0, None, 50.0],
            "busy_w": [700.0, 300.0, None],
        }
    )
    jobs = make_jobs(
        [
            {
                "job_id": name,
                "submit_time": START,
                "num_gpus": 1.0,
                "duration_s": length,
                "gpu_type": kind,
                "allowed_gpu_types": [kind],
            }
            for name, length, kind in (("1", 1800.0, "V100"), ("2", 3600.0, "K80"))
        ]
    )
    found = energy(replay(jobs, cluster=Cluster(nodes)))
    assert found.with_columns(pl.col(pl.Float64).round(12)).rows() == [
        ("V100", 1, 2, 0.5, 0.1, 0.15, 0.25),
        ("K80", 1, 1, 1.0, None, None, None),
        ("A100", 1, 4, 0.0, 0.05, 0.0, 0.05),
    ]


def test_d89_two_gpus_of_300_watts_for_half_an_hour_and_nodes_that_are_away():
    """0.3 kWh; an idle node that is away for half of the time draws half. Who finishes nothing has no table."""
    nodes = pl.DataFrame({"node_id": ["a", "b"], "num_gpus": [2, 2], "idle_w": [0.0, 200.0], "busy_w": [600.0, 900.0]})
    outages = pl.DataFrame({"node_id": ["b"], "down": [at(900)], "up": [at(9000)], "kind": ["failure"]})
    job = make_jobs([{"job_id": "1", "submit_time": START, "num_gpus": 2.0, "duration_s": 1800.0}])
    table = energy(replay(job, cluster=Cluster(nodes, outages=outages)))
    assert table.select("busy_kwh", "idle_kwh").row(0) == pytest.approx((0.3, 0.05))
    none = energy(replay(job.with_columns(num_gpus=9.0), cluster=Cluster(nodes)))
    assert (none.height, none.columns) == (0, table.columns)
