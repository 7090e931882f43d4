"""Laws of replays, for any small log: what must hold without knowing the schedule."""

from __future__ import annotations

from datetime import timedelta

import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from analysis.replay import POLICIES, Cluster, ReplayResult, replay
from tests.replay_cases import PREDICTED, SPEED, START, Case, cases, few, jobs_table
from tests.replay_checks import joined, overcommitted, schedule_bytes

every_policy = pytest.mark.parametrize("policy", POLICIES)
keeps_running = pytest.mark.parametrize("policy", [name for name, chosen in POLICIES.items() if not chosen.preempts])


#: An overdue job ends 1 us, or a minute, from now; a GPU is worth an hour; levels, slices, leases and half-lives last.
HAVE_UNITS = {
    "easy",
    "conservative",
    "multifactor",
    "multifactor_skip",
    "las",
    "las_skip",
    "tiresias",
    "gittins",
    "time_slicing",
    "themis",
    "slo_lease",
    "fair_share",
    "fair_share_skip",
}
UNITLESS = [name for name in POLICIES if name not in HAVE_UNITS]


def of_trait(*traits: str) -> pytest.MarkDecorator:
    names = [name for name, chosen in POLICIES.items() if chosen.trait in traits and not chosen.preempts]
    return pytest.mark.parametrize("policy", names)


def run(case: Case, policy: str, *, predicted: str | None = None) -> ReplayResult:
    return replay(case.jobs, cluster=case.cluster, policy=policy, predicted=predicted)


def undescribed(cluster: Cluster) -> Cluster:
    """The same nodes, of unknown type: every job runs as long as in the log."""
    return Cluster(cluster.nodes.with_columns(pl.lit(None, dtype=pl.String).alias("gpu_type")))


@every_policy
@few
@given(case=cases(), seed=st.integers(0, 99))
def test_row_order_is_irrelevant(policy: str, case: Case, seed: int):
    shuffled = case.jobs.sample(fraction=1, shuffle=True, seed=seed)
    nodes = case.cluster.nodes.sample(fraction=1, shuffle=True, seed=seed)
    again = replay(shuffled, cluster=Cluster(nodes, speed=SPEED), policy=policy, predicted=PREDICTED)
    assert schedule_bytes(again) == schedule_bytes(run(case, policy, predicted=PREDICTED))


@keeps_running
@few
@given(case=cases(min_jobs=5, has_fractions=True))
def test_nobody_holds_what_is_not_there(policy: str, case: Case):
    assert overcommitted(run(case, policy, predicted=PREDICTED), case.jobs) == []


@keeps_running
@few
@given(case=cases(min_jobs=5))
def test_every_job_is_accounted_for(policy: str, case: Case):
    """A row per GPU job; a job runs on one type, for its run time on that type, after its submission."""
    table = joined(run(case, policy, predicted=PREDICTED), case.jobs)
    assert sorted(table["job_id"]) == sorted(case.jobs["job_id"])
    types = dict(case.cluster.nodes.select("node_id", "gpu_type").iter_rows())
    logged = dict(case.jobs.select("job_id", "gpu_type").iter_rows())
    for row in table.filter(pl.col("state") == "finished").iter_rows(named=True):
        assert {types[node] for node in row["nodes"]} == {row["gpu_type"]}
        there = case.cluster.speed_of(row["gpu_type"]) or 1.0
        before = case.cluster.speed_of(logged[row["job_id"]]) or 1.0
        ratio = 1.0 if row["gpu_type"] is None else before / there
        assert row["end"] - row["start"] == pytest.approx(row["duration_s"] * 1e6 * ratio, abs=0.51)
        assert row["start"] >= row["submit"]


