"""The command that lists policies and placements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from analysis.cli.app import JsonOption, app, say, show_table, write_json
from analysis.cli.policy_options import form_of, option_types, text_of

if TYPE_CHECKING:
    from analysis.replay import Policy

__all__ = ["policies"]

#: Columns that every replay reads.
BASIC: Final = ("submit_time", "num_gpus", "predicted_duration_s")


@app.command()
def policies(*, json_to: JsonOption = None) -> None:
    """List the scheduling policies with their options, and the placements.

    Example: hindcast policies
    """
    from analysis.replay import PLACEMENTS, POLICIES
    from analysis.replay.helios import HELIOS

    rows = [_row(one) for one in POLICIES.values()]
    places = [{"placement": one.name, "meaning": one.meaning} for one in PLACEMENTS.values()]
    if json_to is None or str(json_to) != "-":
        show_table([_shown(row) for row in rows], json_to=json_to)
        say(json_to=json_to)
        options = [_shown_option(row["policy"], one) for row in rows for one in row["options"]]
        show_table(options, json_to=json_to)
        say(json_to=json_to)
        show_table(places, json_to=json_to)
        say(json_to=json_to)
        say(
            "When the first in line does not fit: strict = all wait, skip = whoever fits starts, fastest = the best "
            "pair of job and GPU type, easy, conservative = backfill. And: 'recorded' (the log's own schedule) and "
            f"{', '.join(HELIOS)} (the rules of HeliosArtifact).",
            json_to=json_to,
        )
        say("Options: hindcast replay --policy las --option las.thresholds_gpu_s=3600,14400", json_to=json_to)
    write_json({"policies": rows, "placements": places}, json_to)


def _row(one: Policy) -> dict[str, Any]:
    from inspect import signature

    defaults = {name: parameter.default for name, parameter in signature(one.key).parameters.items()}
    options = [
        {"name": name, "default": defaults[name], "form": form_of(annotation)}
        for name, annotation in option_types(one).items()
    ]
    return {
        "policy": one.name,
        "trait": one.trait,
        "preempts": one.preempts,
        "uses_predictions": one.uses_predictions,
        "needs": sorted(one.needs - one.optional.keys()),
        "reads_if_there": sorted(one.optional),
        "meaning": one.meaning,
        "options": options,
    }


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    marks = {True: "yes", False: "no"}
    needs = [name for name in [*row["needs"], *row["reads_if_there"]] if name not in BASIC]
    return {
        "policy": row["policy"],
        "trait": row["trait"],
        "preempts": marks[row["preempts"]],
        "predictions": "used" if row["uses_predictions"] else "-",
        "reads": ", ".join(needs) or None,
        "meaning": row["meaning"],
    }


def _shown_option(policy: str, option: dict[str, Any]) -> dict[str, Any]:
    return {
        "option": f"{policy}.{option['name']}",
        "default": text_of(option["default"]),
        "written as": option["form"],
    }
