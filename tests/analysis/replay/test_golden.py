"""Schedules that can be drawn on paper: the drawing stands in the comment, a letter is a job, a column a second."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import polars as pl
import pytest

from analysis.replay import POLICIES, Cluster, ReplayResult, replay
from tests.jobs import make_jobs
from tests.replay_cases import START

GUESS = "predicted_duration_s"


def ask(job_id: str, num_gpus: float, duration_s: float, at: float = 0, **more: Any) -> dict[str, Any]:
    submit = START + timedelta(seconds=at)
    asked = {"job_id": job_id, "num_gpus": float(num_gpus), "duration_s": float(duration_s)}
    return asked | {"submit_time": submit} | more


def run(rows: list[dict[str, Any]], cluster: Cluster, policy: str, *, guess: dict[str, float] | None = None):
    jobs = make_jobs(rows)
    if guess is not None:
        values = [float(guess.get(i, d)) for i, d in jobs.select("job_id", "duration_s").iter_rows()]
        jobs = jobs.with_columns(pl.Series(GUESS, values))
    return replay(jobs, cluster=cluster, policy=policy, predicted=None if guess is None else GUESS)


def starts(result: ReplayResult) -> dict[str, float]:
    return dict(result.schedule.select("job_id", "start_s").iter_rows())


def places(result: ReplayResult) -> dict[str, str]:
    return dict(result.schedule.select("job_id", pl.col("nodes").list.join("+")).iter_rows())


def nodes(*sizes: int, types: list[str] | None = None, speed: dict[str, float] | None = None) -> Cluster:
    """Nodes n0, n1 … of so many GPUs."""
    table = pl.DataFrame({"node_id": [f"n{i}" for i in range(len(sizes))], "num_gpus": sizes})
    if types is not None:
        table = table.with_columns(gpu_type=pl.Series(types))
    return Cluster(table, speed=speed or {})


# 4 GPUs; B wants all, C and D one each.
#
#            0         1         2
#            0123456789012345678901234
#   fifo     AAAAAAAAAA                    3 GPUs
#                      BBBBB               all 4: nobody passes it
#                           CCCCCCCC       1 GPU
#                           DDDDDDDDD...   1 GPU
#   skip     AAAAAAAAAA                    3 GPUs
#            CCCCCCCCDDDDDDDDDDDDDDD       the fourth
#                                   BBBBB  all 4
#   easy     AAAAAAAAAABBBBBDDDDDDDDD...   C ends by 10, when B is sure to fit; D would not: it waits for B
#            CCCCCCCC  BBBBB
#   sjf      BBBBB                         all 4
#                 CCCCCCCC                 1 GPU
#                 AAAAAAAAAA               3 GPUs
#                         DDDDDDDDDDDDDDD  in C's place
#   qssf     CCCCCCCC                      8 GPU-s
#            DDDDDDDDDDDDDDD               15
#                           BBBBB          20 blocks
#                                AAAA...   30
#   ljf      DDDDDDDDDDDDDDD               15 s
#            AAAAAAAAAA                    10 s
#                      CCCCCCCC            8 s
#                              BBBBB...    5 s
#   smallest CCCCCCCCAAAAAAAAAA            1 GPU, then 3
#            DDDDDDDDDDDDDDD               1
#                              BBBBB...    4
FOUR = [ask("A", 3, 10), ask("B", 4, 5), ask("C", 1, 8), ask("D", 1, 15)]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("fifo", {"A": 0, "B": 10, "C": 15, "D": 15}),
        ("fifo_skip", {"A": 0, "C": 0, "D": 8, "B": 23}),
        ("easy", {"A": 0, "C": 0, "B": 10, "D": 15}),  # C71
        ("conservative", {"A": 0, "C": 0, "B": 10, "D": 15}),
        ("sjf", {"B": 0, "C": 5, "A": 5, "D": 13}),
        ("qssf", {"C": 0, "D": 0, "B": 15, "A": 20}),
        ("ljf", {"D": 0, "A": 0, "C": 10, "B": 18}),
        ("smallest_first", {"C": 0, "D": 0, "A": 8, "B": 18}),
        ("edf", {"A": 0, "B": 10, "C": 15, "D": 15}),  # nobody has a deadline: as fifo
        ("multifactor", {"B": 0, "A": 5, "C": 5, "D": 13}),  # a GPU is worth an hour of age
        ("multifactor_skip", {"B": 0, "A": 5, "C": 5, "D": 13}),
    ],
)
def test_one_node_of_four(policy: str, expected: dict[str, float]):
    assert starts(run(FOUR, nodes(4), policy)) == expected


# One GPU. By deadlines: c by 5, b by 20, a has none; d's has passed before it comes, and it is the first all the same.
#
#            0         1         2
#            012345678901234567890123
#            cccbbbbbbbbbbdddaaaa            c ends at 3; d comes at 4, by 2
def test_earliest_deadline_first():
    rows = [ask("a", 1, 4), ask("b", 1, 10), ask("c", 1, 3), ask("d", 1, 3, at=4)]
    by = pl.Series([None, 20, 5, 2])
    jobs = make_jobs(rows)
    timed = jobs.with_columns(deadline_time=pl.lit(START) + pl.duration(seconds=by))
    result = replay(timed, cluster=nodes(1), policy="edf")
    assert starts(result) == {"c": 0, "b": 3, "d": 13, "a": 16}
    assert starts(replay(jobs, cluster=nodes(1), policy="edf")) == {"a": 0, "b": 4, "c": 14, "d": 17}


# One node of 4 GPUs, busy until 10. What Slurm would do with PriorityWeightAge 1000, PriorityWeightJobSize 500 and
# PriorityMaxAge 7 days: all 4 GPUs are worth half of 7 days of age, one an eighth: 21 h. A point of priority is worth
# 10 s here.
#
#   old    1 GPU,  submitted at 1      key  1 - 21 h
#   wide   4 GPUs, submitted at 5      key  5 - 84 h: the first
#   dear   1 GPU,  submitted at 8      key  8 - 21 h - 10 s: before old, by its point of priority
def test_multifactor_weighs_age_size_and_priority():
    rows = [ask("busy", 4, 10), ask("old", 1, 10, at=1), ask("wide", 4, 1, at=5), ask("dear", 1, 10, at=8)]
    jobs = make_jobs(rows).with_columns(priority=pl.Series([0.0, None, 0.0, 1.0]))
    per_gpu = 500 / 1000 * 7 * 86_400 / 4
    slurm = POLICIES["multifactor"].using(seconds_per_gpu=per_gpu, seconds_per_priority=10)
    result = replay(jobs, cluster=nodes(4), policy=slurm)
    assert starts(result) == {"busy": 0, "wide": 10, "dear": 11, "old": 11}
    narrow = slurm.using(seconds_per_gpu=-per_gpu)  # PriorityFavorSmall
    assert starts(replay(jobs, cluster=nodes(4), policy=narrow)) == {"busy": 0, "dear": 10, "old": 10, "wide": 20}


# The same as at first, but A is predicted to end at 6 and ends at 10; so B's shadow time is 6 at first.
#
#            0         1         2
#            0123456789012345678901234
#            AAAAAAAAAABBBBBCCCCCCCC       C (8 s) would outlast 6, and waits
#                   EEE     DDDDDDDDD...   at 7 A is overdue: the shadow time is 1 us later. E comes, is predicted to
#                                          take 0 s, and may start. It takes 3 s and ends at 10.
def test_easy_with_an_overdue_prediction():
    rows = [*FOUR, ask("E", 1, 3, at=7)]
    result = run(rows, nodes(4), "easy", guess={"A": 6, "E": 0})
    assert starts(result) == {"A": 0, "E": 7, "B": 10, "C": 15, "D": 15}


# Two nodes of 4. The head C wants a whole node and is promised n0, where A ends first.
#
#            0         1         2
#            0123456789012345678901234
#   n0       AAAAAAAAAACCCCCEEEEE...       A: 4 GPUs; C (4 GPUs) cannot fit before 10
#   n1       BBBBBBBBBBBBBBBBBBBB          B: 2 GPUs
#            DDDDDDDDDDDDDDDDDDDD          D: 2 GPUs, outlasts 10, but on n1, which is not promised
#   E (1 GPU, 30 s) finds no room before C ends
def test_easy_backfills_beside_the_reserved_node():
    rows = [ask("A", 4, 10), ask("B", 2, 20), ask("C", 4, 5), ask("D", 2, 20), ask("E", 1, 30)]
    result = run(rows, nodes(4, 4), "easy")
    assert starts(result) == {"A": 0, "B": 0, "C": 10, "D": 0, "E": 15}
    assert places(result) == {"A": "n0", "B": "n1", "C": "n0", "D": "n1", "E": "n0"}


# One node of 8. The head C wants 5 of the 6 GPUs that are free at 10; one of them is spare.
#
#            0         1         2
#            0123456789012345678901234
#            AAAAAAAAAA                    A: 4 GPUs
#            BBBBBBBBBBBBBBBBBBBB          B: 2 GPUs; 2 are free now, 6 at 10, of which C takes 5
#            DDDDDDDDDDDDDDDDDDDD          D: 1 GPU, outlasts 10, takes the spare one
#                      CCCCC
#                           EEEEEEEEEEE    E: 1 GPU for 11 s, would outlast 10 too, and nothing is spare any more
#            FFFFFFFFFF                    F: 1 GPU, ends exactly at 10
def test_easy_gives_away_what_is_spare_once():
    rows = [ask("A", 4, 10), ask("B", 2, 20), ask("C", 5, 5), ask("D", 1, 20), ask("E", 1, 11), ask("F", 1, 10)]
    assert starts(run(rows, nodes(8), "easy")) == {"A": 0, "B": 0, "C": 10, "D": 0, "E": 15, "F": 0}


# Nodes n2 of 4 GPUs, n10 and n11 of 8. Their ids are text: n10 < n11 < n2.
#
#   a 3 GPUs -> n2: 4 free is the smallest that suffices
#   b 8      -> n10: the lower of two equals
#   c 1      -> n2: 1 is left there
#   d 5      -> n11
#   e 2      -> n11: 3 are left there
def test_best_fit():
    table = pl.DataFrame({"node_id": ["n2", "n10", "n11"], "num_gpus": [4, 8, 8]})
    rows = [ask("a", 3, 9), ask("b", 8, 9), ask("c", 1, 9), ask("d", 5, 9), ask("e", 2, 9)]
    result = run(rows, Cluster(table), "fifo")
    assert places(result) == {"a": "n2", "b": "n10", "c": "n2", "d": "n11", "e": "n11"}
    assert set(starts(result).values()) == {0}


# Nodes of 4, 8, 4, 8 and s on one GPU of n0 (best fit among the 4s). A job wider than a node takes wholly free ones,
# large first, and best fit for the rest:
#
#   w 21 GPUs = n1 (8) + n3 (8) + n2 (4) + 1 on n0, which has 3 left
#   v 23      = n1 + n3 + n2 + 3 on n0: waits for w
def test_a_gang_over_nodes():
    rows = [ask("s", 1, 100), ask("v", 23, 4, at=1), ask("w", 21, 10)]
    result = run(rows, nodes(4, 8, 4, 8), "fifo")
    assert places(result) == {"s": "n0", "v": "n0+n1+n2+n3", "w": "n0+n1+n2+n3"}
    assert starts(result) == {"s": 0, "w": 0, "v": 10}


# n0 is a K80 at a quarter of the speed of n1, a V100; one GPU each. Durations are those on a V100.
#
#                0         1
#                0123456789012345
#   sjf      n0  aaaaaaaa            a (2 s) is the shortest and takes the lowest of two equal nodes: 8 s
#            n1  bbbbcccccccccc      b (4 s), then c (10 s)
#   fastest  n0  bbbbbbbbbbbbbbbb    and then (b, n0) is the best of the pairs that still fit: 16 s
#            n1  aacccccccccc        of all pairs (a, n1) ends first
def test_mixed_hardware():
    rows = [ask("a", 1, 2, gpu_type="V100"), ask("b", 1, 4), ask("c", 1, 10)]
    cluster = nodes(1, 1, types=["K80", "V100"], speed={"V100": 1.0, "K80": 0.25})
    plain = run(rows, cluster, "sjf")
    assert starts(plain) == {"a": 0, "b": 0, "c": 4}
    assert places(plain) == {"a": "n0", "b": "n1", "c": "n1"}
    assert plain.schedule["end_s"].to_list() == [8, 4, 14]
    fastest = run(rows, cluster, "sjf_fastest")
    assert places(fastest) == {"a": "n1", "b": "n0", "c": "n1"}
    assert starts(fastest) == {"a": 0, "b": 0, "c": 2}
    assert fastest.schedule["end_s"].to_list() == [2, 16, 12]
    assert fastest.schedule["gpu_type"].to_list() == ["V100", "K80", "V100"]


# n0 has two V100s, n1 two K80s. p asks for 2 GPUs for 3 s, q for one for 5 s.
#
#   run time [s]   on V100: p 3, q 5     on K80: p 12, q 20     sjf_fastest: p on n0 (3), then q on n1 (20)
#   GPU time       on V100: p 6, q 5     on K80: p 24, q 20     qssf_fastest: q on n0 (5), then p on n1 (24), for 12 s
def test_least_gpu_time_over_types():
    rows = [ask("p", 2, 3), ask("q", 1, 5)]
    cluster = nodes(2, 2, types=["V100", "K80"], speed={"V100": 1.0, "K80": 0.25})
    by_time, by_service = run(rows, cluster, "sjf_fastest"), run(rows, cluster, "qssf_fastest")
    assert by_time.schedule["gpu_type"].to_list() == ["V100", "K80"]
    assert by_time.schedule["end_s"].to_list() == [3, 20]
    assert by_service.schedule["gpu_type"].to_list() == ["K80", "V100"]
    assert by_service.schedule["end_s"].to_list() == [12, 5]


# One GPU, everybody at 0. Jobs of length 0 end at once, and the pass is repeated at the same instant.
#
#   0: a (0 s) starts and ends, b (0 s) starts and ends, c (2 s) starts; d (0 s) waits: 1 in the queue
#   2: d
def test_jobs_of_length_zero():
    rows = [ask("a", 1, 0), ask("b", 1, 0), ask("c", 1, 2), ask("d", 1, 0)]
    result = run(rows, nodes(1), "fifo")
    assert starts(result) == {"a": 0, "b": 0, "c": 0, "d": 2}
    assert result.schedule["end_s"].to_list() == [0, 0, 2, 2]


# Two nodes of 2 GPUs.
#
#   a 0.5             n0 device 0
#   b 0.7             n0 device 1: 0.5 is not enough; of n0 (1 free) and n1 (2 free) n0 fits best
#   c 0.2             n0 device 1, where 0.3 is the least sufficient room
#   d 0.5             n0 device 0
#   e 2 x 0.5 (tasks) n1, both on device 0: the second half finds room beside the first
#   f 2 (one node)    waits: n1 has one free GPU and n0 none; at 10 all is free, and n0 is the lower
#   g 1               fits on n1, and is behind f
def test_fractions_share_devices():
    rows = [
        ask("a", 0.5, 10),
        ask("b", 0.7, 10),
        ask("c", 0.2, 10),
        ask("d", 0.5, 10),
        ask("e", 1, 10, num_tasks=2),
        ask("f", 2, 10),
        ask("g", 1, 10),
    ]
    result = run(rows, nodes(2, 2), "fifo")
    assert places(result) == {"a": "n0", "b": "n0", "c": "n0", "d": "n0", "e": "n1", "f": "n0", "g": "n1"}
    assert starts(result) == {"a": 0, "b": 0, "c": 0, "d": 0, "e": 0, "f": 10, "g": 10}
    skipped = run(rows, nodes(2, 2), "fifo_skip")
    assert starts(skipped) == {"a": 0, "b": 0, "c": 0, "d": 0, "e": 0, "f": 10, "g": 0}


# Shortest first by a wrong guess: x is guessed at 1 s and takes 9, y is guessed at 5 and takes 1.
#
#            0         1
#            0123456789012
#   guessed  xxxxxxxxxy
#   true     yxxxxxxxxx
def test_a_wrong_prediction_orders_but_does_not_run():
    rows = [ask("x", 1, 9), ask("y", 1, 1)]
    guessed = run(rows, nodes(1), "sjf", guess={"x": 1, "y": 5})
    assert starts(guessed) == {"x": 0, "y": 9}
    assert guessed.schedule["end_s"].to_list() == [9, 10]
    assert starts(run(rows, nodes(1), "sjf")) == {"y": 0, "x": 1}


# One node of 4 GPUs, conservative backfill. B is promised 10, and C and D what comes behind it, 15; D for 20 s would
# fit beside A, but hold a GPU that B was promised. E ends before B begins. F (2 GPUs) finds 2 when C ends.
#
#            0         1         2         3
#            0123456789012345678901234567890123456789
#            AAAAAAAAAA                                      3 GPUs
#            EEEEEEEE                                        1
#                      BBBBB                                 4
#                           CCCCCCCCCC                       2
#                           DDDDDDDDDDDDDDDDDDDD             1
#                                     FF                     2
CONSERVATIVE = [ask("A", 3, 10), ask("B", 4, 5), ask("C", 2, 10), ask("D", 1, 20), ask("E", 1, 8), ask("F", 2, 2)]


def test_conservative_promises_everybody_something():
    result = run(CONSERVATIVE, nodes(4), "conservative")
    assert starts(result) == {"A": 0, "E": 0, "B": 10, "C": 15, "D": 15, "F": 25}


# The same, A predicted to take 20 s. B is promised 20; D ends just then, beside A; C, E and F are promised 25.
# A ends at 10. B stays: D holds a GPU until 20. C for 10 s moves up to 10, then E for 8 s, too. F stays.
#
#            0         1         2
#            012345678901234567890123456
#            AAAAAAAAAACCCCCCCCCCBBBBBFF
#            DDDDDDDDDDDDDDDDDDDD
#                      EEEEEEEE
def test_conservative_moves_promises_up_when_a_job_ends_early():
    result = run(CONSERVATIVE, nodes(4), "conservative", guess={"A": 20})
    assert starts(result) == {"A": 0, "D": 0, "B": 20, "C": 10, "E": 10, "F": 25}


# A is predicted to take 2 s and takes 10. At 2 its end is moved on by a minute, to 62, and with it B's promise (all 4
# GPUs) from 2 to 62, and C's (3) behind B. D comes at 3, is over by 33, before 62, and starts beside A. At 10 A ends: B
# moves up to 33, C to 38.
def test_conservative_corrects_predictions_that_are_too_short():
    rows = [ask("A", 2, 10), ask("B", 4, 5), ask("C", 3, 5), ask("D", 2, 30, at=3)]
    result = run(rows, nodes(4), "conservative", guess={"A": 2})
    assert starts(result) == {"A": 0, "B": 33, "C": 38, "D": 3}


# Two VCs. In the left one (n0, n1, 2 GPUs each) A (2 GPUs, n0) and B (1 GPU, n1) run for 50 s, but are predicted to
# end at 7 and at 6.
#
#   0   the head C (2 GPUs) is promised n1, where B ends first: D (1 GPU, long) must not take what is free there
#   8   both are overdue: C would be promised n0, the lower, and D might start; but it is in the right VC that a job
#       comes, and nobody looks at the left one
#   50  C on n0, D on n1
def test_easy_looks_at_a_vc_only_when_something_happens_there():
    rows = [ask("A", 2, 50), ask("B", 1, 50), ask("C", 2, 5), ask("D", 1, 100)]
    rows = [row | {"vc": "left"} for row in rows] + [ask("other", 1, 1, at=8, vc="right")]
    table = pl.DataFrame({"node_id": ["n0", "n1", "n2"], "num_gpus": 2, "vc": ["left", "left", "right"]})
    guess = {"A": 7, "B": 6}
    assert starts(run(rows, Cluster(table), "easy", guess=guess)) == {"A": 0, "B": 0, "C": 50, "D": 50, "other": 8}
    rows[-1]["vc"] = "left"  # now somebody looks, and D is ahead of the newcomer
    assert starts(run(rows, Cluster(table), "easy", guess=guess)) == {"A": 0, "B": 0, "C": 50, "D": 8, "other": 50}
