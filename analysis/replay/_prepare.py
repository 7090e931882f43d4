"""From a jobs table and a cluster to the arrays of the compiled loop; jobs that cannot run are set aside here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from analysis.errors import UsageError
from analysis.replay import _place
from analysis.replay._bits import I64
from analysis.replay._compiled import ZERO, entry
from analysis.replay._hardware import (
    COUNT,
    MILLI,
    SIZE,
    TYPE,
    Entries,
    Hardware,
    build_hardware,
    make_entries,
    release,
)
from analysis.replay._jobs import demands, gpu_jobs, predicted_us, to_us
from analysis.replay._scoring import Places, Scoring, cpus_and_memory, numbered, scored_hardware, tasks_of
from analysis.replay._typical import no_tasks
from analysis.replay.cluster import Cluster
from analysis.replay.speeds import REFERENCE_SPEED, is_same_type, unmeasured

#: Why a job takes no part, and what to know of one that does; the place in the tuple is the code.
REASONS: Final = ("unknown_gpus", "unknown_duration", "exceeds_capacity", "right_censored", "left_censored")
UNKNOWN_GPUS, UNKNOWN_DURATION, EXCEEDS_CAPACITY, RIGHT_CENSORED, LEFT_CENSORED = range(5)
NO_REASON: Final = -1
#: Types of a class are bits of one word.
MOST_TYPES: Final = 62
#: Beside 0 and 1: nobody said whether a job must be on a single node.
NOT_SAID: Final = 2
I8 = npt.NDArray[np.int8]
Ratios = list[npt.NDArray[np.float64] | float]


@dataclass(frozen=True)
class Prepared:
    """What a replay knows before its first instant.

    Attributes
    ----------
    jobs : DataFrame
        The GPU jobs in the order (submit_time, job_id).
    reason : int8 array, one value per job
        Place in ``REASONS``, or -1.
    accepted : int64 array
        Rows of ``jobs`` that take part; the arrays below have one value for each of them.
    submit, run, predicted : int64 arrays
        Microseconds; the latter two with a column per distinct speed.
    column : int64 array
        Speed column of each GPU type.
    ratios : list of float, or of float64 arrays with one value per job
        Run time over the run time in the log, on each distinct speed.
    predicted_log : int64 array
        Predicted microseconds on the hardware of the log.
    job_class, classes : int64 arrays
        Class of each job, and the table of classes.
    nodes : DataFrame
        The nodes that take part, as the hardware numbers them.
    """

    jobs: pl.DataFrame
    reason: I8
    accepted: I64
    submit: I64
    run: I64
    predicted: I64
    predicted_log: I64
    column: I64
    ratios: Ratios
    job_class: I64
    classes: I64
    first_entry: I64
    hw: Hardware
    node_ids: pl.Series
    nodes: pl.DataFrame
    gpu_types: list[str | None]
    num_cpu_jobs: int
    notes: list[str]

    @property
    def num_vcs(self) -> int:
        """VCs, 1 if the cluster is not divided."""
        return len(self.hw.vc_groups) - 1


@dataclass(frozen=True)
class Site:
    """The nodes that take part, with VCs and types as numbers."""

    nodes: pl.DataFrame
    vcs: list[str]
    gpu_types: list[str | None]
    vc: I64
    gpu_type: I64


def lay_out(cluster: Cluster, *, use_vcs: bool, notes: list[str]) -> Site:
    """Number the VCs and GPU types of a cluster's GPU nodes."""
    nodes = cluster.nodes.filter(pl.col("num_gpus") > 0)
    vcs = cluster.vcs if use_vcs else []
    if vcs:
        ownerless = nodes["vc"].null_count()
        if ownerless:
            notes.append(f"{ownerless} nodes belong to no VC and stay empty, because the cluster is divided into VCs.")
        nodes = nodes.filter(pl.col("vc").is_not_null())
    gpu_types: list[str | None] = [None, *cluster.gpu_types] if nodes["gpu_type"].null_count() else [*cluster.gpu_types]
    if len(gpu_types) > MOST_TYPES:
        msg = (
            f"cluster {cluster.name!r}: found {len(gpu_types)} GPU types; a replay can tell {MOST_TYPES} apart. Give "
            "types that work alike one name."
        )
        raise UsageError(msg)
    places = {name: place for place, name in enumerate(gpu_types)}
    vc = np.array([vcs.index(name) for name in nodes["vc"]] if vcs else [0] * nodes.height, dtype=np.int64)
    gpu_type = np.array([places[name] for name in nodes["gpu_type"]], dtype=np.int64)
    return Site(nodes, vcs, gpu_types, vc, gpu_type)


