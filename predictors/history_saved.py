"""A saved ``HistoryState``: one ``.npz`` file of plain arrays and a header in JSON; nothing in it is ever executed."""

from __future__ import annotations

import json
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from analysis.errors import BadFileError, HindcastError, SchemaVersionError
from predictors import history_flight as flight
from predictors.families import NameClusters
from predictors.history_job import JobFacts
from predictors.history_kernel import WINDOW, Slots

if TYPE_CHECKING:
    from predictors.history_state import Flying, HistoryState

__all__ = ["restore_state", "save_state"]

S = TypeVar("S", bound="HistoryState")
Arrays = dict[str, NDArray[Any]]
FORMAT: Final = "hindcast-history"
VERSION: Final = 1
_COUNTERS: Final = ("clock_us", "num_told", "num_taken", "num_starts")
_RINGS: Final = ("ring", "ranked")
_PER_SLOT: Final = tuple(name for name in Slots._fields if name not in {*_RINGS, "first", "room"})


def save_state(state: HistoryState, path: Path) -> Path:
    """Write a state; the same state gives the same bytes."""
    size = len(state.history.numbers)
    kept = state.history.arrays
    flying = list(state.flying.values())
    arrays: Arrays = {
        **{name: getattr(kept, name)[: size * WINDOW] for name in _RINGS},
        **{name: getattr(kept, name)[:size] for name in _PER_SLOT},
        "flights": state.flights.rows[: len(state.flights.numbers)],
        "batches": state.batches.rows[: len(state.batches.numbers)],
        "flying_history": _stack([job.history for job in flying], state.num_keys),
        "flying_flight": _stack([job.flight for job in flying], state.num_flight_keys),
        "flying_sums": _stack([job.sums for job in flying], flight.JOB_FIELDS),
        "flying_serial": np.array([job.serial for job in flying], dtype=np.int64),
        "flying_place": np.array([job.place for job in flying], dtype=np.float64),
        "header": np.frombuffer(json.dumps(_header(state)).encode(), dtype=np.uint8),
    }
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    return path


def _stack(rows: list[NDArray[np.int64]], width: int) -> NDArray[np.int64]:
    return np.array(rows, dtype=np.int64).reshape(len(rows), width)


def _header(state: HistoryState) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "names": state.names,
        "failures": state.failures,
        "time_zone": state.time_zone,
        **{name: getattr(state, name) for name in _COUNTERS},
        "history_keys": list(state.history.numbers),
        "flight_keys": list(state.flights.numbers),
        "batch_keys": list(state.batches.numbers),
        "clusters": state.clusters.rows(),
        "flying": [{**asdict(job.facts), "start_us": job.start_us} for job in state.flying.values()],
        "events": [[*event[:-2], asdict(event[-2]), event[-1]] for event in state.events],
    }


def restore_state(cls: type[S], path: Path) -> S:
    """Read a state and check that the compiled core can trust it."""
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays.pop("header").tobytes())
    except FileNotFoundError as error:
        raise _bad(path, "missing", "no such file") from error
    except (OSError, ValueError, KeyError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise _bad(path, "damaged", str(error).splitlines()[0][:80] if str(error) else "no state") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise _bad(path, "damaged", "another kind of file")
    if header.get("version") != VERSION:
        raise SchemaVersionError(path, found=header.get("version", 0), supported=VERSION)
    try:
        state = cls(header["names"], failures=header["failures"], time_zone=header["time_zone"])
        _fill(state, header, arrays)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, HindcastError) as error:
        raise _bad(path, "damaged", f"content that does not fit together ({str(error)[:80]})") from error
    return state


def _bad(path: Path, kind: str, found: str) -> BadFileError:
    return BadFileError(
        path, kind=kind, found=found, expected="a state that HistoryState.save wrote", fix="Make it anew from the log."
    )


def _fill(state: HistoryState, header: dict[str, Any], arrays: Arrays) -> None:
    for name in _COUNTERS:
        setattr(state, name, int(header[name]))
    for slots, keys in ((state.history, "history_keys"), (state.flights, "flight_keys"), (state.batches, "batch_keys")):
        slots.take(tuple(values) for values in header[keys])
        _require(len(slots.numbers) == len(header[keys]), f"{keys} are unique")
    size = len(state.history.numbers)
    for name in (*_RINGS, *_PER_SLOT):
        whole = getattr(state.history.arrays, name)
        _copy(arrays[name], whole[: size * WINDOW if name in _RINGS else size], name)
    _copy(arrays["flights"], state.flights.rows[: len(state.flights.numbers)], "flights")
    _copy(arrays["batches"], state.batches.rows[: len(state.batches.numbers)], "batches")
    _check_rings(state)
    state.clusters = NameClusters.of_rows((str(u), str(f), str(leader)) for u, f, leader in header["clusters"])
    state.flying = {job.facts.job_id: job for job in _flying(state, header["flying"], arrays)}
    state.events = [(*event[:-2], _facts(event[-2]), _told(event[-1])) for event in header["events"]]
    _require(all(event[1] in range(3) for event in state.events), "events are of three kinds")
    state.awaited = {event[-2].job_id: event[-2] for event in state.events if event[1] == 0}


def _told(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _facts(value: dict[str, Any]) -> JobFacts:
    return JobFacts(job_id=value["job_id"], submit_us=value["submit_us"], columns=value["columns"])


def _flying(state: HistoryState, jobs: list[dict[str, Any]], arrays: Arrays) -> list[Flying]:
    from predictors.history_state import Flying

    size = {"flying_history": len(state.history.numbers), "flying_flight": len(state.flights.numbers)}
    for name, width in (("flying_history", state.num_keys), ("flying_flight", state.num_flight_keys)):
        found = arrays[name]
        _require(found.dtype == np.int64 and found.shape == (len(jobs), width), f"{name} has a row per job")
        _require(bool(((found >= -1) & (found < size[name])).all()), f"{name} holds slots")
    sums = np.zeros((len(jobs), flight.JOB_FIELDS), dtype=np.int64)
    _copy(arrays["flying_sums"], sums, "flying_sums")
    return [
        Flying(
            _facts(job),
            serial=int(arrays["flying_serial"][i]),
            history=arrays["flying_history"][i],
            flight=arrays["flying_flight"][i],
            place=float(arrays["flying_place"][i]),
            sums=sums[i],
            start_us=None if job["start_us"] is None else int(job["start_us"]),
        )
        for i, job in enumerate(jobs)
    ]


def _check_rings(state: HistoryState) -> None:
    """The compiled core looks for a duration among the ascending ones until it finds it: it must be there."""
    slots, size = state.history.arrays, len(state.history.numbers)
    counts = slots.num_ended[:size]
    is_used = np.arange(WINDOW) < np.minimum(counts, WINDOW)[:, None]
    ring, ranked = (
        np.where(is_used, getattr(slots, name)[: size * WINDOW].reshape(size, WINDOW), np.inf) for name in _RINGS
    )
    _require(bool((counts >= 0).all()) and bool(np.isfinite(ring[is_used]).all()), "durations are numbers")
    _require(np.array_equal(np.sort(ring, axis=1), ranked), "the ascending durations are the durations")


def _copy(found: NDArray[Any], into: NDArray[Any], name: str) -> None:
    _require(found.shape == into.shape and found.dtype == into.dtype, f"{name} has {into.shape} of {into.dtype}")
    into[...] = found


def _require(is_so: bool, what: str) -> None:  # noqa: FBT001
    if not is_so:
        msg = f"expected: {what}"
        raise ValueError(msg)
