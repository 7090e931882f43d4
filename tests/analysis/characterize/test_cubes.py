"""Cubes of parts of a log add up to the cube of the whole; quantiles and distributions of counted values are exact."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.characterize import GROUPS, Cube, Rows, merge
from analysis.characterize.prepare import Facts, prepare, whole_jobs
from analysis.characterize.weighted import grid_shares, group_quantiles
from analysis.errors import HindcastError, UsageError

CUBE = Cube(
    "made",
    keys={"status": pl.col("status"), "size": pl.col("milli_gpus")},
    values={
        "num_jobs": pl.len().cast(pl.Int64),
        "sum_gpu_us": pl.col("gpu_us").sum(),
        "min_run_s": pl.col("run_s").min(),
        "max_run_s": pl.col("run_s").max(),
    },
    where=pl.col("duration_s").is_not_null(),
)

rows = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None]),
        st.sampled_from(["failed", "completed", None]),
        st.sampled_from([0.0, 0.3, 1.0, 8.0, None]),
        st.one_of(st.none(), st.integers(0, 10**6).map(float), st.floats(0, 1e6, allow_nan=False)),
    ),
    max_size=40,
)


def prepared(table: list[tuple[object, ...]]) -> pl.LazyFrame:
    names = {"vc": pl.String, "status": pl.String, "num_gpus": pl.Float64, "duration_s": pl.Float64}
    return prepare(whole_jobs(pl.DataFrame(table, schema=names, orient="row").lazy()), num_jobs=len(table))


@settings(deadline=None)
@given(table=rows, cuts=st.lists(st.integers(0, 40), max_size=4), by=st.sampled_from([(), ("vc",), ("status", "vc")]))
def test_parts_in_any_order_add_up_to_the_whole(table, cuts, by) -> None:
    jobs = prepared(table)
    edges = sorted({0, len(table), *(cut for cut in cuts if cut < len(table))})
    parts = [CUBE.query(jobs.slice(begin, end - begin), by=by).collect() for begin, end in pairwise(edges)] or [
        CUBE.query(jobs, by=by).collect()
    ]
    whole = merge(CUBE, [CUBE.query(jobs, by=by).collect()], by)
    assert merge(CUBE, parts, by).equals(whole)
    assert merge(CUBE, parts[::-1], by).equals(whole)
    halfway = [merge(CUBE, parts[:2], by), *parts[2:]]
    assert merge(CUBE, halfway, by).equals(whole)
    assert whole["num_jobs"].sum() == sum(row[3] is not None for row in table)
    # A key that is a group as well comes once.
    assert whole.columns == [*dict.fromkeys([*by, "status", "size"]), *CUBE.values]


@settings(deadline=None)
@given(table=rows)
def test_a_cube_without_keys_is_one_row(table) -> None:
    cube = Cube("all", keys={}, values={"num_jobs": pl.len(), "sum_gpu_us": pl.col("gpu_us").sum()})
    jobs = prepared(table)
    one, two = cube.query(jobs.head(3)).collect(), cube.query(jobs.slice(3)).collect()
    assert merge(cube, [one, two]).rows() == cube.query(jobs).collect().rows()


def test_rows_keep_what_passes_with_the_groups_first() -> None:
    source = Rows("some", columns={"run_s": pl.col("run_s")}, where=pl.col("run_s") > 5)
    jobs = prepared([("a", "failed", 1.0, 3.0), ("b", None, 1.0, 7.0)])
    parts = [source.query(jobs.slice(k, 1), by=("vc",)).collect() for k in (0, 1)]
    assert merge(source, parts, ("vc",)).rows(named=True) == [{"vc": "b", "run_s": 7.0}]


def test_sums_of_gpu_time_are_integers_and_do_not_drift() -> None:
    table = [("a", None, 0.1, 0.1)] * 1000
    cube = Cube("all", keys={}, values={"sum_gpu_us": pl.col("gpu_us").sum()})
    assert cube.query(prepared(table)).collect().item() == 1000 * 10_000


def test_values_that_cannot_be_merged_are_refused() -> None:
    with pytest.raises(
        HindcastError, match=r"cube 'x': values \['mean_s'\] cannot be merged; names begin with num, sum"
    ):
        Cube("x", keys={}, values={"mean_s": pl.col("run_s").mean()})


def test_a_key_named_as_a_group_is_that_group() -> None:
    for name, expr in GROUPS.items():
        assert Cube("x", keys={name: expr}, values={"num_jobs": pl.len()})
    with pytest.raises(HindcastError, match="key 'status' is not the group of that name"):
        Cube("x", keys={"status": pl.col("status").fill_null("unknown")}, values={"num_jobs": pl.len()})


counted = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5)), min_size=1, max_size=25)
groups = st.dictionaries(st.sampled_from("abcd"), counted, min_size=1)


@settings(deadline=None)
@given(table=groups, at=st.floats(0, 1))
def test_quantiles_of_counted_values_are_those_of_the_values(table, at) -> None:
    frame = pl.DataFrame(
        [(group, float(value), count) for group, pairs in table.items() for value, count in pairs],
        schema={"g": pl.String, "x": pl.Float64, "n": pl.Int64},
        orient="row",
    ).sort("g", "x")
    found = group_quantiles(frame, ["g"], value="x", weight="n", at={"q": at})
    for group, quantile in found.iter_rows():
        values = np.repeat(*(np.array(column, dtype=int) for column in zip(*table[group], strict=True)))
        assert quantile == pytest.approx(np.quantile(values, at), abs=1e-6)
    one = group_quantiles(frame.sort("x"), [], value="x", weight="n", at={"q": at}).item()
    together = np.repeat(frame["x"].to_numpy(), frame["n"].to_numpy())
    assert one == pytest.approx(np.quantile(together, at), abs=1e-6)


@settings(deadline=None)
@given(table=groups, at=st.floats(0.01, 1))
def test_weighted_quantiles_reach_the_share_and_not_before(table, at) -> None:
    frame = pl.DataFrame(
        [(group, float(value), weight) for group, pairs in table.items() for value, weight in pairs],
        schema={"g": pl.String, "x": pl.Float64, "n": pl.Int64},
        orient="row",
    ).sort("g", "x")
    found = group_quantiles(frame, ["g"], value="x", weight="n", at={"q": at}, interpolated=False)
    assert found["g"].to_list() == sorted(table)
    for group, quantile in found.iter_rows():
        assert quantile in {value for value, _ in table[group]}
        total = sum(weight for _, weight in table[group])
        assert sum(weight for value, weight in table[group] if value <= quantile) >= at * total * (1 - 1e-9)
        assert sum(weight for value, weight in table[group] if value < quantile) < at * total


def test_a_group_without_weight_has_no_quantile() -> None:
    frame = pl.DataFrame({"g": ["a", "b"], "x": [1.0, 2.0], "n": [0, 3]})
    for interpolated in (True, False):
        found = group_quantiles(frame, ["g"], value="x", weight="n", at={"q": 0.5}, interpolated=interpolated)
        assert found.rows() == [("a", None), ("b", 2.0)]
    nothing = frame.clear()
    assert group_quantiles(nothing, ["g"], value="x", weight="n", at={"q": 0.5}).columns == ["g", "q"]
    assert group_quantiles(nothing, [], value="x", weight="n", at={"q": 0.5}).rows() == [(None,)]


def test_distributions_share_their_grid_and_end_at_1() -> None:
    frame = pl.DataFrame({"g": ["a", "a", "b"], "x": [0.0, 10.0, 100.0], "n": [1, 3, 1], "w": [0, 0, 7]})
    shares = grid_shares(frame, by=["g"], value="x", weights=(("jobs", "n"), ("gpu_time", "w")))
    assert shares["x"].n_unique() == 41
    a = dict(shares.filter(g="a", weight="jobs").select("x", "share").iter_rows())
    assert (a[1.0], a[10.0], a[100.0]) == (0.25, 1.0, 1.0)
    assert shares.filter(g="a", weight="gpu_time").is_empty()
    assert shares.filter(g="b", weight="gpu_time")["share"].to_list() == [0.0] * 40 + [1.0]


def test_columns_that_a_table_lacks_are_null_and_others_are_read_as_the_schema_says() -> None:
    table = pl.DataFrame({"status": ["failed", "what?"], "num_gpus": [1, 2], "submit_time": [0, 1]})
    naive = table.with_columns(pl.from_epoch("submit_time").cast(pl.Datetime("ms")))
    jobs = whole_jobs(naive.lazy()).collect()
    assert jobs["status"].to_list() == ["failed", None]
    assert jobs["num_gpus"].dtype == pl.Float64
    assert jobs["submit_time"].dtype == pl.Datetime("us", "UTC")
    assert jobs["censoring"].to_list() == ["none"] * 2
    assert jobs["flags"].to_list() == [[], []]
    assert jobs["duration_s"].null_count() == 2


def test_facts_of_parts_add_up() -> None:
    jobs = whole_jobs(
        pl.DataFrame({"submit_time": [None, 5, 9], "end_time": [1, 20, None]})
        .with_columns(pl.col("submit_time", "end_time").cast(pl.Int64).cast(pl.Datetime("us", "UTC")))
        .lazy()
    )
    ready = prepare(jobs, num_jobs=3)
    parts = [Facts.query(ready.slice(k, 1)).collect() for k in range(3)]
    assert Facts.merge(parts) == Facts(num_jobs=3, first_submit_us=5, last_submit_us=9, first_us=1, last_us=20)
    assert Facts.merge([Facts.query(ready.head(0)).collect()]) == Facts()


def test_something_else_than_a_table_is_refused() -> None:
    from analysis.characterize import characterize

    with pytest.raises(UsageError, match="found a str; expected a pandas, polars or Arrow table"):
        characterize("jobs.csv")


def test_cubes_are_sorted_by_names_and_values_with_nulls_first() -> None:
    rng = np.random.default_rng(3)
    table = pl.DataFrame({"user": ["b", None, "a", "ab"] * 5, "run_s": [None, 1.5, -2.0, 0.0, 7.0] * 4})
    cube = Cube("c", keys={"user": pl.col("user"), "run_s": pl.col("run_s")}, values={"num_jobs": pl.len()})
    counted = cube.query(table[rng.permutation(table.height)].lazy()).collect()
    assert cube.merge([counted]).equals(table.group_by("user", "run_s").agg(num_jobs=pl.len()).sort("user", "run_s"))


def test_rows_that_are_sorted_first_are_counted_like_others() -> None:
    rng = np.random.default_rng(4)
    table = pl.DataFrame({"key": rng.integers(0, 90, 200), "x": rng.integers(0, 9, 200)}).lazy()
    values = {"num_jobs": pl.len(), "sum_x": pl.col("x").sum()}
    keys = {"key": pl.col("key") // 2}
    fine, plain = (Cube("c", keys=keys, values=values, is_fine=is_fine) for is_fine in (True, False))
    whole = plain.merge([plain.query(table).collect()])
    assert fine.merge([fine.query(table).collect(engine="streaming")]).equals(whole)
    assert fine.merge([fine.query(table.slice(start, 50)).collect() for start in (0, 50, 100, 150)]).equals(whole)
