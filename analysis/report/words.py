"""The words of the report: headings of columns, what they mean, and values that are read as words."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["HEADINGS", "MEANINGS", "SHARES", "WORDS", "heading", "meaning"]

#: Columns whose name does not say how they are read.
HEADINGS: Final = {
    "trace": "log",
    "num_jobs": "jobs",
    "job_share": "of jobs",
    "gpu_share": "of GPUs asked for",
    "gpu_time_share": "of GPU time",
    "cumulative_gpu_time_share": "of GPU time, summed up",
    "completed_share": "completed",
    "waited_share": "waited over 1 s",
    "num_gpus": "GPUs",
    "gpu_hours": "GPU-hours",
    "vc": "virtual cluster",
    "bucket": "GPUs per job",
    "gpu_bucket": "GPUs per job",
    "weight": "weighted by",
    "p50_s": "median",
    "log_mae": "mean |log error|",
    "within_2x": "within a factor of 2",
    "mean_jct_s": "mean completion time",
    "base_mean_jct_s": "base: mean completion time",
    "mean_queueing_delay_s": "mean wait",
    "median_queueing_delay_s": "median wait",
    "base_mean_queueing_delay_s": "base: mean wait",
    "captured_share": "share of the oracle's gain",
    "relative_gain": "gain",
    "num_right_censored": "still running at the end",
    "num_never_started": "never started",
    "offered_load": "load",
    "gpu_utilization_mean": "device utilization",
}
#: Values that are read as words.
WORDS: Final = {"gpu_time": "GPU time", "gpu": "GPU jobs", "cpu": "CPU jobs", "knows_nothing": "knows nothing"}
#: Shares that do not end in ``_share``.
SHARES: Final = frozenset(
    {"relative_gain", "gpu_allocation", "peak_allocation", "within_2x", "gpu_utilization_mean", "gpu_utilization"}
)
#: What a column means, where its heading does not say all.
MEANINGS: Final = {
    "bucket": "GPUs of the whole job; a CPU job has none, '<1' is a part of a GPU.",
    "gpu_bucket": "GPUs of the whole job; a CPU job has none, '<1' is a part of a GPU.",
    "weight": "Jobs: every job counts once. GPU time: every job counts by GPUs times duration.",
    "kind": "GPU jobs ask for GPUs, CPU jobs for none; unknown: the log does not say.",
    "job_share": "Jobs of this row over all jobs of the table (or of its group).",
    "gpu_time_share": "GPU time of this row over that of all rows (or of its group).",
    "gpu_share": "GPUs asked for by the jobs of this row over those of all rows.",
    "cumulative_gpu_time_share": "GPU time of this row and of all rows above it.",
    "gpu_hours": "GPUs times running time, summed [hours].",
    "duration_s": "Running time: attempts summed, pauses out.",
    "queueing_delay_s": "First start minus submission.",
    "waited_share": "Jobs whose first start was more than 1 s after their submission.",
    "completed_share": "Jobs whose last status is 'completed'.",
    "num_right_censored": "Jobs still running when the log ends: their duration is a lower bound.",
    "num_left_censored": "Jobs that ran before the log begins: their duration is a lower bound.",
    "num_never_started": "Jobs that the log shows waiting, but never running.",
    "peak_daily_users": "The most users that submitted on one day.",
    "gpu_allocation": "GPUs held by jobs over the GPUs there are, on average over time.",
    "peak_allocation": "GPUs held by jobs over the GPUs there are, at the peak.",
    "gpu_utilization_mean": "Busy time of the GPUs as the device measures it, on average.",
    "slowdown": "Completion time over running time.",
    "mean_jct_s": "Last end minus submission, on average.",
    "base_mean_jct_s": "The same under the policy that is compared with.",
    "captured_share": "Gain over the gain of one who knows every duration.",
    "relative_gain": "By how much the mean completion time falls.",
    "gain_s": "Mean completion time under the base minus that under the policy.",
    "gain_low_s": "Lower end of the 95 % interval of the gain.",
    "gain_high_s": "Upper end of the 95 % interval of the gain.",
    "offered_load": "GPU time that arrives over what the cluster can give.",
    "log_mae": "Mean |log(1 + predicted s) - log(1 + true s)|: 0.69 is a factor of 2.",
    "within_2x": "Predictions between half and double the true duration.",
    "spearman": "Rank correlation of predicted and true durations: 1 = the same order.",
    "r2_log": "Share of the variance of log durations that is explained.",
    "p50_s": "Half of the jobs (or of the GPU time) lie below.",
    "single_gpu_share": "Jobs that ask for one GPU or a part of one, of the GPU jobs.",
    "failed_share": "Last status failed; timeouts and failed nodes count here.",
    "cancelled_share": "Last status cancelled.",
    "completed_gpu_time_share": "GPU time of completed jobs over that of all GPU jobs.",
    "cancelled_gpu_time_share": "GPU time of cancelled jobs over that of all GPU jobs.",
    "failed_gpu_time_share": "GPU time of failed jobs over that of all GPU jobs.",
}
PERCENTILE: Final = re.compile(r"p(\d+)(_s)?$")


def heading(name: str) -> str:
    """Heading of a column: its words without the unit, which stands in the cells.

    Examples
    --------
    >>> [heading(name) for name in ("num_jobs", "p99_s", "mean_gpus", "waited_share")]
    ['jobs', 'p99', 'mean GPUs', 'waited over 1 s']
    """
    if name in HEADINGS:
        return HEADINGS[name]
    plain = name.removesuffix("_s").removesuffix("_share").removeprefix("num_").replace("_", " ")
    for word, text in (("gpu", "GPU"), ("cpu", "CPU"), ("vc", "VC"), ("cv", "CV"), ("jct", "completion time")):
        plain = re.sub(rf"\b{word}(s?)\b", rf"{text}\1", plain)
    return plain.replace("mae", "mean |error|")


def meaning(name: str) -> str:
    """What a column means; empty where its heading says all.

    Examples
    --------
    >>> meaning("p99_s"), meaning("user")
    ('99 % of the jobs (or of the GPU time) lie below.', '')
    """
    found = PERCENTILE.match(name)
    if found and name not in MEANINGS:
        return f"{found[1]} % of the jobs (or of the GPU time) lie below."
    return MEANINGS.get(name, "")
