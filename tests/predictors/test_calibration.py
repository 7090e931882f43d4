"""Calibration against the same rules written down plainly, and coverage on laws where the truth is known."""

from __future__ import annotations

import bisect
import math
from collections import defaultdict

import numpy as np
import polars as pl
import pytest
from scipy.stats import norm

from analysis.errors import UnknownNameError
from predictors import calibration
from predictors import calibration_alike as alike
from predictors.calibration import CALIBRATIONS, NEVER, NUM_PRIOR, POINT_LEVELS, Asked, Stream, calibrated_log_quantiles
from predictors.calibration_kernels import adaptive_shifts, pooled_shifts, rolling_shifts, surviving_shifts

LEVELS = np.array([0.1, 0.5, 0.9])
PRIOR = norm.ppf((np.arange(NUM_PRIOR) + 0.5) / NUM_PRIOR)


def plain_quantile(values: list[float], level: float) -> float:
    """The value at place (n + 1) a of the sorted ones, on the line between its neighbours."""
    ranked = sorted(values)
    place = min(max((len(ranked) + 1) * level, 1.0), float(len(ranked)))
    low = int(place)
    high = min(low + 1, len(ranked))
    return ranked[low - 1] + (ranked[high - 1] - ranked[low - 1]) * (place - low)


def weighted_quantile(pairs: list[tuple[float, float]], level: float) -> float:
    """Least value up to which the share of the weight reaches a level."""
    ranked = sorted(pairs)
    target = level * sum(weight for _, weight in ranked) - 1e-9
    total = 0.0
    for value, weight in ranked:
        total += weight
        if total >= target:
            return value
    return ranked[-1][0]


@pytest.fixture(params=range(3))
def rng(request):
    return np.random.default_rng(request.param)


def test_rolling_shifts_plainly(rng):
    errors = rng.normal(0, 1, 200).round(1)  # many are equal
    stops = np.sort(rng.integers(0, 201, 60))
    for level in (0.1, 0.8, 0.97):
        found = rolling_shifts(errors, stops, level, PRIOR, 30)
        expected = [plain_quantile([*errors[max(stop - 30, 0) : stop], *PRIOR], level) for stop in stops]
        assert found == pytest.approx(expected)


def test_pooled_shifts_plainly(rng):
    errors = rng.normal(0, 1, 300).round(1)
    owners = rng.integers(-1, 5, 300)
    stops, asking = np.sort(rng.integers(0, 301, 80)), rng.integers(-1, 7, 80)  # some are nobody's, some never seen
    levels = np.array([0.05, 0.5, 0.9])
    found = pooled_shifts(errors, owners, stops, asking, levels, np.sort(PRIOR), (40, 10, 25.0))
    for row, stop in enumerate(stops):
        others = [*errors[max(stop - 40, 0) : stop], *PRIOR]
        mine = [errors[i] for i in range(stop) if owners[i] == asking[row] and asking[row] >= 0][-10:]
        pairs = [(value, 25.0 / len(others)) for value in others] + [(value, 1.0) for value in mine]
        assert found[row] == pytest.approx([weighted_quantile(pairs, level) for level in levels])


def test_adaptive_shifts_plainly(rng):
    """Gibbs and Candès' rule; a miss is told when the job ends, judged by the interval of when it was asked about."""
    errors = rng.normal(0, 1, 150)
    then = np.array([rng.integers(max(0, i - 20), i + 1) for i in range(150)])
    stops = np.sort(rng.integers(0, 151, 40))
    found = adaptive_shifts(errors, then, stops, 0.8, PRIOR, (50, 0.02))
    levels, shifts = [0.8], []  # by number of ended jobs
    for stop in range(151):
        shifts.append(plain_quantile([*errors[max(stop - 50, 0) : stop], *PRIOR], min(max(levels[stop], 0), 1)))
        if stop < 150:
            missed = errors[stop] > shifts[then[stop]]
            levels.append(levels[stop] + 0.02 * (missed - 0.2))
    assert found == pytest.approx([shifts[stop] for stop in stops])
    assert min(levels) < 0.79  # it moved
    assert max(levels) > 0.81


def plain_kaplan_meier(events: list[float], bounds: list[float], level: float) -> float:
    """Least event up to which the share of a level has been reached; the last if it never is."""
    left = 1.0
    for value in sorted(set(events)):
        at_risk = sum(e >= value for e in events) + sum(b >= value for b in bounds)
        left *= 1 - events.count(value) / at_risk
        if 1 - left >= level - 1e-9:
            return value
    return max(events)


