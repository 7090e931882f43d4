"""Probability that a job fails, is killed, or ends badly within its first minutes, as of its submission."""

from __future__ import annotations

from typing import Any, Final, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from analysis import schema
from analysis.errors import HindcastError, UsageError
from predictors.features import feature_table, features_with_values
from predictors.history import known_jobs
from predictors.jobs_table import as_jobs
from predictors.targets.outcomes import check_outcome, outcomes_of

__all__ = ["FEATURES", "LABEL_KEYS", "OutcomeProbability", "OutcomeRate", "rolling_rate"]

Floats = NDArray[np.float64]
_KEYS: Final = ("user", "vc", "user_size", "user_limit", "user_size_limit", "user_family", "group")
#: What the model is told of the job and of durations and ends before it. Not how many had ended: that only grows, and
#: trees would take the last of the training log for all that follows.
FEATURES: Final = (
    *("num_gpus", "num_tasks", "num_cpus", "mem_gib", "is_single_node", "time_limit_s", "hour", "weekday"),
    *(
        f"{key}__{stat}"
        for key in _KEYS
        for stat in ("last", "median_20", "min_20", "since_last_s", "failure_rate_20", "kill_rate_20")
    ),
    *("batch__position", "user__unfinished", "user__since_submit_s"),
)
#: Whose labels are looked at.
LABEL_KEYS: Final = (*_KEYS, "all")
_LABEL_FEATURES: Final = tuple(f"{key}__{stat}" for key in LABEL_KEYS for stat in ("last", "mean_5", "mean_20"))
#: As how many labels the rate of everybody counts beside the user's own.
PRIOR_JOBS: Final = 2.0
WINDOW: Final = 20
#: The last so much of the labelled jobs is for calibration.
FIT_SHARE: Final = 0.8
LEAST_JOBS: Final = 200
#: With fewer of either kind no model is learned, and nothing is calibrated.
LEAST_EACH: Final = 10
_EDGE: Final = 1e-4
POOL_ROUNDS: Final = 100
#: Jobs in a leaf at least: outcomes are noisy.
LEAST_LEAF: Final = 50
_RATE: Final = "user_rate"


class OutcomeRate(BaseEstimator):  # type: ignore[misc]
    """The rate of an outcome among jobs whose outcome was known: of all, or of the user's last 20.

    The user's rate counts the rate of everybody's training jobs as two more jobs, so that nobody is sure; where the
    log has no users, the account or else the VC stands for them.

    Parameters
    ----------
    outcome : {"failed", "killed", "ends_early"}, default "failed"
    within_s : float, default 600
        See ``predictors.targets.outcomes_of``.
    by_user : bool, default True
        Whether the user's own rate is said, or that of all training jobs.

    Attributes
    ----------
    rate_ : float
        Share of the training jobs with a known outcome to which it happened, as if one more had happened and one not.
    num_known_ : int
        Training jobs with a known outcome.
    """

    def __init__(self, *, outcome: str = "failed", within_s: float = 600.0, by_user: bool = True) -> None:
        self.outcome = outcome
        self.within_s = within_s
        self.by_user = by_user

    def fit(self, jobs: Any) -> Self:
        """Learn from a log, best as ``training_view`` shows it: a job that runs is not one that did not fail.

        Raises
        ------
        HindcastError
            If no job has a known outcome.
        """
        self._learn(_owned(jobs))
        return self

    def _learn(self, log: pl.DataFrame) -> pl.DataFrame:
        """Take in the log; gives the rows whose outcome is known, with the outcome as ``label``."""
        check_outcome(self.outcome, self.within_s)
        labels = outcomes_of(log, outcome=self.outcome, within_s=self.within_s)
        told = log.with_columns(label=labels["duration_s"], known_time=labels["end_time"])
        told = told.filter(pl.col("label").is_not_null() & pl.col("submit_time").is_not_null())
        if not told.height:
            msg = (
                f"{type(self).__name__}: none of {log.height} training jobs has a known outcome ({self.outcome}); "
                "expected ended jobs with a status such as completed, failed, cancelled."
            )
            raise HindcastError(msg)
        self.num_known_ = told.height
        self.rate_ = float((told["label"].sum() + 1) / (told.height + 2))
        self.log_ = log
        return told

    def predict_probability(self, jobs: Any, *, history: Any = None) -> Floats:
        """Predict the probability of the outcome as of each job's submission.

        Parameters
        ----------
        jobs : DataFrame of polars or pandas, one row per job
            A jobs table; only what is known at the submission is read.
        history : DataFrame of polars or pandas, optional
            A log whose jobs count for a row as far as they were known strictly before its submission; it may hold the
            jobs themselves and later ones. By default the training log.

        Returns
        -------
        array of float64, one value per row in the order of the rows
            Between 0 and 1, always finite.

        Raises
        ------
        NotFittedError
            Before ``fit``.
        SchemaError
            If a column cannot be read.
        """
        check_is_fitted(self, "rate_")
        table = _owned(jobs)
        if not table.height:
            return np.zeros(0)
        return self._say(table, self.log_ if history is None else _owned(history))

    def _say(self, table: pl.DataFrame, log: pl.DataFrame) -> Floats:
        if not self.by_user:
            return np.full(table.height, self.rate_)
        return rolling_rate(_labels(table, self._past(log), ("user__mean_20", "user__count")), self.rate_)

    def _past(self, log: pl.DataFrame) -> pl.DataFrame:
        return known_jobs(outcomes_of(log, outcome=self.outcome, within_s=self.within_s))


