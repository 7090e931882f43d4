"""How ``hindcast replay`` goes through its replays: progress is shown, and Ctrl-C costs only what is still to come."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.cli.app import Step, progress
from analysis.errors import UsageError

if TYPE_CHECKING:
    from analysis.cli.replay_runs import OneRun
    from analysis.replay import ReplayResult

__all__ = ["event_folder", "move_logs", "run_all"]


@contextmanager
def event_folder(output: Path, *, wanted: bool) -> Iterator[Path | None]:
    """Give a hidden folder beside the output, where event logs grow until they are moved in; it is gone at the end.

    Raises
    ------
    UsageError
        If it cannot be made there.
    """
    if not wanted:
        yield None
        return
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(prefix=f".{output.name}.events.", dir=output.parent)
    except OSError as error:
        msg = f"{output}: cannot be written ({error.strerror}); choose a place that you may write to."
        raise UsageError(msg) from error
    with folder as name:
        yield Path(name)


def move_logs(logs: Path | None, folder: Path) -> None:
    """Put event logs where they belong."""
    if logs is None:
        return
    (folder / "events").mkdir()
    for path in sorted(logs.glob("*.parquet")):
        path.rename(folder / "events" / path.name)


def run_all(
    runs: Sequence[OneRun],
    results: dict[str, ReplayResult],
    replay_one: Callable[[OneRun, dict[str, Any]], ReplayResult],
    logs: Path | None,
) -> str:
    """Replay one after the other.

    Parameters
    ----------
    runs : sequence of OneRun
        What is to be replayed.
    results : dict of str to ReplayResult
        Filled, by label; a replay that Ctrl-C ended comes in with what it had.
    replay_one : callable of (OneRun, dict)
        Replays, with keywords ``events`` and ``progress``.
    logs : Path or None
        Folder for event logs.

    Returns
    -------
    str
        What Ctrl-C ended and what has not been replayed, in a sentence; empty without it.
    """
    from analysis.replay import ReplayInterrupted

    with progress("replaying", total=len(runs)) as step:
        for number, one in enumerate(runs):
            watch = {"events": logs / f"{one.label}.parquet" if logs else False, "progress": _teller(step, one.label)}
            try:
                results[one.label] = replay_one(one, watch)
            except ReplayInterrupted as stop:
                results[one.label] = stop.result
                left = (stop.result.schedule["state"] == "unfinished").sum()
                at = f"{stop.result.stopped_time:%Y-%m-%d %H:%M:%S}"
                return _stopped(
                    f"in {one.label}, at {at} of the log: {left:,} of its jobs are unfinished", runs, number
                )
            except KeyboardInterrupt:
                return _stopped(f"before {one.label} had begun", runs, number - 1)
            step(one.label)
    return ""


def _stopped(where: str, runs: Sequence[OneRun], number: int) -> str:
    left = ", ".join(one.label for one in runs[number + 1 :])
    return f"Stopped {where}. Not replayed: {left or 'none'}."


def _teller(step: Step, label: str) -> Callable[[int, int], None]:
    return lambda done, total: step.describe(f"{label} {done / max(total, 1):.0%}")
