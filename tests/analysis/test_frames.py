"""Tables of pandas and Arrow at every public door that takes a jobs table; the answer is that of polars."""

from __future__ import annotations

import pandas as pd
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from analysis import Cluster, Trace, synthesize
from analysis.characterize import CHARACTERIZATIONS
from analysis.errors import SchemaError, UsageError
from analysis.frames import jobs_to_polars, to_polars
from analysis.loaders import load
from analysis.replay.engine import replay
from analysis.replay.gains import compare
from analysis.replay.policies import POLICIES
from predictors import make_predictor, predict_frame, training_view
from tests.contracts.test_every_trace import GOLDEN

TRACE = synthesize(num_jobs=400, seed=3)
CLUSTER = Cluster.from_trace(TRACE)
AS = {"pandas": lambda jobs: jobs.to_pandas(), "arrow": lambda jobs: jobs.to_arrow(), "lazy": lambda jobs: jobs.lazy()}


@pytest.fixture(params=AS)
def jobs(request):
    """The same jobs in another library."""
    return AS[request.param](TRACE.jobs)


@pytest.mark.parametrize("name", ["acme", "gavel", "kubernetes", "openb", "pai", "philly", "slurm", "swf"])
@pytest.mark.parametrize("library", ["pandas", "arrow"])
def test_a_jobs_table_comes_back_as_it_was(name, library):
    trace = load(name, GOLDEN / name / "raw")
    again = jobs_to_polars(AS[library](trace.jobs))
    assert_frame_equal(again.drop("extra"), trace.jobs.drop("extra"))
    assert again["extra"].struct.fields == trace.jobs["extra"].struct.fields


def test_a_trace_takes_it(jobs):
    assert_frame_equal(Trace(jobs, meta=TRACE.meta).jobs, TRACE.jobs)
    assert_frame_equal(TRACE.replace_jobs(jobs).jobs, TRACE.jobs)


def test_a_replay_takes_it(jobs):
    for policy in POLICIES:
        ours = replay(TRACE.jobs, cluster=CLUSTER, policy=policy)
        assert_frame_equal(replay(jobs, cluster=CLUSTER, policy=policy).schedule, ours.schedule)


def test_a_comparison_takes_it(jobs):
    ours = compare(TRACE.jobs, clusters={"c": CLUSTER}, predicted={})
    assert_frame_equal(compare(jobs, clusters={"c": CLUSTER}, predicted={}).table, ours.table)


def test_predictors_take_it(jobs):
    model, ours = make_predictor("user_median").fit(jobs), make_predictor("user_median").fit(TRACE.jobs)
    assert_frame_equal(
        predict_frame(model, TRACE.jobs.to_pandas(), history=jobs), predict_frame(ours, TRACE.jobs, history=TRACE.jobs)
    )
    cutoff = TRACE.jobs["submit_time"][200]
    assert_frame_equal(
        training_view(jobs, cutoff=cutoff), training_view(TRACE.jobs, cutoff=cutoff), check_column_order=False
    )


def test_every_characterization_takes_it(jobs):
    for item in CHARACTERIZATIONS.values():
        assert_frame_equal(item(jobs), item(TRACE.jobs))


def test_what_is_no_table_is_refused():
    with pytest.raises(UsageError, match="found a dict"):
        to_polars({"num_gpus": [1]})


def test_a_column_of_the_wrong_kind_is_told_by_name():
    wrong = TRACE.jobs.to_pandas().assign(num_gpus="many", status="odd")
    with pytest.raises(SchemaError, match="num_gpus") as error:
        Trace(wrong, meta=TRACE.meta)
    assert "status" in str(error.value)


def test_pandas_nan_is_null():
    assert to_polars(pd.DataFrame({"x": [1.0, float("nan")]}))["x"].null_count() == 1
    assert jobs_to_polars(pd.DataFrame({"is_single_node": [True, None]}))["is_single_node"].to_list() == [True, None]
    assert jobs_to_polars(pd.DataFrame({"extra": [None, None]})).schema["extra"] == pl.Struct({"nothing": pl.Boolean})
