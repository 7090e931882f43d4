"""The default predictor: a committee of simple rules and small learners, weighed by their errors, with a guard."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from predictors.asking import instants
from predictors.base import DurationPredictor, clip_to_limit, predictor
from predictors.committee import (
    LEARNERS,
    Lesson,
    Stage,
    choose_learner,
    fit_stage,
    read_models,
    write_models,
)
from predictors.experience_file import read_experience, write_experience
from predictors.expert_rules import CATEGORIES, LOG, RULES, SIMPLE, View, teaching, wide_log
from predictors.features import check_time_zone, fit_categories
from predictors.history import Failures
from predictors.jobs_table import microseconds
from predictors.mixing import Experience, Losses, Questions, learn, mix

__all__ = ["Guarded"]

Floats = NDArray[np.float64]
#: Instants of asking that learners are trained for: past jobs seen at their submission, and at their start.
KINDS: Final = {"submission": "came_time", "start": "began_time"}
#: Stages are trained on the first shares of ended jobs; the last stage knows all.
SHARES: Final = (0.4, 0.6, 0.8)
#: A stage needs so many ended jobs, and learns from so many at most, the last to end.
LEAST_JOBS: Final = 200
MOST_JOBS: Final = 30_000
#: The guard draws days anew so often, and wants so many of them.
DRAWS: Final = 1000
LEAST_DAYS: Final = 7
US_PER_DAY: Final = 86_400_000_000
NEVER: Final = 2**62
#: Levels at which losses are counted (``predictors.mixing``), as keys of ``expert_rules.KEYS``.
LEVELS: Final = ("all", "owner", "owner_size_limit")
#: By kind of instant the file of what losses have come to.
EXPERIENCE: Final = {kind: f"experience_{kind}.parquet" for kind in KINDS}


@predictor("guarded")
class Guarded(DurationPredictor):
    """A committee that is never surely worse than the best simple rule on the log that it learned from.

    Ten experts: four rules (median and last two of the owner's like requests, the same median over batches of jobs, and
    the share of the limit that the owner uses) and six small boosted learners, each shown another side of a job. The
    prediction is their median, weighted by how far each was off on jobs that had ended before: everybody's, the
    owner's, and those of the owner's jobs that asked for the same (``predictors.mixing``). The owner is the user, or
    where the log has none the account, or else the VC.

    Learners are trained in stages, on the first 40, 60, 80 and 100 % of the ended jobs, and say something only of rows
    that ask after their stage; so their errors on the training log are honest. On these the guard compares the
    committee with the requested limit, the user's median, the request's median and the last two: where one of them is
    surely better (the paired interval of the difference, days drawn anew, excludes zero), that rule is the prediction.
    Asked after the submission (at the start, or while a job waits), it asks learners that saw past jobs at their start.

    Parameters
    ----------
    failures : {"exclude", "keep"}, default "exclude"
        See ``DurationPredictor``.
    learner : {"auto", "lightgbm", "trees"}, default "auto"
        Whose boosted trees: LightGBM's (extra ``lightgbm``), scikit-learn's, or LightGBM's where it is installed.
    warm_start : bool, default False
        Whether ``fit`` keeps the stages of the fit before and adds one, as for a log that grows by a week. They must
        come from an earlier part of the same log.
    time_zone : str, default "UTC"
        In which hour and weekday are meant; ``Trace.meta.time_zone``.
    random_state : int, default 0
        Seed; the same seed and log give the same model, bit by bit.

    Attributes
    ----------
    stages_ : dict of str to list of Stage
        By kind of instant ("submission", "start"), in order of time; empty where the log is too short to learn from.
    choice_ : dict of str to str
        By kind of instant: "committee", or the simple rule that was surely better.
    experience_ : dict of str to Experience
        By kind of instant what the experts' losses on the training log have come to: rows that ask later go on from
        there, with the jobs of ``history`` that ended after it, so one row costs no walk through the training log.
    """

    learns = False  # a row asks only stages before its instant: predictions of the training log are honest
    past_columns: ClassVar[Mapping[str, pl.DataType]] = LOG

    def __init__(
        self,
        *,
        failures: Failures = "exclude",
        learner: str = "auto",
        warm_start: bool = False,
        time_zone: str = "UTC",
        random_state: int = 0,
    ) -> None:
        super().__init__(failures=failures)
        self.learner = learner
        self.warm_start = warm_start
        self.time_zone = time_zone
        self.random_state = random_state

    def _past_of(self, log: Any) -> pl.DataFrame:
        return wide_log(log)

    def _fit(self, known: pl.DataFrame, censored: pl.DataFrame) -> None:  # noqa: ARG002
        check_time_zone(self.time_zone)
        self.learner_ = choose_learner(self.learner)
        before: dict[str, list[Stage]] = getattr(self, "stages_", {}) if self.warm_start else {}
        self.stages_: dict[str, list[Stage]] = {kind: [] for kind in KINDS}
        self.choice_ = dict.fromkeys(KINDS, "committee")
        self.experience_: dict[str, Experience] = {}
        self._forget()
        views = {kind: self._view(self.past_, column) for kind, column in KINDS.items()}
        for kind, view in views.items():
            if kind != "submission" and np.count_nonzero(view.waited_s > 0) < LEAST_JOBS:
                continue
            self.stages_[kind] = self._train(view, before.get(kind, []))
        for kind in KINDS:
            self._take_stock(kind, views.pop(kind))

    def _forget(self) -> None:
        """Nothing is known of any log but what was fitted."""
        self._said: dict[str, Floats] = {}
        self._memo: dict[str, Any] = {}

    def _take_stock(self, kind: str, view: View) -> None:
        """Keep what experts said of past jobs at one kind of instant, what their losses came to, and the choice."""
        said = self._say(view, kind)
        levels = np.stack([view.keys(level)[0] for level in LEVELS])
        self._said[kind] = said
        self.experience_[kind] = learn(Losses(said, view.log_s, view.end_us, levels, view.batch))
        self.choice_[kind] = self._guard(kind, view, said)

    def _view(self, log: pl.DataFrame, jobs: pl.DataFrame | str, *, first: int = 0) -> View:
        fallback = float(np.log1p(self.fallback_s_))
        return View(log, jobs, fallback=fallback, failures=self.failures, time_zone=self.time_zone, first=first)

    def _train(self, view: View, known: list[Stage]) -> list[Stage]:
        """Train stages on past jobs as they were seen at one kind of instant; those known already stay."""
        height = len(view.end_us)
        stages = [stage for stage in known if height and stage.from_us <= view.end_us[-1]]
        shares = () if stages else SHARES
        for stop in dict.fromkeys([*(int(share * height) for share in shares), height]):
            if stop < LEAST_JOBS:
                continue
            # Ends are in order: all jobs before the first that ended at this instant or later.
            from_us = int(view.end_us[stop - 1]) + (1 if stop == height else 0)
            ended = int(np.searchsorted(view.end_us, from_us))
            if ended < LEAST_JOBS or (stages and from_us == stages[-1].from_us):
                continue
            rows = np.arange(max(0, ended - MOST_JOBS), ended)
            codes = self._codes(view, rows)
            lesson = Lesson(view.matrix(codes, rows), view.log_s[rows], _batch_weight(view.batch[rows]))
            stage = Stage(from_us, codes, {}, {}, {})
            stages.append(fit_stage(lesson, stage, learner=self.learner_, random_state=self.random_state))
        return stages

    def _codes(self, view: View, rows: NDArray[np.intp]) -> dict[str, dict[str, float]]:
        label = pl.Series(view.log_s[rows])
        return {name: fit_categories(view.rows[name][rows], log_duration=label) for name in CATEGORIES}

    def _say(self, view: View, kind: str) -> Floats:
        """What every expert says of the rows, shape (rows, experts); NaN for learners where no stage lies before."""
        rules = [view.rules[name] for name in RULES]
        stages = self.stages_[kind] or self.stages_["submission"]
        if not stages:
            return np.column_stack(rules)
        learnt = np.full((len(view.at_us), len(LEARNERS)), np.nan)
        which = np.searchsorted([stage.from_us for stage in stages], view.at_us, side="right") - 1
        for place, stage in enumerate(stages):
            rows = np.flatnonzero(which == place)
            if len(rows):
                learnt[rows] = stage.say(view.matrix(stage.codes, rows))
        return np.column_stack([*rules, np.minimum(learnt, view.log_limit[:, None])])

    def _told(self, log: pl.DataFrame, kind: str, *, first: int) -> Floats:
        """What experts said of a log's jobs from a place on at one kind of instant; kept for the last log."""
        if self._memo.get("log") is not log:
            self._memo = {"log": log}
        name = f"{kind}_{first}"
        if name not in self._memo:
            self._memo[name] = self._say(self._view(log, KINDS[kind], first=first), kind)
        found: Floats = self._memo[name]
        return found

    def _num_fitted(self, view: View) -> int:
        """How many of the log's first jobs are those of the training log: 0, or all that taught."""
        known, log = self.past_, view.whole_log
        if log is not known and not (log.height >= known.height and log.head(known.height).equals(known)):
            return 0
        return teaching(known, self.failures).height

    def _mixed(self, view: View, said: Floats, kind: str) -> Floats:
        """The committee's answer for rows of one kind of instant."""
        keys = [view.keys(level) for level in LEVELS]
        levels, mine = (np.stack([each[side] for each in keys]) for side in (0, 1))
        questions = Questions(said, view.at_us, mine)
        first = self._num_fitted(view)
        if first and view.at_us.min(initial=NEVER) > view.end_us[first - 1]:
            # All that was learned from had ended: go on from there.
            begin, since, told = first, self.experience_[kind], self._told(view.whole_log, kind, first=first)
        else:
            begin, since, told = 0, None, self._told_from_the_start(view.whole_log, kind, num_fitted=first)
        losses = Losses(told, view.log_s[begin:], view.end_us[begin:], levels[:, begin:], view.batch[begin:])
        return mix(losses, questions, since=since)

    def _told_from_the_start(self, log: pl.DataFrame, kind: str, *, num_fitted: int) -> Floats:
        """What experts said of all jobs of a log; a model that was loaded has to ask again about the training log."""
        if not num_fitted or kind not in self._said:
            return self._told(log, kind, first=0)
        return np.concatenate([self._said[kind], self._told(log, kind, first=num_fitted)])

    def _guard(self, kind: str, view: View, said: Floats) -> str:
        """Name what to predict with: the committee, unless a simple rule was surely better on the training log."""
        stages = self.stages_[kind]
        if not stages:
            return "committee" if kind == "submission" else self.choice_["submission"]
        judged = np.flatnonzero(view.at_us >= stages[0].from_us)
        error = np.abs(self._mixed(view, said, kind) - view.log_s)[judged]
        day = view.at_us[judged] // US_PER_DAY
        others = {name: np.abs(view.rules[name] - view.log_s)[judged] for name in SIMPLE}
        best = min(others, key=lambda name: (others[name].mean() if len(judged) else 0.0, name))
        is_worse = _surely_worse(error - others[best], day, random_state=self.random_state)
        return best if is_worse else "committee"

    def _predict(self, jobs: pl.DataFrame, past: pl.DataFrame) -> Floats:
        later = microseconds(instants(jobs))[0] > microseconds(jobs["submit_time"])[0]
        out = np.full(jobs.height, np.nan)
        for kind, rows in (("submission", np.flatnonzero(~later)), ("start", np.flatnonzero(later))):
            if not len(rows):
                continue
            asked = self._view(past, jobs if len(rows) == jobs.height else jobs[rows])
            if self.choice_[kind] == "committee":
                out[rows] = self._mixed(asked, self._say(asked, kind), kind)
            else:
                out[rows] = asked.rules[self.choice_[kind]]
        return clip_to_limit(np.expm1(out), jobs)

    def _state(self) -> dict[str, Any]:
        stages = {kind: [stage.state() for stage in found] for kind, found in self.stages_.items()}
        return {"learner": self.learner_, "choice": self.choice_, "stages": stages}

    def _restore(self, state: dict[str, Any]) -> None:
        self._forget()
        self.learner_ = choose_learner(str(state["learner"]))
        self.choice_ = {kind: str(state["choice"][kind]) for kind in KINDS}
        unknown = set(self.choice_.values()) - {"committee", *SIMPLE}
        if unknown:
            msg = f"choices that do not exist: {', '.join(sorted(unknown))}"
            raise ValueError(msg)
        self.stages_ = {kind: [Stage.of_state(each) for each in state["stages"][kind]] for kind in KINDS}

    def _prefixed(self) -> list[tuple[str, Stage]]:
        return [
            (f"{kind}_{place}", stage) for kind, stages in self.stages_.items() for place, stage in enumerate(stages)
        ]

    def _part_names(self) -> list[str]:
        models = [file for prefix, stage in self._prefixed() for _, file in stage.files(self.learner_, prefix)]
        return [*models, *EXPERIENCE.values()]

    def _write_parts(self, folder: Path) -> None:
        for prefix, stage in self._prefixed():
            write_models(stage, folder, learner=self.learner_, prefix=prefix)
        for kind, file in EXPERIENCE.items():
            write_experience(self.experience_[kind], folder / file)

    def _read_parts(self, folder: Path) -> None:
        for prefix, stage in self._prefixed():
            read_models(stage, folder, learner=self.learner_, prefix=prefix)
        self.experience_ = {}
        for kind, file in EXPERIENCE.items():
            num_experts = len(RULES) + (len(LEARNERS) if self.stages_["submission"] or self.stages_[kind] else 0)
            self.experience_[kind] = read_experience(folder / file, num_experts=num_experts)


def _batch_weight(batch: NDArray[np.int64]) -> Floats:
    """Weight of each job: one over the square root of the jobs of its batch that are there."""
    _, place, count = np.unique(batch, return_inverse=True, return_counts=True)
    return np.asarray(1 / np.sqrt(count[place]), dtype=np.float64)


def _surely_worse(difference: Floats, day: NDArray[np.int64], *, random_state: int) -> bool:
    """Whether the mean of differences lies above zero with its whole 95 % interval, days drawn anew."""
    days, place = np.unique(day, return_inverse=True)
    if len(days) < LEAST_DAYS:
        return False
    total, count = np.bincount(place, weights=difference), np.bincount(place)
    drawn = np.random.default_rng(random_state).integers(0, len(days), (DRAWS, len(days)))
    means = total[drawn].sum(axis=1) / count[drawn].sum(axis=1)
    return bool(np.quantile(means, 0.025) > 0)
