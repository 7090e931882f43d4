"""How the replay's functions are compiled and kept between runs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic

from analysis.replay._linked import PART, WHOLE

F = TypeVar("F", bound=Callable[..., Any])
#: numba's decorator without its published types, which know no option of the compiler's internals.
_njit: Any = njit


@cache
def fingerprint() -> str:
    """Short hash of the source of everything that is compiled here."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("_*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def constant(value: int) -> int:
    """Integer that compiled code sees as a plain 64-bit one.

    numba takes a Python integer for a type of its own (a literal) and would compile a second version of every function
    that is called with it.
    """
    return np.int64(value)  # type: ignore[return-value]


#: Where counting begins.
ZERO: Final = constant(0)


def compiled(function: F) -> F:
    """Compile a function that only compiled code calls; its machine code is made in the entries that need it.

    Without reference counting: these functions make no arrays, and counting references of the many arrays that go
    through their arguments costs ten times their work. Nothing of it is kept: the entries are.
    """
    return _njit(_nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True, **PART)(function)  # type: ignore[no-any-return]


#: Another name of the same. These were copied into their callers by numba once, which LLVM does in much less time.
melted = compiled


def viewed(function: F) -> F:
    """Compile a function that returns part of an array: numba copies it into its callers.

    Returned by a real function it would have to be counted.
    """
    return _njit(inline="always", _nrt=False)(function)  # type: ignore[no-any-return]


def entry(function: F) -> F:
    """Compile a function that Python calls."""
    return _compile(function, no_cfunc_wrapper=True, **WHOLE)


def _compile(function: F, **options: Any) -> F:
    """Compile on the first call and keep the machine code for later runs.

    numba keys its cache by the file of the function alone, yet code from other files is linked in: the fingerprint
    makes it notice a change in any of them.
    """
    try:
        dispatcher = _njit(cache=True, _nrt=False, **options)(function)
    except RuntimeError:
        # No folder can be written for the cache: compile anew in each run.
        return _njit(_nrt=False, **options)(function)  # type: ignore[no-any-return]
    cache_file: Any = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if not hasattr(cache_file, "_version"):
        return _njit(_nrt=False, **options)(function)  # type: ignore[no-any-return]
    cache_file._version = f"{cache_file._version} {fingerprint()}"
    return dispatcher  # type: ignore[no-any-return]


def _ctz(typingctx: Any, word: Any) -> Any:  # noqa: ARG001 - numba's signature
    """Count the trailing zero bits of a 64-bit word."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ARG001 - numba's signature
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), codegen


ctz: Any = intrinsic(_ctz)
