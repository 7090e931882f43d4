"""The paired comparison: what must be zero is zero, the oracle captures all, no queue no gain, fair intervals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from analysis.errors import UsageError
from analysis.replay import Cluster, policy
from analysis.replay.gains import DEFAULT_PAIRS, Pair, compare, mixed_cluster
from analysis.replay.intervals import block_interval, captured_share
from analysis.replay.policies import POLICIES

T0 = datetime(2024, 1, 1, tzinfo=UTC)
PAIR = Pair("fifo", "sjf")


def jobs_of(rows: list[tuple[float, float, float]]) -> pl.DataFrame:
    """Jobs from (submission [s], GPUs, duration [s])."""
    return pl.DataFrame(
        {
            "job_id": [str(number) for number in range(len(rows))],
            "submit_time": [T0 + timedelta(seconds=row[0]) for row in rows],
            "num_gpus": [float(row[1]) for row in rows],
            "duration_s": [float(row[2]) for row in rows],
            "gpu_type": pl.Series([None] * len(rows), dtype=pl.String),
        },
        schema_overrides={"submit_time": pl.Datetime("us", "UTC")},
    )


def busy_jobs(*, num_jobs: int = 600, days: float = 12.0, seed: int = 5) -> pl.DataFrame:
    """Jobs at random, a little more than a 16-GPU cluster can run."""
    rng = np.random.default_rng(seed)
    submits = np.sort(rng.uniform(0, days * 86_400, num_jobs))
    gpus = rng.choice([0.5, 1, 2, 4, 8], size=num_jobs)
    runs = rng.lognormal(8.3, 1.2, num_jobs)
    return jobs_of(list(zip(submits.round(), gpus, runs.round() + 1, strict=True)))


ONE_GPU = Cluster.uniform(num_nodes=1, num_gpus=1)
TWO_NODES = Cluster.uniform(num_nodes=2, num_gpus=8)


def row_of(table: pl.DataFrame, **where: str) -> dict[str, object]:
    for name, value in where.items():
        table = table.filter(pl.col(name) == value)
    assert table.height == 1
    return table.row(0, named=True)


def test_three_jobs_worked_out_by_hand() -> None:
    #  one GPU; a 0-10 is running when b (100 s) and c (10 s) come at 1 and 2
    #  fifo: a 10, b 110, c 120 -> JCT 10, 109, 118, mean 79;  sjf: c first -> JCT 10, 18, 119, mean 49
    #  wrong way round (b predicted shorter): as fifo;  constant: as fifo
    jobs = jobs_of([(0, 1, 10), (1, 1, 100), (2, 1, 10)]).with_columns(wrong=pl.Series([10.0, 5.0, 50.0]))
    table = compare(jobs, clusters={"own": ONE_GPU}, predicted={"wrong": "wrong"}, pairs=[PAIR]).table
    oracle = row_of(table, role="oracle")
    assert oracle["base_mean_jct_s"] == pytest.approx(79)
    assert oracle["mean_jct_s"] == pytest.approx(49)
    assert oracle["gain_s"] == pytest.approx(30)
    assert oracle["relative_gain"] == pytest.approx(30 / 79)
    assert oracle["captured_share"] == 1.0
    assert oracle["base_mean_queueing_delay_s"] == pytest.approx(79 - 40)
    for role in ("knows_nothing", "predicted"):
        assert row_of(table, role=role)["gain_s"] == 0.0
        assert row_of(table, role=role)["captured_share"] == 0.0
    assert oracle["gain_low_s"] is None  # less than ten days


def test_identical_policies_gain_nothing_and_the_interval_says_so() -> None:
    same = Pair("fifo_skip", "fifo_skip")
    table = compare(busy_jobs(), clusters={"own": TWO_NODES}, predicted={}, pairs=[same]).table
    assert table["gain_s"].to_list() == [0.0, 0.0]
    assert table["gain_low_s"].to_list() == [0.0, 0.0]
    assert table["gain_high_s"].to_list() == [0.0, 0.0]
    assert table["captured_share"].null_count() == 2


@pytest.mark.parametrize("pair", [Pair("fifo", "sjf"), Pair("fifo_skip", "sjf_skip")], ids=lambda pair: pair.policy)
def test_a_constant_captures_nothing_and_the_truth_everything(pair: Pair) -> None:
    jobs = busy_jobs().with_columns(truth=pl.col("duration_s"), flat=pl.lit(60.0))
    predicted = {"truth": "truth", "flat": "flat", "also_truth": None}
    table = compare(jobs, clusters={"own": TWO_NODES}, predicted=predicted, pairs=[pair]).table
    shares = dict(table.select("predictor", "captured_share").iter_rows())
    assert shares == {"knows_nothing": 0.0, "truth": 1.0, "flat": 0.0, "also_truth": 1.0, "oracle": 1.0}
    oracle = row_of(table, role="oracle")
    low, gain, high = (float(str(oracle[name])) for name in ("gain_low_s", "gain_s", "gain_high_s"))
    assert 0 < low <= gain <= high


def test_shuffled_predictions_gain_less_than_the_truth() -> None:
    jobs = busy_jobs()
    shuffled = jobs["duration_s"].shuffle(seed=1)
    table = compare(
        jobs.with_columns(shuffled=shuffled), clusters={"own": TWO_NODES}, predicted={"s": "shuffled"}, pairs=[PAIR]
    ).table
    assert float(str(row_of(table, predictor="s")["captured_share"])) < 0.5


def test_c78_no_queue_no_gain_and_the_load_is_there() -> None:
    jobs = jobs_of([(0, 1, 10), (1, 1, 20), (2, 1, 30)])
    three = Cluster.uniform(num_nodes=1, num_gpus=3)
    table = compare(jobs, clusters={"own": three}, predicted={}, pairs=[PAIR]).table
    assert table["gain_s"].to_list() == [0.0, 0.0]
    assert table["captured_share"].null_count() == 2
    assert all("no queue, no gain" in reason for reason in table["reason"])
    assert table["offered_load"].to_list() == pytest.approx([60 / (2 * 3)] * 2)


def test_an_oracle_that_loses_gives_no_share() -> None:
    assert captured_share(5.0, oracle_gain=-50.0, base_mean=100.0) == (
        None,
        "even true durations lose against the base here",
    )


def test_means_are_over_the_jobs_that_finished_under_every_run() -> None:
    # The 2-GPU job fits nowhere: it is left out of both sides, and counted.
    jobs = jobs_of([(0, 1, 10), (1, 2, 1000), (2, 1, 10)])
    table = compare(jobs, clusters={"own": ONE_GPU}, predicted={}, pairs=[PAIR]).table
    assert table["num_jobs"].to_list() == [2, 2]
    assert table["num_left_out"].to_list() == [1, 1]
    assert table["base_mean_jct_s"].to_list() == pytest.approx([(10 + 18) / 2] * 2)


def test_the_default_pairs_are_like_for_like_where_they_say_so() -> None:
    trait = {name: POLICIES[name].trait for name in POLICIES}
    for pair in DEFAULT_PAIRS:
        if pair.like_for_like:
            assert trait[pair.base] == trait[pair.policy]
        else:
            assert pair.note


def test_mixed_only_pairs_need_a_mixed_cluster_and_speeds_help_there() -> None:
    jobs = busy_jobs()
    big = Cluster.uniform(num_nodes=7, num_gpus=8)
    clusters = {"own": big, "mixed": mixed_cluster(big)}
    fast = next(pair for pair in DEFAULT_PAIRS if pair.mixed_only)
    result = compare(jobs, clusters=clusters, predicted={}, pairs=[fast])
    assert result.table["cluster"].unique().to_list() == ["mixed"]
    assert any("Made up to show mixed hardware" in note for note in result.notes)
    # On an almost empty cluster, knowing the speeds is all that can be gained.
    assert float(str(row_of(result.table, role="oracle")["gain_s"])) > 0


def test_mixed_cluster_keeps_nodes_and_gpus_and_leaves_a_mixed_one_alone() -> None:
    own = Cluster.uniform(num_nodes=52, num_gpus=8)
    mixed = mixed_cluster(own)
    assert mixed.nodes["node_id"].equals(own.nodes["node_id"])
    assert mixed.num_gpus == own.num_gpus
    assert set(mixed.gpu_types) == {"A100", "V100", "P100"}
    assert mixed_cluster(mixed).nodes.equals(mixed.nodes)
    # The same jobs still fit: the whole is about as fast as V100s.
    pace = sum(gpus * mixed.speed_of(kind) for gpus, kind in mixed.nodes.select("num_gpus", "gpu_type").iter_rows())
    assert pace / own.num_gpus == pytest.approx(1.0, abs=0.1)


def test_a_cluster_that_equals_another_is_not_replayed_twice() -> None:
    clusters = {"own": ONE_GPU, "again": ONE_GPU}
    result = compare(jobs_of([(0, 1, 10), (1, 1, 10)]), clusters=clusters, predicted={}, pairs=[PAIR])
    assert result.table["cluster"].unique().to_list() == ["own"]
    assert any("same nodes" in note for note in result.notes)


def test_each_replay_is_made_once_and_told() -> None:
    told: list[str] = []
    pairs = [Pair("fifo", "sjf"), Pair("fifo", "qssf")]
    result = compare(
        jobs_of([(0, 1, 10), (1, 1, 10)]), clusters={"own": ONE_GPU}, predicted={}, pairs=pairs, progress=told.append
    )
    assert len(told) == len(set(told)) == len(result.schedules) == 5
    assert ("own", "fifo", "oracle") in result.schedules


def test_all_wrong_names_are_told_at_once() -> None:
    with pytest.raises(UsageError, match=r"'a': the jobs have no column 'x'; predictor 'oracle': the name is reserved"):
        compare(jobs_of([(0, 1, 1)]), clusters={"own": ONE_GPU}, predicted={"a": "x", "oracle": None}, pairs=[PAIR])


def test_no_jobs_at_all_give_reasons_and_no_numbers() -> None:
    jobs = jobs_of([(0, 4, 10)])
    table = compare(jobs, clusters={"own": ONE_GPU}, predicted={}, pairs=[PAIR]).table
    assert table["num_jobs"].to_list() == [0, 0]
    assert table["reason"].to_list() == ["no job finished under all of these runs"] * 2


def test_the_same_seed_gives_the_same_table_whatever_the_order_of_the_rows() -> None:
    jobs = busy_jobs()
    shuffled = jobs.sample(fraction=1.0, shuffle=True, seed=2)
    tables = [
        compare(part, clusters={"own": TWO_NODES}, predicted={}, pairs=[PAIR], seed=4).table
        for part in (jobs, shuffled)
    ]
    numbers = tables[0].select(pl.selectors.numeric()).fill_null(-1)
    assert np.allclose(numbers.to_numpy(), tables[1].select(pl.selectors.numeric()).fill_null(-1).to_numpy(), rtol=1e-9)


def test_a_registered_policy_can_be_compared() -> None:
    @policy(trait="strict")
    def longest_first() -> pl.Expr:
        """Longest first."""
        return -pl.col("predicted_duration_s")

    try:
        jobs = jobs_of([(0, 1, 10), (1, 1, 100), (2, 1, 10)])
        pair = Pair("sjf", "longest_first")
        row = row_of(compare(jobs, clusters={"own": ONE_GPU}, predicted={}, pairs=[pair]).table, role="oracle")
        assert row["gain_s"] == pytest.approx(49 - 79)
        assert "lose" in str(row["reason"])
    finally:
        del POLICIES["longest_first"]


def test_interval_of_independent_days_is_that_of_the_mean() -> None:
    # 400 independent days of one value each: the half-width is 1.96 / sqrt(400), up to the noise of resampling.
    rng = np.random.default_rng(8)
    values = rng.normal(3.0, 1.0, 400)
    low, high = block_interval(values, days=np.arange(400), seed=1)
    assert low is not None
    assert high is not None
    assert (high - low) / 2 == pytest.approx(1.96 / 20, rel=0.2)
    assert low < values.mean() < high


def test_interval_of_days_that_hang_together_is_wider() -> None:
    rng = np.random.default_rng(9)
    steps = rng.normal(size=100)
    # Weeks that are alike: far fewer independent values than days.
    values = np.repeat(steps, 7)
    alike = block_interval(values, days=np.arange(700), seed=1)
    mixed = block_interval(rng.permutation(values), days=np.arange(700), seed=1)
    assert None not in (*alike, *mixed)
    widths = [float(high) - float(low) for low, high in (alike, mixed) if low is not None and high is not None]
    assert widths[0] > 1.7 * widths[1]


def test_interval_needs_ten_days() -> None:
    assert block_interval(np.ones(9), days=np.arange(9)) == (None, None)
    assert block_interval(np.ones(10), days=np.arange(10)) == (1.0, 1.0)
    assert block_interval(np.empty(0), days=np.empty(0, dtype=np.int64)) == (None, None)
