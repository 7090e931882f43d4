"""Slurm accounting: any parsable export of ``sacct`` (``-P`` or ``-p``), with the cluster's nodes beside it.

Source: a site's own ``sacct -a -D -P …``. Licence: the site's. Zone: sacct writes site-local times without offset;
give the zone with ``timezone``. Without it they are read as UTC, and the metadata says "assumed". Exports made with
``SLURM_TIME_FORMAT=%s`` have instants: nothing to assume, so prefer them; ``relative`` times are refused.

What counts: one job per JobID (JobIDRaw where JobID was not exported). Waiting array tasks ``77_[3-10%2]`` are one
job each; ``90+0``, ``90+1`` are one job, its GPUs summed; lines of a requeued job (``-D``) are its attempts, and the
running time is theirs together; steps (``.batch``, ``.0``) go into ``usage`` and are counted. Of lines about one run
in exports that overlap, the one that knows most is kept. An id that two users have is two jobs.

GPUs: AllocTRES, then AllocGRES (totals), then ReqTRES, then ReqGRES (per node). ``gres/gpu`` is the total, typed
entries are not added to it. A cluster of which no line speaks of GPUs does not record them: all ``num_gpus`` are
null, and a note says so. MIG slices count as GPUs of their type. ``allowed_gpu_types`` are the types that were asked
for.

Times: running time is Elapsed (Slurm leaves suspensions out), not end - start; in the hour that autumn shows twice it
also tells which instant was meant. A running job is right-censored, Elapsed its lower bound (without that column: the
latest time of the log, or the option ``snapshot``). ``Unknown``, ``None`` and ``#####`` are null. UNLIMITED is no
limit; Partition_Limit is the partition's if it is known (``partition_limits``).

Columns left behind: none; what has no place in the tables goes into ``extra`` under its name (JobID, JobIDRaw,
ExitCode, QOS …), with ``Partition`` (all that a job may use; ``vc`` is the first), ``gpu_types`` (all that it has) and
``num_steps``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Final

import polars as pl

from analysis.errors import BadFileError, UsageError
from analysis.loaders.files import check_file, list_files
from analysis.loaders.registry import loader
from analysis.loaders.slurm.blocks import LINE, UNDECODABLE, Export
from analysis.loaders.slurm.conclude import conclude_trace
from analysis.loaders.slurm.gathered import Source
from analysis.loaders.slurm.grammar import duration_s
from analysis.loaders.slurm.layout import HOW, certainty, parse_fields, read_layout
from analysis.loaders.slurm.nodes import is_partitions, is_scontrol_nodes, is_sinfo, read_partition_limits
from analysis.loaders.slurm.records import Reading, read_records
from analysis.loaders.slurm.steps import is_step, read_steps
from analysis.loaders.slurm.times import TimeReader
from analysis.loaders.zones import to_utc
from analysis.trace import Trace

__all__ = ["read_slurm"]

#: Less sure than an export: a trace of nodes alone has no jobs.
NODES_ONLY: Final = 0.8
ISO: Final = ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d")


def _sniff(paths: Sequence[Path]) -> float:
    sure = max((certainty(path) for path in paths), default=0.0)
    return max(sure, NODES_ONLY if any(is_scontrol_nodes(path) for path in paths) else 0.0)


@dataclass
class _Files:
    """The files by what they are."""

    exports: list[Path] = field(default_factory=list)
    nodes: list[Path] = field(default_factory=list)
    partitions: list[Path] = field(default_factory=list)

    @classmethod
    def sort(cls, paths: Sequence[Path], nodes: Path | str | None, *, has_fields: bool) -> _Files:
        """Tell exports, nodes and partitions apart by content; other files of folders are left alone."""
        files = cls()
        given = set(paths)
        strays = []
        for path in [*list_files(paths), *([Path(nodes)] if nodes else [])]:
            if is_scontrol_nodes(path) or is_sinfo(path) or (nodes is not None and path == Path(nodes)):
                files.nodes.append(path)
            elif is_partitions(path):
                files.partitions.append(path)
            elif certainty(path) or (has_fields and path in given):
                files.exports.append(path)
            else:
                strays.append(path)
        # A file given by name is read as an export, so that reading it says what is wrong with it.
        files.exports += [path for path in strays if path in given]
        if not files.exports and not files.nodes:
            check_file(strays[0])
            found = f"no export of sacct among {len(strays)} files (the first is {strays[0].name})"
            raise BadFileError(paths[0], kind="wrong_columns", found=found, expected="a header of sacct", fix=HOW)
        return files


@loader(
    "slurm",
    summary="Slurm accounting: any parsable sacct export, with nodes from scontrol or sinfo",
    files="the output of 'sacct -P' or '-p' with a header naming JobID or JobIDRaw; 'scontrol show nodes -o' beside it",
    sniff=_sniff,
)
def read_slurm(  # noqa: PLR0913 - each is an option that some export needs
    paths: Sequence[Path],
    *,
    timezone: str | None = None,
    name: str | None = None,
    fields: str | Sequence[str] | None = None,
    delimiter: str | None = None,
    nodes: Path | str | None = None,
    partition_limits: str | Mapping[str, float] | None = None,
    snapshot: str | None = None,
    time_format: str | None = None,
    window: str | None = None,
) -> Trace:
    """Read exports of sacct, with the cluster's nodes if they are given.

    Parameters
    ----------
    paths : sequence of Path
        One export or several (months that overlap are no harm), outputs of ``scontrol show nodes -o``, ``sinfo``,
        ``scontrol show partition -o`` beside them, or folders with these. Each is recognised by its content.
    timezone : str, optional
        IANA name of the site's zone, for times without offset; null: UTC, noted as assumed.
    name : str, optional
        Name of the trace, by default "slurm".
    fields : str or sequence of str, optional
        What was given to ``sacct -o``, for exports without header (``-n``).
    delimiter : str, optional
        What was given to ``--delimiter``, if it is not recognised.
    nodes : path, optional
        The output of ``scontrol show nodes -o`` or ``sinfo``, if it is not among ``paths``.
    partition_limits : str or mapping of str to float, optional
        Limits of partitions, for jobs with Partition_Limit: "gpu=2-00:00:00,long=7-00:00:00", or seconds by name.
    snapshot : str, optional
        When the export was made (ISO 8601; without offset in ``timezone``), for running jobs without Elapsed.
    time_format : str, optional
        The strftime pattern in ``SLURM_TIME_FORMAT``, if it was another than the usual ones.
    window : str, optional
        "START,END" that the export covers, either may be blank: goes into the metadata, and jobs that began before
        it bear ``carry_in``.

    Returns
    -------
    Trace
        Jobs, attempts (every run, with its nodes), usage (of steps that were measured), nodes.

    Raises
    ------
    BadFileError
        If a file is no parsable export, or has relative times.
    UsageError
        If an option cannot be read.
    """
    zone = timezone or "UTC"
    names = parse_fields(fields) if fields is not None else None
    files = _Files.sort(paths, nodes, has_fields=names is not None)
    limits = _limits(partition_limits)
    for path in files.partitions:
        limits = {**read_partition_limits(path), **limits}
    source = Source(name=name or "slurm", zone=timezone, nodes=files.nodes, partitions=files.partitions)
    source.window = _window(window, zone)
    source.snapshot = _instant(snapshot, zone, option="snapshot")
    for path in files.exports:
        export = Export(path, read_layout(path, delimiter=delimiter, fields=names))
        reading = Reading(TimeReader(path, zone, time_format), limits)
        _read_export(export, reading, source)
    return conclude_trace(source)


def _read_export(export: Export, reading: Reading, source: Source) -> None:
    source.start(export, reading)
    fields = dict.fromkeys(export.layout.fields, pl.String())
    nothing = pl.DataFrame(schema={LINE: pl.Int64(), **fields, UNDECODABLE: pl.Boolean()})
    for frame in chain(export.blocks(), [nothing]):
        if not frame.height and source.records[-1]:
            continue
        of_step = is_step(frame)
        source.add(
            records=read_records(frame.filter(~of_step), reading, file=len(source.exports) - 1),
            steps=read_steps(frame.filter(of_step)),
        )


def _limits(given: str | Mapping[str, float] | None) -> dict[str, float]:
    if given is None:
        return {}
    if not isinstance(given, str):
        return {str(name): float(limit) for name, limit in given.items()}
    limits = {}
    for item in given.split(","):
        name, _, text = item.partition("=")
        seconds = pl.DataFrame({"t": [text]}).select(duration_s(pl.col("t"))).item()
        if not name.strip() or seconds is None:
            msg = (
                f"slurm: partition_limits: found {item!r}; expected 'partition=limit' in Slurm's form, such as "
                "'gpu=2-00:00:00,long=7-00:00:00'."
            )
            raise UsageError(msg)
        limits[name.strip()] = float(seconds)
    return limits


def _instant(text: str | None, zone: str, *, option: str) -> datetime | None:
    if text is None or not text.strip():
        return None
    bare = pl.Series([text.strip()])
    aware = bare.str.to_datetime("%+", time_unit="us", strict=False)
    if aware.item() is not None:
        return aware.dt.convert_time_zone("UTC").item()  # type: ignore[no-any-return]
    for form in ISO:
        naive = bare.str.to_datetime(form, time_unit="us", strict=False)
        if naive.item() is not None:
            return to_utc(naive, zone=zone).item()  # type: ignore[no-any-return]
    msg = f"slurm: {option}: found {text!r}, which is no time; expected ISO 8601, such as '2026-01-31T12:00:00+01:00'."
    raise UsageError(msg)


def _window(text: str | None, zone: str) -> tuple[datetime | None, datetime | None]:
    if text is None:
        return None, None
    start, _, end = text.partition(",")
    return _instant(start, zone, option="window"), _instant(end, zone, option="window")
