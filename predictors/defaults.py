"""Which predictors say something of their own about a log."""

from __future__ import annotations

from typing import Any, Final

from predictors.jobs_table import as_jobs

__all__ = ["DEFAULT_MODEL", "DEFAULT_MODELS", "default_models"]

#: The predictor of who names none: never surely worse than the best simple rule on the log that it learned from.
DEFAULT_MODEL: Final = "guarded"
#: Predictors that need nothing beyond the base install.
DEFAULT_MODELS: Final = (
    DEFAULT_MODEL,
    "global_median",
    "requested_limit",
    "last_two",
    "user_median",
    "vc_median",
    "vc_gpus_median",
    "boosted",
)
#: Column without which a predictor only repeats a coarser one.
ASKS_FOR: Final = {
    "requested_limit": "time_limit_s",
    "user_median": "user",
    "vc_median": "vc",
    "vc_gpus_median": "vc",
}


def default_models(jobs: Any) -> list[str]:
    """Choose the predictors that a backtest compares unless told otherwise.

    Parameters
    ----------
    jobs : DataFrame of polars or pandas, one row per job
        A jobs table.

    Returns
    -------
    list of str
        ``DEFAULT_MODELS`` without those whose column (limit, user, VC) is null in every job: they would fall back to
        another one and score the same.

    Examples
    --------
    >>> from datetime import datetime
    >>> import polars as pl
    >>> default_models(pl.DataFrame({"submit_time": [datetime(2024, 1, 1)], "duration_s": [9.0], "vc": ["a"]}))
    ['guarded', 'global_median', 'last_two', 'vc_median', 'vc_gpus_median', 'boosted']
    """
    table = as_jobs(jobs)
    empty = {name for name in set(ASKS_FOR.values()) if table[name].null_count() == table.height}
    return [name for name in DEFAULT_MODELS if ASKS_FOR.get(name) not in empty]