def _owned(jobs: Any) -> pl.DataFrame:
    return as_jobs(jobs).with_columns(user=pl.coalesce("user", "account", "vc"))


def _labels(table: pl.DataFrame, past: pl.DataFrame, names: tuple[str, ...]) -> pl.DataFrame:
    return feature_table(table, past=past, names=names, failures="keep")


def rolling_rate(labels: pl.DataFrame, rate: float) -> Floats:
    """Rate of the user's last 20 labels, with ``rate`` as two more of them."""
    mean = labels["user__mean_20"].fill_null(0.0).to_numpy()
    num = np.minimum(labels["user__count"].fill_null(0.0).to_numpy(), WINDOW)
    return np.asarray((mean * num + rate * PRIOR_JOBS) / (num + PRIOR_JOBS))


class OutcomeProbability(OutcomeRate):
    """Boosted trees for the probability of an outcome, calibrated on later jobs, pooled with the rates.

    Told of the job, of durations and ends before it, and of the rates of the outcome by key (``FEATURES``). A copy
    learns from what was known at the submission of the job at 80 % of those with a known outcome. On the first half
    of the later ones its log-odds are calibrated (Platt's scaling [1]_, or a monotone curve [2]_); on the second half
    the weights of a pool are found in which the trees, the calibrated trees, the user's rolling rate and the rate of
    all each have a share: those that make what happened most likely, batches (of one user in one minute) counting
    one each. All is then applied to trees that learned from all. Where the trees go astray, the rates have the say.

    Parameters
    ----------
    outcome, within_s
        See ``OutcomeRate``.
    calibration : {"platt", "isotonic", "none"}, default "platt"
    num_trees : int, default 100
    learning_rate : float, default 0.05
    max_leaves : int, default 8
    random_state : int, default 0
        Seed; the same seed and log give the same model.

    Attributes
    ----------
    features_ : list of str
        Columns that the trees saw; empty where there is too little to learn from, and the user's rate is said.

    weights_ : array of float64, shape (4,)
        Shares of the trees, the calibrated trees, the user's rate and the rate of all.

    References
    ----------
    .. [1] J. C. Platt, "Probabilistic Outputs for Support Vector Machines", 1999.
    .. [2] B. Zadrozny and C. Elkan, KDD 2002, doi:10.1145/775047.775151.

    Examples
    --------
    >>> from datetime import datetime, timedelta
    >>> log = pl.DataFrame({"submit_time": [datetime(2024, 1, day) for day in range(1, 9)], "user": ["a", "b"] * 4,
    ...                     "duration_s": [60.0] * 8, "status": ["failed", "completed"] * 4})
    >>> model = OutcomeProbability().fit(log)
    >>> asked = pl.DataFrame({"submit_time": [datetime(2024, 2, 1)] * 2, "user": ["a", "b"]})
    >>> [round(p, 3) for p in model.predict_probability(asked).tolist()]
    [0.833, 0.167]
    """

    def __init__(
        self,
        *,
        outcome: str = "failed",
        within_s: float = 600.0,
        calibration: str = "platt",
        num_trees: int = 100,
        learning_rate: float = 0.05,
        max_leaves: int = 8,
        random_state: int = 0,
    ) -> None:
        super().__init__(outcome=outcome, within_s=within_s)
        self.calibration = calibration
        self.num_trees = num_trees
        self.learning_rate = learning_rate
        self.max_leaves = max_leaves
        self.random_state = random_state

    def fit(self, jobs: Any) -> Self:
        """Learn from a log, best as ``training_view`` shows it: a job that runs is not one that did not fail.

        Raises
        ------
        UsageError
            If there is no such calibration.
        HindcastError
            If no job has a known outcome.
        """
        if self.calibration not in {"platt", "isotonic", "none"}:
            msg = f"OutcomeProbability: calibration is {self.calibration!r}; expected 'platt', 'isotonic' or 'none'."
            raise UsageError(msg)
        log = _owned(jobs)
        told = schema.sort_jobs(self._learn(log))
        table = self._table(told, log)
        label = told["label"].to_numpy()
        self.calibrator_: LogisticRegression | IsotonicRegression | None = None
        self.weights_ = np.array([0.0, 0.0, 1.0, 0.0])
        self._calibrate(told, table, label)
        self.trees_, self.features_ = self._grow(table, label)
        return self

    def _table(self, jobs: pl.DataFrame, log: pl.DataFrame) -> pl.DataFrame:
        """Features of submissions, those of labels with ``label_`` before them, and the user's rolling rate."""
        of_log = feature_table(jobs, past=known_jobs(log), names=FEATURES, failures="keep")
        labels = _labels(jobs, self._past(log), (*_LABEL_FEATURES, "user__count"))
        rate = pl.Series(_RATE, rolling_rate(labels, self.rate_))
        labels = labels.drop("user__count").rename(lambda name: f"label_{name}")
        return pl.concat([of_log, labels, rate.to_frame()], how="horizontal")

    def _grow(self, table: pl.DataFrame, label: Floats) -> tuple[HistGradientBoostingClassifier | None, list[str]]:
        names = features_with_values(table.drop(_RATE)) if table.height >= LEAST_JOBS else []
        if not names or min(label.sum(), len(label) - label.sum()) < LEAST_EACH:
            return None, []
        model = HistGradientBoostingClassifier(
            max_iter=self.num_trees,
            learning_rate=self.learning_rate,
            max_leaf_nodes=self.max_leaves,
            min_samples_leaf=LEAST_LEAF,
            early_stopping=False,
            random_state=self.random_state,
        )
        with threadpool_limits(limits=1, user_api="openmp"):
            return model.fit(_matrix(table, names), label), names

    def _calibrate(self, told: pl.DataFrame, table: pl.DataFrame, label: Floats) -> None:
        """Fit calibration and pool to answers of trees that knew what was known when the later jobs came."""
        came = told["submit_time"]
        cut, middle = (came[int(share * told.height)] for share in (FIT_SHARE, (1 + FIT_SHARE) / 2))
        trees, names = self._grow(*_rows(table, label, (came < cut) & (told["known_time"] < cut)))
        if trees is None:
            return
        first, ones = _rows(table, label, (came >= cut) & (came < middle))
        if self.calibration != "none" and min(ones.sum(), len(ones) - ones.sum()) >= LEAST_EACH:
            self.calibrator_ = _CALIBRATIONS[self.calibration]().fit(_odds(trees, first, names), ones)
        later = (came >= middle).to_numpy()
        batch = told.select(pl.struct("user", pl.col("submit_time").dt.truncate("1m")).rank("dense"))[:, 0].to_numpy()
        _, place, count = np.unique(batch[later], return_inverse=True, return_counts=True)
        said = self._voices(trees, table.filter(later), names)
        self.weights_ = _pool(said, label[later], 1 / count[place])

    def _voices(self, trees: HistGradientBoostingClassifier, table: pl.DataFrame, names: list[str]) -> Floats:
        """What is pooled, shape (rows, 4)."""
        odds = _odds(trees, table, names)
        plain = expit(odds[:, 0])
        calibrated = plain
        if isinstance(self.calibrator_, LogisticRegression):
            calibrated = self.calibrator_.predict_proba(odds)[:, 1]
        elif self.calibrator_ is not None:
            calibrated = self.calibrator_.predict(odds)
        return np.column_stack([plain, calibrated, table[_RATE].to_numpy(), np.full(table.height, self.rate_)])

    def _say(self, table: pl.DataFrame, log: pl.DataFrame) -> Floats:
        told = self._table(table, log)
        if self.trees_ is None:
            return told[_RATE].to_numpy()
        # Not a matrix product: its last bit depends on how many rows ask at once.
        return np.asarray((self._voices(self.trees_, told, self.features_) * self.weights_).sum(axis=1))


