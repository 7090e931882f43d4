"""Commands for getting and giving logs: traces, fetch, anonymize."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from analysis.cli.app import JsonOption, app, progress, say, show_table, split_names, write_json
from analysis.errors import HindcastError, UsageError

if TYPE_CHECKING:
    from analysis.fetch.catalog import PublicTrace
    from analysis.fetch.fetching import FetchPlan

__all__ = ["anonymize", "fetch", "traces"]

DataOption = Annotated[Path | None, typer.Option("--data", metavar="DIR", help="Folder to look in first.")]


@app.command()
def traces(*, data: DataOption = None, json_to: JsonOption = None) -> None:
    """List the public traces: what they are, their terms, and whether they are on this machine.

    Example: hindcast traces
    """
    from analysis.fetch import catalog
    from analysis.fetch.places import present

    rows, shown = [], []
    for trace in catalog.traces().values():
        places = present(trace, data=data)
        row = _row(trace, places)
        rows.append(row)
        columns = ("name", "period", "num_jobs", "num_gpus", "licence")
        shown.append({key: row[key] for key in columns} | {"size": _size(trace), "here": row["here"]})
    if json_to is None or str(json_to) != "-":
        show_table(shown, json_to=json_to)
        say("Get one: hindcast fetch NAME. Sizes leave optional files out; '-' is not known.")
    write_json(rows, json_to)


def _row(trace: PublicTrace, places: dict[str, Path | None]) -> dict[str, Any]:
    from dataclasses import asdict

    wanted = [file.name for file in trace.files if not file.optional]
    num_here = sum(places[name] is not None for name in wanted)
    here = "yes" if num_here == len(wanted) else f"{num_here} of {len(wanted)} files" if num_here else "no"
    found = {name: None if path is None else str(path) for name, path in places.items()}
    return asdict(trace) | {"num_bytes": trace.num_bytes, "here": here, "places": found}


def _size(trace: PublicTrace) -> str | None:
    if all(file.url is None for file in trace.files):
        return "by hand"
    return None if trace.num_bytes is None else _human(trace.num_bytes)


def _human(num_bytes: float) -> str:
    for unit in ("B", "kB", "MB"):
        if num_bytes < 1000:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} GB"


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="A public trace; 'hindcast traces' lists them.")],
    *,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="DIR", help="Data folder; the files go to DIR/NAME. Default: as 'traces' looks."),
    ] = None,
    file: Annotated[list[str] | None, typer.Option("--file", help="Only this file of it; may be repeated.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="The optional files too.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="The terms are agreed to; do not ask.")] = False,
    json_to: JsonOption = None,
) -> None:
    """Download a public trace: resumed, verified, unpacked. Shows its licence first, and asks.

    Example: hindcast fetch philly --to data/raw
    """
    from analysis.fetch import catalog, fetching
    from analysis.fetch.places import default_target

    trace = catalog.get_trace(name)
    target = to if to is not None else default_target()
    plan = fetching.plan_fetch(trace, to=target, names=file or (), with_optional=everything, search=to is None)
    if plan.missing:
        _agree(plan, yes=yes, json_to=json_to)
    with _download_bar() as told:
        places = fetching.fetch(plan, progress=told)
    for file_name, place in places.items():
        say(f"{file_name}: {'was here' if file_name in plan.here else 'fetched'}, {place}", json_to=json_to)
    if trace.loader is not None:
        paths = " ".join(str(path) for path in dict.fromkeys(places.values()))
        say(f"Load it: hindcast load {trace.loader} {paths} -o {trace.name}", json_to=json_to)
    found = {file_name: str(place) for file_name, place in places.items()}
    terms = {key: getattr(trace, key) for key in ("name", "licence", "citation", "page", "loader")}
    write_json(terms | {"files": found}, json_to)


def _agree(plan: FetchPlan, *, yes: bool, json_to: Path | None) -> None:
    """Show the terms before the first download, and ask; a script has to say --yes.

    Raises
    ------
    UsageError
        If there is nobody to ask.
    HindcastError
        If the answer is no.
    """
    if not plan.is_first:
        return
    trace, size = plan.trace, plan.num_bytes
    say(f"{trace.name}: {trace.title}", json_to=json_to)
    say(f"licence: {trace.licence}", json_to=json_to)
    say(f"cite: {trace.citation}", json_to=json_to)
    say(f"page: {trace.page}", json_to=json_to)
    if trace.note:
        say(f"note: {trace.note}", json_to=json_to)
    files = f"{len(plan.missing)} file{'s' if len(plan.missing) != 1 else ''}"
    say(f"{files}, {'size unknown' if size is None else _human(size)}, to {plan.folder}", json_to=json_to)
    if yes:
        return
    if not sys.stdin.isatty():
        msg = f"fetch {trace.name}: nobody to ask whether its terms are agreed to; say so with --yes."
        raise UsageError(msg)
    say("Fetch it under these terms? [y/N] ", json_to=json_to)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        msg = f"fetch {trace.name}: not agreed to, nothing was downloaded."
        raise HindcastError(msg)


@contextmanager
def _download_bar() -> Iterator[Callable[[str, int, int | None], None]]:
    """Show bytes and speed on standard error; nothing when that is not a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        tasks: dict[str, Any] = {}

        def told(name: str, done: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bar.add_task(name, total=total)
            bar.update(tasks[name], completed=done, total=total)

        yield told


@app.command()
def anonymize(
    trace_folder: Annotated[Path, typer.Argument(metavar="TRACE", help="Trace folder.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="TRACE", help="Trace folder to write.")],
    *,
    key_file: Annotated[
        Path | None,
        typer.Option(help="The key (16 bytes or more); without it one is made and put beside the output."),
    ] = None,
    keep: Annotated[str, typer.Option(help="Columns to leave readable, e.g. vc,workload.")] = "",
    shift_time: Annotated[
        str | None,
        typer.Option(metavar="DAYS|random", help="Move all times by whole weeks; 'random' comes of the key."),
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the new trace.")] = "anonymous",
    json_to: JsonOption = None,
) -> None:
    """Write the same trace without names: keyed hashes for users, jobs, VCs, nodes; free text is dropped.

    Example: hindcast anonymize mine -o shared --keep vc --shift-time random
    """
    from dataclasses import asdict

    from analysis import anonymize as work
    from analysis.pseudonyms import obtain_key
    from analysis.trace import Trace

    if output.resolve() == trace_folder.resolve():
        msg = f"anonymize: {output} is the trace itself; choose another place for the anonymous one."
        raise UsageError(msg)
    kept = split_names(keep, option="--keep") if keep else []
    work.check_kept(kept)
    trace = Trace.read(trace_folder)
    key = obtain_key(key_file, output=output)
    try:
        shift_days = work.shift_of(shift_time, key=key.secret)
        with progress("hashing"):
            result = work.anonymize(trace, key=key.secret, keep=kept, shift_days=shift_days, name=name)
            result.write(output)
    except BaseException:
        key.forget()
        raise
    for note in result.meta.load_report.notes:
        say(f"note: {note}", json_to=json_to)
    say(f"Trace written to {output}", json_to=json_to)
    made = "was made and written to" if key.is_new else "came from"
    say(f"The key {made} {key.path}. Who has it can test guesses: keep it, do not share it.", json_to=json_to)
    meta = {item: value for item, value in asdict(result.meta).items() if item != "load_report"}
    write_json({"meta": meta, "key_file": str(key.path), "num_jobs": result.jobs.height}, json_to)
