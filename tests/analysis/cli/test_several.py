"""Commands on several Traces: side by side in tables, figures and a page."""

from __future__ import annotations

import polars as pl
import pytest

from analysis.characterize import characterize
from analysis.cli import main
from analysis.trace import Trace


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = []
    for name, like in (("mine", "venus"), ("theirs", "philly")):
        made.append(tmp_path_factory.mktemp("several") / name)
        assert main(["synth", "--like", like, "--jobs", "400", "--seed", "1", "-o", str(made[-1])]) == 0
    return made


@pytest.fixture(scope="module")
def written(folders, tmp_path_factory):
    output = tmp_path_factory.mktemp("out") / "C"
    assert main(["characterize", *map(str, folders), "-o", str(output)]) == 0
    return output


def test_tables_hold_all_logs_with_their_names_first(written, folders):
    traces = [Trace.read(folder) for folder in folders]
    names = [trace.meta.name for trace in traces]
    for name, table in characterize(traces[1]).items():
        stacked = pl.read_parquet(written / "tables" / f"{name}.parquet")
        assert stacked.columns[0] == "trace"
        assert set(stacked["trace"]) <= set(names)
        own = stacked.filter(pl.col("trace") == names[1])
        expected = table.drop("trace", strict=False)
        assert own.select(expected.columns).equals(expected), name
        assert pl.read_csv(written / "tables" / f"{name}.csv", infer_schema=False).height == stacked.height


def test_published_logs_stand_beside_ours(written):
    table = pl.read_parquet(written / "tables" / "published_comparison.parquet")
    assert table["is_published"].to_list()[:2] == [False, False]
    philly = table.filter(pl.col("is_published") & (pl.col("trace") == "Philly")).row(0, named=True)
    assert (philly["median_duration_s"], philly["mean_gpus"]) == (874.0, 1.928)
    assert {"Helios", "Seren", "Kalos", "PAI"} <= set(table["trace"])


def test_figures_are_svg_and_png_of_the_same_names(written):
    files = sorted(path.name for path in (written / "figures").iterdir())
    stems = {name.rsplit(".", 1)[0] for name in files}
    assert {"duration_cdf", "gpu_demand", "published_comparison"} <= stems
    assert files == sorted(f"{stem}.{kind}" for stem in stems for kind in ("svg", "png"))


def test_one_page_compares_them(folders, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main(["report", *map(str, folders), "-o", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "compared" in text
    assert page.stat().st_size < 5_000_000
    assert str(page) in capsys.readouterr().out


def test_two_traces_of_one_name_are_called_as_their_folders(folders, tmp_path, capsys):
    twin = tmp_path / "twin"
    assert main(["synth", "--like", "venus", "--jobs", "300", "--seed", "2", "-o", str(twin)]) == 0
    output = tmp_path / "C"
    assert main(["characterize", str(folders[0]), str(twin), "-o", str(output)]) == 0
    assert set(pl.read_parquet(output / "tables" / "summary.parquet")["trace"]) == {"mine", "twin"}
    capsys.readouterr()


def test_the_workload_alone_is_a_page_too(folders, tmp_path):
    page = tmp_path / "page.html"
    assert main(["report", str(folders[0]), "--workload-only", "-o", str(page)]) == 0
    assert "No predictor was scored on this log" in page.read_text(encoding="utf-8")


def test_a_page_about_some_of_the_jobs_says_which(folders, tmp_path):
    page = tmp_path / "page.html"
    words = ["report", str(folders[0]), "--where", "num_gpus > 1", "--workload-only", "-o", str(page)]
    assert main(words) == 0
    text = page.read_text(encoding="utf-8")
    jobs = Trace.read(folders[0]).jobs
    wide = jobs.filter(pl.col("num_gpus") > 1).height
    assert 0 < wide < jobs.height
    assert f"The log holds {wide} jobs" in text
    assert "about the jobs with num_gpus &gt; 1," in text


@pytest.mark.parametrize("option", [["--cluster", "4x8"], ["--models", "global_median"], ["--no-vc"]])
def test_options_of_the_road_are_refused_where_there_is_none(folders, tmp_path, capsys, option):
    assert main(["report", *map(str, folders), *option, "-o", str(tmp_path / "page.html")]) == 2
    assert option[0] in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()


def test_the_page_is_not_written_into_a_trace(folders, capsys):
    assert main(["report", *map(str, folders), "-o", str(folders[1] / "page.html")]) == 2
    assert "would be written over" in capsys.readouterr().err
