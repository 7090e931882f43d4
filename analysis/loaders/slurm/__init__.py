"""Slurm: accounting exports (``sacct``) and a cluster's nodes (``scontrol``, ``sinfo``)."""

from analysis.loaders.slurm.hostlist import expand_hostlist
from analysis.loaders.slurm.nodes import read_nodes, read_partition_limits, read_scontrol_nodes, read_sinfo
from analysis.loaders.slurm.sacct import read_slurm

__all__ = [
    "expand_hostlist",
    "read_nodes",
    "read_partition_limits",
    "read_scontrol_nodes",
    "read_sinfo",
    "read_slurm",
]
