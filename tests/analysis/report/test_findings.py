"""Findings: each number in a sentence is that of its table, worked out on paper; none where the log does not say."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from analysis import schema
from analysis.characterize import characterize
from analysis.report import find
from analysis.report.compared import compared_findings
from analysis.report.workload import Logs
from analysis.trace import Trace, TraceMeta
from tests.rich_trace import rich_trace

T0 = datetime(2024, 3, 4, tzinfo=UTC)


def trace_of(rows, name="made"):
    """Jobs of (GPUs, duration s, wait s, status), one an hour, of users in turn."""
    made = []
    for number, (gpus, run, wait, status) in enumerate(rows):
        submit = T0 + timedelta(hours=number)
        begin = submit + timedelta(seconds=wait)
        made.append(
            {
                "job_id": str(number),
                "user": f"u{number % 3}",
                "submit_time": submit,
                "start_time": begin,
                "end_time": begin + timedelta(seconds=run),
                "num_gpus": float(gpus),
                "status": status,
                "duration_s": float(run),
                "queueing_delay_s": float(wait),
                "censoring": "none",
                "flags": [],
            }
        )
    return Trace(schema.sort_jobs(pl.DataFrame(made, schema=schema.JOBS)), meta=TraceMeta(name=name))


def told(trace, most=30):
    return find(characterize(trace), most=most)


def one(texts, words):
    (found,) = [text for text in texts if words in text]
    return found


# Ten GPU jobs: eight of 1 GPU for 1 h, two of 8 GPUs for 10 h: 8 + 160 = 168 GPU-hours.
TEN = [(1, 3600, 0, "completed")] * 6 + [(1, 3600, 60, "failed")] * 2 + [(8, 36_000, 600, "cancelled")] * 2


def test_the_numbers_are_those_worked_out_on_paper():
    texts = told(trace_of(TEN))
    assert texts[0].endswith("all of them GPU jobs. They used 168 GPU-hours.")
    assert "Half of the GPU jobs run at most 1 h; the mean is 2.8 h" in texts[1]
    # 8 of 168 GPU-hours are 4.8 %.
    assert one(texts, "ask for one GPU") == (
        "80 % of the GPU jobs ask for one GPU or less and use 4.8 % of the GPU time; "
        "jobs of more than 4 GPUs are 20 % of the jobs and use 95.2 %."
    )
    # 2 failed GPU-hours and 160 cancelled ones of 168: 96.4 %.
    assert one(texts, "completed;") == (
        "60 % of the GPU jobs completed; the others used 96.4 % of their GPU time, 162 GPU-hours."
    )
    assert one(texts, "waited longer than 1 s").startswith(
        "40 % of the GPU jobs waited longer than 1 s; the mean wait is 2.2 min"
    )


def test_half_of_the_gpu_time_is_told_where_the_curves_are_exact():
    # Longer than 1 h (the last point of the grid below 10 h): 2 of 10 jobs, 160 of 168 GPU-hours.
    text = one(told(trace_of(TEN)), "that run longer than")
    assert text.startswith("The 20 % of the GPU jobs that run longer than ")
    assert text.endswith(" use 95.2 % of the GPU time.")


def test_a_log_of_equal_jobs_says_nothing_silly():
    texts = told(trace_of([(1, 100, 0, "completed")] * 3))
    assert "All GPU jobs run 1.67 min." in texts
    assert "All GPU jobs completed." in texts
    assert "No GPU job waited longer than 1 s (3 jobs started)." in texts
    assert not [text for text in texts if "run longer than" in text or "others used" in text]


def test_of_few_jobs_nobody_is_one_in_a_hundred():
    texts = told(trace_of([(1, 100, 0, "completed"), (1, 300, 40, "completed")]))
    assert one(texts, "run at most") == (
        "Half of the GPU jobs run at most 3.33 min; the mean is 3.33 min, and the longest runs 5 min."
    )
    assert one(texts, "waited longer").endswith("the mean wait is 20 s, and the longest was 40 s.")


def test_jobs_of_unknown_size_are_in_the_plural_and_one_job_in_the_singular():
    trace = trace_of([(1, 100, 0, "completed")] * 3)
    unknown = Trace(trace.jobs.with_columns(num_gpus=pl.lit(None, pl.Float64)), meta=trace.meta)
    assert told(unknown)[0].endswith("all of them jobs of unknown size.")
    texts = told(trace_of([(1, 100, 0, "completed")]))
    assert texts[0].startswith("The log holds 1 job, from 1 user: 1 GPU job.")
    assert texts[1] == "The only GPU job runs 1.67 min."


def test_where_no_user_is_named_the_account_is_not_called_one():
    trace = trace_of([(1, 100 + 900 * (number % 3), 0, "completed") for number in range(60)])
    jobs = trace.jobs.with_columns(account="user", user=pl.lit(None, pl.String))
    assert "Knowing of a job only its user explains 100 %" in one(told(trace), "Knowing")
    text = one(told(Trace(jobs, meta=trace.meta)), "Knowing")
    assert "Knowing of a job only its account explains 100 %" in text
    assert "user" not in text


def test_the_busiest_hour_of_few_jobs_is_chance_and_not_told():
    # A job an hour for five weeks is five in each hour of the week; for four weeks it is too few.
    for weeks, times in ((4, 0), (5, 1)):
        texts = told(trace_of([(1, 60, 0, "completed")] * (168 * weeks)))
        assert len([text for text in texts if "busiest hour" in text]) == times


def test_a_timetable_of_arrivals_is_no_poisson_process():
    text = one(told(trace_of([(1, 60, 0, "completed")] * 200)), "number an hour")
    assert text.startswith("Jobs arrive more evenly than by chance")


def test_a_tail_that_is_no_power_law_is_not_called_one():
    rows = [(1, 1000 + number, 0, "completed") for number in range(3000)]
    trace = trace_of(rows)
    index = characterize(trace, ["duration_tail_index"])["duration_tail_index"].row(0, named=True)
    assert index["ks"] > 1.36 / index["num_tail_jobs"] ** 0.5
    assert not [text for text in told(trace) if "power law" in text]


def test_what_is_not_known_of_endings_is_said_first():
    rows = [(1, 3600, 0, "completed")] * 3 + [(1, 3600, 0, "failed")] + [(1, 3600, 0, "unknown")] * 4
    assert one(told(trace_of(rows)), "how they ended") == (
        "Of 50 % of the GPU jobs the log says how they ended: 75 % of these completed; "
        "the others used 25 % of their GPU time, 1 GPU-hours."
    )


def test_no_ending_known_is_no_sentence_about_endings():
    assert not [text for text in told(trace_of([(1, 60, 0, "unknown")] * 4)) if "completed" in text]


def test_the_median_is_set_beside_published_ones():
    # Published medians: Helios 206 s, Philly 874 s, Seren 122 s, Kalos 124 s.
    text = one(told(trace_of([(1, 412, 0, "completed")] * 5)), "in Helios")
    assert "The median GPU job runs 6.87 min: 2 times as long as in Helios (3.43 min)" in text
    assert "47.1 % as long as in Philly (14.6 min)" in text
    assert "3.38 times as long as in Seren" in text


def test_ten_at_most_and_the_important_ones_first():
    tables = characterize(rich_trace())
    assert len(find(tables)) == 10
    assert find(tables, most=4) == find(tables)[:4]
    assert find(tables)[0].startswith("The log holds 1,500 jobs")


def test_every_finding_of_a_full_log_has_a_number_and_ends_as_a_sentence():
    texts = find(characterize(rich_trace()), most=50)
    assert len(texts) >= 14
    for text in texts:
        assert re.search(r"\d", text)
        assert text.endswith(".")
        assert text[0].isupper() or text[0].isdigit()
        assert "None" not in text
        assert "nan" not in text


def test_idle_gpus_are_those_of_the_measurements():
    trace = rich_trace()
    used = trace.jobs.join(trace.usage, on="job_id").filter(pl.col("num_gpus") > 0)
    hours = (used["num_gpus"] * used["duration_s"] / 3600).to_numpy()
    busy = used["gpu_utilization_mean"].to_numpy()
    text = one(told(trace), "held idle")
    assert f"{(hours * (1 - busy)).sum():,.0f} GPU-hours were held idle" in text
    assert f"busy {100 * (hours * busy).sum() / hours.sum():.1f} % of the time" in text


def test_compared_sentences_name_the_most_and_the_least():
    a, b = trace_of([(1, 100, 0, "completed")] * 4, "a"), trace_of([(4, 1000, 50, "failed")] * 4, "b")
    made = {trace.meta.name: characterize(trace) for trace in (a, b)}
    logs = Logs({"a": a, "b": b}, {key: {log: made[log][key] for log in made} for key in made["a"]})
    texts = compared_findings(logs)
    assert texts[0] == "a holds 4 jobs (4 with GPUs) and b holds 4 jobs (4 with GPUs)."
    assert "The median GPU job runs longest in b (16.7 min, 10 times as much), shortest in a (1.67 min)." in texts
    assert (
        "GPU jobs ask for the most GPUs on average in b (4 GPUs, 4 times as much), for the fewest in a (1 GPU)."
        in texts
    )
    assert "GPU jobs complete most often in a (100 %), least often in b (0 %)." in texts
    assert one(texts, "as published").startswith("a's median GPU job runs 48.5 % as long as in Helios")


@pytest.mark.parametrize("kind", ["cpu", "empty"])
def test_a_log_without_gpu_jobs_is_compared_with_nobody(kind):
    rows = [(0, 60, 0, "completed")] * 3 if kind == "cpu" else []
    assert not [text for text in told(trace_of(rows)) if "Helios" in text]
