"""The registry of policies, and what a policy says of itself.

The order is a key, lowest first, ties by (submit_time, job_id). The trait says what happens when the first job of that
order does not fit:

* ``strict``: nobody behind it starts (head-of-line blocking), in its VC;
* ``skip``: go down the order and start what fits;
* ``fastest``: the key counts per GPU type, and of the (job, type) pairs that fit now the lowest starts; ties by the
  earliest predicted finish, then (submit_time, job_id), then the type whose lowest node comes first;
* ``easy``: EASY backfill, see ``analysis.replay.engine.replay``;
* ``conservative``: everybody has a reservation, in order of submission; see ``policies.backfill``.

A policy whose function returns a ``MovingKey`` instead of an expression *preempts*: see ``policies.moving``. One that
returns a ``PythonKey``, a ``PythonScheduler`` or a ``NumbaKey`` is a Python function of your own: see ``policies.own``.

A policy of your own is one function, and its arguments are options:

>>> import polars as pl
>>> from analysis.replay.policies import POLICIES, policy
>>> @policy(trait="skip")
... def widest_first(*, least_gpus: float = 0) -> pl.Expr:
...     '''Most GPUs first; narrow jobs count alike.'''
...     return -pl.col("num_gpus").clip(lower_bound=least_gpus)
>>> POLICIES["widest_first"].trait
'skip'
>>> POLICIES["widest_first"].using(least_gpus=8).options
{'least_gpus': 8}
>>> del POLICIES["widest_first"]
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal

import polars as pl

from analysis.errors import UnknownNameError, UsageError
from analysis.replay.policies.own import NumbaKey, PythonKey, PythonScheduler
from analysis.replay.policies.rules import MovingKey

__all__ = ["POLICIES", "Policy", "policy"]

Trait = Literal["strict", "skip", "fastest", "easy", "conservative"]
RULES: Final = (pl.Expr, MovingKey, PythonKey, PythonScheduler)
Rule = pl.Expr | MovingKey | PythonKey | PythonScheduler
Key = Callable[..., Rule | NumbaKey]


@dataclass(frozen=True)
class Policy:
    """A registered policy.

    Attributes
    ----------
    name : str
        Its name in ``POLICIES`` and on the command line.
    key : callable returning Expr, MovingKey, NumbaKey, PythonKey or PythonScheduler
        Sort key over the jobs table; ``predicted_duration_s`` is there too: the predicted duration where the replay was
        given one, else the true one, in whole microseconds [s]; under ``fastest`` it is the one on each type in turn.
    trait : {"strict", "skip", "fastest", "easy", "conservative"}
        What happens when the first job of the order does not fit.
    meaning : str
        One line for people.
    optional : mapping of str to DataType
        Columns that the key reads and that are null where the jobs table has none.
    options : mapping of str to anything
        Arguments of ``key``; see ``using``.
    """

    name: str
    key: Key
    trait: Trait
    meaning: str
    optional: Mapping[str, pl.DataType] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def rule(self) -> Rule:
        """The key with the options."""
        rule: Any = self.key(**self.options)
        if isinstance(rule, NumbaKey):
            return rule.expr()
        if not isinstance(rule, RULES):
            known = ", ".join([*(kind.__name__ for kind in RULES), NumbaKey.__name__])
            msg = f"policy {self.name!r}: its function gave a {type(rule).__name__}; expected one of {known}."
            raise UsageError(msg)
        return rule

    @property
    def preempts(self) -> bool:
        """Whether running jobs may be stopped."""
        rule = self.rule
        return isinstance(rule, MovingKey) or (not isinstance(rule, pl.Expr) and rule.preempts)

    @property
    def leaves_vc(self) -> bool:
        """Whether jobs may run on nodes of other VCs than their own."""
        return getattr(self.rule, "leaves_vc", False)

    @property
    def needs(self) -> frozenset[str]:
        """Columns that the key reads."""
        rule = self.rule
        return frozenset(rule.meta.root_names()) if isinstance(rule, pl.Expr) else rule.needs

    @property
    def uses_predictions(self) -> bool:
        """Whether a predicted duration can change what this policy does."""
        return self.trait in {"easy", "conservative", "fastest"} or "predicted_duration_s" in self.needs

    def using(self, **options: Any) -> Policy:
        """Return the same policy with other options.

        Parameters
        ----------
        **options
            Keyword arguments of the policy's function.

        Returns
        -------
        Policy
            To be given to ``replay`` in place of a name.

        Raises
        ------
        UnknownNameError
            If the policy has no such option; the message lists those it has.

        Examples
        --------
        >>> POLICIES["multifactor"].using(seconds_per_gpu=30.0).options
        {'seconds_per_gpu': 30.0}
        """
        known = list(inspect.signature(self.key).parameters)
        for name in options:
            if name not in known:
                raise UnknownNameError(kind=f"option of policy {self.name!r}", found=name, known=known)
        changed = replace(self, options={**self.options, **options})
        _ = changed.rule  # a value that makes no sense is refused here, not in the replay
        return changed


#: Every policy by name; the contract test walks this.
POLICIES: Final[dict[str, Policy]] = {}


def policy(*, trait: Trait, optional: Mapping[str, pl.DataType] | None = None) -> Callable[[Key], Key]:
    """Register a function that returns a sort key; its name becomes the policy's name.

    Parameters
    ----------
    trait : {"strict", "skip", "fastest", "easy", "conservative"}
        What happens when the first job of the order does not fit.
    optional : mapping of str to DataType, optional
        Columns that the key reads and that are null where the jobs table has none.

    Returns
    -------
    decorator
        Leaves the function as it is.
    """

    def register(key: Key) -> Key:
        meaning = (key.__doc__ or "").strip().splitlines()
        POLICIES[key.__name__] = Policy(key.__name__, key, trait, meaning[0] if meaning else "", optional or {})
        return key

    return register
