"""The registry in which predictors are found by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from analysis.errors import UnknownNameError

if TYPE_CHECKING:
    from predictors.base import DurationPredictor

__all__ = ["PREDICTORS", "make_predictor", "predictor"]

PREDICTORS: Final[dict[str, type[DurationPredictor]]] = {}
_Class = TypeVar("_Class", bound="type[DurationPredictor]")


def predictor(name: str) -> Callable[[_Class], _Class]:
    """Register a class of predictors under a name; from then on the contract test walks it.

    Parameters
    ----------
    name : str
        Lower-case letters, digits and underscores: it becomes part of a column name.

    Raises
    ------
    ValueError
        If the name is taken or has other characters.
    """

    def register(cls: _Class) -> _Class:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            msg = f"predictor: the name {name!r} must be lower-case letters, digits and underscores."
            raise ValueError(msg)
        if name in PREDICTORS:
            msg = f"predictor: the name {name!r} is taken by {PREDICTORS[name].__name__}; choose another."
            raise ValueError(msg)
        PREDICTORS[name] = cls
        cls.name = name
        return cls

    return register


def make_predictor(name: str, **params: Any) -> DurationPredictor:
    """Make a predictor by its registered name.

    Parameters
    ----------
    name : str
        One of ``PREDICTORS``.
    **params
        Parameters of that predictor; by default its own defaults.

    Raises
    ------
    UnknownNameError
        If nobody registered the name, or a parameter does not exist.

    Examples
    --------
    >>> import predictors
    >>> make_predictor("global_median").get_params()
    {'failures': 'exclude'}
    """
    if name not in PREDICTORS:
        raise UnknownNameError(
            kind="predictor", found=name, known=PREDICTORS, hint="Register your own with @predictor(name)."
        )
    known = PREDICTORS[name]().get_params()
    for given in params:
        if given not in known:
            raise UnknownNameError(kind=f"parameter of predictor {name!r}", found=given, known=known)
    return PREDICTORS[name](**params)
