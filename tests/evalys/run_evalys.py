"""What evalys makes of an SWF log, as arrays; run by the interpreter of evalys' own environment.

``python run_evalys.py LOG.swf OUT.npz``. Imports stand inside, since pytest collects this file without evalys.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path


def main(log: Path, out: Path) -> None:
    import numpy as np
    from evalys.jobset import JobSet
    from evalys.metrics import load_mean
    from evalys.workload import Workload
    from procset import ProcInt, ProcSet

    as_read = Workload.from_csv(str(log))
    with tempfile.TemporaryDirectory() as folder:
        padded = Path(folder) / "padded.swf"
        _pad(log, padded)
        whole = Workload.from_csv(str(padded))
    # JobSet adds starts and ends to a jobs table; it wants to know which processors, and any will do.
    table = whole.df.copy()
    table["allocated_resources"] = [ProcSet(ProcInt(0, max(count, 1) - 1)) for count in table["proc_alloc"]]
    jobs = JobSet(table).df
    turnaround = jobs["finish_time"] - jobs["submission_time"]
    load, queue = whole.utilisation, whole.queue
    np.savez(
        out,
        as_read_ids=as_read.df["jobID"].to_numpy(),
        ids=jobs["jobID"].to_numpy(),
        status=jobs["status"].to_numpy(),
        waiting=jobs["waiting_time"].to_numpy(),
        turnaround=turnaround.to_numpy(),
        slowdown=(turnaround / jobs["execution_time"]).to_numpy(),
        load_time=load.index.to_numpy(),
        load=load["load"].to_numpy(),
        load_mean=load_mean(load),
        queue_time=queue.index.to_numpy(),
        queue=queue["load"].to_numpy(),
        unix_start=whole.UnixStartTime,
    )


def _pad(log: Path, padded: Path) -> None:
    """Write the log with its first job twice: evalys takes the first row for a header of column names and drops it."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    first = next(place for place, line in enumerate(lines) if line.strip() and not line.startswith(";"))
    padded.write_text("".join([*lines[:first], lines[first], *lines[first:]]), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
