"""Learners of the committee: small boosted trees, each shown another side of a job, trained stage by stage.

A stage is a set of learners trained on jobs that had ended before an instant; a row asks the latest stage before its
own. So what learners would have said of jobs of the training log is known without flattery, and can be weighed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from analysis.errors import BadFileError, HindcastError, UsageError
from predictors.boosted_lightgbm import _lightgbm
from predictors.expert_rules import COLUMNS, LEARNT_KEYS, RULES, STATIC
from predictors.forest import Forest, forest_of, lightgbm_trees, sklearn_trees
from predictors.rings import RING_STATS
from predictors.skops_file import read_skops, write_skops

__all__ = ["LEARNERS", "Lesson", "Side", "Stage", "choose_learner", "fit_stage"]

Floats = NDArray[np.float64]
Matrix = NDArray[np.float32]
#: Learning rate of every learner; they are small on purpose, the committee's strength is that they differ.
RATE: Final = 0.1
_FIX: Final = "Fit the model again with 'hindcast train'."


@dataclass(frozen=True)
class Side:
    """What a learner is shown, and how large it grows."""

    columns: tuple[str, ...]
    trees: int
    leaves: int
    is_relative: bool = False

    @property
    def places(self) -> list[int]:
        """Places of its columns in ``COLUMNS``."""
        return [COLUMNS.index(name) for name in self.columns]

    @property
    def is_moved(self) -> list[bool]:
        """Which of its columns it sees as they differ from the base: a relative learner's durations."""
        return [self.is_relative and name.split("__")[-1] in _DURATIONS for name in self.columns]

    def show(self, matrix: Matrix) -> Matrix:
        """Its columns."""
        shown = matrix[:, self.places]
        moved = np.flatnonzero(self.is_moved)
        shown[:, moved] -= matrix[:, [COLUMNS.index("base")]]
        return shown

    def forest(self, model: Any, used: list[int]) -> Forest:
        """A model that learned from some of its columns, as it is asked."""
        is_lightgbm = hasattr(model, "model_to_string")
        trees, start = (lightgbm_trees(model.model_to_string()), 0.0) if is_lightgbm else sklearn_trees(model)
        columns, is_moved = self.places, self.is_moved
        return forest_of(trees, columns=[columns[p] for p in used], is_moved=[is_moved[p] for p in used], start=start)


_DURATIONS: Final = frozenset(
    ("last", "mean_2", "median", "min", "max", "mean", "batch_median", "batch_median_3", "batch_last")
)
_JOB: Final = tuple(name for name in STATIC if name != "owner")
_BATCHES: Final = tuple(stat for stat in RING_STATS if stat.startswith("batch"))
_JOBS: Final = tuple(stat for stat in RING_STATS if stat not in _BATCHES)
_RULES: Final = ("base", "limit_to_base", *(f"rule__{name}" for name in RULES))


def _of(stats: tuple[str, ...], keys: tuple[str, ...] = LEARNT_KEYS) -> tuple[str, ...]:
    return tuple(f"{key}__{stat}" for key in keys for stat in stats)


_OWNER_BATCHES: Final = _of(("batch_count", "batch_median", "batch_sd"), ("owner", "owner_size_limit"))
#: The learners, after ``RULES`` in the committee's order.
LEARNERS: Final[dict[str, Side]] = {
    "correction": Side((*_JOB, *_of(_JOBS), *_RULES), trees=100, leaves=8, is_relative=True),
    "small_correction": Side((*_JOB, *_of(RING_STATS), *_RULES), trees=60, leaves=4, is_relative=True),
    "history": Side((*_JOB, *_of(RING_STATS)), trees=100, leaves=8),
    "batches": Side((*_JOB, *_of(_BATCHES), "base", "rule__limit_share"), trees=100, leaves=8),
    "owner": Side((*STATIC, *_OWNER_BATCHES), trees=100, leaves=16),
    "request": Side(STATIC, trees=100, leaves=31),
}


class Lesson(NamedTuple):
    """Rows to learn from: columns of ``COLUMNS``, log(1 + s), weights."""

    matrix: Matrix
    log_s: Floats
    weight: Floats


@dataclass
class Stage:
    """Learners that know what had ended before an instant.

    Attributes
    ----------
    from_us : int
        From then on they may be asked. [microseconds]
    codes : dict of str to dict of str to float
        Numbers of categories.
    used : dict of str to list of int
        By learner the places in ``Side.columns`` that can tell rows apart; empty = a constant.
    models : dict of str to model
        By learner.
    middle : dict of str to float
        By learner the median of what it learnt, said where no column tells rows apart.
    forests : dict of str to Forest
        By learner its model as it is asked, made when it is first asked.
    """

    from_us: int
    codes: dict[str, dict[str, float]]
    used: dict[str, list[int]]
    models: dict[str, Any]
    middle: dict[str, float]
    forests: dict[str, Forest] = field(default_factory=dict)

    def say(self, matrix: Matrix) -> Floats:
        """What the learners say, shape (rows, learners) [log(1 + s)]."""
        base = np.ascontiguousarray(matrix[:, COLUMNS.index("base")])
        said = np.empty((len(matrix), len(LEARNERS)))
        for place, (name, side) in enumerate(LEARNERS.items()):
            said[:, place] = self._forest(name).say(matrix, base) if self.used[name] else self.middle[name]
            if side.is_relative:
                said[:, place] += base
        return said

    def _forest(self, name: str) -> Forest:
        if name not in self.forests:
            self.forests[name] = LEARNERS[name].forest(self.models[name], self.used[name])
        return self.forests[name]

    def state(self) -> dict[str, Any]:
        """All but the models, as JSON."""
        return {"from_us": self.from_us, "codes": self.codes, "used": self.used, "middle": self.middle}

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> Stage:
        """Undo ``state``; models are read afterwards."""
        codes = {str(n): {str(k): float(v) for k, v in c.items()} for n, c in state["codes"].items()}
        used = {name: [int(place) for place in state["used"][name]] for name in LEARNERS}
        for name, places in used.items():
            if any(not 0 <= place < len(LEARNERS[name].columns) for place in places):
                msg = f"columns of {name!r} that do not exist"
                raise ValueError(msg)
        middle = {name: float(state["middle"][name]) for name in LEARNERS}
        return cls(int(state["from_us"]), codes, used, {}, middle)

    def files(self, learner: str, prefix: str) -> Iterator[tuple[str, str]]:
        """Names of learners that have a model, and of the file of each."""
        ending = "txt" if learner == "lightgbm" else "skops"
        return ((name, f"{prefix}_{name}.{ending}") for name in LEARNERS if self.used[name])


