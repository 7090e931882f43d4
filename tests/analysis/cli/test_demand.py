"""Demand on the command line: a Trace and a CSV, scores, files, and each wrong turn in a sentence."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from analysis.cli import main
from analysis.loaders.synthetic import synthesize
from analysis.trace import Trace
from predictors.targets import DemandForecaster, backtest_demand


@pytest.fixture
def run(capsys):
    def call(*words):
        capsys.readouterr()
        code = main(["demand", *(str(word) for word in words)])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return code, out, err

    return call


@pytest.fixture
def nodes(tmp_path):
    """A CSV of busy nodes with a rhythm, every half hour, with a hole."""
    times = [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(minutes=30 * i) for i in range(30 * 48)]
    busy = [None if 900 < i < 930 else 10 + time.hour for i, time in enumerate(times)]
    table = pl.DataFrame({"when": [time.strftime("%Y-%m-%d %H:%M:%S") for time in times], "nodes": busy})
    table.write_csv(tmp_path / "nodes.csv")
    return tmp_path / "nodes.csv"


def test_a_csv_is_forecast_and_written(run, nodes, tmp_path):
    words = (nodes, "--time", "when", "--value", "nodes", "--horizons", "1,24", "-o", tmp_path / "out.csv")
    code, out, err = run(*words, "--json", "-")
    assert code == 0
    told = json.loads(out)
    assert [(row["horizon_h"], row["time"][:13]) for row in told] == [(1, "2024-01-31T00"), (24, "2024-01-31T23")]
    assert "2 forecasts written" in err
    table = pl.read_csv(nodes)
    expected = DemandForecaster(horizons_h=(1, 24)).fit(table.rename({"when": "time", "nodes": "value"})).predict()
    assert [row["predicted"] for row in told] == expected["predicted"].to_list()
    assert pl.read_csv(tmp_path / "out.csv")["predicted_p90"].to_list() == expected["predicted_p90"].to_list()


def test_a_backtest_of_a_trace_is_shown_and_written(run, tmp_path):
    synthesize(like="venus", num_jobs=400, seed=3).write(tmp_path / "T")
    code, out, _ = run(tmp_path / "T", "--horizons", "1", "--backtest", "--json", tmp_path / "scores.json")
    assert code == 0
    assert "baseline" in out
    scores = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    expected = backtest_demand(Trace.read(tmp_path / "T"), horizons_h=(1,)).scores
    assert scores == expected.to_dicts()


def test_wrong_turns_are_sentences(run, nodes, tmp_path):
    code, _, err = run(nodes)
    assert (code, "known: nodes, when" in err) == (2, True)
    code, _, err = run(nodes, "--time", "when", "--value", "nodes", "--horizons", "1,soon")
    assert (code, "'soon' is no whole number" in err) == (2, True)
    code, _, err = run(nodes, "--time", "when", "--value", "nodes", "--horizons", "9000")
    assert (code, "whole hours from 1 to 672" in err) == (2, True)
    code, _, err = run(tmp_path / "nothing")
    assert code == 1
    assert "nothing" in err
    (tmp_path / "bad.csv").write_bytes(b"\xff\xfe\x00broken")
    code, _, err = run(tmp_path / "bad.csv")
    assert code in {1, 2}
    assert err.startswith("hindcast: ")
    code, _, err = run(nodes, "--time", "when", "--value", "nodes", "-o", nodes)
    assert code == 2
