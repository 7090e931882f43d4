"""Run accasim on an SWF log and write when each job started; started by test_accasim.py in accasim's own environment.

Usage: run_accasim.py LOG.swf NUM_NODES {fifo,easy} OUTPUT.csv
"""

import collections
import collections.abc
import csv
import json
import sys
import tempfile
from pathlib import Path

OUTPUT = {
    "format": "{job_id};{start_time};{end_time}",
    "attributes": {"job_id": ("id", "str"), "start_time": ("start_time", "int"), "end_time": ("end_time", "int")},
}


def main(log: str, num_nodes: str, policy: str, output: str) -> None:
    """Replay on equal nodes of one processor, first fit."""
    # accasim 1.1.3 is older than Python 3.10, which took this name away.
    collections.Mapping = collections.abc.Mapping  # type: ignore[attr-defined]

    from accasim.base.allocator_class import FirstFit
    from accasim.base.scheduler_class import EASYBackfilling, FirstInFirstOut
    from accasim.base.simulator_class import Simulator

    scheduler = {"fifo": FirstInFirstOut, "easy": EASYBackfilling}[policy]
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site.json"
        nodes = {"groups": {"node": {"core": 1}}, "resources": {"node": int(num_nodes)}}
        site.write_text(json.dumps({**nodes, "equivalence": {"processor": {"core": 1}}, "start_time": 0}))
        files = Simulator(
            log,
            str(site),
            scheduler(FirstFit()),
            RESULTS_FOLDER_PATH=folder,
            LOG_LEVEL="ERROR",
            statistics_output=False,
            SCHEDULE_OUTPUT=OUTPUT,
        ).start_simulation()
        rows = [line.split(";") for line in Path(files["sched-"]).read_text().splitlines()]
    with Path(output).open("w", newline="") as file:
        csv.writer(file).writerows([["job_id", "start_s", "end_s"], *rows])


if __name__ == "__main__":
    main(*sys.argv[1:])
