"""How the step-wise engine's functions are compiled, and a box in which they are handed the state.

Python hands a tuple of a hundred arrays over array by array, at 0.1 us each, at every call; a box is one thing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from numba import njit
from numba.core import types
from numba.experimental import structref

from analysis.replay._compiled import compiled as _compiled
from analysis.replay._compiled import fingerprint
from analysis.replay._linked import WHOLE

if TYPE_CHECKING:
    from analysis.replay.steps._state import Steps

F = TypeVar("F", bound=Callable[..., Any])
#: numba's parts without their published types, which say too little.
_njit: Any = njit
_types: Any = types
_structref: Any = structref
_Proxy: Any = structref.StructRefProxy


@cache
def _own_fingerprint() -> str:
    """Short hash of the source of what is compiled here, and of what that is made of."""
    digest = hashlib.sha256(fingerprint().encode())
    for path in sorted(Path(__file__).parent.glob("_*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def compiled(function: F) -> F:
    """Compile a function that only compiled code calls, as ``analysis.replay._compiled.compiled`` does."""
    return _keyed(_compiled(function))  # type: ignore[no-any-return]


def entry(function: F) -> F:
    """Compile a function that Python calls: it takes the state out of its box and hands it on."""
    try:
        return _keyed(_njit(cache=True, no_cfunc_wrapper=True, **WHOLE)(function))  # type: ignore[no-any-return]
    except RuntimeError:
        # No folder can be written for the cache: compile anew in each run.
        return _njit(no_cfunc_wrapper=True, **WHOLE)(function)  # type: ignore[no-any-return]


def _keyed(dispatcher: Any) -> Any:
    cache_file: Any = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if hasattr(cache_file, "_version"):
        cache_file._version = f"{cache_file._version} {_own_fingerprint()}"
    return dispatcher


@_structref.register
class BoxType(_types.StructRef):  # type: ignore[misc]
    """Type of a box, for numba."""

    def preprocess_fields(self, fields: Any) -> Any:
        """Forget which number a literal is."""
        return tuple((name, _types.unliteral(kind)) for name, kind in fields)


class Box(_Proxy):  # type: ignore[misc]
    """What holds the state."""

    state: Steps

    def __new__(cls, state: Steps) -> Box:
        """Put a state into a box."""
        return _Proxy.__new__(cls, state)  # type: ignore[no-any-return]


_structref.define_proxy(Box, BoxType, ["state"])


@entry
def make_box(state: Steps) -> Box:
    """Put a state into a box, by a way that is kept between runs, unlike ``Box`` itself."""
    return Box(state)