def prepare(
    jobs: pl.DataFrame,
    *,
    cluster: Cluster,
    predicted: str | None,
    use_vcs: bool,
    columns: list[str],
    scoring: Scoring | None = None,
) -> Prepared:
    """Turn tables into arrays and set aside the jobs that cannot run."""
    notes = list(cluster.notes)
    table, num_cpu_jobs = gpu_jobs(jobs, columns=[*columns, *([predicted] if predicted else [])])
    site = lay_out(cluster, use_vcs=use_vcs, notes=notes)
    reason = _unknowns(table)
    vc = _vc_of(table, site)
    reason[(vc < 0) & (reason == NO_REASON)] = EXCEEDS_CAPACITY
    job_class, classes = _classes(table, np.maximum(vc, 0), site, notes, asks_more=scoring is not None)
    has_fractions = scoring is not None or bool(np.any(classes[:, _place.PIECES] > 0))
    rank = np.arange(site.nodes.height, dtype=np.int64)
    size = site.nodes["num_gpus"].to_numpy().astype(np.int64)
    hw, order = build_hardware(vc=site.vc, gpu_type=site.gpu_type, size=size, rank=rank, has_fractions=has_fractions)
    if scoring is None:
        _choose_modes(classes, hw)
    else:
        classes, hw = _scored(table, classes, hw, site, order, scoring)
    most_entries = _most_entries(classes, hw)
    fits = _fit_empty(hw, classes, most_entries)
    reason[~fits[job_class] & (reason == NO_REASON)] = EXCEEDS_CAPACITY
    accepted = np.flatnonzero(reason == NO_REASON)
    taken = table if len(accepted) == table.height else table[accepted]
    job_class = job_class[accepted]
    submit = table["submit_time"].to_physical().to_numpy()
    ratios, column = _speed_ratios(taken, site, cluster, notes)
    predicted_log = predicted_us(taken, predicted)
    run = _on_types(to_us(taken["duration_s"]), ratios)
    return Prepared(
        jobs=table,
        reason=_with_censoring(reason, table),
        accepted=accepted,
        submit=submit[accepted] - (submit[0] if len(submit) else 0),
        run=run,
        predicted=run if predicted is None else _on_types(predicted_log, ratios),
        predicted_log=predicted_log,
        column=column,
        ratios=ratios,
        job_class=job_class,
        classes=classes,
        first_entry=np.concatenate([[0], np.cumsum(most_entries[job_class])]).astype(np.int64),
        hw=hw,
        node_ids=site.nodes["node_id"][order],
        nodes=site.nodes[order],
        gpu_types=site.gpu_types,
        num_cpu_jobs=num_cpu_jobs,
        notes=notes,
    )


def _unknowns(table: pl.DataFrame) -> I8:
    reason = np.full(table.height, NO_REASON, dtype=np.int8)
    reason[table["duration_s"].is_null().to_numpy()] = UNKNOWN_DURATION
    reason[table["num_gpus"].is_null().to_numpy()] = UNKNOWN_GPUS
    return reason


def _with_censoring(reason: I8, table: pl.DataFrame) -> I8:
    censoring = table["censoring"].cast(pl.String)
    if censoring.is_in(["none"]).all() or censoring.null_count() == table.height:
        return reason
    runs = reason == NO_REASON
    reason = reason.copy()
    reason[runs & censoring.eq_missing("left").to_numpy()] = LEFT_CENSORED
    reason[runs & censoring.is_in(["right", "both"]).fill_null(value=False).to_numpy()] = RIGHT_CENSORED
    return reason


def _vc_of(table: pl.DataFrame, site: Site) -> I64:
    if not site.vcs:
        return np.zeros(table.height, dtype=np.int64)
    places = {name: place for place, name in enumerate(site.vcs)}
    return table["vc"].replace_strict(places, default=-1, return_dtype=pl.Int64).fill_null(-1).to_numpy()


def _densify(codes: I64) -> tuple[I64, I64]:
    if len(codes) and codes.min() == codes.max():
        return np.zeros_like(codes), codes[:1]
    values = pl.Series(codes).unique().sort().to_numpy()
    if len(values) and values[0] == 0 and values[-1] == len(values) - 1:
        return codes, values
    return np.searchsorted(values, codes).astype(np.int64), values


