"""Write the report: one self-contained HTML page that opens from disk, light and dark, on paper and on a telephone."""

from __future__ import annotations

import base64
import hashlib
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl
from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from analysis.characterize import characterize
from analysis.errors import UsageError
from analysis.report.blocks import Section, limit_downloads
from analysis.report.compared import compared_findings, logs_section, name_logs, published_section
from analysis.report.findings import find
from analysis.report.quality import quality_section
from analysis.report.replayed import Replayed, characterize_replays
from analysis.report.tried import gains_section, scores_section
from analysis.report.tried_findings import gain_findings, score_findings
from analysis.report.workload import Logs, workload_sections

if TYPE_CHECKING:
    from analysis.replay import ReplayResult
    from analysis.replay.gains import GainsResult
    from analysis.trace import Trace

__all__ = ["render_comparison", "render_report", "write_comparison", "write_report"]

CLOCKS: Final = {
    "absolute": "",
    "clock_only": "Hours and weekdays mean something, dates do not: the source shifted them.",
    "relative": "Times count from the start of the log: hours, weekdays and dates mean nothing.",
}
#: The ten that matter.
MOST_FINDINGS: Final = 10
#: Of the 5 MB that a page may have, for the tables that it carries as files [bytes].
MOST_DOWNLOADS: Final = 2_000_000


def render_report(  # noqa: PLR0913 - as write_report
    trace: Trace,
    *,
    scores: pl.DataFrame | None = None,
    predictions: pl.DataFrame | None = None,
    backtest: Mapping[str, pl.DataFrame] | None = None,
    gains: GainsResult | None = None,
    replays: Mapping[str, ReplayResult] | None = None,
    title: str | None = None,
    notes: Iterable[str] = (),
) -> str:
    """Make the text of the report; parameters as in `write_report`."""
    name = trace.meta.name or "this log"
    tables = characterize(trace)
    logs = Logs({name: trace}, {key: {name: table} for key, table in tables.items()})
    table = gains.table if gains is not None else None
    sections = [
        *workload_sections(logs, characterize_replays(trace, replays)),
        scores_section(scores, predictions, backtest),
        gains_section(table),
    ]
    sections[1:1] = published_section(logs)
    tried = [*score_findings(scores), *gain_findings(table)]
    return _render(
        [*sections, quality_section(logs.traces)]
        if tables["summary"]["num_jobs"][0]
        else [quality_section(logs.traces)],
        title=title or f"GPU cluster log: {trace.meta.name or 'unnamed'}",
        facts=_facts(trace),
        findings=[*find(tables, most=MOST_FINDINGS - len(tried)), *tried],
        notes=_notes(trace, notes),
    )


def render_comparison(
    traces: Sequence[Trace],
    *,
    names: Sequence[str] | None = None,
    title: str | None = None,
    notes: Iterable[str] = (),
) -> str:
    """Make the text of the report on several logs side by side; parameters as in `write_comparison`."""
    if not traces:
        msg = "no log to compare was given; expected one Trace or more."
        raise UsageError(msg)
    named = name_logs(traces, names=names)
    made = {log: characterize(trace) for log, trace in named.items()}
    logs = Logs(named, {key: {log: made[log][key] for log in named} for key in next(iter(made.values()))})
    sections = workload_sections(logs, Replayed())
    sections[:0] = [logs_section(logs), *published_section(logs)]
    told = [f"{log}: {note}" for log, trace in named.items() for note in _notes(trace, ())]
    return _render(
        [*sections, quality_section(named)],
        title=title or f"GPU cluster logs compared: {', '.join(named)}",
        facts=[],
        findings=compared_findings(logs)[:MOST_FINDINGS],
        notes=[*told, *notes],
    )


def write_report(  # noqa: PLR0913 - the parts of a report are all optional and named
    trace: Trace,
    path: Path | str,
    *,
    scores: pl.DataFrame | None = None,
    predictions: pl.DataFrame | None = None,
    backtest: Mapping[str, pl.DataFrame] | None = None,
    gains: GainsResult | None = None,
    replays: Mapping[str, ReplayResult] | None = None,
    title: str | None = None,
    notes: Iterable[str] = (),
) -> Path:
    """Write everything that is known about a log into one HTML page.

    Parameters
    ----------
    trace : Trace
        The log.
    path : path
        File to write; made under a temporary name beside it and renamed, so it is never half there.
    scores : DataFrame, optional
        Scores of a backtest, one row per predictor: model, log_mae and others. Null: the page says that there are none.
    predictions : DataFrame, optional
        Predictions of the backtest, one row per job: duration_s and predicted_duration_s__<name>. [s]
    backtest : mapping of str to DataFrame, optional
        Further tables of the backtest by name: "scores_by", "calibration_curve", "differences", and of its best model
        "importance", "shapes". What is not there is not shown.
    gains : GainsResult, optional
        The paired comparison of policies.
    replays : mapping of str to ReplayResult, optional
        Replays of the log by policy, for queueing delay and GPUs in use where the log does not say when jobs started.
    title : str, optional
        Title of the page; by default the name of the trace.
    notes : iterable of str
        Assumptions to be listed, beside those of the load report.

    Returns
    -------
    Path
        The file: no address in it leaves the page, and the same input gives the same bytes.

    Raises
    ------
    UsageError
        If the file cannot be written.
    """
    text = render_report(
        trace,
        scores=scores,
        predictions=predictions,
        backtest=backtest,
        gains=gains,
        replays=replays,
        title=title,
        notes=notes,
    )
    return _write(text, Path(path))


