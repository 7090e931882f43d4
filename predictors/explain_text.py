"""An explanation of one prediction as plain text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from predictors.explain import JobExplanation

__all__ = ["in_words"]

#: An effect below this factor is none.
LEAST_FACTOR: Final = 1.005
#: Terms of a sum that are told.
MOST_TERMS: Final = 6


def in_words(why: JobExplanation) -> str:
    """Tell an explanation in lines of text."""
    parts = [_head(why), _voices(why), _like(why), _levels(why), _without(why)]
    return "\n\n".join("\n".join(lines) for part in parts if (lines := list(part)))


def _head(why: JobExplanation) -> Iterator[str]:
    job = why.job
    words = [f"Job {job['job_id']}"]
    names = {"user": "user", "account": "account", "vc": "VC", "group": "group", "job_name": "name"}
    words += [f"{word} {job[name]}" for name, word in names.items() if job[name] is not None]
    words += [f"{job[name]:g} {word}" for name, word in (("num_gpus", "GPUs"), ("num_cpus", "CPUs")) if job[name]]
    if job["time_limit_s"] is not None:
        words.append(f"limit {_s(job['time_limit_s'])}")
    yield ", ".join(words)
    when = "at an unknown time" if why.asked_time is None else f"on {why.asked_time:%Y-%m-%d %H:%M:%S} UTC"
    yield (
        f"{why.model}, asked {when}: {_s(why.predicted_s)}; with 80 % probability between {_s(why.low_s)} and "
        f"{_s(why.high_s)}."
    )


def _voices(why: JobExplanation) -> Iterator[str]:
    if not why.voices:
        return
    if why.voices[0].adds is not None:
        yield "It is the product of (1 s added to it):"
        base, *terms = why.voices
        yield from _table(
            [(_s(_expm1(base.adds)), base.about)]
            + [(f"x {_exp(term.adds):.3g}", term.about) for term in terms[:MOST_TERMS]]
        )
        rest = sum(term.adds or 0.0 for term in terms[MOST_TERMS:])
        if terms[MOST_TERMS:]:
            yield f"  and x {_exp(rest):.3g} for {len(terms) - MOST_TERMS} other features."
        return
    yield f"What speaks, and with which weight ({why.combined}):"
    yield from _table([(_percent(one.weight), _maybe(one.says_s), one.about) for one in why.voices])


def _like(why: JobExplanation) -> Iterator[str]:
    if why.shares is None:
        yield "No like job had ended before." if why.likenesses else "It looks at no single past job."
        return
    if not why.like_jobs:
        return
    yield f"The last jobs that had ended before ({why.shares}), and what would be predicted without each:"
    rows = [("job", "ran", "ended", "outcome", "without it")]
    rows += [
        (job.job_id, _s(job.duration_s), f"{_s(job.ended_ago_s)} before", job.outcome, _maybe(job.without_it_s))
        for job in why.like_jobs
    ]
    yield from _table(rows)


def _levels(why: JobExplanation) -> Iterator[str]:
    if not why.likenesses:
        return
    yield "Ended jobs by what they share with it (median of the last 20):"
    rows = [("", "jobs", "median", "the last")]
    rows += [(one.shares, f"{one.num_jobs:,}", _maybe(one.median_s), _maybe(one.last_s)) for one in why.likenesses]
    yield from _table(rows)


def _without(why: JobExplanation) -> Iterator[str]:
    yield f"What would be predicted instead of {_s(why.predicted_s)}:"
    yield from _table([(one.what, _s(one.predicted_s), _effect(one.factor)) for one in why.counterfactuals])


def _effect(factor: float) -> str:
    if max(factor, 1 / factor) < LEAST_FACTOR:
        return "the same"
    return f"{factor:.3g} x longer because of it" if factor > 1 else f"{1 / factor:.3g} x shorter because of it"


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        yield "  " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"


def _maybe(seconds: float | None) -> str:
    return "-" if seconds is None else _s(seconds)


def _s(seconds: float) -> str:
    # matplotlib takes half a second to import: only who tells in words pays.
    from analysis.plots.style import duration_text

    return duration_text(seconds)


def _exp(log: float | None) -> float:
    return math.exp(log or 0.0)


def _expm1(log: float | None) -> float:
    return math.expm1(log or 0.0)
