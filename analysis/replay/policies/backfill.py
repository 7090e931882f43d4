"""Policies that promise GPUs to waiting jobs, and let others run on them until then."""

from __future__ import annotations

import polars as pl

from analysis.replay.policies.registry import policy

__all__ = ["easy"]


@policy(trait="easy")
def easy() -> pl.Expr:
    """In order of submission with EASY backfill: later jobs start if they do not delay the head.

    References
    ----------
    .. [1] D. A. Lifka, "The ANL/IBM SP Scheduling System", JSSPP 1995, doi:10.1007/3-540-60153-8_35.
    """
    return pl.col("submit_time")
