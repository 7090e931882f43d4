"""``hindcast what-if``: the same jobs on other hardware."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from analysis.cli.app import JsonOption, app, say, show_table, staged, write_json
from analysis.cli.replay_commands import ClusterOption, NoVcOption, choose_cluster
from analysis.cli.replay_output import in_hours

__all__ = ["what_if"]

#: What of the table fits a terminal.
SHOWN: Final = (
    *("change", "num_gpus", "num_finished", "mean_queueing_delay_s", "p95_queueing_delay_s", "gpu_allocation"),
    *("num_deadlines_missed", "saved_queueing_delay_s", "saved_low_s", "saved_high_s"),
)


@app.command("what-if")
def what_if(
    trace_folder: Annotated[Path, typer.Argument(metavar="TRACE", help="Trace folder.")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Table, as CSV.")],
    *,
    change: Annotated[
        list[str],
        typer.Option(
            metavar="CHANGE",
            help="+NODESxGPUS[:TYPE], -NODESxGPUS[:TYPE] or merge-vcs, commas between; may be repeated.",
        ),
    ],
    policy: Annotated[str, typer.Option(help="The policy ('hindcast policies').")] = "fifo",
    cluster: ClusterOption = None,
    no_vc: NoVcOption = False,
    seed: Annotated[int, typer.Option(help="Of the intervals.")] = 0,
    json_to: JsonOption = None,
) -> None:
    """Replay a Trace on its cluster and with changes, and compare waits, completion times and use.

    Example: hindcast what-if philly --change +2x8 --change -2x8 --change merge-vcs -o what_if.csv
    """
    from analysis.replay import what_if as compare
    from analysis.report.download import csv_text
    from analysis.trace import Trace

    trace = Trace.read(trace_folder)
    site = choose_cluster(trace, cluster)
    table = compare(trace.jobs, cluster=site, changes=change, policy=policy, seed=seed, use_vcs=not no_vc)
    with staged(output) as staging:
        staging.write_text(csv_text(table), encoding="utf-8")
    show_table([in_hours(row, SHOWN) for row in table.to_dicts()], json_to=json_to)
    for note in site.notes:
        say(f"note: {note}", json_to=json_to)
    write_json(table.to_dicts(), json_to)
    say(f"Table written to {output}", json_to=json_to)
