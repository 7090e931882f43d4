"""Loaders: raw files of any source to a `Trace`. Each source is one file here, found by itself.

>>> from analysis.loaders import LOADERS
>>> "sia_philly" in LOADERS
True
"""

from importlib import import_module
from pkgutil import iter_modules

from analysis.loaders.finish import finish_jobs, finish_trace
from analysis.loaders.loading import load, recognise
from analysis.loaders.registry import LOADERS, Loader, get_loader, loader

__all__ = [
    "LOADERS",
    "Loader",
    "finish_jobs",
    "finish_trace",
    "get_loader",
    "load",
    "loader",
    "recognise",
]

# A loader registers itself when its file is imported; a new file needs no line here.
for _module in sorted(module.name for module in iter_modules(__path__)):
    import_module(f"{__name__}.{_module}")
