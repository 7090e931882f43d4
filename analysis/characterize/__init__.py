"""What a workload looks like: small result tables of a log, and their registry.

Every table is called with a log (a Trace, or a table of jobs of polars or pandas, eager or lazy), takes ``by=``
(cluster, vc, user, workload, gpu_type, gpu_bucket, status) and ``where=`` (a polars expression), and is weighted by
jobs and by GPU time where both make sense. A log that lacks what a table needs gives a table of no rows with all its
columns; `Characterization.missing` says why. `characterize` makes many tables and counts what they share once.

Each module of the package registers its tables when it is imported, and all are imported here; a table can be imported
from the package by the name of its function.
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from analysis.characterize.buckets import BUCKETS, GPU_BUCKETS, gpu_bucket
from analysis.characterize.cubes import GROUPS, Cube, Rows, merge
from analysis.characterize.prepare import Facts
from analysis.characterize.registry import CHARACTERIZATIONS, Characterization, characterization, characterize
from analysis.characterize.running import gpu_intervals
from analysis.characterize.sharing import sharing_pairs
from analysis.characterize.tenants import top_tenants

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

# The modules that are named as their table is give way to it.
_TABLES = {item.function.__name__: item for item in CHARACTERIZATIONS.values()}
globals().update(_TABLES)

__all__ = [
    "BUCKETS",
    "CHARACTERIZATIONS",
    "GPU_BUCKETS",
    "GROUPS",
    "Characterization",
    "Cube",
    "Facts",
    "Rows",
    "characterization",
    "characterize",
    "gpu_bucket",
    "gpu_intervals",
    "merge",
    "sharing_pairs",
    "top_tenants",
]
__all__ += list(_TABLES)
__all__.sort(key=lambda name: (not name.isupper(), not name[0].isupper(), name))

if TYPE_CHECKING:

    def __getattr__(name: str) -> Characterization: ...