def fit_stage(lesson: Lesson, stage: Stage, *, learner: str, random_state: int) -> Stage:
    """Train the learners of a stage."""
    base = lesson.matrix[:, COLUMNS.index("base")].astype(np.float64)
    for name, side in LEARNERS.items():
        shown = side.show(lesson.matrix)
        goal = lesson.log_s - base if side.is_relative else lesson.log_s
        stage.middle[name] = float(np.median(goal))
        stage.used[name] = _telling(shown)
        if stage.used[name]:
            fit = _FITS[learner]
            with threadpool_limits(limits=1, user_api="openmp"):
                stage.models[name] = fit(shown[:, stage.used[name]], goal, lesson.weight, side, random_state)
    return stage


def _telling(shown: Matrix) -> list[int]:
    """Places of columns that hold at least two values."""
    least, most = np.fmin.reduce(shown, axis=0), np.fmax.reduce(shown, axis=0)
    return [int(place) for place in np.flatnonzero(least < most)]


def _fit_lightgbm(matrix: Matrix, goal: Floats, weight: Floats, side: Side, random_state: int) -> Any:
    lightgbm = _lightgbm()
    params = {
        "objective": "regression_l1",
        "num_leaves": side.leaves,
        "learning_rate": RATE,
        "feature_fraction": 0.7,
        "bagging_fraction": 0.7,
        "bagging_freq": 1,
        "seed": random_state,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "verbosity": -1,
    }
    return lightgbm.train(params, lightgbm.Dataset(matrix, label=goal, weight=weight), num_boost_round=side.trees)


def _fit_trees(matrix: Matrix, goal: Floats, weight: Floats, side: Side, random_state: int) -> Any:
    rows = _repeated(weight)
    return HistGradientBoostingRegressor(
        loss="absolute_error",
        max_iter=side.trees,
        learning_rate=RATE,
        max_leaf_nodes=side.leaves,
        max_features=0.7,
        early_stopping=False,
        random_state=random_state,
    ).fit(matrix[rows], goal[rows])


def _repeated(weight: Floats) -> NDArray[np.intp]:
    """As many rows as there are, each as often as its weight says, to within one.

    With weights scikit-learn's bins cost nine tenths of the fit: a call of Python for every bin of every column.
    """
    reached = np.cumsum(weight)
    steps = (np.arange(len(weight)) + 0.5) / len(weight) * reached[-1]
    return np.asarray(np.minimum(np.searchsorted(reached, steps), len(weight) - 1))


_FITS: Final[dict[str, Callable[..., Any]]] = {"lightgbm": _fit_lightgbm, "trees": _fit_trees}


def choose_learner(name: str) -> str:
    """Return "lightgbm" or "trees"; "auto" is LightGBM where it can be loaded.

    Raises
    ------
    UsageError
        If it is another word.
    """
    if name in _FITS:
        return name
    if name != "auto":
        msg = f"learner: found {name!r}; expected 'auto', {', '.join(map(repr, _FITS))}."
        raise UsageError(msg)
    try:
        _lightgbm()
    except HindcastError:
        return "trees"
    return "lightgbm"


def write_models(stage: Stage, folder: Path, *, learner: str, prefix: str) -> None:
    """Write the models of a stage, one file each."""
    for name, file in stage.files(learner, prefix):
        if learner == "lightgbm":
            (folder / file).write_text(stage.models[name].model_to_string(), encoding="utf-8")
        else:
            write_skops(stage.models[name], folder / file)


def read_models(stage: Stage, folder: Path, *, learner: str, prefix: str) -> None:
    """Read what ``write_models`` wrote."""
    for name, file in stage.files(learner, prefix):
        num_features = len(stage.used[name])
        if learner == "lightgbm":
            stage.models[name] = _read_booster(folder / file, num_features=num_features)
        else:
            stage.models[name] = read_skops(folder / file, num_features=num_features)


def _read_booster(path: Path, *, num_features: int) -> Any:
    lightgbm = _lightgbm()
    try:
        model = lightgbm.Booster(model_str=path.read_text(encoding="utf-8"))
    except (lightgbm.basic.LightGBMError, UnicodeDecodeError, ValueError) as error:
        found = f"text that LightGBM cannot read ({str(error)[:80]})"
        raise BadFileError(path, kind="damaged", found=found, expected="a LightGBM model", fix=_FIX) from error
    if model.num_feature() != num_features:
        found = f"a model of {model.num_feature()} features"
        raise BadFileError(path, kind="wrong_columns", found=found, expected=f"{num_features} features", fix=_FIX)
    return model
