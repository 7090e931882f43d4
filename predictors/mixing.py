"""A weighted median of experts, whose weights follow their errors on jobs that have ended.

Errors are counted for everybody, for the owner, and for the owner's jobs that ask for the same. The loss of an expert
on a job is known when the job ends, never earlier. Losses fade with every further job, and jobs of one batch (see
``predictors.rings``) count less the more of it have come: 500 jobs alike are little more news than one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Experience", "Losses", "Questions", "learn", "mix"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
#: Per level (everybody, owner, owner's request): what is left of old losses after one more job, and as how many jobs
#: the level above counts.
KEEP: Final = (0.999, 0.97, 0.95)
PRIOR: Final = (1.0, 30.0, 10.0)
#: Weight of an expert: exp(-SHARPNESS x (its mean loss - the least mean loss)); 0 would be the plain median.
SHARPNESS: Final = 1.5
#: No single loss counts more, in log(1 + s): one job off by a factor of 55 is as bad as one off by a thousand.
WORST: Final = 4.0


class Losses(NamedTuple):
    """Ended jobs in the order of their ends: what experts had said (jobs, experts), key per level (levels, jobs)."""

    said: Floats
    log_s: Floats
    end_us: Ints
    keys: Ints
    batch: Ints


class Questions(NamedTuple):
    """Rows that ask, in any order: what experts say now (rows, experts), key per level (levels, rows)."""

    said: Floats
    at_us: Ints
    keys: Ints


class Experience(NamedTuple):
    """What losses have come to: sums (levels, keys, experts), weights, last batch and its jobs (levels, keys)."""

    total: Floats
    weight: Floats
    last: Ints
    run: Floats

    @classmethod
    def none(cls, num_keys: int, num_experts: int) -> Experience:
        """Nothing has ended."""
        shape = (len(KEEP), num_keys)
        return cls(
            np.zeros((*shape, num_experts)), np.zeros(shape), np.full(shape, -1, dtype=np.int64), np.zeros(shape)
        )

    def widened(self, num_keys: int) -> Experience:
        """A copy with room for so many keys, or for those that it has if they are more."""
        made = Experience.none(max(num_keys, self.weight.shape[1]), self.total.shape[2])
        for mine, theirs in zip(self, made, strict=True):
            theirs[:, : mine.shape[1]] = mine
        return made


def learn(losses: Losses) -> Experience:
    """Take in all losses: whoever asks after the last of these ends may go on from here (``mix``, ``since``)."""
    from predictors.expert_kernels import learn_pass

    state = Experience.none(_num_keys(losses.keys), losses.said.shape[1])
    learn_pass(losses, ((state.total, state.weight), (state.last, state.run)))
    return state


def mix(losses: Losses, questions: Questions, *, since: Experience | None = None) -> Floats:
    """Median of the experts of each row, weighted by their losses on jobs that had ended strictly before its instant.

    Experts that say nothing (NaN) have no voice. A job on which an expert had said nothing tells of none.

    Parameters
    ----------
    losses : Losses
        Jobs that ended.
    questions : Questions
        Who asks.
    since : Experience, optional
        Of jobs that had ended before those of ``losses``, and before any row asks.

    Returns
    -------
    array of float64, one per row
        log(1 + s); NaN where no expert says anything.
    """
    # numba takes half a second to import: only who computes pays.
    from predictors.expert_kernels import mix_pass

    size = _num_keys(losses.keys, questions.keys)
    num_experts = questions.said.shape[1]
    state = Experience.none(size, num_experts) if since is None else since.widened(size)
    out = np.full(len(questions.said), np.nan)
    order = np.argsort(questions.at_us, kind="stable")
    mix_pass(losses, questions, order, ((state.total, state.weight), (state.last, state.run)), out)
    return out


def _num_keys(*keys: Ints) -> int:
    return 1 + max(0, *(int(each.max(initial=-1)) for each in keys))
