"""What is written in a source's format is read back unchanged, whatever happened.

Hypothesis invents jobs, nodes, measurements; a writer of ``tests/laws/formats`` (not the package's) puts them down as
the source would; the loader must give the same: times to the microsecond, sizes, owners, outcomes, and what is missing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.loaders import LOADERS, load
from analysis.trace import Trace
from tests.laws.formats import FORMATS, Expected

Row = dict[str, Any]


def test_every_loader_of_files_is_under_the_law():
    """A new loader needs a writer in ``tests/laws/formats``."""
    with_files = {name for name, loader in LOADERS.items() if loader.takes_files}
    assert with_files - {form.loader for form in FORMATS.values()} == set()


def only(row: Row, columns: Collection[str]) -> Row:
    """Some columns of a row; numbers without their last digits, in which x / 100 and x * 0.01 differ."""
    cells = {column: row[column] for column in columns}
    return {column: float(f"{cell:.13g}") if isinstance(cell, float) else cell for column, cell in cells.items()}


def difference(found: Sequence[Row], wanted: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Rows that only one of two tables has, in any order, with the columns of the wanted ones."""
    columns = wanted[0].keys() if wanted else ()
    surplus, expected = ([only(row, columns) for row in rows] for rows in (found, wanted))
    missing = []
    for row in expected:
        if row in surplus:
            surplus.remove(row)
        else:
            missing.append(row)
    return surplus, missing


def check(trace: Trace, expected: Expected) -> None:
    report = trace.meta.load_report
    assert (report.rows_in, report.rows_set_aside) == (expected.rows_in, 0), trace.rejects.to_dicts()
    assert report.unknown_statuses == {}
    wanted = {job["job_id"]: job for job in expected.jobs}
    found = {job["job_id"]: job for job in trace.jobs.to_dicts()}
    assert set(found) == set(wanted)
    for job_id, job in wanted.items():
        assert only(found[job_id], job) == only(job, job)
    for name, rows in expected.tables.items():
        assert difference(trace.table(name).to_dicts(), rows) == ([], []), name


@pytest.mark.parametrize("name", sorted(FORMATS))
@given(data=st.data())
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
def test_what_is_written_is_read_back(tmp_path_factory, name, data):
    form = FORMATS[name]
    case = data.draw(form.cases)
    paths = form.write(tmp_path_factory.mktemp("law"), case)
    check(load(form.loader, paths, **form.options(case)), form.expected(case))