def counted_at(stop: int) -> int:
    """Every end at first, every second from 64 on, every fourth from 128 … and every 64th from 2,048 on."""
    pace = 1
    while pace < 64 and pace * 32 <= stop:
        pace *= 2
    return stop - stop % pace


def test_surviving_shifts_plainly(rng):
    """Kaplan and Meier's estimate over the last ended jobs and all that run when they are counted."""
    num = 260
    end = np.sort(rng.integers(1, 10**9, num))
    start = end - rng.integers(0, 10**8, num)
    start[::9] = NEVER  # not known: never seen to run
    end[-20:] = NEVER  # these run on
    errors, upper = rng.normal(0, 1, num).round(1), rng.normal(3, 1, num)
    stops = np.sort(rng.integers(0, num - 19, 50))
    spans = (start, end, np.argsort(start, kind="stable"))
    found = surviving_shifts(errors, upper, spans, stops, 0.8, PRIOR, 30)
    for row, stop in enumerate(stops):
        ended = counted_at(stop)
        instant = end[ended - 1] if ended else 0
        events = [*errors[max(ended - 30, 0) : ended], *PRIOR]
        bounds = [np.log1p((instant - start[i]) / 1e6) - upper[i] for i in range(ended, num) if start[i] < instant]
        assert found[row] == pytest.approx(plain_kaplan_meier(events, bounds, 0.8))


def test_kaplan_meier_by_hand():
    """Events 1, 2, 4 and one known to be above 2.5: 1/4, 1/2, then the last takes all of the half that is left."""
    spans = (np.array([0, 0, 0, 0]), np.array([1, 2, 3, NEVER]), np.arange(4))
    errors, upper = np.array([1.0, 2.0, 4.0, np.nan]), np.log1p(3e-6) - np.array([0, 0, 0, 2.5])
    none = np.zeros(0)
    for level, expected in ((0.25, 1.0), (0.4, 2.0), (0.5, 2.0), (0.6, 4.0), (0.75, 4.0), (0.8, 4.0)):
        assert surviving_shifts(errors, upper, spans, np.array([3]), level, none, 9)[0] == expected


def asked(rng, *, jobs: int, levels: int, instants: np.ndarray) -> Asked:
    raw = np.sort(rng.normal(5, 1, (jobs, levels)), axis=1)
    owner = pl.Series([f"u{i}" for i in rng.integers(0, 4, jobs)])
    return Asked(asked_us=instants, owner=owner, limit_log=np.full(jobs, np.inf), raw_log=raw)


def make(rng, *, jobs: int, levels: int, num_trained: int = 0) -> Stream:
    end = np.sort(rng.integers(0, jobs, jobs))  # many ends are equal
    instants = end - rng.integers(1, 20, jobs)
    rows = asked(rng, jobs=jobs, levels=levels, instants=instants)
    start = np.minimum(instants + rng.integers(0, 5, jobs), end)
    return Stream(start, end, rng.normal(5, 2, jobs), rows, num_trained=num_trained)


class PlainCounts:
    """Counts of errors by bin that fade, written down for one key."""

    def __init__(self) -> None:
        self.by_bin: dict[int, float] = defaultdict(float)
        self.batch, self.run = None, 0

    def add(self, bin_: int, batch: object, keep: float) -> None:
        self.run = self.run + 1 if batch == self.batch else 1
        self.batch = batch
        news = 1 / math.sqrt(self.run)
        for known in self.by_bin:
            self.by_bin[known] *= keep**news
        self.by_bin[bin_] += news


#: Edges at sinh((k - 1/2) / 50) / 2, the first of them with k = -200.
PLAIN_EDGES = [math.sinh((k - 0.5) / 50) / 2 for k in range(-200, 202)]


def plain_bin(error: float) -> int:
    return max(bisect.bisect_right(PLAIN_EDGES, error) - 1, 0)


def plain_end(shares: dict[int, float], level: float) -> float:
    """Outer edge of the bin at which a level is reached."""
    reached = 0.0
    for bin_ in sorted(shares):
        reached += shares[bin_]
        if reached >= level - 1e-9:
            return PLAIN_EDGES[bin_ if level < 0.5 else bin_ + 1]
    raise AssertionError


