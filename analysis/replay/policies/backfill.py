"""Policies that promise GPUs to waiting jobs, and let others run on them until then."""

from __future__ import annotations

import polars as pl

from analysis.replay.policies.registry import policy

__all__ = ["conservative", "easy"]


@policy(trait="easy")
def easy() -> pl.Expr:
    """In order of submission with EASY backfill: later jobs start if they do not delay the head.

    References
    ----------
    .. [1] D. A. Lifka, "The ANL/IBM SP Scheduling System", JSSPP 1995, doi:10.1007/3-540-60153-8_35.
    """
    return pl.col("submit_time")


@policy(trait="conservative")
def conservative() -> pl.Expr:
    """In order of submission with conservative backfill: every waiting job has a reservation that nobody may touch.

    *When reservations are made.* A job gets one at its submission: the earliest instant from which it fits, for as long
    as it is predicted to run, on what running jobs (until their predicted ends) and all reservations made before leave
    free all through. It goes where the placement puts it on that. Where it may run on several types, the window is as
    long as the longest of its predicted times, at least 1 us; what is reserved is as long as that on the type that it
    gets. If the instant is now, it starts. A job starts when its reservation begins, on the places reserved.

    *When they move.* (1) If a job ends before its predicted end, all reservations of its VC are looked at once, in
    order of submission: each moves to an earlier instant if there is one, given all others as they are then; else it
    keeps instant and places. (2) A job that outlives its predicted end has its prediction moved on by 1, 5, 15, 30
    minutes, 1, 2, 5, 10, 20, 50, 100 hours, one after the other [2]_; the reservations that begin before its new end
    and have places on one of its nodes are taken back and made anew, in order of submission; then all are looked at as
    in (1). At one instant: ends, corrections, moves, arrivals. With predictions that are never too short nothing moves
    to a later instant.

    References
    ----------
    .. [1] A. W. Mu'alem and D. G. Feitelson, "Utilization, Predictability, Workloads, and User Runtime Estimates in
       Scheduling the IBM SP2 with Backfilling", IEEE TPDS 12(6), 2001, doi:10.1109/71.932708.
    .. [2] D. Tsafrir, Y. Etsion, D. G. Feitelson, "Backfilling Using System-Generated Predictions Rather than User
       Runtime Estimates", IEEE TPDS 18(6), 2007, doi:10.1109/TPDS.2007.70606.
    """
    return pl.col("submit_time")
