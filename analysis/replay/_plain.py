"""The engine without numba: the same source, run by Python itself, for a first small replay that need not wait.

Compiling takes ten seconds and more, once per machine and version; Python replays some thousands of jobs a second, so
that a small log is done long before. Both give the same schedules.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from types import ModuleType, SimpleNamespace
from typing import Any, Final, TypeVar

import numpy as np
import polars as pl

from analysis.errors import UnknownNameError
from analysis.replay.policies.registry import Policy
from analysis.replay.policies.rules import MovingKey

__all__ = ["plain_module", "way_to_run"]

#: Jobs up to which Python is quicker than compiling first.
FEW_JOBS: Final = 2_000
#: Environment variable that decides instead, and what it may say.
SWITCH: Final = "HINDCAST_ENGINE"
WAYS: Final = ("auto", "compiled", "plain")

F = TypeVar("F", bound=Callable[..., Any])
_PREFIX: Final = "analysis.replay._"
_COPIES: Final[dict[str, ModuleType]] = {}
#: Nobody sees a copy that another thread is making.
_MAKING: Final = threading.RLock()


def _as_it_is(function: F) -> F:
    return function


def _trailing_zeros(word: Any) -> int:
    number = int(word)
    return (number & -number).bit_length() - 1


def _decorators() -> ModuleType:
    """Stand-in for ``_compiled``: leaves every function to Python."""
    module = ModuleType(f"{_PREFIX}compiled")
    for name in ("compiled", "melted", "viewed", "entry"):
        setattr(module, name, _as_it_is)
    module.constant = int  # type: ignore[attr-defined]
    module.ZERO = 0  # type: ignore[attr-defined]
    module.ctz = _trailing_zeros  # type: ignore[attr-defined]
    return module


def plain_module(name: str) -> ModuleType:
    """Copy of a module of the engine in which nothing is compiled.

    Its imports of other private modules of the engine give copies, too; all others are the ones that everybody has, so
    that clusters, policies and results are of the same classes.

    Parameters
    ----------
    name : str
        Full name, such as "analysis.replay._loop".
    """
    with _MAKING:
        if name not in _COPIES:
            _make_copy(name)
        return _COPIES[name]


def _make_copy(name: str) -> None:
    if name == f"{_PREFIX}compiled":
        _COPIES[name] = _decorators()
        return
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None or spec.origin is None:
        raise ModuleNotFoundError(name)
    # Not every loader tells its code: pytest's, for one, does not.
    loader: Any = spec.loader if hasattr(spec.loader, "get_code") else SourceFileLoader(name, spec.origin)
    module = ModuleType(f"{name}#plain")
    module.__file__ = spec.origin
    module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _import}
    sys.modules[module.__name__] = module  # dataclasses look themselves up there
    _COPIES[name] = module
    try:
        exec(loader.get_code(name), module.__dict__)
    except BaseException:
        # Ctrl-C, perhaps: half of a module must not be taken for the whole next time.
        del _COPIES[name], sys.modules[module.__name__]
        raise


def _import(name: str, *args: Any, **kwargs: Any) -> Any:
    if name.startswith(_PREFIX):
        return plain_module(name)
    found = builtins.__import__(name, *args, **kwargs)
    wanted = args[2] if len(args) > 2 else kwargs.get("fromlist")
    if name != _PREFIX.removesuffix("._") or not wanted:
        return found
    return SimpleNamespace(
        **{one: plain_module(f"{name}.{one}") if one.startswith("_") else getattr(found, one) for one in wanted}
    )


@contextmanager
def way_to_run(engine: str, policy: Policy, *, num_jobs: int, marks: Mapping[str, bool]) -> Iterator[ModuleType]:
    """The copy of the engine's module that replays soonest.

    Parameters
    ----------
    engine : str
        The module's name.
    policy : Policy
        What is to be replayed.
    num_jobs : int
        How many jobs there are.
    marks : mapping of str to bool
        Names of structures, and whether the loop takes them: machine code for one way is none for another.

    Yields
    ------
    module
        Compiled if the machine code is there or there are many jobs; else run by Python. Environment variable
        ``HINDCAST_ENGINE`` ("compiled" or "plain") overrides that.

    Raises
    ------
    UnknownNameError
        If the variable says something else.
    """
    way = os.environ.get(SWITCH, "auto")
    if way not in WAYS:
        raise UnknownNameError(kind=f"way of {SWITCH}", found=way, known=WAYS)
    can_be_plain = isinstance(policy.rule, pl.Expr | MovingKey)
    if way == "auto":
        way = "compiled" if num_jobs > FEW_JOBS or _has_machine_code(policy, marks) else "plain"
    if way == "compiled" or not can_be_plain:
        yield importlib.import_module(engine)
        return
    # Random placement draws by multiplications that overflow on purpose.
    with np.errstate(over="ignore"):
        yield plain_module(engine)


def _has_machine_code(policy: Policy, marks: Mapping[str, bool]) -> bool:
    """Tell whether the policy's loop has been compiled, in this process or before on this machine."""
    loop = "_preempt" if isinstance(policy.rule, MovingKey) else "_loop"
    if policy.trait == "conservative":
        loop = "_conserve"
    dispatcher = importlib.import_module(f"analysis.replay.{loop}").run
    try:
        kept = [key[0] for key in dispatcher._cache._cache_file._load_index()]
        signatures = [str(one) for one in [*dispatcher.overloads, *kept]]
    except AttributeError:
        # numba has changed inside: compile.
        return True
    return any(all((f"{name}(" in one) == is_there for name, is_there in marks.items()) for one in signatures)
