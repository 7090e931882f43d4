"""Concentration against closed forms: equal parts, one owner, exponential and Pareto parts."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from analysis.characterize import concentration, concentration_curve
from analysis.characterize.inequality import gini, lorenz
from tests.jobs import make_jobs


def row_of(table: pl.DataFrame, **chosen: object) -> dict[str, object]:
    return table.filter(**chosen).row(0, named=True)


def jobs_of(**num_jobs: int) -> pl.DataFrame:
    """One-hour jobs of one GPU by user."""
    return make_jobs(
        [{"user": user, "num_gpus": 1.0, "duration_s": 3600.0} for user, n in num_jobs.items() for _ in range(n)]
    )


def test_gini_of_known_laws():
    rng = np.random.default_rng(1)
    assert gini(rng.exponential(1.0, 200_000)) == pytest.approx(0.5, abs=0.004)
    assert gini(1 + rng.pareto(3.0, 200_000)) == pytest.approx(1 / (2 * 3.0 - 1), abs=0.01)
    assert gini(rng.uniform(0, 1, 200_000)) == pytest.approx(1 / 3, abs=0.003)


def test_the_lorenz_curve_of_a_pareto_law_and_the_area_that_gini_is():
    # Of a Pareto law of index a: 1 - (1 - p) ** (1 - 1 / a); twice the area above the curve is the Gini coefficient.
    parts = (1 - (np.arange(10_000) + 0.5) / 10_000) ** (-1 / 3.0)
    at = np.linspace(0, 1, 101)
    assert lorenz(parts, at) == pytest.approx(1 - (1 - at) ** (2 / 3), abs=0.002)
    fine = np.linspace(0, 1, 10_001)
    assert 1 - 2 * np.trapezoid(lorenz(parts, fine), fine) == pytest.approx(gini(parts), rel=1e-6)


def test_hand_worked_users():
    table = concentration(jobs_of(a=6, b=3, c=1))
    row = row_of(table, tenant="user", weight="jobs")
    assert (row["num_tenants"], row["known_share"]) == (3, 1)
    assert row["gini"] == pytest.approx((-2 * 1 + 0 * 3 + 2 * 6) / (3 * 10))
    assert row["effective_tenants"] == pytest.approx(1 / (0.36 + 0.09 + 0.01))
    assert [row[f"top_{n}_share"] for n in (1, 5, 10)] == [0.6, 1, 1]
    # 1 % to 20 % of three users is one, rounded up.
    assert [row[f"top_{p}pct_share"] for p in (1, 5, 10, 20)] == [0.6] * 4
    curve = concentration_curve(jobs_of(a=6, b=3, c=1)).filter(tenant="user", weight="jobs")
    assert curve.height == 101
    assert curve["share"].to_list()[::50] == pytest.approx([0, (0.1 + 0.4) / 2, 1])


def test_five_percent_of_forty_users_are_two():
    jobs = jobs_of(**{f"u{n}": (31 if n < 2 else 1) for n in range(40)})
    assert row_of(concentration(jobs), weight="jobs")["top_5pct_share"] == pytest.approx(0.62)


def test_gpu_time_is_of_those_who_used_gpus_and_jobs_without_a_name_are_counted_aside():
    jobs = make_jobs(
        [
            {"user": "a", "num_gpus": 4.0, "duration_s": 100.0, "vc": "x"},
            {"user": "b", "num_gpus": 0.0, "duration_s": 100.0, "vc": "x"},
            {"user": None, "num_gpus": 1.0, "duration_s": 400.0, "vc": "x"},
        ]
    )
    table = concentration(jobs)
    assert row_of(table, tenant="user", weight="jobs")["num_tenants"] == 2
    heavy = row_of(table, tenant="user", weight="gpu_time")
    assert (heavy["num_tenants"], heavy["known_share"], heavy["gini"]) == (1, 0.5, 0)


def test_by_vc_the_users_of_each():
    jobs = pl.concat([jobs_of(a=1, b=1).with_columns(vc=pl.lit("x")), jobs_of(a=9, b=1).with_columns(vc=pl.lit("y"))])
    table = concentration(jobs, by="vc").filter(weight="jobs")
    assert table.select("vc", "tenant", "gini").rows() == [("x", "user", 0), ("y", "user", 0.4)]


@pytest.mark.full_trace
def test_kth_users_are_as_concentrated_as_a_plain_count_says(real_data):
    from analysis.loaders import load

    jobs = load("swf", [real_data("swf/KTH-SP2-1996-2.swf.gz")]).jobs
    counts = np.sort(jobs.to_pandas()["user"].value_counts().to_numpy())[::-1]
    row = row_of(concentration(jobs), tenant="user", weight="jobs")
    assert row["num_tenants"] == len(counts) == 214
    assert row["top_10_share"] == pytest.approx(counts[:10].sum() / counts.sum())
    pairs = np.abs(counts[:, None] - counts[None, :]).mean() / (2 * counts.mean())  # the definition by pairs
    assert row["gini"] == pytest.approx(pairs)
