"""Command for what a cluster will need: demand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import polars as pl
import typer

from analysis.cli.app import JsonOption, app, progress, refuse_inside, say, show_table, split_names, staged, write_json
from analysis.errors import BadFileError, UsageError

if TYPE_CHECKING:
    from analysis.trace import Trace

__all__ = ["demand"]

#: Columns of a backtest that a terminal has room for.
SHOWN = ("horizon_h", "num_hours", "mae", "baseline", "difference", "difference_low", "difference_high", "verdict")


@app.command()
def demand(
    source: Annotated[Path, typer.Argument(metavar="TRACE|CSV", help="Trace folder, or a CSV of times and values.")],
    *,
    time: Annotated[str, typer.Option(help="Column of times, of a CSV.")] = "time",
    value: Annotated[str, typer.Option(help="Column of what was busy, of a CSV.")] = "value",
    horizons: Annotated[str, typer.Option(help="Hours ahead, commas between.")] = "1,6,24,168",
    backtest: Annotated[
        bool, typer.Option("--backtest", help="Score forecasts of the last 40 % of the hours instead.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="CSV of the forecasts to write.")
    ] = None,
    json_to: JsonOption = None,
) -> None:
    """Forecast how many GPUs (or what a CSV counts) will be busy, hours to weeks ahead, with p10 and p90.

    Example: hindcast demand philly --horizons 1,24 -o forecast.csv
    """
    from predictors.targets import DemandForecaster, backtest_demand

    ahead = _hours(horizons)
    if output is not None:
        refuse_inside(output, given=(source,))
    with progress("forecasting"):
        series = _read(source, time=time, value=value)
        if backtest:
            found = backtest_demand(series, horizons_h=ahead)
            table, result = found.forecasts, found.scores
        else:
            table = result = DemandForecaster(horizons_h=ahead).fit(series).predict()
    if output is not None:
        with staged(output) as staging:
            table.write_csv(staging)
    show_table(result.select(SHOWN).to_dicts() if backtest else result.to_dicts(), json_to=json_to)
    told = result.with_columns(pl.col(pl.Datetime).dt.to_string("iso:strict"))
    write_json(told.to_dicts(), json_to)
    if output is not None:
        say(f"{table.height:,} forecasts written to {output}", json_to=json_to)


def _hours(text: str) -> list[int]:
    words = split_names(text, option="--horizons")
    wrong = [word for word in words if not word.isdecimal()]
    if wrong:
        msg = f"--horizons {text!r}: {', '.join(map(repr, wrong))} is no whole number; expected hours such as 1,6,24."
        raise UsageError(msg)
    return [int(word) for word in words]


def _read(source: Path, *, time: str, value: str) -> pl.DataFrame:
    """Hourly demand of a Trace folder or of a CSV."""
    from predictors.targets import demand_series

    if source.is_dir() or not source.exists():
        return demand_series(_trace(source))
    try:
        table = pl.read_csv(source, infer_schema_length=None)
    except (pl.exceptions.PolarsError, UnicodeDecodeError) as error:
        raise BadFileError(
            source,
            kind="unreadable",
            found=f"no CSV ({str(error).splitlines()[0][:80]})",
            expected="a Trace folder, or a CSV with a column of times and one of values",
            fix="Check the file.",
        ) from error
    return demand_series(table, time=time, value=value)


def _trace(folder: Path) -> Trace:
    from analysis.trace import Trace

    return Trace.read(folder)
