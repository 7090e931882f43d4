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
    "log_mae_low": "its interval, from",
    "log_mae_high": "to",
    "log_mae_batch": "the same, batch-weighted",
    "log_mae_difference": "difference of mean |log error|",
    "days_low": "over days, from",
    "days_high": "to (days)",
    "users_low": "over users, from",
    "users_high": "to (users)",
    "within_interval_share": "within the 80 % interval",
    "c_index": "concordance",
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
    "gpu_utilization": "device utilization",
    "single_gpu_share": "one GPU or less",
    "min_s": "least",
    "max_s": "most",
    "p50": "median",
    "max": "most",
    "bin_s": "length of the bin",
    "window_s": "length of the window",
    "lag_h": "hours between",
    "gap_cv": "gaps: deviation / mean",
    "idc": "variance / mean",
    "idc_1min": "variance / mean, 1 min",
    "idc_10min": "variance / mean, 10 min",
    "idc_1h": "variance / mean, 1 h",
    "idc_1d": "variance / mean, 1 d",
    "acf_1h": "autocorrelation, 1 h",
    "acf_24h": "autocorrelation, 1 d",
    "acf_168h": "autocorrelation, 7 d",
    "hurst_whittle": "Hurst parameter",
    "hurst_whittle_no_week": "Hurst parameter, without the week",
    "hurst_se": "its standard error",
    "hurst_variance": "Hurst parameter, by variances",
    "is_or_more": "or more",
    "is_capacity_known": "GPUs known",
    "is_match": "given as asked",
    "is_published": "published",
    "fewest_share": "on the fewest nodes",
    "long_share": "waited long",
    "mean_queueing_share": "mean share spent waiting",
    "queueing_share_of_jct": "waiting, of all time",
    "gpu_time_weighted_mean": "mean by GPU time",
    "num_above_one": "above 100 %",
    "above_one_share": "above 100 %",
    "idle_share": "held idle",
    "low_use_job_share": "jobs hardly using it",
    "zero_share": "zero",
    "share_of_waste": "of all waste",
    "cumulative_share_of_waste": "of all waste, summed up",
    "within_1min_share": "within 1 min",
    "within_10min_share": "within 10 min",
    "within_2x_share": "within a factor of 2",
    "within_2x_gpu_time_share": "within a factor of 2, by GPU time",
    "aic": "AIC",
    "aic_above_best": "AIC above the best",
    "ks": "KS distance",
    "ks_tail": "KS distance, tail",
    "ks_chance": "KS distance by chance",
    "is_converged": "converged",
    "part": "fitted to",
    "partly_used_node_share": "nodes partly used",
    "scattered_share": "free GPUs on such",
    "gehr_schneider": "Gehr-Schneider",
    "capacity_share": "of all GPUs",
    "known_share": "named",
    "gini": "Gini",
    "effective_tenants": "effective number",
    "top_1_share": "largest",
    "top_5_share": "largest 5",
    "top_10_share": "largest 10",
    "top_1pct_share": "largest 1 %",
    "top_5pct_share": "largest 5 %",
    "top_10pct_share": "largest 10 %",
    "top_20pct_share": "largest 20 %",
    "tenant_share": "of tenants",
    "with_history_share": "with a past",
    "log_mae_gpu_time": "mean |log error| by GPU time",
    "sd_log": "deviation of the log",
    "sd_log_within": "deviation within groups",
    "between_share": "explained by the group",
    "entropy_bits": "entropy (bits)",
    "entropy_within_bits": "entropy within groups (bits)",
    "hindsight_log_mae": "mean |log error| in hindsight",
    "hindsight_log_mae_gpu_time": "mean |log error| in hindsight, by GPU time",
    "hindsight_within_2x_share": "within a factor of 2 in hindsight",
    "repeated_job_share": "jobs that come again",
    "recurring_job_share": "jobs that come 5 times or more",
    "recurring_gpu_time_share": "their GPU time",
    "median_abs_log_ratio": "median |log ratio|",
    "psi": "stability index",
    "psi_chance": "stability index by chance",
    "tail_index_se": "its standard error",
    "excess_shape_se": "its standard error",
    "over_quota_time_share": "time over quota",
    "idle_time_share": "time without a job",
    "full_vc_share": "VCs that are full",
    "enough_free_share": "jobs with enough free",
    "enough_free_time_share": "waiting with enough free",
    "num_enough_free": "jobs with enough GPUs free",
}
#: Values that are read as words.
WORDS: Final = {
    "gpu_time": "GPU time",
    "gpu": "GPU jobs",
    "cpu": "CPU jobs",
    "knows_nothing": "knows nothing",
    "lognormal": "log-normal",
    "weibull": "Weibull",
    "generalized_pareto": "generalised Pareto",
    "hyperexponential_2": "hyper-exponential, 2 phases",
    "hyperexponential_3": "hyper-exponential, 3 phases",
    "vc": "virtual clusters",
    "user": "users",
    "none": "nothing",
    "vc_size": "VC, size",
    "user_request": "user, size, limit",
    "user_name": "user, job name",
    "group": "recurrence group",
    "owner": "same user or VC",
    "owner_request": "same user or VC, size, limit",
    "last": "the last",
    "mean_2": "mean of the last 2",
    "median_15": "median of the last 15",
    "num_gpus": "GPUs",
    "queueing_delay": "wait",
    "week_before": "the week before",
    "log": "the whole log",
}
#: Columns whose values are read as words; elsewhere a value is what someone called something.
WORDED: Final = frozenset({"predictor", "role", "family", "parameter"})
WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
#: Shares that do not end in ``_share``.
SHARES: Final = frozenset(
    {
        *("relative_gain", "gpu_allocation", "peak_allocation", "within_2x", "gpu_utilization_mean"),
        *("gpu_utilization", "coverage", "share", "share_of_waste", "cumulative_share_of_waste"),
        *("queueing_share_of_jct", "load", "mean_load", "peak_load", "mean_vc_load", "min_vc_load", "max_vc_load"),
    }
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
    "log_mae_low": "Lower end of the 95 % interval of the error, blocks of days drawn anew.",
    "log_mae_high": "Upper end of the 95 % interval of the error, blocks of days drawn anew.",
    "log_mae_batch": "The error if each batch (jobs of one owner, request and minute) counts once.",
    "log_mae_difference": "Error of the best predictor minus that of the other one, on the same jobs.",
    "within_interval_share": "Share of the jobs that ran between the predicted p10 and p90: 80 % is what was promised.",
    "c_index": "Share of the pairs of jobs whose order is predicted rightly, running jobs included: 0.5 is chance.",
    "spearman": "Rank correlation of predicted and true durations: 1 = the same order.",
    "r2_log": "Share of the variance of log durations that is explained.",
    "p50_s": "Half of the jobs (or of the GPU time) lie below.",
    "gap_cv": "Standard deviation of the gaps between submissions over their mean: 1 for independent arrivals.",
    "idc": "Variance of the number of submissions in windows of this length over their mean: 1 if independent.",
    **dict.fromkeys(
        ("idc_1min", "idc_10min", "idc_1h", "idc_1d"),
        "Variance of the number of submissions in such windows over their mean: 1 for independent arrivals.",
    ),
    **dict.fromkeys(
        ("acf_1h", "acf_24h", "acf_168h"),
        "How alike the submissions of an hour are to those so long before: 1 = the same, 0 = unrelated.",
    ),
    "hurst_whittle": "Above 0.5 bursts persist over all time scales; at 0.5 they average out.",
    "ks": "Largest distance of two distributions: 0 = the same, 1 = apart.",
    "ks_chance": "What two samples of one population stay below 19 times in 20.",
    "psi_chance": "What two samples of one population stay below 19 times in 20.",
    "psi": "By convention below 0.1 nothing changed, above 0.25 it is another workload.",
    "aic": "Akaike's criterion: the less, the better the fit for its number of parameters.",
    "gini": "0 = all have the same, 1 = one has all.",
    "effective_tenants": "So many of equal size would be as unequal.",
    "between_share": "Share of the variance of log durations that knowing the group explains.",
    "sd_log_within": "Standard deviation of log durations within a group; 0.69 is a factor of 2.",
    "hindsight_log_mae": "Error if each group's median were known: no predictor that knows only the group does better.",
    "wasted_gpu_hours": "GPU-hours of jobs that failed or were cancelled.",
    "lost_gpu_hours": "GPU-hours of attempts before the last.",
    "tail_index": "Exponent of the power law that the longest jobs follow; below 2 the variance is not finite.",
    "gehr_schneider": "1 - sum(f^2) / sum(f)^2 over the free GPUs f of the nodes: 0 = all free GPUs on one node.",
    "unallocatable_gpus": "Free GPUs that the next typical job is expected not to be able to use (FGD).",
    "idle_share": "GPU-hours held in which the device was not busy, over all measured ones.",
    "low_use_job_share": "Measured jobs with a mean utilization below 10 %.",
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
    if name.endswith("_gpu_s"):
        return f"{heading(name.removesuffix('_gpu_s'))} GPU-hours"
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