def write_comparison(
    traces: Sequence[Trace],
    path: Path | str,
    *,
    names: Sequence[str] | None = None,
    title: str | None = None,
    notes: Iterable[str] = (),
) -> Path:
    """Write one HTML page about several logs side by side, and beside what is published about others.

    Parameters
    ----------
    traces : sequence of Trace
        The logs.
    path : path
        File to write; made under a temporary name beside it and renamed, so it is never half there.
    names : sequence of str, optional
        What the logs are called, in their order; by default as their metadata call them.
    title : str, optional
        Title of the page; by default the names of the logs.
    notes : iterable of str
        Assumptions to be listed, beside those of the load reports.

    Returns
    -------
    Path
        The file: no address in it leaves the page, and the same input gives the same bytes.

    Raises
    ------
    UsageError
        If there is no log, or the file cannot be written.
    """
    return _write(render_comparison(traces, names=names, title=title, notes=notes), Path(path))


def _render(sections: list[Section], *, findings: Sequence[str], **parts: Any) -> str:
    limit_downloads(sections, most_bytes=MOST_DOWNLOADS)
    # The line break after the tag belongs to the script that the browser hashes.
    script = _resource("report.js")
    digest = base64.b64encode(hashlib.sha256(f"\n{script}".encode()).digest()).decode()
    return _template().render(
        **parts,
        findings=findings,
        sections=sections,
        glossary=_glossary(sections),
        style=_resource("report.css"),
        script=script,
        script_hash=f"sha256-{digest}",
        version=_version(),
        markup=Markup,
    )


def _glossary(sections: Sequence[Section]) -> list[tuple[str, str]]:
    """Headings that need a word of explanation, as they occur in the page: for print, where nothing hovers."""
    heads = [column for section in sections for block in section.blocks if block.table for column in block.table.head]
    return sorted(
        {column.text: column.meaning for column in heads if column.meaning}.items(), key=lambda one: one[0].lower()
    )


def _write(text: str, path: Path) -> Path:
    try:
        if path.is_dir():
            raise IsADirectoryError(0, "it is a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        msg = (
            f"{path}: the report cannot be written ({error.strerror}); choose a file in a folder that you may write to."
        )
        raise UsageError(msg) from error
    staging = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        staging.chmod(0o644)
        staging.replace(path)
    finally:
        staging.unlink(missing_ok=True)
    return path


def _resource(name: str) -> str:
    return files("analysis.report").joinpath(name).read_text(encoding="utf-8")


def _template() -> Template:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_resource("report.html.jinja"))


def _version() -> str:
    try:
        return version("gpu-hindcast")
    except PackageNotFoundError:
        return "not installed"


def _facts(trace: Trace) -> list[tuple[str, str]]:
    meta = trace.meta
    zone = meta.time_zone + {"assumed": " (assumed)", "given": " (as given)", "declared": "", "none": ""}.get(
        meta.time_zone_certainty, ""
    )
    covered = " to ".join(text[:16].replace("T", " ") for text in meta.window if text)
    facts = [
        ("Source", meta.source),
        ("Licence", meta.licence),
        ("Please cite", meta.citation),
        ("Covers", covered if meta.clock == "absolute" else ""),
        ("Time zone of hours and weekdays", zone if meta.clock != "relative" else ""),
        ("Clock", CLOCKS[meta.clock]),
        ("Coverage", meta.coverage or ""),
    ]
    return [(name, text) for name, text in facts if text]


def _notes(trace: Trace, notes: Iterable[str]) -> list[str]:
    assumed = "A job still running when the log ends counts with the time that it had run, a lower bound."
    known = [*trace.meta.load_report.notes, *notes, assumed]
    if trace.meta.coverage is None:
        known.append("The source does not say which part of the cluster's jobs the log holds.")
    return list(dict.fromkeys(known))
