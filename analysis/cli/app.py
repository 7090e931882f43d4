"""The application object, and what every command shares: output, progress, errors, JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from typer.core import TyperGroup

from analysis.errors import UsageError

__all__ = [
    "JsonOption",
    "Step",
    "app",
    "progress",
    "refuse_inside",
    "say",
    "say_error",
    "show_table",
    "split_names",
    "staged",
    "write_json",
]

#: The commands as the road goes; help lists them so.
ROAD = (
    *("demo", "traces", "fetch", "load", "check", "anonymize", "synth"),
    *("characterize", "backtest", "train", "predict", "demand", "policies", "replay", "what-if", "report"),
)


class _InRoadOrder(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - the base class's signature
        return sorted(self.commands, key=lambda name: (ROAD.index(name) if name in ROAD else len(ROAD), name))


app = typer.Typer(
    name="hindcast",
    cls=_InRoadOrder,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

JsonOption = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Also write the result as JSON; '-' is standard output."),
]


def _say_version(value: bool) -> None:  # noqa: FBT001 - typer calls it with the flag's value
    if value:
        typer.echo(f"hindcast {version('gpu-hindcast')}")
        raise typer.Exit


@app.callback()
def root(
    *,
    show_version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Say the version and stop.")
    ] = False,
) -> None:
    """Load, characterize, predict and replay the job log of a GPU cluster.

    A first look: 'hindcast demo'. Errors are one sentence; --debug anywhere shows the traceback.
    """


def say(text: str = "", *, json_to: Path | None = None) -> None:
    """Print a line for people: to standard output, or to standard error when that is taken by the JSON."""
    typer.echo(text, err=json_to is not None and str(json_to) == "-")


def say_error(text: str) -> None:
    """Print an error sentence to standard error."""
    typer.echo(f"hindcast: {text}", err=True)


def show_table(
    rows: Iterable[Mapping[str, Any]], *, title: str | None = None, json_to: Path | None = None, missing: str = "-"
) -> None:
    """Print rows as a plain table: numbers to the right, null as a dash, wide tables cut to no column."""
    rows = list(rows)
    if not rows:
        return
    is_tty = sys.stdout.isatty()
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold" if is_tty else "")
    for name in rows[0]:
        numeric = all(isinstance(row[name], int | float | None) for row in rows)
        table.add_column(name, justify="right" if numeric else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(missing if value is None else _as_text(value) for value in row.values()))
    to_stderr = json_to is not None and str(json_to) == "-"
    Console(stderr=to_stderr, width=None if is_tty else 240, highlight=False, markup=False).print(table)


def _as_text(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"


class Step(Protocol):
    """What moves a bar."""

    def __call__(self, description: str) -> None:
        """A step is done; say what it was."""

    def describe(self, description: str) -> None:
        """Say what goes on inside a step."""


@contextmanager
def progress(what: str, *, total: int | None = None) -> Iterator[Step]:
    """Show a bar on standard error while work goes on; nothing when that is not a terminal.

    Yields
    ------
    Step
        To be called after each step with what comes next.
    """
    columns = [
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    ]
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)

        yield _BarStep(bar, task)


class _BarStep:
    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar, self._task = bar, task

    def __call__(self, description: str) -> None:
        self._bar.update(self._task, advance=1, description=description)

    def describe(self, description: str) -> None:
        self._bar.update(self._task, description=description)


def write_json(value: object, target: Path | None) -> None:
    """Write a result as JSON to a file, or to standard output for '-'; do nothing without a target."""
    if target is None:
        return
    text = json.dumps(value, indent=1, sort_keys=True, default=str, allow_nan=False) + "\n"
    if str(target) == "-":
        typer.echo(text, nl=False)
        return
    with staged(target) as staging:
        staging.write_text(text, encoding="utf-8")


@contextmanager
def staged(target: Path) -> Iterator[Path]:
    """Give a hidden place beside a file to write to; it becomes the file at the end, or goes if anything failed.

    Raises
    ------
    UsageError
        If the file cannot be written there.
    """
    staging = target.with_name(f".{target.name}.tmp")
    try:
        if target.is_dir():
            raise IsADirectoryError(0, "it is a folder")
        yield staging
        staging.replace(target)
    except OSError as error:
        why = error.strerror or str(error)
        msg = f"{target}: cannot be written ({why}); choose a file in a folder that exists and that you may write to."
        raise UsageError(msg) from error
    finally:
        with suppress(OSError):
            staging.unlink(missing_ok=True)


def refuse_inside(output: Path, *, given: Iterable[Path]) -> None:
    """Refuse to write a file over what was given to be read, or into a folder of it.

    Raises
    ------
    UsageError
        If the output is one of the inputs or lies in one.
    """
    place = output.resolve()
    for source in given:
        if place == source.resolve() or source.resolve() in place.parents:
            msg = f"{output}: would be written over {source}, which is read; choose another place."
            raise UsageError(msg)


def split_names(text: str, *, option: str) -> list[str]:
    """Split 'a,b,c' into names, each once.

    Raises
    ------
    UsageError
        If there is no name in it.
    """
    names = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        msg = f"{option}: found no name in {text!r}; expected names with commas between, e.g. fifo,sjf."
        raise UsageError(msg)
    return names