def _classes(table: pl.DataFrame, vc: I64, site: Site, notes: list[str], *, asks_more: bool) -> tuple[I64, I64]:
    """Class of each job, and one row per class: VC, whole, pieces, millis, mode (still is_single_node), types.

    ``asks_more``: then milli-CPUs and MiB.
    """
    whole, pieces, millis = demands(table)
    single = table["is_single_node"].cast(pl.Int64).fill_null(NOT_SAID).to_numpy()
    allowed, masks = _allowed_types(table, site, notes)
    code = vc
    more = cpus_and_memory(table) if asks_more else ()
    for part in (whole, pieces, millis, single, allowed, *more):
        dense, values = _densify(part)
        if len(values) > 1:
            code, _ = _densify(code * len(values) + dense)
    code, _ = _densify(code)
    num_classes = int(code.max(initial=-1)) + 1
    example = np.zeros(num_classes, dtype=np.int64)
    example[code] = np.arange(table.height)
    rows = [vc, whole, pieces, millis, single, masks[allowed], *more]
    return code, np.stack([row[example] for row in rows], axis=1).reshape(num_classes, len(rows))


def _allowed_types(table: pl.DataFrame, site: Site, notes: list[str]) -> tuple[I64, I64]:
    """Code of each job's list of allowed types, and the bits of the types that each code allows."""
    lists = table["allowed_gpu_types"]
    asked = lists.list.len().fill_null(0) > 0
    if not asked.any():
        return np.zeros(table.height, dtype=np.int64), np.array([_place.ANY_TYPE], dtype=np.int64)
    known = [(place, name) for place, name in enumerate(site.gpu_types) if name is not None]
    if not known:
        notes.append(
            f"{int(asked.sum())} jobs ask for certain GPU types; the cluster does not say its types, so that was not "
            "kept."
        )
        return np.zeros(table.height, dtype=np.int64), np.array([_place.ANY_TYPE], dtype=np.int64)
    text = lists.list.unique().list.sort().list.join("\x1f").fill_null("")
    distinct = text.unique().sort()
    masks = [
        sum(1 << place for place, name in known if any(is_same_type(one, name) for one in wish.split("\x1f")))
        if wish
        else _place.ANY_TYPE
        for wish in distinct
    ]
    codes = text.replace_strict(distinct, pl.Series(range(len(distinct)), dtype=pl.Int64), return_dtype=pl.Int64)
    return codes.to_numpy(), np.array(masks, dtype=np.int64)


