"""Which policies are compared with which, and whether that is like for like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["DEFAULT_PAIRS", "Pair"]


@dataclass(frozen=True)
class Pair:
    """A base policy and the policy that is compared with it.

    Attributes
    ----------
    base, policy : str
        Names in ``POLICIES``.
    like_for_like : bool
        Whether they differ in nothing but what they know of durations, so that the share of the oracle's gain measures
        the predictions.
    base_knows_nothing : bool
        Whether the base is given a constant prediction (EASY needs one).
    mixed_only : bool
        Whether it is only compared on clusters with GPU types of differing speed.
    note : str
        What to know when reading it.
    """

    base: str
    policy: str
    like_for_like: bool = True
    base_knows_nothing: bool = False
    mixed_only: bool = False
    note: str = ""

    @property
    def name(self) -> str:
        """How tables and figures call it."""
        return f"{self.base}{' (knows nothing)' if self.base_knows_nothing else ''} -> {self.policy}"


DEFAULT_PAIRS: Final = (
    Pair("fifo", "sjf"),
    Pair("fifo", "qssf", note="qssf that knows nothing still orders by the GPUs asked for, which the base does not."),
    Pair("fifo_skip", "sjf_skip"),
    Pair("fifo_skip", "qssf_skip", note="qssf_skip that knows nothing still orders by the GPUs asked for."),
    Pair(
        "fifo",
        "easy",
        like_for_like=False,
        note="easy passes over the blocked head and fifo does not: most of this gain needs no good prediction.",
    ),
    Pair("easy", "easy", base_knows_nothing=True, note="easy with predictions against easy with a constant one."),
    Pair(
        "fifo_skip",
        "sjf_fastest",
        like_for_like=False,
        mixed_only=True,
        note="sjf_fastest knows the speeds of the GPU types and fifo_skip does not: see its row that knows nothing.",
    ),
)
