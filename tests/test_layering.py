"""The arrows between the parts, and the sizes of files and functions."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.conftest import ROOT

SOURCES = sorted([*ROOT.glob("analysis/**/*.py"), *ROOT.glob("predictors/**/*.py")])
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60


def imported(path: Path) -> set[str]:
    """Modules that a file imports, at its top or inside a function."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def part(path: Path) -> str:
    """The folder, or the module at the top of ``analysis``, that a file belongs to."""
    below = path.relative_to(ROOT / "analysis")
    return below.parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_the_command_line_knows_both_packages(path):
    if path.is_relative_to(ROOT / "analysis" / "cli") or path.is_relative_to(ROOT / "predictors"):
        return
    assert not {name for name in imported(path) if name.split(".")[0] == "predictors"}


@pytest.mark.parametrize("path", [p for p in SOURCES if p.is_relative_to(ROOT / "analysis")], ids=lambda p: p.name)
def test_the_arrows_point_one_way(path):
    below = {
        **{"errors": 0, "schema": 1, "metrics": 2, "frames": 2, "table_file": 2, "trace": 3, "pseudonyms": 3},
        **{"report": 5, "__init__": 9, "cli": 9},
    }
    own = below.get(part(path), 4)
    for name in imported(path):
        if name.startswith("analysis.") and name.split(".")[1] != part(path):
            other = below.get(name.split(".")[1], 4)
            assert other <= own, f"{path.name} imports {name}, which stands above it"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_stay_readable(path):
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= MAX_FILE_LINES
    too_long = [
        f"{node.name} has {node.end_lineno - node.lineno + 1} lines"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef) and _code_lines(node) > MAX_FUNCTION_LINES
    ]
    assert not too_long


def _code_lines(node: ast.FunctionDef) -> int:
    """Lines of a function without its docstring."""
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines
