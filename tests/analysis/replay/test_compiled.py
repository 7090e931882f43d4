"""Compiled code is kept between runs and made anew when any file that it melts in changes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from analysis.replay import _compiled, _linked, _loop


def test_kept_code_carries_the_fingerprint_of_all_its_files():
    # numba's own check sees only the file of the function itself; if numba renames what we hook, this fails first.
    assert _loop.run._cache._cache_file._version.endswith(f" {_compiled.fingerprint()}")


def test_the_fingerprint_changes_with_any_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "_a.py").write_text("1")
    (tmp_path / "_b.py").write_text("2")
    monkeypatch.setattr(_compiled, "__file__", str(tmp_path / "_a.py"))
    before = _compiled.fingerprint.__wrapped__()
    (tmp_path / "_b.py").write_text("3")
    assert _compiled.fingerprint.__wrapped__() != before


def test_without_a_folder_for_the_cache_it_compiles_all_the_same(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_args: object, cache: bool = False, **_options: object):
        if cache:
            msg = "no locator available"
            raise RuntimeError(msg)
        return lambda function: ("compiled", function)

    monkeypatch.setattr(_compiled, "_njit", refuse)
    assert _compiled.entry(len) == ("compiled", len)


def test_functions_of_the_engine_have_no_machine_code_of_their_own():
    # If numba renames what is hooked, everything is compiled as numba does it, at twice the time: this fails first.
    assert _linked.PART
    assert _linked.WHOLE

    @_compiled.compiled
    def twice(x: int) -> int:
        return 2 * x

    @_compiled.entry
    def four_times(x: int) -> int:
        return twice(twice(x))

    assert four_times(3) == 12
    (part,) = twice.overloads.values()
    assert isinstance(part.library, _linked.Part)
    assert part.library.get_pointer_to_function(part.fndesc.llvm_func_name) == 0
    (whole,) = four_times.overloads.values()
    assert isinstance(whole.library, _linked.Whole)
    assert part.fndesc.llvm_func_name not in [fn.name for fn in whole.library.get_defined_functions()]


# --- only compiled code calls parts: a call by Python would crash the process -----------------------------------------

ROOT = Path(_compiled.__file__).parents[2]
PARTS = {"compiled", "melted"}
COMPILED = PARTS | {"viewed", "entry"}


def decorators(node: ast.AST) -> set[str]:
    return {ast.unparse(one) for one in getattr(node, "decorator_list", [])}


@cache
def parts_of(module: str) -> frozenset[str]:
    path = ROOT / (module.replace(".", "/") + ".py")
    body = ast.parse(path.read_text()).body if path.exists() else []
    return frozenset(node.name for node in body if isinstance(node, ast.FunctionDef) and decorators(node) & PARTS)


def in_python(node: ast.AST) -> Iterator[ast.AST]:
    """What stands outside of compiled functions."""
    for child in ast.iter_child_nodes(node):
        if not decorators(child) & COMPILED:
            yield child
            yield from in_python(child)


def parts_used_by_python(source: str, module: str) -> list[str]:
    """Parts, of the module or imported by it, that are named outside of compiled functions."""
    tree = ast.parse(source)
    known = set(parts_of(module))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("analysis.replay"):
            for name in node.names:
                known |= {f"{name.asname or name.name}.{part}" for part in parts_of(f"{node.module}.{name.name}")}
                known |= {name.asname or name.name} if name.name in parts_of(node.module or "") else set()
    used = (node for node in in_python(tree) if isinstance(getattr(node, "ctx", None), ast.Load))
    return sorted({ast.unparse(node) for node in used} & known)


def test_a_part_that_python_calls_is_found():
    source = "from analysis.replay import _tape as t\nfrom analysis.replay._tape import is_full as f\n"
    assert parts_used_by_python(source + "def go(x):\n    return f(x), t.note(x)", "") == ["f", "t.note"]
    assert parts_used_by_python(source + "@compiled\ndef go(x):\n    return f(x), t.note(x)", "") == []


def test_python_calls_no_part():
    paths = [path for folder in ("analysis", "predictors") for path in (ROOT / folder).rglob("*.py")]
    modules = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths}
    assert sum(len(parts_of(module)) for module in modules.values() if ".replay." in module) > 100
    used = {module: parts_used_by_python(path.read_text(), module) for path, module in modules.items()}
    assert {module: names for module, names in used.items() if names} == {}
