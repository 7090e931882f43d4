"""A weighted median of experts, whose weights follow their errors on jobs that have ended.

Errors are counted for everybody, for the owner, and for the owner's jobs that ask for the same. The loss of an expert
on a job is known when the job ends, never earlier. Losses fade with every further job, and jobs of one batch (see
``predictors.rings``) count less the more of it have come: 500 jobs alike are little more news than one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Losses", "Questions", "mix"]

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


def mix(losses: Losses, questions: Questions) -> Floats:
    """Median of the experts of each row, weighted by their losses on jobs that had ended strictly before its instant.

    Experts that say nothing (NaN) have no voice. A job on which an expert had said nothing tells of none.

    Returns
    -------
    array of float64, one per row
        log(1 + s); NaN where no expert says anything.
    """
    # numba takes half a second to import: only who computes pays.
    from predictors.expert_kernels import mix_pass

    size = 1 + int(max(losses.keys.max(initial=-1), questions.keys.max(initial=-1), 0))
    num_levels, num_experts = len(KEEP), questions.said.shape[1]
    state = (np.zeros((num_levels, size, num_experts)), np.zeros((num_levels, size)))
    batches = (np.full((num_levels, size), -1, dtype=np.int64), np.zeros((num_levels, size)))
    out = np.full(len(questions.said), np.nan)
    order = np.argsort(questions.at_us, kind="stable")
    mix_pass(losses, questions, order, (state, batches), out)
    return out