def _choose_modes(classes: I64, hw: Hardware) -> None:
    """Replace each class's is_single_node (0, 1, 2 = null) by its mode, as ``placement`` says."""
    for row in classes:
        whole, pieces, millis, single = (int(value) for value in row[_place.WHOLE : _place.TYPES])
        groups = hw.groups[hw.vc_groups[row[_place.VC]] : hw.vc_groups[row[_place.VC] + 1]]
        usable = (int(row[_place.TYPES]) >> groups[:, TYPE]) & 1 == 1
        largest = int(groups[usable, SIZE].max(initial=0))
        needs = whole + (-(-pieces // (MILLI // millis)) if pieces else 0)
        if single == 1 and (whole or pieces > 1):
            row[_place.MODE] = _place.ON_ONE_NODE
        elif whole == 0:
            row[_place.MODE] = _place.FRACTIONS
        elif single == 0:
            row[_place.MODE] = _place.SPREAD
        else:
            row[_place.MODE] = _place.ON_ONE_NODE if needs <= largest and pieces <= 1 else _place.WHOLE_NODES_FIRST


def _scored(
    table: pl.DataFrame, classes: I64, hw: Hardware, site: Site, order: I64, scoring: Scoring
) -> tuple[I64, Hardware]:
    """Classes and hardware of a scored placement: a job that no single empty node can feed is wide."""
    classes = numbered(classes)
    is_open = classes[:, _place.MODE] == NOT_SAID
    _choose_modes(classes, hw)
    places = Places(site.nodes[order], site.vc[order], site.gpu_type[order], len(site.gpu_types))
    tasks = no_tasks(places.num_types)
    if scoring.placement.name == "fgd":
        allowed, masks = _allowed_types(table, site, [])
        tasks = tasks_of(table, masks[allowed], places)
    hw, _ = scored_hardware(hw, places, classes, tasks, scoring)
    fits = _fit_empty(hw, classes, _most_entries(classes, hw))
    classes[is_open & ~fits & (classes[:, _place.MODE] == _place.ON_ONE_NODE), _place.MODE] = _place.WHOLE_NODES_FIRST
    return classes, hw


def with_room_to_spread(prepared: Prepared) -> Prepared:
    """The same with room for the entries of jobs that are put onto as many nodes as they have GPUs."""
    wide = prepared.classes.copy()
    wide[:, _place.MODE] = _place.SPREAD
    most = np.maximum(_most_entries(wide, prepared.hw), _most_entries(prepared.classes, prepared.hw))
    first_entry = np.concatenate([[0], np.cumsum(most[prepared.job_class])]).astype(np.int64)
    return replace(prepared, first_entry=first_entry)


def _most_entries(classes: I64, hw: Hardware) -> I64:
    """Most entries that a job of each class can hold."""
    whole, mode, vc = classes[:, _place.WHOLE], classes[:, _place.MODE], classes[:, _place.VC]
    bounds = list(zip(hw.vc_groups[:-1], hw.vc_groups[1:], strict=True))
    gpus = np.array([(hw.groups[a:b, SIZE] * hw.groups[a:b, COUNT]).sum() for a, b in bounds])[vc]
    if len(hw.room):
        devices: I64 = np.minimum(whole, gpus) + np.minimum(classes[:, _place.PIECES], gpus * MILLI)
        return devices
    nodes = np.array([hw.groups[a:b, COUNT].sum() for a, b in bounds])[vc]
    smallest = np.array([hw.groups[a:b, SIZE].min(initial=MILLI) for a, b in bounds])[vc]
    most = np.where(mode == _place.WHOLE_NODES_FIRST, whole // smallest + 1, whole)
    return np.where(mode == _place.ON_ONE_NODE, 1, np.minimum(most, nodes))


def _fit_empty(hw: Hardware, classes: I64, most_entries: I64) -> npt.NDArray[np.bool_]:
    size = int(most_entries.max(initial=0)) + 1
    scratch = make_entries(size, hw)
    total = int((hw.groups[:, SIZE] * hw.groups[:, COUNT]).sum()) * MILLI
    asked = classes[:, _place.WHOLE] * MILLI + classes[:, _place.PIECES] * classes[:, _place.MILLIS]
    fits = asked <= total
    _try_empty(hw, classes, scratch, fits)
    return fits


@entry
def _try_empty(hw: Hardware, classes: I64, scratch: Entries, fits: npt.NDArray[np.bool_]) -> None:
    for c in range(len(classes)):
        if fits[c]:
            stop = _place.place(hw, classes[c], _place.ANY_TYPE, scratch, ZERO)
            fits[c] = stop != _place.NOWHERE
            if fits[c]:
                release(hw, scratch, ZERO, stop)


def _speed_ratios(taken: pl.DataFrame, site: Site, cluster: Cluster, notes: list[str]) -> tuple[Ratios, I64]:
    """Run time on each distinct speed over the run time in the log, and the speed column of each type."""
    named = sorted({name for name in site.gpu_types if name is not None})
    if not named:
        return [1.0], np.zeros(len(site.gpu_types), dtype=np.int64)
    logged = taken["gpu_type"].unique().drop_nulls().sort().to_list()
    guessed = unmeasured({*named, *logged}, cluster.speed)
    if guessed:
        notes.append(f"No speed was measured for GPU type {', '.join(guessed)}: taken as {REFERENCE_SPEED}, a V100's.")
    speed = {name: cluster.speed_of(name) or REFERENCE_SPEED for name in {*named, *logged}}
    if logged:
        mapping = pl.Series([speed[name] for name in logged], dtype=pl.Float64)
        of_log = taken["gpu_type"].replace_strict(logged, mapping, default=REFERENCE_SPEED, return_dtype=pl.Float64)
        log_speed: npt.NDArray[np.float64] | float = of_log.fill_null(REFERENCE_SPEED).to_numpy()
    else:
        log_speed = REFERENCE_SPEED
    # A node of unknown type runs a job as long as the log says.
    distinct = sorted({speed[name] if name is not None else None for name in site.gpu_types}, key=str)
    column = [distinct.index(speed[name] if name is not None else None) for name in site.gpu_types]
    return [1.0 if value is None else log_speed / value for value in distinct], np.array(column, dtype=np.int64)


def _on_types(base: I64, ratios: Ratios) -> I64:
    """Microseconds at each speed, nearest, half to even."""
    if len(ratios) == 1 and np.all(np.asarray(ratios[0]) == 1.0):
        return base.reshape(-1, 1)
    columns = [np.rint(base * ratio).astype(np.int64) for ratio in ratios]
    return np.ascontiguousarray(np.stack(columns, axis=1))
