"""Keys that move while jobs run: what preemptive policies are made of."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MovingKey"]


@dataclass(frozen=True)
class MovingKey:
    """A key that changes at known instants."""

    needs: frozenset[str]
