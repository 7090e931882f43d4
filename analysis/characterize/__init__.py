"""What a workload looks like: pure functions from a jobs table to small result tables, and their registry.

Every table is weighted by jobs and by GPU time where both make sense. An input that lacks what a table needs gives a
table of no rows with all its columns; `Characterization.missing` says why.
"""

from analysis.characterize.arrivals import arrivals_by_hour, arrivals_over_time
from analysis.characterize.buckets import BUCKETS, GPU_BUCKETS, gpu_bucket
from analysis.characterize.demand import gpu_demand
from analysis.characterize.durations import duration_cdf, duration_quantiles
from analysis.characterize.outcomes import status_shares
from analysis.characterize.queueing import queueing_delay_cdf, queueing_delay_quantiles
from analysis.characterize.registry import CHARACTERIZATIONS, Characterization, characterization, characterize
from analysis.characterize.running import gpu_intervals, running_gpus, running_gpus_summary
from analysis.characterize.sharing import sharing_pairs
from analysis.characterize.summary import summary
from analysis.characterize.tenants import top_tenants, top_users, top_vcs

__all__ = [
    "BUCKETS",
    "CHARACTERIZATIONS",
    "GPU_BUCKETS",
    "Characterization",
    "arrivals_by_hour",
    "arrivals_over_time",
    "characterization",
    "characterize",
    "duration_cdf",
    "duration_quantiles",
    "gpu_bucket",
    "gpu_demand",
    "gpu_intervals",
    "queueing_delay_cdf",
    "queueing_delay_quantiles",
    "running_gpus",
    "running_gpus_summary",
    "sharing_pairs",
    "status_shares",
    "summary",
    "top_tenants",
    "top_users",
    "top_vcs",
]