_CALIBRATIONS: Final = {
    "platt": LogisticRegression,
    "isotonic": lambda: IsotonicRegression(y_min=_EDGE, y_max=1 - _EDGE, out_of_bounds="clip"),
}


def _rows(table: pl.DataFrame, label: Floats, which: pl.Series) -> tuple[pl.DataFrame, Floats]:
    return table.filter(which), label[which.to_numpy()]


def _pool(said: Floats, label: Floats, weight: Floats) -> Floats:
    """Shares of a mixture that make the labels most likely, with one more label for each voice.

    Expectation and maximization for the shares of a mixture of known parts (A. P. Dempster, N. M. Laird and D. B.
    Rubin, JRSS B 1977); the likelihood has one maximum.
    """
    num = said.shape[1]
    likely = np.where(label[:, None] > 0, said, 1 - said)
    share = np.full(num, 1 / num)
    for _ in range(POOL_ROUNDS):
        part = likely * share
        part /= part.sum(axis=1, keepdims=True)
        share = (weight @ part + 1) / (weight.sum() + num)
    return share


def _odds(trees: HistGradientBoostingClassifier, table: pl.DataFrame, names: list[str]) -> Floats:
    """Log-odds of the trees' answer, shape (rows, 1)."""
    with threadpool_limits(limits=1, user_api="openmp"):
        said = trees.predict_proba(_matrix(table, names))[:, 1:]
    return np.asarray(logit(np.clip(said, _EDGE, 1 - _EDGE)))


def _matrix(table: pl.DataFrame, names: list[str]) -> Floats:
    return np.asarray(table.select(names).cast(pl.Float64).fill_null(np.nan).to_numpy(), dtype=np.float64)
