"""How the machine code of an entry is made: of all functions that it needs at once, which nobody else can call.

numba makes machine code of every function for itself and again in each of its callers, and calls it with its whole list
of arguments: an array is seven words, and a ``State`` holds dozens of arrays. Here a function that only compiled code
calls stays code of LLVM until an entry is compiled. There all are linked once and made private, so that LLVM may copy
them into their callers and drop the arguments that they do not use: half the time to compile, and half to run.

This reaches into numba's code libraries. Where they are not as expected everything is compiled as numba does it.
"""

from __future__ import annotations

from typing import Any, Final

import numba.core.codegen
import numba.core.compiler

_Library: Any = numba.core.codegen.JITCodeLibrary
_Compiler: Any = numba.core.compiler.Compiler


class _NoEnvironment:
    """In place of the code generator, where numba wants to fill in the environment of a function without address."""

    def set_env(self, name: str, env: Any) -> None:
        """Forget it: only code that calls Python reads one."""


class Part(_Library):  # type: ignore[misc]
    """Code of a function that only compiled code calls."""

    def finalize(self) -> None:
        """Leave it as it is."""
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:  # noqa: ARG002 - numba's signature
        """Tell that there is no machine code."""
        return 0

    @property
    def codegen(self) -> Any:
        """Stand-in for the code generator."""
        return _NoEnvironment()


class Whole(_Library):  # type: ignore[misc]
    """Code of a function that Python calls, with everything that it calls itself."""

    def finalize(self) -> None:
        """Link all parts, make them private, optimize, and make machine code."""
        own = {fn.name for fn in self._final_module.functions if not fn.is_declaration}
        others = self._link_parts()
        # Of libraries of numba's own only what is asked for by now comes in.
        for library in others:
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        for fn in self._final_module.functions:
            if not fn.is_declaration and fn.name not in own:
                fn.linkage = "internal"
        passes, builder = self._codegen._module_pass_manager()
        passes.run(self._final_module, builder)
        self._final_module.verify()
        self._finalize_final_module()

    def _link_parts(self) -> list[Any]:
        """Link in all parts that are called from here, also by way of others, each once; return the other libraries."""
        todo, seen, others = list(self._linking_libraries), set(), []
        while todo:
            library = todo.pop()
            if library in seen:
                continue
            seen.add(library)
            self._reload_init.update(library._reload_init)
            if isinstance(library, Part):
                todo.extend(library._linking_libraries)
                self._final_module.link_in(library._final_module, preserve=True)
            else:
                others.append(library)
        return others


class PartCompiler(_Compiler):  # type: ignore[misc]
    """numba's compiler, for a function that only compiled code calls."""

    def compile_extra(self, func: Any) -> Any:
        """Compile a function."""
        self.state.library = Part(self.state.targetctx.codegen(), func.__qualname__)
        self.state.library.enable_object_caching()
        return super().compile_extra(func)


class WholeCompiler(_Compiler):  # type: ignore[misc]
    """numba's compiler, for a function that Python calls."""

    def compile_extra(self, func: Any) -> Any:
        """Compile a function."""
        self.state.library = Whole(self.state.targetctx.codegen(), func.__qualname__)
        self.state.library.enable_object_caching()
        return super().compile_extra(func)


def _is_as_expected() -> bool:
    """Tell whether numba's libraries and compilers have the inner parts that are used here."""
    hooks = ("finalize", "get_pointer_to_function", "_finalize_final_module", "_get_module_for_linking")
    return all(hasattr(_Library, name) for name in hooks) and hasattr(_Compiler, "compile_extra")


# Options of numba's decorator for the two kinds of functions.
PART: Final[dict[str, Any]] = {"pipeline_class": PartCompiler} if _is_as_expected() else {}
WHOLE: Final[dict[str, Any]] = {"pipeline_class": WholeCompiler} if _is_as_expected() else {}
