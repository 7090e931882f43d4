"""Between two turns of a compiled loop: events are written, progress is told, and Ctrl-C is heard."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Final

from analysis.replay import _tape
from analysis.replay._state import ASKED, BUDGET, NEVER, NEXT, NOW, PAUSED, REACHED, RUNNING, UNTIL, WAITING, Log
from analysis.replay.event_log import EventSink

#: Instants of the first turn; later ones are as long as takes about this [s].
FIRST_BUDGET: Final = 2_000
TURN_S: Final = 0.4
MOST_FASTER: Final = 8.0
#: Turns that end early for another reason, such as a full tape, must not let the budget grow for ever.
MOST_BUDGET: Final = 1_000_000_000


@dataclass(frozen=True)
class Watch:
    """Who looks on.

    Attributes
    ----------
    num_jobs : int
        Jobs that take part.
    sink : EventSink or None
        Takes the events.
    progress : callable of (int, int) or None
        Told how many jobs have ended, of how many.
    until_us : int
        The last instant that may be replayed.
    answer : callable of Log, or None
        Predicts the jobs that arrive now, where the loop asks.
    """

    num_jobs: int
    sink: EventSink | None = None
    progress: Callable[[int, int], None] | None = None
    until_us: int = NEVER
    answer: Callable[[Log], None] | None = None


#: Nobody looks on.
NOBODY: Final = Watch(0)


def drive(step: Callable[[], int], log: Log, watch: Watch, *, is_patient: bool = True) -> bool:
    """Let a loop run turn by turn.

    Parameters
    ----------
    step : callable returning int
        A turn: FINISHED, PAUSED, REACHED, or ASKED.
    is_patient : bool, default True
        Whether a turn comes to its end by itself, however often Ctrl-C is sent; else the second one breaks it off.

    Returns
    -------
    bool
        False if Ctrl-C ended it; the instant it was at is complete even then, unless predictions of it were asked for:
        then the jobs that arrive at it have not arrived.
    """
    log.counters[UNTIL] = watch.until_us
    budget = log.counters[BUDGET] = FIRST_BUDGET
    began = time.monotonic()
    try:
        while True:
            why = _turn(step, log, watch, is_patient=is_patient)
            if why == ASKED and watch.answer is not None:
                watch.answer(log)
                continue
            if watch.progress is not None:
                counters = log.counters
                watch.progress(int(counters[NEXT] - counters[WAITING] - counters[RUNNING]), watch.num_jobs)
            if why != PAUSED:
                _reach_end(log, why)
                return True
            # How long a turn is changes nothing but how soon Python has the next one.
            factor = TURN_S / max(time.monotonic() - began, 1e-6)
            faster = min(max(factor, 1 / MOST_FASTER), MOST_FASTER)
            budget = log.counters[BUDGET] = min(max(int(budget * faster), 1), MOST_BUDGET)
            began = time.monotonic()
    except KeyboardInterrupt:
        _finish_instant(step, log, watch, is_patient=is_patient)
        return False


def _finish_instant(step: Callable[[], int], log: Log, watch: Watch, *, is_patient: bool) -> None:
    log.counters[UNTIL] = log.counters[NOW]
    why = PAUSED
    while why == PAUSED:
        log.counters[BUDGET] = NEVER
        why = _turn(step, log, watch, is_patient=is_patient)
    if watch.sink is not None:
        watch.sink.take(log.tape)
    _reach_end(log, why)


def _reach_end(log: Log, why: int) -> None:
    """Let the clock stand where the replay was stopped, not at the last event before."""
    if why == REACHED:
        log.counters[NOW] = log.counters[UNTIL]


def _turn(step: Callable[[], int], log: Log, watch: Watch, *, is_patient: bool) -> int:
    """One turn, and its events; Ctrl-C is heard before or after, so that no event is written twice or not at all."""
    with whole(is_patient=is_patient):
        why = step()
        if watch.sink is not None and (why not in (PAUSED, ASKED) or _must_be_taken_off(log.tape)):
            watch.sink.take(log.tape)
    return why


def _must_be_taken_off(tape: _tape.Tape) -> bool:
    """Tell what ``_tape.is_full`` tells compiled code: what that calls has no door for Python."""
    counts = tape.counts
    return bool(counts[_tape.ROWS] > counts[_tape.MOST_ROWS] or counts[_tape.NODES] > counts[_tape.MOST_NODES])


@contextmanager
def whole(*, is_patient: bool = True) -> Iterator[None]:
    """Hear Ctrl-C after the block, not in it; only the main thread is ever interrupted by it.

    Impatient: the second one is heard at once.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    heard: list[tuple[int, FrameType | None]] = []

    def hear(number: int, frame: FrameType | None) -> None:
        if heard and not is_patient:
            before(number, frame)
        heard.append((number, frame))

    signal.signal(signal.SIGINT, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if heard:
        before(*heard[0])