def plain_alike(jobs, known, row, level, prior) -> float:
    """Everybody's errors, those of a like prediction and distance to the limit, then the owner's of a like prediction.

    ``jobs`` and ``row``: error, prediction, log limit, owner, instant in microseconds.
    """

    def keys(job):
        _, said, limit, owner, _ = job
        step = math.floor(said / 1.5)
        gap = "none" if math.isinf(limit) else min(math.floor(limit - said), 5)
        return [("all",), ("like", step, gap), ("mine", owner, step)]

    counts: dict[tuple, PlainCounts] = defaultdict(PlainCounts)
    for i in known:
        error, _, limit, owner, instant = jobs[i]
        for key, keep in zip(keys(jobs[i]), (0.9995, 0.999, 0.99), strict=True):
            if owner is not None or key[0] != "mine":
                counts[key].add(plain_bin(error), (owner, instant // 60_000_000, limit), keep)
    shares: dict[int, float] = defaultdict(float)
    for error in prior:
        shares[plain_bin(error)] += 1 / len(prior)
    for key, above in zip(keys(row), (10, 50, 30), strict=True):
        if key in counts and (key[0] != "mine" or row[3] is not None):
            mine = counts[key].by_bin
            whole = sum(mine.values()) + above
            bins = {*shares, *mine}
            shares = {b: (shares.get(b, 0.0) * above + mine.get(b, 0.0)) / whole for b in bins}
    return plain_end(shares, level)


def test_the_bins_are_those_of_the_plain_ones(rng):
    errors = np.concatenate([rng.normal(0, 4, 500), [0.0, -20.0, 20.0]])
    assert alike.bins_of(errors).tolist() == [min(plain_bin(error), 400) for error in errors]
    widths = np.diff(alike.EDGES)
    assert widths.min() == pytest.approx(0.01, abs=1e-4)
    assert (widths < 0.011 + 0.021 * np.abs(alike.EDGES[1:])).all()


def test_shifts_of_jobs_alike_plainly(rng):
    num = 150
    said = rng.uniform(0, 10, num)
    limit = np.where(rng.random(num) < 0.3, np.inf, said + rng.choice([0.5, 1.5, 7.0, 9.0], num))
    owner = rng.integers(-1, 3, num)
    instant = rng.integers(0, 5, num) * 40_000_000
    error = rng.normal(0, 1, num).round(1)
    keys, batch = alike.keys_alike(said, limit, owner), alike.batches(instant, limit, owner)
    stops, asking = np.sort(rng.integers(0, num + 1, 25)), rng.integers(0, num, 25)
    levels = np.array([0.05, 0.5, 0.9])
    found = alike.alike_shifts(
        alike.Errors(alike.bins_of(error), keys, batch),
        alike.Rows(stops, np.ascontiguousarray(keys[:, asking])),
        alike.FADING,
        levels,
        alike.prior_shares(2 * PRIOR),
        alike.EDGES,
    )
    who = [None if o < 0 else o for o in owner]
    jobs = list(zip(error, said, limit, who, instant, strict=True))
    for row, stop in enumerate(stops):
        expected = [plain_alike(jobs, range(stop), jobs[asking[row]], level, 2 * PRIOR) for level in levels]
        assert found[row] == pytest.approx(expected)


def test_a_long_past_fades_without_a_trace(rng):
    """Counts are stored by a scale that shrinks: after 5,000 jobs they are what the last 2,000 alone leave."""
    num = 5000
    errors, keys = alike.bins_of(rng.normal(0, 1, num)), np.zeros((1, num), dtype=np.int64)
    fading = alike.Fading(np.array([0.99]), np.array([10.0]))
    prior, levels = alike.prior_shares(PRIOR), np.array([0.1, 0.3, 0.9])
    ends = [
        alike.alike_shifts(
            alike.Errors(errors[-last:], keys[:, -last:], np.arange(last)),
            alike.Rows(np.array([last]), keys[:, :1]),
            fading,
            levels,
            prior,
            alike.EDGES,
        )
        for last in (num, 2000)
    ]
    assert np.array_equal(*ends)


def plain_pooled(stream: Stream, known: range, asking: tuple, level: float, prior: np.ndarray, method: str) -> float:
    """Quantile of the errors of the first stage; ``asking``: column of the level, owner, what was said (levels,)."""
    column, who, said = asking
    errors = [stream.true_log[i] - stream.asked.raw_log[i, column] for i in known]
    if method == "alike":
        middle = len(said) // 2
        rows = zip(errors, stream.asked.raw_log[:, middle], stream.asked.owner, stream.asked.asked_us, strict=False)
        jobs = [(error, told, np.inf, owner, at) for error, told, owner, at in rows]
        return plain_alike(jobs, known, (None, said[middle], np.inf, who, None), level, prior)
    others = [*errors[-15:], *prior]
    mine = [errors[i] for i in known if stream.asked.owner[i] == who]
    pairs = [(value, 100.0 / len(others)) for value in others] + [(value, 1.0) for value in mine]
    return weighted_quantile(pairs, level)


def hold(levels: np.ndarray, ends: list[float], median: float) -> list[float]:
    """Ends beside the median, at least 0, in order."""
    pairs = zip(levels, ends, strict=True)
    held = [max(e, median) if q > 0.5 else min(e, median) if q < 0.5 else median for q, e in pairs]
    return sorted(max(end, 0.0) for end in held)


def plain_shift(misses: list[float], bounds: list[float], prior: np.ndarray, level: float, method: str) -> float:
    """How far both ends are moved by the second stage, from the misses of its windows."""
    if method == "owner_running":
        return max(plain_kaplan_meier([*misses[-n:], *prior], bounds, level) for n in (15, 30))
    shifts = [plain_quantile([*misses[-n:], *prior], level) for n in (8, 15, 30)]
    return (shifts[0] + max(shifts[1:])) / 2 if method == "alike" else max(shifts[1:])


@pytest.mark.parametrize("method", ["alike", "owner", "owner_running"])
@pytest.mark.parametrize(("num_levels", "num_trained"), [(1, 0), (3, 0), (3, 25)])
def test_both_stages_plainly(rng, num_levels, num_trained, method, monkeypatch):
    """First the errors of the owner's jobs, or of jobs alike, then both ends alike by the errors of such intervals."""
    for name, size in (("SHORT_WINDOW", 8), ("WINDOW", 15), ("LONG_WINDOW", 30)):
        monkeypatch.setattr(calibration, name, size)
    stream = make(rng, jobs=60, levels=num_levels, num_trained=num_trained)
    rows = asked(rng, jobs=4, levels=num_levels, instants=rng.integers(0, 70, 4))
    own = LEVELS if num_levels == 3 else np.array([0.5])
    levels, found = calibrated_log_quantiles(rows, levels=own, stream=stream, method=method)

    def first(known: range, who: str, said: np.ndarray) -> list[float]:
        ends = []
        for place, level in enumerate(levels):
            prior = 2 * PRIOR if num_levels == 1 else PRIOR - norm.ppf(level)
            column = 0 if num_levels == 1 else place
            ends.append(said[column] + plain_pooled(stream, known, (column, who, said), level, prior, method))
        return hold(levels, ends, said[num_levels // 2])

    ended, told = stream.end_us.tolist(), stream.asked
    before = [range(bisect.bisect_left(ended, told.asked_us[i])) for i in range(60)]
    past = [first(before[i], told.owner[i], told.raw_log[i]) for i in range(60)]
    for row in range(4):
        known = range(max(bisect.bisect_left(ended, rows.asked_us[row]), num_trained))
        moved = first(known, rows.owner[row], rows.raw_log[row])
        counted = counted_at(len(known)) if method == "owner_running" else len(known)
        instant = stream.end_us[counted - 1] if counted else 0
        runs = [i for i in range(counted, 60) if stream.start_us[i] < instant]
        for place in np.flatnonzero(levels < 0.5):
            other, level = len(levels) - 1 - place, 1 - 2 * levels[place]
            misses = [max(past[i][place] - stream.true_log[i], stream.true_log[i] - past[i][other]) for i in known]
            bounds = [np.log1p((instant - stream.start_us[i]) / 1e6) - past[i][other] for i in runs]
            shift = plain_shift(misses[:counted], bounds, PRIOR - norm.ppf(level), level, method)
            moved[place] -= shift
            moved[other] += shift
        assert found[row] == pytest.approx(hold(levels, moved, rows.raw_log[row, num_levels // 2]))


@pytest.mark.parametrize("method", sorted(CALIBRATIONS))
@pytest.mark.parametrize("num_levels", [1, 3])
def test_what_has_not_ended_is_not_heard(method, num_levels):
    """The outcome of jobs that end later, however wild, changes nothing; an end at the very instant is later."""
    rng = np.random.default_rng(1)
    stream = make(rng, jobs=200, levels=num_levels, num_trained=30)
    rows = asked(rng, jobs=5, levels=num_levels, instants=np.full(5, 100))
    wild = np.where((stream.end_us >= 100) & (np.arange(200) >= 30), 99.0, stream.true_log)
    own = LEVELS if num_levels == 3 else np.array([0.5])
    both = [
        calibrated_log_quantiles(
            rows, levels=own, stream=Stream(stream.start_us, stream.end_us, truth, stream.asked, 30), method=method
        )[1]
        for truth in (stream.true_log, wild)
    ]
    assert np.array_equal(*both)
    assert (np.diff(both[0], axis=1) >= 0).all()


@pytest.mark.parametrize("method", sorted(CALIBRATIONS))
@pytest.mark.parametrize("num_levels", [1, 3])
def test_a_row_alone_is_a_row_among_others(method, num_levels, monkeypatch):
    """What is not looked at for a late row alone is looked at beside an early one; the answer is the same."""
    for name, size in (("SHORT_WINDOW", 8), ("WINDOW", 15), ("LONG_WINDOW", 30)):
        monkeypatch.setattr(calibration, name, size)
    rng = np.random.default_rng(6)
    stream = make(rng, jobs=200, levels=num_levels, num_trained=20)
    rows = asked(rng, jobs=3, levels=num_levels, instants=np.array([250, 30, 180]))
    own = LEVELS if num_levels == 3 else np.array([0.5])
    together = calibrated_log_quantiles(rows, levels=own, stream=stream, method=method)[1]
    for i in range(3):
        row = Asked(rows.asked_us[[i]], rows.owner[[i]], rows.limit_log[[i]], rows.raw_log[[i]])
        assert np.array_equal(
            calibrated_log_quantiles(row, levels=own, stream=stream, method=method)[1][0], together[i]
        )


@pytest.mark.parametrize("method", sorted(set(CALIBRATIONS) - {"none", "split"}))
@pytest.mark.parametrize("factor", [0.3, 1.0, 3.0])
def test_coverage_is_what_was_asked_whatever_the_predictor_claims(method, factor):
    """Quantiles that are too narrow or too wide by a factor cover 80 % after calibration."""
    rng = np.random.default_rng(2)
    truth = rng.normal(8, 1, 6000)
    rows = Asked(
        np.arange(6000),
        pl.Series(["u"] * 6000),
        np.full(6000, np.inf),
        np.tile(8 + factor * norm.ppf(LEVELS), (6000, 1)),
    )
    stream = Stream(np.arange(6000), np.arange(6000) + 5, truth, rows)
    _, found = calibrated_log_quantiles(rows, levels=LEVELS, stream=stream, method=method)
    covered = (truth >= found[:, 0]) & (truth <= found[:, 2])
    assert covered[500:].mean() == pytest.approx(0.8, abs=3 * np.sqrt(0.16 / 5500))


def test_owners_get_intervals_of_their_own_width():
    """One user's jobs are known to a tenth, another's to a factor of ten: 80 % of each are covered."""
    rng = np.random.default_rng(3)
    is_wild = rng.random(8000) < 0.5
    truth = np.where(is_wild, rng.normal(8, 2.3, 8000), rng.normal(8, 0.1, 8000))
    owner = pl.Series(np.where(is_wild, "wild", "tame"))
    rows = Asked(np.arange(8000), owner, np.full(8000, np.inf), np.full((8000, 1), 8.0))
    stream = Stream(np.arange(8000), np.arange(8000) + 5, truth, rows)
    widths, shares = {}, {}
    for method in ("rolling", "owner", "alike"):
        levels, found = calibrated_log_quantiles(rows, levels=np.array([0.5]), stream=stream, method=method)
        low, high = (found[:, int(np.flatnonzero(np.isclose(levels, q))[0])] for q in (0.1, 0.9))
        covered = (truth >= low) & (truth <= high)
        shares[method] = [covered[2000:][is_wild[2000:] == wild].mean() for wild in (False, True)]
        widths[method] = (high - low)[2000:].mean()
    assert shares["rolling"][0] > 0.98  # the tame one is always covered, the wild one too rarely
    assert shares["rolling"][1] < 0.7
    assert min(shares["owner"]) > 0.72
    assert widths["owner"] < widths["rolling"] * 1.1
    assert min(shares["alike"]) > 0.75
    assert widths["alike"] < widths["rolling"] * 1.1


def test_long_and_short_predictions_get_intervals_of_their_own_shape():
    """Jobs predicted short are known to a factor of ten, long ones end early at times: 80 % of each are covered."""
    rng = np.random.default_rng(5)
    is_long = rng.random(12_000) < 0.5
    early = np.where(rng.random(12_000) < 0.3, rng.uniform(0, 6, 12_000), 0.0)
    truth = np.where(is_long, 10 - early - rng.uniform(0, 0.05, 12_000), rng.normal(4, 2.3, 12_000))
    rows = Asked(
        np.arange(12_000),
        pl.Series(["u"] * 12_000),
        np.full(12_000, np.inf),
        np.where(is_long, 10.0, 4.0)[:, None],
    )
    stream = Stream(np.arange(12_000), np.arange(12_000) + 5, truth, rows)
    levels, found = calibrated_log_quantiles(rows, levels=np.array([0.5]), stream=stream, method="alike")
    low, high = (found[:, int(np.flatnonzero(np.isclose(levels, q))[0])] for q in (0.1, 0.9))
    tested = np.arange(12_000) > 4000
    for group in (is_long, ~is_long):
        covered = (truth >= low) & (truth <= high)
        assert covered[tested & group].mean() == pytest.approx(0.8, abs=0.13)
    # The truth: short ones 2 x 1.2816 x 2.3, and the tenth place of the long ones at 10 - 6 x 2/3 - 0.025.
    assert (high - low)[tested & ~is_long].mean() == pytest.approx(5.9, rel=0.15)
    assert low[tested & is_long].mean() == pytest.approx(6.0, abs=0.6)
    assert high[tested & is_long].mean() <= 10.1


def test_without_feedback_the_prior_speaks():
    none = Stream.empty(num_levels=1)
    rows = Asked(np.array([9]), pl.Series(["a"]), np.array([np.inf]), np.array([[8.0]]))
    levels, found = calibrated_log_quantiles(rows, levels=np.array([0.5]), stream=none, method="split")
    assert levels is POINT_LEVELS
    at = {round(float(level), 3): place for place, level in enumerate(levels)}
    assert found[0, at[0.5]] == 8.0
    # Ten values say 0.9 at place 9.9: between the last two.
    ends = 2 * norm.ppf([0.85, 0.95])
    assert found[0, at[0.9]] - found[0, at[0.1]] == pytest.approx(2 * (ends[0] + 0.9 * (ends[1] - ends[0])))


def test_nothing_is_above_the_limit():
    rng = np.random.default_rng(4)
    stream = make(rng, jobs=100, levels=3)
    rows = asked(rng, jobs=20, levels=3, instants=np.full(20, 90))
    bound = Asked(rows.asked_us, rows.owner, np.full(20, 5.0), np.minimum(rows.raw_log, 5.0))
    assert calibrated_log_quantiles(bound, levels=LEVELS, stream=stream)[1].max() == 5.0


def test_an_unknown_method_is_named():
    stream = Stream.empty(num_levels=1)
    with pytest.raises(UnknownNameError, match="no calibration is named 'magic' .known: .*owner"):
        calibrated_log_quantiles(stream.asked, levels=np.array([0.5]), stream=stream, method="magic")


def test_a_stream_through_a_table_and_back():
    none = Stream.of_table(Stream.empty(num_levels=3).to_table(), num_levels=3)
    assert none.asked.raw_log.shape == (0, 3)
    stream = make(np.random.default_rng(0), jobs=50, levels=3)
    again = Stream.of_table(stream.to_table(), num_levels=3)
    assert np.array_equal(again.asked.raw_log, stream.asked.raw_log)
    assert np.array_equal(again.asked.asked_us, stream.asked.asked_us)
    assert again.asked.owner.equals(stream.asked.owner)
    assert np.array_equal(again.end_us, stream.end_us)
    assert np.array_equal(again.start_us, stream.start_us)
    unknown = Stream(np.full(50, NEVER), stream.end_us, stream.true_log, stream.asked)
    assert (Stream.of_table(unknown.to_table(), num_levels=3).start_us == NEVER).all()
    assert again.num_trained == 50
