"""What ``hindcast replay`` runs: every policy with every predictor and placement that it can have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from analysis.cli.policy_options import text_of
from analysis.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

    from analysis.replay import Policy, ReplayResult, RollingPrediction

__all__ = ["OneRun", "Predicted", "planned"]

#: What a replay takes for predictions: a column, a rule in closed loop, or the true durations.
Predicted: TypeAlias = "str | RollingPrediction | None"


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
    predicted : str, RollingPrediction or None
        Column of predictions; in closed loop; None: the true durations.
    placement : str
        Where a policy has a choice.
    """

    label: str
    name: str
    policy: Policy | None
    predicted: Predicted
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
            return helios_artifact(jobs, policy=HELIOS[self.name], predicted=cast("str | None", self.predicted), **how)
        return recorded(jobs, cluster=how["cluster"], attempts=attempts)


def planned(
    names: Sequence[str],
    policies: Mapping[str, Policy],
    *,
    columns: Mapping[str, Predicted],
    placements: Sequence[str],
) -> list[OneRun]:
    """List the replays, the log's own schedule first.

    Parameters
    ----------
    names : sequence of str
        Policies as asked for.
    policies : mapping of str to Policy
        Those of the registry, with options.
    columns : mapping of str to str, RollingPrediction or None
        Column of predictions, or what stands in its place, by the predictor's name.
    placements : sequence of str
        Names.

    Returns
    -------
    list of OneRun
        With labels ``<policy>``, or ``<policy>__<predictor>__<placement>`` where several are asked for.

    Raises
    ------
    UsageError
        If one of HeliosArtifact's policies would have no predictions but those in closed loop, which it cannot have.
    """
    from analysis.replay.helios import HELIOS
    from analysis.replay.recorded import RECORDED

    nothing: dict[str, Predicted] = {"oracle": None}
    found = [OneRun(RECORDED, RECORDED, None, None, RECORDED)] if RECORDED in names else []
    is_one = len(columns) * len(placements) == 1
    for name in names:
        if name in HELIOS:
            # Without predictions: one replay, whatever predictors and placements the others have.
            takes = _beforehand(name, columns) if HELIOS[name] in {"sjf", "qssf"} else nothing
            of_name: list[tuple[str, Predicted, str]] = [
                (predictor, column, "helios") for predictor, column in takes.items()
            ]
        elif name in policies:
            of_name = [(*item, place) for item in columns.items() for place in placements]
        else:
            continue
        for predictor, column, place in of_name:
            label = name if is_one else f"{name}__{predictor}__{place}"
            found.append(OneRun(label, name, policies.get(name), column, place))
    return found


def _beforehand(name: str, columns: Mapping[str, Predicted]) -> dict[str, Predicted]:
    """Predictions that stand before the replay begins."""
    found: dict[str, Predicted] = {
        predictor: column for predictor, column in columns.items() if column is None or isinstance(column, str)
    }
    if not found:
        msg = (
            f"--policy {name}: HeliosArtifact's rules take no predictions in closed loop; found --predictor "
            f"{','.join(columns)}. Add oracle or a model folder to it, or take the policy without helios."
        )
        raise UsageError(msg)
    return found
