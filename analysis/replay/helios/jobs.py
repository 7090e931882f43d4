"""What the loops take and what they write down."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Job", "Run"]


class Job(NamedTuple):
    """A job of one VC, in whole seconds and GPUs."""

    row: int
    submit: int
    duration: int
    num_gpus: int
    #: What orders the queue: nothing, the (predicted) duration, or GPUs times the predicted duration.
    key: int


@dataclass
class Run:
    """What became of a job."""

    start: int = -1  # the first
    end: int = -1
    nodes: list[int] = field(default_factory=list)  # of the last start
    num_stops: int = 0
    held: int = 0  # seconds with GPUs
    held_early: int = 0  # … of them until the last submission
