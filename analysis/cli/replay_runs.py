"""What ``hindcast replay`` runs: every policy with every predictor and placement that it can have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.cli.policy_options import text_of

if TYPE_CHECKING:
    import polars as pl

    from analysis.replay import Policy, ReplayResult

__all__ = ["OneRun", "planned"]


@dataclass(frozen=True)
class OneRun:
    """One replay to be made.

    Attributes
    ----------
    label : str
        Name of its schedule.
    name : str
        Of the policy as the user wrote it.
    policy : Policy or None
        With its options; None: "recorded", or one of HeliosArtifact.
    predicted : str or None
        Column of predictions; None: the true durations.
    placement : str
        Where a policy has a choice.
    """

    label: str
    name: str
    policy: Policy | None
    predicted: str | None
    placement: str

    @property
    def options(self) -> str | None:
        """The options that were given, as the user wrote them; null if none."""
        given = {} if self.policy is None else self.policy.options
        return " ".join(f"{name}={text_of(value)}" for name, value in given.items()) or None

    def run(
        self,
        jobs: pl.DataFrame,
        *,
        attempts: pl.DataFrame,
        how: Mapping[str, Any],
        limits: Mapping[str, Any],
    ) -> ReplayResult:
        """Replay; ``how`` holds cluster and use_vcs, ``limits`` what our own engine takes beside or instead."""
        from analysis.replay import helios_artifact, recorded, replay
        from analysis.replay.helios import HELIOS

        if self.policy is not None:
            told = {**how, **limits}
            return replay(jobs, policy=self.policy, predicted=self.predicted, placement=self.placement, **told)
        if self.name in HELIOS:
            return helios_artifact(jobs, policy=HELIOS[self.name], predicted=self.predicted, **how)
        return recorded(jobs, cluster=how["cluster"], attempts=attempts)


def planned(
    names: Sequence[str],
    policies: Mapping[str, Policy],
    *,
    columns: Mapping[str, str | None],
    placements: Sequence[str],
) -> list[OneRun]:
    """List the replays, the log's own schedule first.

    Parameters
    ----------
    names : sequence of str
        Policies as asked for.
    policies : mapping of str to Policy
        Those of the registry, with options.
    columns : mapping of str to str or None
        Column of predictions by the predictor's name.
    placements : sequence of str
        Names.

    Returns
    -------
    list of OneRun
        With labels ``<policy>``, or ``<policy>__<predictor>__<placement>`` where several are asked for.
    """
    from analysis.replay.helios import HELIOS
    from analysis.replay.recorded import RECORDED

    found = [OneRun(RECORDED, RECORDED, None, None, RECORDED)] if RECORDED in names else []
    is_one = len(columns) * len(placements) == 1
    for name in names:
        if name in HELIOS:
            # Without predictions: one replay, whatever predictors and placements the others have.
            takes = columns if HELIOS[name] in {"sjf", "qssf"} else {"oracle": None}
            of_name = [(predictor, column, "helios") for predictor, column in takes.items()]
        elif name in policies:
            of_name = [(*item, place) for item in columns.items() for place in placements]
        else:
            continue
        for predictor, column, place in of_name:
            label = name if is_one else f"{name}__{predictor}__{place}"
            found.append(OneRun(label, name, policies.get(name), column, place))
    return found
