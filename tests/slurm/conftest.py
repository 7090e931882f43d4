"""The real Slurm, once per session; tests that need it are skipped where it cannot start."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("slurm_sandbox", Path(__file__).with_name("sandbox.py"))
sandbox = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sandbox)


GPUS = {"n1": {"a100": 4}, "n2": {"a100": 2, "v100": 4}}


@pytest.fixture(scope="session")
def slurm():
    """A running Slurm of two nodes, one of them with two types of GPU; ended when the session ends."""
    # Sockets need a short path, which pytest's own folders are not.
    with tempfile.TemporaryDirectory(prefix="hcslurm") as folder:
        try:
            started = sandbox.Sandbox(Path(folder), gpus=GPUS).__enter__()
        except sandbox.CannotStartError as reason:
            pytest.skip(f"Slurm cannot start here: {reason}")
        try:
            yield started
        finally:
            started.stop()