@pytest.mark.parametrize("policy", [name for name, chosen in POLICIES.items() if not chosen.leaves_vc])
@few
@given(case=cases(min_jobs=4))
def test_a_vc_does_not_feel_the_others(policy: str, case: Case):
    """Each VC's jobs are scheduled as if they were alone in the world."""
    assume(case.cluster.nodes["vc"].null_count() == 0)
    columns = ["job_id", "start_time", "end_time", "nodes", "gpu_type", "state", "reason"]
    together = run(case, policy, predicted=PREDICTED).schedule.select(columns)
    for (vc,), jobs in case.jobs.group_by("vc"):
        alone = replay(jobs, cluster=case.cluster, policy=policy, predicted=PREDICTED).schedule.select(columns)
        its_own = together.filter(pl.col("job_id").is_in(jobs["job_id"].implode()))
        assert alone.sort("job_id").equals(its_own.sort("job_id")), vc


@pytest.mark.parametrize("policy", UNITLESS)
@few
@given(case=cases(), factor=st.integers(2, 1_000))
def test_time_has_no_unit(policy: str, case: Case, factor: int):
    """A log told in longer seconds gives the same schedule in longer seconds; hardware not described."""
    bare = undescribed(case.cluster)
    stretched = case.jobs.with_columns(
        submit_time=START + (pl.col("submit_time") - START) * factor,
        duration_s=pl.col("duration_s") * factor,
        predicted_duration_s=pl.col(PREDICTED) * factor,
        deadline_time=START + (pl.col("deadline_time") - START) * factor,
    )
    before = replay(case.jobs, cluster=bare, policy=policy, predicted=PREDICTED).schedule
    after = replay(stretched, cluster=bare, policy=policy, predicted=PREDICTED).schedule
    times = [(START + (pl.col(name) - START) * factor).alias(name) for name in ("start_time", "end_time")]
    columns = ["job_id", "start_time", "end_time", "nodes", "state"]
    assert after.select(columns).equals(before.with_columns(times).select(columns))


# --- who waits, and whether he has to --------------------------------------------------------------------------------


@st.composite
def plain_cases(draw: st.DrawFn) -> Case:
    """Whole GPUs on one node of one type, so that who holds what can be read from the schedule."""
    times = st.sampled_from([0, 0, 1, 2, 3, 5, 8, 13])
    lengths = st.sampled_from([0, 1, 2, 3, 5, 8, 13, 21])
    size = draw(st.integers(1, 4))
    asked = st.tuples(times, st.integers(1, size), lengths, lengths)
    rows = [
        {
            "job_id": str(i),
            "submit_time": START + timedelta(seconds=at),
            "num_gpus": float(gpus),
            "duration_s": float(duration),
            "predicted_duration_s": float(predicted),
        }
        for i, (at, gpus, duration, predicted) in enumerate(draw(st.lists(asked, min_size=2, max_size=20)))
    ]
    return Case(jobs_table(rows), Cluster.uniform(num_nodes=draw(st.integers(1, 3)), num_gpus=size))


def waiting_beside_free_gpus(result: ReplayResult, jobs: pl.DataFrame) -> list[tuple[int, list[str]]]:
    """(instant, ids in order of submission) of those who wait although their GPUs are free on some node.

    Looked at wherever something happened: at every arrival and every end.
    """
    table = joined(result, jobs)
    sizes = dict(result.cluster.nodes.select("node_id", "num_gpus").iter_rows())
    rows = table.select("job_id", "submit", "start", "end", "num_gpus", pl.col("nodes").list.first()).rows()
    found = []
    for now in sorted({at for row in rows for at in (row[1], row[3])}):
        free = dict(sizes)
        for _, _, start, end, gpus, node in rows:
            free[node] -= gpus if start <= now < end else 0
        waiting = [job_id for job_id, at, start, _, gpus, _ in rows if at <= now < start and gpus <= max(free.values())]
        if waiting:
            found.append((now, waiting))
    return found


@of_trait("skip", "fastest")
@few
@given(case=plain_cases())
def test_who_may_pass_does_not_wait_beside_free_gpus(policy: str, case: Case):
    assert waiting_beside_free_gpus(run(case, policy, predicted=PREDICTED), case.jobs) == []


@pytest.mark.parametrize("policy", ["fifo", "easy"])
@few
@given(case=plain_cases())
def test_the_head_does_not_wait_beside_free_gpus(policy: str, case: Case):
    result = run(case, policy, predicted=PREDICTED)
    table = joined(result, case.jobs)  # in the order of submission
    for now, waiting in waiting_beside_free_gpus(result, case.jobs):
        head = table.filter((pl.col("submit") <= now) & (pl.col("start") > now))["job_id"].first()
        assert head not in waiting


