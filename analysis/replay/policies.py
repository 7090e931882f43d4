"""Who starts next: a policy is an order of the waiting jobs plus a trait; the engine owns the loop.

The order is a key, lowest first, ties by (submit_time, job_id). The trait says what happens when the first job of that
order does not fit:

* ``strict``: nobody behind it starts (head-of-line blocking), in its VC;
* ``skip``: go down the order and start what fits;
* ``fastest``: the key counts per GPU type, and of the (job, type) pairs that fit now the lowest starts; ties by the
  earliest predicted finish, then (submit_time, job_id), then the type whose lowest node comes first;
* ``easy``: EASY backfill, see ``analysis.replay.engine.replay``.

A policy of your own is one function:

>>> import polars as pl
>>> from analysis.replay.policies import POLICIES, policy
>>> @policy(trait="skip")
... def smallest_first() -> pl.Expr:
...     '''Fewest GPUs first.'''
...     return pl.col("num_gpus")
>>> POLICIES["smallest_first"].trait
'skip'
>>> del POLICIES["smallest_first"]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import polars as pl

__all__ = ["POLICIES", "Policy", "policy"]

Trait = Literal["strict", "skip", "fastest", "easy"]
Key = Callable[[], pl.Expr]


@dataclass(frozen=True)
class Policy:
    """A registered policy.

    Attributes
    ----------
    name : str
        Its name in ``POLICIES`` and on the command line.
    key : callable returning Expr
        Sort key over the jobs table; ``predicted_duration_s`` is there too: the predicted duration where the replay was
        given one, else the true one, in whole microseconds [s]; under ``fastest`` it is the one on each type in turn.
    trait : {"strict", "skip", "fastest", "easy"}
        What happens when the first job of the order does not fit.
    meaning : str
        One line for people.
    """

    name: str
    key: Key
    trait: Trait
    meaning: str

    @property
    def needs(self) -> frozenset[str]:
        """Columns that the key reads."""
        return frozenset(self.key().meta.root_names())

    @property
    def uses_predictions(self) -> bool:
        """Whether a predicted duration can change what this policy does."""
        return self.trait in {"easy", "fastest"} or "predicted_duration_s" in self.needs


#: Every policy by name; the contract test walks this.
POLICIES: Final[dict[str, Policy]] = {}


def policy(*, trait: Trait) -> Callable[[Key], Key]:
    """Register a function that returns a sort key; its name becomes the policy's name.

    Parameters
    ----------
    trait : {"strict", "skip", "fastest", "easy"}
        What happens when the first job of the order does not fit.

    Returns
    -------
    decorator
        Leaves the function as it is.
    """

    def register(key: Key) -> Key:
        meaning = (key.__doc__ or "").strip().splitlines()
        POLICIES[key.__name__] = Policy(key.__name__, key, trait, meaning[0] if meaning else "")
        return key

    return register


def _predicted_gpu_time() -> pl.Expr:
    # In milli-GPUs times microseconds: whole numbers, exact up to 2**53, so that equal products are equal.
    return (pl.col("num_gpus") * 1e3).round() * (pl.col("predicted_duration_s") * 1e6).round()


@policy(trait="strict")
def fifo() -> pl.Expr:
    """First come, first served; the head blocks."""
    return pl.col("submit_time")


@policy(trait="strict")
def sjf() -> pl.Expr:
    """Shortest (predicted) duration first; the head blocks."""
    return pl.col("predicted_duration_s")


@policy(trait="strict")
def qssf() -> pl.Expr:
    """Least (predicted) GPU time first; the head blocks.

    References
    ----------
    .. [1] Q. Hu et al., "Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters",
       SC 2021, doi:10.1145/3458817.3476223. (There with preemption off, as here.)
    """
    return _predicted_gpu_time()


@policy(trait="skip")
def fifo_skip() -> pl.Expr:
    """In order of submission, passing over what does not fit."""
    return pl.col("submit_time")


@policy(trait="skip")
def sjf_skip() -> pl.Expr:
    """Shortest (predicted) duration first, passing over what does not fit."""
    return pl.col("predicted_duration_s")


@policy(trait="skip")
def qssf_skip() -> pl.Expr:
    """Least (predicted) GPU time first, passing over what does not fit."""
    return _predicted_gpu_time()


@policy(trait="fastest")
def sjf_fastest() -> pl.Expr:
    """Earliest (predicted) finish over the (job, GPU type) pairs that fit now."""
    return pl.col("predicted_duration_s")


@policy(trait="fastest")
def qssf_fastest() -> pl.Expr:
    """Least (predicted) GPU time over the (job, GPU type) pairs that fit now."""
    return _predicted_gpu_time()


@policy(trait="easy")
def easy() -> pl.Expr:
    """In order of submission with EASY backfill: later jobs start if they do not delay the head.

    References
    ----------
    .. [1] D. A. Lifka, "The ANL/IBM SP Scheduling System", JSSPP 1995, doi:10.1007/3-540-60153-8_35.
    """
    return pl.col("submit_time")
