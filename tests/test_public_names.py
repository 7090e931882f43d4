"""Every public name exists, is documented, and can be imported alone."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest

PACKAGES = [
    "analysis",
    "analysis.characterize",
    "analysis.loaders",
    "analysis.metrics",
    "analysis.plots",
    "analysis.replay",
    "analysis.replay.steps",
    "analysis.report",
    "analysis.schema",
    "analysis.trace",
    "predictors",
    "predictors.targets",
]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_exists_and_is_documented(package):
    module = importlib.import_module(package)
    assert module.__doc__
    assert list(module.__all__) == sorted(module.__all__, key=lambda n: (not n.isupper(), not n[0].isupper(), n))
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isfunction(value) or inspect.isclass(value):
            assert (value.__doc__ or "").strip(), f"{package}.{name} has no docstring"


def test_help_needs_neither_the_engine_nor_the_models():
    """The command line starts at once: heavy packages are imported inside the commands that need them."""
    code = (
        "import sys\n"
        "from analysis.cli import main\n"
        "main(['--help'])\n"
        "heavy = {'numba', 'sklearn', 'scipy', 'matplotlib', 'pandas'} & set(sys.modules)\n"
        "sys.exit(f'imported for --help: {heavy}' if heavy else 0)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_an_unknown_name_of_the_package_is_an_attribute_error():
    import analysis

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = analysis.nothing
