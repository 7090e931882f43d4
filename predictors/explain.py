"""Why a job is predicted as it is: what spoke, which ended jobs it rests on, and what would be said without them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Final

import polars as pl
from sklearn.utils.validation import check_is_fitted

from analysis.errors import UsageError
from predictors.asking import ASKED, asked_at
from predictors.base import DurationPredictor
from predictors.explain_history import (
    Likeness,
    PastJob,
    count_alike,
    ended_before,
    had_ended,
    like_jobs,
    likenesses,
    of_owner,
)
from predictors.explain_voices import Voice, voices
from predictors.jobs_table import as_jobs

__all__ = ["Counterfactual", "JobExplanation", "explain_job"]

#: Ends of the interval that is told.
LOW, HIGH = 0.1, 0.9
#: What is taken away of the job, in words, and the columns that become null.
BLANKS: Final = {
    "without the job's name": ("job_name",),
    "without its recurrence group": ("group",),
    "without its limit": ("time_limit_s",),
    "without its VC": ("vc",),
    "without its user's name": ("user", "account"),
}
#: Columns of the job that are told.
TOLD: Final = (
    *("job_id", "submit_time", "user", "account", "vc", "group", "job_name", "num_gpus"),
    *("num_cpus", "time_limit_s"),
)


@dataclass(frozen=True)
class Counterfactual:
    """What would be predicted if something had not been known.

    Attributes
    ----------
    what : str
        What is taken away.
    predicted_s : float
        The prediction then. [s]
    factor : float
        The real prediction over this one: 2 = what was taken away doubles it.
    """

    what: str
    predicted_s: float
    factor: float


@dataclass(frozen=True)
class JobExplanation:
    """Why a job is predicted as it is; ``str`` tells it in words, ``to_dict`` as JSON.

    Attributes
    ----------
    model : str
        Name of the predictor.
    job : dict
        ``job_id`` and what was known of the job at its submission.
    asked_time : datetime or None
        Instant of asking: only jobs that ended strictly before it count.
    predicted_s, low_s, high_s : float
        The prediction, and the calibrated quantiles 0.1 and 0.9. [s]
    combined : str
        How the voices become one prediction, in words; empty = the predictor has no parts.
    voices : list of Voice
        What each part of the predictor says: experts or rules with their weights, terms of a sum.
    shares : str or None
        What ``like_jobs`` share with the job; null = nothing like it had ended, or the predictor looks at no past job.
    like_jobs : list of PastJob
        The last of the most alike jobs that had ended, the newest first, each with what would be said without it.
    likenesses : list of Likeness
        How many ended jobs are there on each level of likeness that the job has the columns for.
    counterfactuals : list of Counterfactual
        Real predictions with something taken away, the largest effect first.
    """

    model: str
    job: dict[str, Any]
    asked_time: datetime | None
    predicted_s: float
    low_s: float
    high_s: float
    combined: str
    voices: list[Voice]
    shares: str | None
    like_jobs: list[PastJob]
    likenesses: list[Likeness]
    counterfactuals: list[Counterfactual]

    def to_dict(self) -> dict[str, Any]:
        """All of it as what JSON can hold; times as ISO text, null = not known."""
        found = asdict(self)
        for part in (found, found["job"]):
            part.update({k: v.isoformat() for k, v in part.items() if isinstance(v, datetime)})
        return found

    def __str__(self) -> str:
        """Tell it in words."""
        from predictors.explain_text import in_words

        return in_words(self)


def explain_job(
    model: DurationPredictor,
    jobs: Any,
    job_id: str,
    *,
    history: Any = None,
    at: str = "submission",
    most: int = 5,
) -> JobExplanation:
    """Explain the prediction of one job by what moved it.

    Parameters
    ----------
    model : DurationPredictor
        Fitted.
    jobs : DataFrame of polars or pandas, one row per job
        A jobs table that holds the job; only what is known at the submission is read, and the column of ``at``.
    job_id : str
        Which job; without a column ``job_id`` the number of the row, from 1.
    history : DataFrame of polars or pandas, optional
        As in ``DurationPredictor.predict``: by default the training log.
    at : str, default "submission"
        Instant of asking, as in ``predict``.
    most : int, default 5
        So many like jobs are shown; each costs a prediction without it.

    Returns
    -------
    JobExplanation

    Raises
    ------
    UsageError
        If no job, or more than one, has this id, or ``most`` is negative.
    NotFittedError
        Before ``fit``.

    Examples
    --------
    >>> from predictors import make_predictor
    >>> log = pl.DataFrame({"submit_time": [datetime(2024, 1, day) for day in (1, 2, 3)], "user": ["a", "a", "b"],
    ...                     "duration_s": [60.0, 120.0, 9000.0]})
    >>> job = pl.DataFrame({"job_id": ["new"], "submit_time": [datetime(2024, 1, 4)], "user": ["a"]})
    >>> why = explain_job(make_predictor("user_median").fit(log), job, "new")
    >>> why.predicted_s, [(past.job_id, past.without_it_s) for past in why.like_jobs]
    (90.0, [('2', 60.0), ('1', 120.0)])
    >>> why.counterfactuals[0]
    Counterfactual(what='without any history', predicted_s=120.0, factor=0.75)
    """
    check_is_fitted(model, "past_")
    if most < 0:
        msg = f"explain_job: most is {most}; expected 0 or more like jobs to show."
        raise UsageError(msg)
    asked = asked_at(_find(as_jobs(jobs), str(job_id)), at)
    past = _as_of(model.past_ if history is None else model._past_of(history), asked)
    low, middle, high = model.predict_quantiles(asked, [LOW, 0.5, HIGH], history=history, at=at)[0]
    ended = ended_before(past, asked, failures=model.failures)
    levels = likenesses(model)
    spoken = voices(model, asked, past)
    shares, alike = like_jobs(ended, asked, levels, most=most)
    return JobExplanation(
        model=model.name,
        job=asked.select(TOLD).row(0, named=True),
        asked_time=asked[ASKED][0],
        predicted_s=float(middle),
        low_s=float(low),
        high_s=float(high),
        combined=spoken.combined,
        voices=spoken.parts,
        shares=shares,
        like_jobs=[
            replace(job, without_it_s=_say(model, asked, past.filter(pl.col("job_id") != job.job_id))) for job in alike
        ],
        likenesses=count_alike(ended, asked, levels),
        counterfactuals=_counterfactuals(model, asked, past, float(middle)),
    )


def _find(table: pl.DataFrame, job_id: str) -> pl.DataFrame:
    found = table.filter(pl.col("job_id") == job_id)
    if found.height != 1:
        some = ", ".join(table["job_id"].head(3).to_list())
        known = f"ids there are {some}{', …' if table.height > 3 else ''}" if table.height else "the table has no rows"
        many = "no job" if not found.height else f"{found.height} jobs"
        msg = f"explain: {many} of {table.height:,} with the id {job_id!r}; expected exactly one ({known})."
        raise UsageError(msg)
    return found


def _as_of(past: pl.DataFrame, asked: pl.DataFrame) -> pl.DataFrame:
    """What of the past can count: where it holds ended jobs alone, those that ended before the instant."""
    if past["submit_time"].null_count() < past.height:
        return past  # all jobs, for who was in flight: those that end later were there too
    return past.filter(had_ended(asked))


def _say(model: DurationPredictor, asked: pl.DataFrame, past: pl.DataFrame) -> float:
    return float(model._point(asked, past)[0])


def _counterfactuals(
    model: DurationPredictor, asked: pl.DataFrame, past: pl.DataFrame, predicted_s: float
) -> list[Counterfactual]:
    """Real predictions with something taken away, the largest effect first."""
    is_own = of_owner(past, asked)
    said = {}
    if is_own.any():
        said["without the history of its owner"] = _say(model, asked, past.filter(~is_own))
    said["without any history"] = _say(model, asked, past.clear())
    blanks = {what: names for what, names in BLANKS.items() if any(asked[name][0] is not None for name in names)}
    if blanks:
        rows = [asked.with_columns(pl.lit(None, asked.schema[n]).alias(n) for n in names) for names in blanks.values()]
        said |= dict(zip(blanks, model._point(pl.concat(rows), past).tolist(), strict=True))
    found = [Counterfactual(what, value, predicted_s / value) for what, value in said.items()]
    return sorted(found, key=lambda one: (-max(one.factor, 1 / one.factor), one.what))
