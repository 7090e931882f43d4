"""Shared fixtures: where real traces lie, and small tables that every test may use."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

# Tests are about the compiled engine, however few jobs they replay and whether it has been compiled or not.
os.environ.setdefault("HINDCAST_ENGINE", "compiled")

ROOT = Path(__file__).resolve().parent.parent


def data_folders() -> list[Path]:
    """Where real traces are looked for, in order."""
    given = os.environ.get("HINDCAST_DATA")
    return [*([Path(given)] if given else []), ROOT.parent / "shared" / "data", ROOT / "data" / "raw"]


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """Find a real trace file by its name below a data folder; skip the test, with the file's name, if it is missing."""

    def find(name: str) -> Path:
        for folder in data_folders():
            if (folder / name).exists():
                return folder / name
        pytest.skip(f"missing data: {name}")

    return find


def pytest_terminal_summary(terminalreporter) -> None:
    """Say how many tests were skipped for missing data, and which files they miss."""
    missing: dict[str, int] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        if "missing data: " in reason:
            name = reason.split("missing data: ", 1)[1]
            missing[name] = missing.get(name, 0) + 1
    names = ", ".join(f"{name} ({count})" for name, count in sorted(missing.items())) or "none"
    terminalreporter.write_line(f"Tests skipped for missing data: {sum(missing.values())}; files: {names}")
