"""Public traces: the catalog, what of it is on this machine, and getting the rest safely."""

from __future__ import annotations

from analysis.fetch.catalog import PublicTrace, RemoteFile, get_trace, traces
from analysis.fetch.fetching import FetchPlan, fetch, plan_fetch
from analysis.fetch.places import data_folders, default_target, find_data

__all__ = [
    "FetchPlan",
    "PublicTrace",
    "RemoteFile",
    "data_folders",
    "default_target",
    "fetch",
    "find_data",
    "get_trace",
    "plan_fetch",
    "traces",
]
