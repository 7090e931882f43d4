"""Fits recover the parameters of draws under censoring, agree with scipy, and say what they know and do not know."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy import stats

from analysis.characterize.censored import Sample, fit, kaplan_meier, ks_distance
from analysis.characterize.families import FAMILIES, GENERALIZED_PARETO
from analysis.characterize.fits import duration_fit_curves, duration_fit_parameters, duration_fits
from analysis.characterize.fitted import fit_durations, verdict
from analysis.characterize.tails import duration_tail_index, hill, power_tail
from tests.jobs import make_jobs

NUM_DRAWS = 20_000
FAMILY = {family.name: family for family in (*FAMILIES, GENERALIZED_PARETO)}


def mixture(rng: np.random.Generator, weights: list[float], means: list[float]) -> np.ndarray:
    return rng.exponential(np.array(means)[rng.choice(len(weights), NUM_DRAWS, p=weights)])


# Parameters in the order of the family's, and how scipy or numpy draws from it.
CASES = {
    "lognormal": ([7.0, 2.0], lambda rng: rng.lognormal(7.0, 2.0, NUM_DRAWS)),
    "weibull": ([0.5, 3000.0], lambda rng: 3000.0 * rng.weibull(0.5, NUM_DRAWS)),
    "gamma": ([0.4, 8000.0], lambda rng: rng.gamma(0.4, 8000.0, NUM_DRAWS)),
    "hyperexponential_2": ([0.7, 0.3, 60.0, 9000.0], lambda rng: mixture(rng, [0.7, 0.3], [60.0, 9000.0])),
    "hyperexponential_3": (
        [0.5, 0.3, 0.2, 30.0, 2000.0, 90000.0],
        lambda rng: mixture(rng, [0.5, 0.3, 0.2], [30.0, 2000.0, 90000.0]),
    ),
    "generalized_pareto": (
        [0.6, 500.0],
        lambda rng: stats.genpareto(0.6, scale=500.0).rvs(NUM_DRAWS, random_state=rng),
    ),
}


def censored_draws(name: str, *, seed: int, share: float = 0.3) -> tuple[np.ndarray, np.ndarray]:
    """Draws of which the given share is censored at a random time of their own; (value, is censored)."""
    rng = np.random.default_rng(seed)
    drawn = CASES[name][1](rng)
    limits = rng.permutation(drawn)
    low, high = -20.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.mean(limits * np.exp(middle) < drawn) > share else (low, middle)
    limits = limits * np.exp(high)
    return np.minimum(drawn, limits), limits < drawn


def sample_of(value: np.ndarray, censored: np.ndarray) -> Sample:
    return Sample.of(value, ended=(~censored).astype(float), censored=censored.astype(float))


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", sorted(CASES))
def test_every_family_recovers_its_parameters_under_30_percent_censoring(name, seed):
    value, censored = censored_draws(name, seed=seed)
    assert censored.mean() == pytest.approx(0.3, abs=1e-3)
    found = fit(FAMILY[name], sample_of(value, censored))
    assert found.is_converged
    assert (found.standard_error > 0).all()
    off = (found.estimate - np.array(CASES[name][0])) / found.standard_error
    assert np.abs(off).max() < 3, dict(zip(FAMILY[name].parameters, off, strict=True))


@pytest.mark.parametrize("name", sorted(CASES))
def test_standard_errors_are_as_wide_as_the_estimates_scatter(name):
    scores = []
    for seed in range(100, 120):
        value, censored = (part[:3000] for part in censored_draws(name, seed=seed))
        found = fit(FAMILY[name], sample_of(value, censored))
        scores.append((found.estimate - np.array(CASES[name][0])) / found.standard_error)
    # 20 scores of a standard normal have a root mean square in (0.6, 1.5) but once in 10,000.
    assert np.sqrt(np.square(scores).mean(axis=0)) == pytest.approx(1.05, abs=0.45)


def test_taking_censored_durations_as_they_are_would_be_wrong():
    value, censored = censored_draws("lognormal", seed=1)
    naive = fit(FAMILY["lognormal"], sample_of(value, np.zeros_like(censored)))
    assert (7.0 - naive.estimate[0]) / naive.standard_error[0] > 10


@pytest.mark.parametrize(
    ("name", "scipys", "order"),
    [
        ("lognormal", stats.lognorm, lambda p: [np.log(p[2]), p[0]]),
        ("weibull", stats.weibull_min, lambda p: [p[0], p[2]]),
        ("gamma", stats.gamma, lambda p: [p[0], p[2]]),
        ("generalized_pareto", stats.genpareto, lambda p: [p[0], p[2]]),
    ],
)
def test_estimates_and_likelihoods_agree_with_scipy(name, scipys, order):
    value, censored = (part[:1000] for part in censored_draws(name, seed=4))
    found = fit(FAMILY[name], sample_of(value, censored))
    data = stats.CensoredData(uncensored=value[~censored], right=value[censored])
    theirs = scipys.fit(data, *([0.4] if name == "gamma" else []), floc=0)
    # scipy stops its simplex a little before the top.
    assert order(theirs) == pytest.approx(found.estimate.tolist(), rel=2e-3)
    at_ours = {"lognormal": lambda e: (e[1], 0, np.exp(e[0]))}.get(name, lambda e: (e[0], 0, e[1]))(found.estimate)
    log_likelihood = scipys.logpdf(value[~censored], *at_ours).sum() + scipys.logsf(value[censored], *at_ours).sum()
    assert found.log_likelihood == pytest.approx(log_likelihood, rel=1e-12)


def test_the_standard_error_is_that_of_the_closed_form():
    # Without censoring the estimates are mean and sd of the log, their errors sd / sqrt n and sd / sqrt 2n.
    log = np.random.default_rng(5).normal(6.0, 1.5, 5000)
    found = fit(FAMILY["lognormal"], sample_of(np.exp(log), np.zeros(5000, dtype=bool)))
    assert found.estimate == pytest.approx([log.mean(), log.std()], rel=1e-9)
    expected = [log.std() / np.sqrt(5000), log.std() / np.sqrt(10_000)]
    assert found.standard_error == pytest.approx(expected, rel=1e-5)
    assert found.aic == pytest.approx(4 - 2 * found.log_likelihood)


def test_an_exponential_is_found_by_every_family_that_holds_it():
    # Events / total time is the estimate of its rate under censoring.
    rng = np.random.default_rng(6)
    drawn, limit = rng.exponential(100.0, 4000), rng.exponential(230.0, 4000)
    value, censored = np.minimum(drawn, limit), limit < drawn
    mean = value.sum() / (~censored).sum()
    for name in ("weibull", "gamma"):
        found = fit(FAMILY[name], sample_of(value, censored))
        assert found.estimate[0] == pytest.approx(1.0, abs=3 * found.standard_error[0])
        assert found.estimate[1] == pytest.approx(mean, rel=0.08)


def test_kaplan_meier_of_the_textbook_and_ks_without_censoring():
    # Freireich's 6-MP remission times (weeks), the example of every book on survival: S(6) = 0.857, S(23) = 0.448.
    value = [6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34, 35]
    ended = [1, 1, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]
    sample = sample_of(np.array(value, dtype=float), ~np.array(ended, dtype=bool))
    survival = dict(zip(sample.value.tolist(), kaplan_meier(sample).round(3).tolist(), strict=True))
    assert [survival[t] for t in (6, 7, 10, 13, 16, 22, 23)] == [0.857, 0.807, 0.753, 0.690, 0.627, 0.538, 0.448]
    drawn = np.random.default_rng(7).exponential(1.0, 500)
    ours = ks_distance(lambda x: 1 - np.exp(-x), sample_of(drawn, np.zeros(500, dtype=bool)))
    assert ours == pytest.approx(stats.kstest(drawn, "expon").statistic, rel=1e-12)


def test_bins_of_many_distinct_values_move_no_estimate_by_a_standard_error():
    value, censored = censored_draws("gamma", seed=8)
    exact = Sample(
        np.sort(value), (~censored)[np.argsort(value)].astype(float), censored[np.argsort(value)].astype(float)
    )
    wide = np.concatenate([value, value * (1 + 1e-9)])
    binned = sample_of(wide, np.concatenate([censored, censored]))
    assert len(binned.value) < 20_000 < len(np.unique(wide))
    assert binned.num_jobs == 2 * NUM_DRAWS
    one, two = fit(FAMILY["gamma"], exact), fit(FAMILY["gamma"], binned)
    assert np.abs((one.estimate - two.estimate) / one.standard_error).max() < 0.05


@pytest.mark.parametrize(("name", "words"), [("weibull", "Weibull"), ("lognormal", "Log-normal")])
def test_the_verdict_names_the_family_that_was_drawn_from(name, words):
    fitted = fit_durations(sample_of(*censored_draws(name, seed=9)))
    text = verdict(fitted)
    assert text.startswith(f"{words} describes the durations best of 5 families by AIC and lies closest")
    assert "within the 0.011 that chance explains" in text


def test_the_verdict_says_when_nothing_fits():
    # Two spikes, as time limits make them.
    rng = np.random.default_rng(10)
    value = np.concatenate([rng.uniform(3600, 3630, 3000), rng.uniform(86400, 86500, 3000)]).round()
    text = verdict(fit_durations(sample_of(value, np.zeros(6000, dtype=bool))))
    assert text.endswith("each is an approximation.")


def test_equal_durations_are_not_fitted():
    assert fit_durations(sample_of(np.full(1000, 60.0), np.zeros(1000, dtype=bool))) is None


def test_hill_recovers_the_index_of_a_power_law_under_censoring():
    rng = np.random.default_rng(11)
    drawn, limit = 10.0 * (1 + rng.pareto(1.4, NUM_DRAWS)), 10.0 * (1 + rng.pareto(0.6, NUM_DRAWS))
    sample = sample_of(np.minimum(drawn, limit), limit < drawn)
    assert sample.censored.sum() / NUM_DRAWS == pytest.approx(0.3, abs=0.01)  # 0.6 / (1.4 + 0.6)
    found = hill(sample, 10.0)
    assert found.index == pytest.approx(1.4, abs=3 * found.standard_error)
    assert found.ks < 0.02


def test_the_power_tail_begins_where_the_law_does():
    # Uniform below 1000, a power law of index 2 above: half of the jobs each.
    rng = np.random.default_rng(12)
    value = np.concatenate([rng.uniform(0, 1000, 5000), 1000 * (1 + rng.pareto(2.0, 5000))])
    tail = power_tail(sample_of(value, np.zeros(10_000, dtype=bool)))
    assert tail.threshold >= 1000
    assert tail.index == pytest.approx(2.0, abs=3 * tail.standard_error)


def jobs_of(value: np.ndarray, censored: np.ndarray, **more: object) -> pl.DataFrame:
    rows = [
        {"duration_s": float(v), "num_gpus": 1.0, "censoring": "right" if c else "none", **more}
        for v, c in zip(value, censored, strict=True)
    ]
    return make_jobs(rows)


def test_tables_hold_every_family_by_bucket_and_group():
    value, censored = (part[:2000] for part in censored_draws("weibull", seed=13, share=0.1))
    jobs = pl.concat([jobs_of(value + 1, censored, vc="a"), jobs_of(value[:20] + 1, censored[:20], vc="b")])
    table = duration_fits(jobs, by="vc")
    assert table["vc"].unique().to_list() == ["a"]  # 20 jobs are too few
    assert table["bucket"].unique(maintain_order=True).to_list() == ["all", "1"]
    first = table.head(6)
    assert set(first["family"]) == set(FAMILY)
    assert first["aic_above_best"].head(5).is_sorted()
    assert first["num_jobs"].head(5).to_list() == [2000] * 5
    assert first["num_censored"][0] == int(censored.sum())
    assert first["verdict"].is_not_null().to_list() == [True] + [False] * 5
    tail = first.filter(pl.col("part") == "tail")
    assert tail["aic_above_best"].item() is None
    parameters = duration_fit_parameters(jobs).filter(bucket="all", family="weibull")
    assert parameters["parameter"].to_list() == ["shape", "scale_s"]


def test_of_very_many_groups_the_largest_are_fitted(monkeypatch):
    from analysis.characterize import fits

    value = np.random.default_rng(22).lognormal(5, 1, 900)
    jobs = jobs_of(value, np.zeros(900, dtype=bool)).with_columns(
        user=pl.Series(np.repeat(["a", "b", "c"], [200, 400, 300]))
    )
    monkeypatch.setattr(fits, "MOST_SAMPLES", 4)  # each user has two: its GPU jobs, and those of one GPU
    assert duration_fits(jobs, by="user")["user"].unique().sort().to_list() == ["b", "c"]


def test_pitfall_b40_a_running_job_counts_as_a_lower_bound_not_as_its_time_so_far():
    value, censored = (part[:3000] for part in censored_draws("weibull", seed=14))
    shape = duration_fit_parameters(jobs_of(value, censored)).filter(bucket="1", family="weibull", parameter="scale_s")
    naive = duration_fit_parameters(jobs_of(value, censored & False))
    naive = naive.filter(bucket="1", family="weibull", parameter="scale_s")
    assert shape["estimate"].item() == pytest.approx(3000, abs=3 * shape["standard_error"].item())
    assert naive["estimate"].item() < 2500


@pytest.mark.parametrize("censoring", ["left", "right", "both"])
def test_pitfall_a22_a_duration_that_began_before_the_log_or_outlasts_it_is_a_lower_bound(censoring):
    value, censored = (part[:1000] for part in censored_draws("weibull", seed=19))
    jobs = jobs_of(value, censored)
    marked = jobs.with_columns(censoring=pl.lit(censoring).cast(jobs.schema["censoring"])).filter(pl.Series(censored))
    table = duration_fits(pl.concat([jobs.filter(pl.Series(~censored)), marked]))
    assert table.equals(duration_fits(jobs))
    assert table["num_censored"][0] == int(censored.sum())


def test_pitfalls_a5_b54_jobs_without_a_duration_are_in_no_fit():
    value = np.random.default_rng(20).lognormal(5, 1, 400)
    jobs = jobs_of(value, np.zeros(400, dtype=bool))
    unknown = make_jobs([{"job_id": f"n{n}", "num_gpus": 1.0, "censoring": "never_started"} for n in range(30)])
    assert duration_fits(pl.concat([jobs, unknown])).equals(duration_fits(jobs))


def test_pitfall_a26_a_log_without_submissions_is_still_fitted():
    jobs = jobs_of(np.random.default_rng(21).lognormal(5, 1, 400), np.zeros(400, dtype=bool))
    assert jobs["submit_time"].null_count() == 400
    assert duration_fits(jobs).height > 0


def test_pitfall_a35_zero_length_jobs_are_kept_and_nothing_is_infinite():
    value = np.concatenate([np.zeros(60), np.random.default_rng(15).lognormal(5, 1, 400)])
    table = duration_fits(jobs_of(value, np.zeros(460, dtype=bool)))
    assert table.filter(bucket="1", part="whole")["num_jobs"].to_list() == [460] * 5
    assert table.filter("is_converged")["aic"].is_finite().all()


def test_curves_rise_from_the_observed_to_the_fitted():
    value, censored = (part[:2000] for part in censored_draws("lognormal", seed=16, share=0.1))
    table = duration_fit_curves(jobs_of(value, censored)).filter(bucket="all")
    assert set(table["family"]) == {"observed", *FAMILY}
    for _, curve in table.group_by("family"):
        assert curve["share"].is_sorted()
        assert curve["share"].is_between(0, 1).all()
    wide = table.pivot("family", index="duration_s", values="share")
    # 20 points per decade; what differs is chance only.
    assert (wide["observed"] - wide["lognormal"]).abs().max() < 0.03


def test_tables_do_not_depend_on_the_order_of_the_rows():
    value, censored = (part[:1500] for part in censored_draws("gamma", seed=17))
    jobs = jobs_of(value, censored)
    mixed = jobs.sample(fraction=1.0, shuffle=True, seed=3)
    for table in (duration_fits, duration_fit_parameters, duration_fit_curves, duration_tail_index):
        assert table(jobs).equals(table(mixed))
        assert table(jobs.head(0)).height == 0
        assert table(jobs.head(0)).columns == table(jobs).columns


def test_the_tail_table_says_when_limits_shape_the_tail():
    # A tenth runs into a limit of a day and is killed within seconds.
    rng = np.random.default_rng(18)
    value = np.concatenate(
        [rng.lognormal(6, 1, 1700), 86400 + np.repeat([2.0, 3.0, 4.0], 100), 86400 + np.arange(5, 15)]
    )
    row = duration_tail_index(jobs_of(value, np.zeros(len(value), dtype=bool))).filter(bucket="1").row(0, named=True)
    assert row["excess_threshold_s"] >= 86400
    assert row["verdict"] is None or "the fit is poor" in row["verdict"]


@pytest.mark.full_trace
def test_philly_durations_are_heavy_tailed_and_no_family_is_exact(real_data):
    jobs = pl.read_csv(real_data("philly/philly_jobs.csv.gz"))
    jobs = jobs.select(duration_s=pl.col("duration").cast(pl.Float64), num_gpus=pl.col("num_gpus").cast(pl.Float64))
    table = duration_fits(jobs).filter(bucket="all")
    assert table["family"][0] == "hyperexponential_3"
    assert table["verdict"][0].endswith("each is an approximation.")
    assert duration_tail_index(jobs).filter(bucket="all")["excess_shape"].item() > 0.5