@few
@given(case=cases(min_jobs=5))
def test_fifo_starts_in_the_order_of_submission(case: Case):
    done = joined(run(case, "fifo"), case.jobs).filter(pl.col("state") == "finished")
    has_vcs = case.cluster.nodes["vc"].null_count() == 0
    for _, jobs in done.group_by("vc" if has_vcs else "state"):
        ordered = jobs.with_columns(number=pl.col("job_id").str.extract(r"(\d+)").cast(pl.Int64))
        is_numbered = ordered["job_id"].str.contains(r"^\d").all()
        assert ordered.sort("submit", "number" if is_numbered else "job_id")["start"].is_sorted()


@few
@given(case=cases(min_jobs=5))
def test_the_first_who_waits_starts_under_easy_when_he_would_under_fifo(case: Case):
    """With true durations backfilling costs the first waiting job nothing; until then both do the same."""
    results = {
        policy: replay(case.jobs, cluster=case.cluster, policy=policy, use_vcs=False) for policy in ("fifo", "easy")
    }
    strict, easy = (joined(result, case.jobs) for result in results.values())
    waits = strict.with_row_index("place").filter(pl.col("start") > pl.col("submit"))["place"]
    last = waits[0] if len(waits) else strict.height - 1
    assert strict["start"].head(last + 1).to_list() == easy["start"].head(last + 1).to_list()


# --- what the order depends on ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["", "_skip"])
@few
@given(case=cases(min_jobs=4))
def test_shortest_first_without_knowledge_is_first_come_first_served(rule: str, case: Case):
    knows_nothing = case._replace(jobs=case.jobs.with_columns(pl.lit(60.0).alias(PREDICTED)))
    by_guess = run(knows_nothing, f"sjf{rule}", predicted=PREDICTED).schedule
    assert by_guess.equals(run(case, f"fifo{rule}").schedule)


@pytest.mark.parametrize("policy", ["sjf", "sjf_skip", "qssf", "qssf_skip", "sjf_fastest", "qssf_fastest"])
@few
@given(case=cases(min_jobs=4), factor=st.sampled_from([2, 3, 10]))
def test_only_the_order_of_predictions_matters(policy: str, case: Case, factor: int):
    case = case._replace(cluster=undescribed(case.cluster))  # a run time on some type is rounded, and may tie by that
    doubled = case._replace(jobs=case.jobs.with_columns(pl.col(PREDICTED) * factor))
    assert run(doubled, policy, predicted=PREDICTED).schedule.equals(run(case, policy, predicted=PREDICTED).schedule)


@every_policy
@few
@given(case=cases(min_jobs=4))
def test_the_true_duration_is_a_prediction_like_any_other(policy: str, case: Case):
    told = case._replace(jobs=case.jobs.with_columns(pl.col("duration_s").alias(PREDICTED)))
    assert run(told, policy, predicted=PREDICTED).schedule.equals(run(case, policy).schedule)


@pytest.mark.parametrize("policy", ["fifo", "fifo_skip"])
@few
@given(case=cases(min_jobs=4))
def test_first_come_first_served_asks_no_prediction(policy: str, case: Case):
    assert not POLICIES[policy].uses_predictions
    assert run(case, policy, predicted=PREDICTED).schedule.equals(run(case, policy).schedule)


@every_policy
@few
@given(case=cases(min_jobs=6))
def test_who_is_rejected_leaves_no_trace(policy: str, case: Case):
    result = run(case, policy, predicted=PREDICTED).schedule
    done = result.filter(pl.col("state") == "finished")
    kept = case.jobs.filter(pl.col("job_id").is_in(done["job_id"].implode()))
    assume(0 < kept.height < case.jobs.height)
    without = replay(kept, cluster=case.cluster, policy=policy, predicted=PREDICTED).schedule
    columns = ["job_id", "start_time", "end_time", "nodes", "gpu_type"]
    assert without.select(columns).equals(done.select(columns))
