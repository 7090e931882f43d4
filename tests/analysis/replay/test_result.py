"""What a replay gives back: the schedule's columns, its metrics by hand, its notes, and what it refuses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from analysis.errors import HindcastError, NoTimelineError, SchemaError, UnknownNameError, UsageError
from analysis.replay import POLICIES, Cluster, policy, replay
from analysis.replay.result import SCHEDULE, ReplayResult
from tests.jobs import make_jobs

T0 = datetime(2024, 1, 1, tzinfo=UTC)
FOUR = Cluster.uniform(num_nodes=1, num_gpus=4)


def jobs_of(*rows: tuple[float, float | None, float | None], **columns: list[Any]) -> pl.DataFrame:
    """Jobs 0, 1 … of (submission in seconds, GPUs, seconds)."""
    return make_jobs(
        [
            {"submit_time": T0 + timedelta(seconds=at), "num_gpus": gpus, "duration_s": seconds}
            | {name: values[i] for name, values in columns.items()}
            for i, (at, gpus, seconds) in enumerate(rows)
        ]
    )


def test_the_schedule_has_its_columns_even_without_jobs():
    full = replay(jobs_of((0, 1, 1)), cluster=FOUR)
    empty = replay(jobs_of((0, 1, 1)).clear(), cluster=FOUR)
    assert dict(full.schedule.schema) == dict(empty.schedule.schema) == SCHEDULE
    row = empty.metrics()
    assert (row["num_finished"], row["mean_jct_s"], row["makespan_s"], row["gpu_allocation"]) == (0, None, None, None)
    assert row.keys() == full.metrics().keys()


def test_metrics_by_hand():
    #      0 ....... 10 ........ 30      4 GPUs
    #      a (4)      | b (2)            c has no known duration; d is wider than the cluster; e is a CPU job
    jobs = jobs_of((0, 4, 10), (2, 2, 20), (3, 1, None), (4, 8, 1), (5, 0, 1))
    row = replay(jobs, cluster=FOUR).metrics()
    assert (row["num_finished"], row["num_rejected"], row["num_unfinished"], row["num_cpu_jobs_left_out"]) == (
        2,
        2,
        0,
        1,
    )
    assert (row["mean_jct_s"], row["max_jct_s"], row["p50_jct_s"]) == (19.0, 28.0, 19.0)  # 10 and 28
    assert row["p95_jct_s"] == pytest.approx(10 + 0.95 * 18)
    assert (row["mean_queueing_delay_s"], row["max_queueing_delay_s"]) == (4.0, 8.0)  # 0 and 8
    assert row["mean_bounded_slowdown"] == pytest.approx((1 + 28 / 20) / 2)
    assert row["makespan_s"] == 30.0
    assert row["gpu_allocation"] == pytest.approx((4 * 10 + 2 * 20) / (4 * 30))
    assert row["gpu_allocation_steady"] == 1.0  # to the last submission, 4 s: all four GPUs
    assert row["offered_load"] == pytest.approx((4 * 10 + 2 * 20) / (4 * 2))  # of the two that can run
    assert row["max_queue_length"] == 1
    assert (row["policy"], row["placement"], row["predictor"]) == ("fifo", "consolidate", None)
    assert (row["num_preemptions"], row["wasted_gpu_s"]) == (0, 0.0)


def test_why_a_job_was_rejected():
    jobs = jobs_of((0, None, 5), (0, 1, None), (0, 5, 5), (0, 4, 5), (0, float("nan"), 5))
    schedule = replay(jobs, cluster=FOUR).schedule
    assert schedule["reason"].to_list() == [
        "unknown_gpus",
        "unknown_duration",
        "exceeds_capacity",
        None,
        "unknown_gpus",
    ]
    assert schedule["state"].to_list() == ["rejected"] * 3 + ["finished", "rejected"]
    rejected = schedule.filter(pl.col("state") == "rejected")
    assert rejected.select("start_time", "end_time", "nodes", "gpu_type", "start_s").null_count().row(0) == (4,) * 5


def test_censored_jobs_run_for_their_lower_bound_and_are_counted():
    jobs = jobs_of(*[(0, 1, 5)] * 4, censoring=["right", "both", "left", "none"])
    result = replay(jobs, cluster=FOUR)
    assert result.schedule["reason"].to_list() == ["right_censored", "right_censored", "left_censored", None]
    assert result.schedule["state"].unique().to_list() == ["finished"]
    assert result.metrics()["num_censored"] == 3


def test_a_prediction_orders_but_never_kills():
    jobs = jobs_of((0, 4, 1), (0, 4, 100), (0, 4, 2)).with_columns(predicted_duration_s=pl.Series([1.0, 1.5, 60.0]))
    schedule = replay(jobs, cluster=FOUR, policy="sjf", predicted="predicted_duration_s").schedule
    assert schedule.select("start_s", "end_s").rows() == [(0.0, 1.0), (1.0, 101.0), (101.0, 103.0)]


def test_mixed_hardware_runs_at_its_speed_and_says_what_was_not_measured():
    nodes = pl.DataFrame({"node_id": ["a", "b"], "num_gpus": [1, 1], "gpu_type": ["V100", "G2"]})
    jobs = jobs_of((0, 1, 10), (0, 1, 10), gpu_type=["V100", None])
    result = replay(jobs, cluster=Cluster(nodes, speed={"V100": 2.0}))
    # the first ran on a V100 in the log, so it takes as long here; the second's type is unknown: it counts as 1.0
    assert result.schedule.select("gpu_type", "end_s").rows() == [("V100", 10.0), ("G2", 10.0)]
    assert any("G2" in note for note in result.notes)
    untyped = replay(jobs, cluster=FOUR)
    assert untyped.schedule["end_s"].to_list() == [10.0, 10.0]
    assert untyped.notes == ()


def test_allowed_types_need_a_cluster_that_says_its_types():
    jobs = jobs_of((0, 1, 1), (0, 1, 1), allowed_gpu_types=[["K80"], []])
    typed = Cluster.uniform(num_nodes=1, num_gpus=4, gpu_type="V100")
    assert replay(jobs, cluster=typed).schedule["reason"].to_list() == ["exceeds_capacity", None]
    blind = replay(jobs, cluster=FOUR)
    assert blind.schedule["state"].to_list() == ["finished"] * 2
    assert "1 jobs ask for certain GPU types" in blind.notes[0]


def test_vcs_divide_the_nodes_unless_told_not_to():
    nodes = pl.DataFrame({"node_id": ["1", "2", "3"], "num_gpus": [4, 4, 4], "vc": ["a", "b", None]})
    jobs = jobs_of((0, 4, 10), (0, 4, 10), (0, 4, 10), (0, 4, 10), vc=["a", "a", "c", None])
    divided = replay(jobs, cluster=Cluster(nodes))
    assert divided.schedule["start_s"].to_list() == [0.0, 10.0, None, None]
    assert divided.schedule["reason"].to_list() == [None, None, "exceeds_capacity", "exceeds_capacity"]
    assert "1 nodes belong to no VC" in divided.notes[0]
    whole = replay(jobs, cluster=Cluster(nodes), use_vcs=False)
    assert whole.schedule["start_s"].to_list() == [0.0, 0.0, 0.0, 10.0]


def test_unknown_names_list_the_known_ones():
    jobs = jobs_of((0, 1, 1))
    with pytest.raises(UnknownNameError, match=r"no scheduling policy is named 'fifi'.*Did you mean 'fifo'"):
        replay(jobs, cluster=FOUR, policy="fifi")
    with pytest.raises(UnknownNameError, match="no placement is named 'best'.*consolidate"):
        replay(jobs, cluster=FOUR, placement="best")
    with pytest.raises(UnknownNameError, match="no column of predicted durations is named 'p'"):
        replay(jobs, cluster=FOUR, predicted="p")


def test_jobs_without_submission_cannot_be_replayed_unless_they_need_no_gpu():
    with pytest.raises(NoTimelineError, match="replay: 1 of 2 jobs have no submit_time"):
        replay(jobs_of((0, 1, 1), (0, 1, 1), submit_time=[T0, None]), cluster=FOUR)
    cpu_job = jobs_of((0, 1, 1), (0, 0, 1), submit_time=[T0, None])
    assert replay(cpu_job, cluster=FOUR).metrics()["num_finished"] == 1


def test_impossible_tables_are_refused_with_all_that_is_wrong():
    jobs = jobs_of((0, 1, 1), (0, 1, 1))
    with pytest.raises(SchemaError, match="'num_gpus' is missing"):
        replay(jobs.drop("num_gpus"), cluster=FOUR)
    wrong = jobs.with_columns(num_gpus=pl.lit(-1.0), duration_s=pl.lit(float("inf")), job_id=pl.lit("x"))
    with pytest.raises(SchemaError, match=r"(?s)'num_gpus' has 2.*'duration_s' has 2.*'job_id' has repeated ids"):
        replay(wrong, cluster=FOUR)
    with pytest.raises(SchemaError, match="'submit_time' has dtype String"):
        replay(jobs.with_columns(submit_time=pl.lit("2024")), cluster=FOUR)


@pytest.mark.parametrize("value", [None, float("nan"), -1.0])
def test_every_job_that_runs_needs_a_prediction(value: float | None):
    jobs = jobs_of((0, 1, 1), (0, 1, None)).with_columns(p=pl.Series([value, value], dtype=pl.Float64))
    with pytest.raises(SchemaError, match="column 'p' is null, NaN or below 0 in 1 rows"):
        replay(jobs, cluster=FOUR, policy="sjf", predicted="p")
    with pytest.raises(SchemaError, match="column 'p' has dtype String"):
        replay(jobs.with_columns(p=pl.lit("x")), cluster=FOUR, predicted="p")


def by_key(key: pl.Expr, jobs: pl.DataFrame) -> ReplayResult:
    """Replay under a policy of our own, registered for that long."""

    @policy(trait="strict")
    def mine() -> pl.Expr:
        """Ours."""
        return key

    try:
        return replay(jobs, cluster=FOUR, policy="mine")
    finally:
        del POLICIES["mine"]


def test_a_policy_of_our_own_orders_by_any_column():
    jobs = jobs_of((0, 4, 1), (0, 4, 1), (0, 4, 1), user=["c", "a", "b"])
    assert by_key(pl.col("user"), jobs).schedule["start_s"].to_list() == [2.0, 0.0, 1.0]
    assert by_key(-pl.col("duration_s"), jobs).schedule["start_s"].to_list() == [0.0, 1.0, 2.0]
    with pytest.raises(HindcastError, match="'mine': its key is null or NaN for 3 jobs"):
        by_key(pl.col("time_limit_s"), jobs)
    with pytest.raises(SchemaError, match="'colour' is missing"):
        by_key(pl.col("colour"), jobs)


def test_what_policies_say_of_themselves():
    assert POLICIES["fifo"].needs == {"submit_time"}
    assert POLICIES["qssf"].needs == {"num_gpus", "predicted_duration_s"}
    blind = {"fifo", "smallest_first", "edf", "multifactor", "las", "fair_share", "lending", "topology"}
    assert {name for name, chosen in POLICIES.items() if not chosen.uses_predictions} == blind | {
        *(f"{name}_skip" for name in blind),
        "tiresias",
        "time_slicing",
    }
    assert all(chosen.meaning for chosen in POLICIES.values())


def test_missing_optional_columns_are_unknown():
    jobs = jobs_of((0, 4, 10), (0, 4, 1)).select("job_id", "submit_time", "num_gpus", "duration_s")
    assert replay(jobs, cluster=FOUR).schedule["start_s"].to_list() == [0.0, 10.0]


@pytest.mark.parametrize("dtype", [pl.Datetime("ms"), pl.Datetime("ns", "Asia/Shanghai"), pl.Datetime("us", "UTC")])
def test_times_of_any_unit_and_zone_become_utc(dtype: pl.Datetime):
    jobs = jobs_of((0, 4, 10), (0, 4, 1))
    changed = jobs.with_columns(
        pl.col("submit_time").cast(dtype) if dtype.time_zone else pl.col("submit_time").dt.replace_time_zone(None)
    )
    result = replay(changed, cluster=FOUR)
    assert result.schedule["start_time"].to_list() == [T0, T0 + timedelta(seconds=10)]
    assert result.metrics() == replay(jobs, cluster=FOUR).metrics()


def test_nodes_wider_than_a_machine_word():
    cluster = Cluster.uniform(num_nodes=2, num_gpus=200)
    jobs = jobs_of((0, 150, 10), (0, 60, 5), (0, 140, 3), (0, 260, 1))
    schedule = replay(jobs, cluster=cluster).schedule
    # 150 to n0 (50 left), 60 to n1 (140 left), 140 to n1 (0 left); 260 needs a whole node and 60 on the other
    assert schedule["nodes"].to_list() == [["n0"], ["n1"], ["n1"], ["n0", "n1"]]
    assert schedule["start_s"].to_list() == [0.0, 0.0, 0.0, 10.0]


def test_more_gpu_types_than_bits_are_refused():
    nodes = pl.DataFrame({"node_id": [str(i) for i in range(63)], "num_gpus": [1] * 63})
    nodes = nodes.with_columns(gpu_type=pl.format("G{}", "node_id"))
    with pytest.raises(UsageError, match="63 GPU types; a replay can tell 62 apart"):
        replay(jobs_of((0, 1, 1)), cluster=Cluster(nodes))
    assert replay(jobs_of((0, 1, 1)), cluster=Cluster(nodes.head(62))).schedule["gpu_type"].to_list() == ["G0"]
