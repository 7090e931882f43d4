"""How long a Batsim profile runs, and whether it fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["Length", "Profiles"]

DELAYS: Final = ("DelayProfile", "delay")
SEQUENCES: Final = ("SequentialCompositionProfile", "composed")
#: Deeper sequences of sequences than this are a circle or a mistake.
DEEPEST: Final = 100
LONGEST_S: Final = 1e300


@dataclass(frozen=True)
class Length:
    """What running a profile once comes to.

    Attributes
    ----------
    duration_s : float or None
        Seconds; null if that depends on the platform.
    fails : bool or None
        Whether it ends with a non-zero return code; null if that is not known.
    """

    duration_s: float | None
    fails: bool | None


class Profiles:
    """The profiles of a workload.

    Parameters
    ----------
    raw : mapping
        ``profiles`` of the workload, by name.
    """

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._raw = raw
        self._known: dict[str, Length | None] = {}

    def length(self, name: str, depth: int = 0) -> Length | None:
        """Length of one profile; null if there is none of that name or it makes no sense.

        Parameters
        ----------
        name : str
            Key of the profile.
        depth : int
            How many sequences it is inside of.

        Examples
        --------
        >>> day = Profiles({"d": {"type": "DelayProfile", "delay": 60}, "s": {"type": "composed", "seq": ["d"] * 3}})
        >>> day.length("s")
        Length(duration_s=180.0, fails=False)
        """
        if name not in self._known:
            # A profile that contains itself finds null here instead of running in circles.
            self._known[name] = None
            self._known[name] = self._find(self._raw.get(name), depth) if depth < DEEPEST else None
        return self._known[name]

    def _find(self, profile: Any, depth: int) -> Length | None:
        if not isinstance(profile, dict) or not isinstance(profile.get("type"), str):
            return None
        ret = profile.get("ret", 0)
        fails = bool(ret) if isinstance(ret, int | float) else None
        if profile["type"] in DELAYS:
            delay = profile.get("delay")
            if isinstance(delay, bool) or not isinstance(delay, int | float) or not 0 <= delay < LONGEST_S:
                return None
            return Length(float(delay), fails)
        if profile["type"] in SEQUENCES:
            return self._sequence(profile, fails=fails, depth=depth)
        return Length(None, fails)

    def _sequence(self, profile: Mapping[str, Any], *, fails: bool | None, depth: int) -> Length | None:
        names, repeat = profile.get("seq"), profile.get("repeat", profile.get("nb", 1))
        if not isinstance(names, list) or not isinstance(repeat, int) or isinstance(repeat, bool) or repeat < 0:
            return None
        parts = [self.length(name, depth + 1) if isinstance(name, str) else None for name in names]
        total: float | None = 0.0
        for part in parts if repeat else []:
            if part is None:
                return None
            total = total + part.duration_s if total is not None and part.duration_s is not None else None
            if part.fails or part.fails is None:
                # The first part that fails ends the whole sequence (Batsim, jobs_execution.cpp).
                return Length(total if part.fails else None, part.fails)
        if total is None or repeat >= LONGEST_S or total * repeat >= LONGEST_S:
            return Length(None, fails)
        return Length(total * repeat, fails)
