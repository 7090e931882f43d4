"""VCs that lend idle GPUs: hand-worked cases, and a plain-Python engine of its own."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import polars as pl
import pytest

from analysis.errors import UnknownNameError, UsageError
from analysis.replay import POLICIES, Cluster, replay
from tests.jobs import make_jobs
from tests.replay_cases import START


def job(name: str, at: float, gpus: float, seconds: float, vc: str) -> dict[str, Any]:
    return {
        "job_id": name,
        "submit_time": START + timedelta(seconds=at),
        "num_gpus": gpus,
        "duration_s": seconds,
        "vc": vc,
    }


def two_vcs() -> Cluster:
    return Cluster(pl.DataFrame({"node_id": ["1", "2"], "num_gpus": [4, 4], "vc": ["a", "b"]}))


#: a borrows b's node at 0; at 10 b wants it back for 5 s.
LOAN = [job("a1", 0, 4, 100, "a"), job("a2", 0, 4, 50, "a"), job("b1", 10, 4, 5, "b")]


def ends(rows: list[dict[str, Any]], policy: str = "lending", cluster: Cluster | None = None, **options: Any) -> Any:
    chosen = POLICIES[policy].using(**options)
    return replay(make_jobs(rows), cluster=cluster or two_vcs(), policy=chosen).schedule


def test_idle_gpus_are_borrowed_and_given_back():
    schedule = ends(LOAN)
    assert schedule["end_s"].to_list() == [100, 55, 15]
    assert schedule["num_preemptions"].to_list() == [0, 1, 0]
    assert schedule["nodes"].to_list() == [["1"], ["2"], ["2"]]
    assert schedule["wasted_gpu_s"].sum() == 0


def test_without_lending_each_keeps_to_its_own():
    assert ends(LOAN, policy="fifo")["end_s"].to_list() == [100, 150, 15]


def test_a_restart_costs_the_borrower_and_nobody_else():
    schedule = ends(LOAN, restart_cost_s=2.0)
    assert schedule["end_s"].to_list() == [100, 57, 15]
    assert schedule["wasted_gpu_s"].to_list() == [0, 8, 0]


def test_an_owner_waits_for_the_minimum_run_time_at_most():
    schedule = ends(LOAN, min_run_s=20.0)
    assert schedule["start_s"].to_list() == [0, 0, 20]
    assert schedule["end_s"].to_list() == [100, 55, 25]


def test_the_guest_that_came_last_goes_first_and_only_who_is_in_the_way():
    rows = [
        job("a1", 0, 4, 100, "a"),
        *[job(f"a{i}", i, 1, 50, "a") for i in (2, 3, 4)],
        job("b1", 10, 2, 5, "b"),
    ]
    schedule = ends(rows)
    # One GPU of b is idle, one guest must go: a4.
    assert schedule["num_preemptions"].to_list() == [0, 0, 0, 1, 0]
    assert schedule["start_s"].to_list()[-1] == 10


def test_the_head_blocks_or_is_passed_over():
    wide = [job("a1", 0, 4, 100, "a"), job("b1", 0, 2, 100, "b"), job("a2", 1, 4, 10, "a"), job("a3", 2, 2, 10, "a")]
    assert ends(wide, policy="lending")["start_s"].to_list() == [0, 0, 100, 100]
    assert ends(wide, policy="lending_skip")["start_s"].to_list() == [0, 0, 100, 2]


def test_the_order_is_an_option():
    rows = [job("a0", 0, 4, 10, "a"), job("b0", 0, 4, 10, "b"), job("a1", 1, 4, 9, "a"), job("a2", 1, 4, 5, "a")]
    assert ends(rows, order="sjf")["end_s"].to_list() == [10, 10, 19, 15]
    with pytest.raises(UnknownNameError, match="sjf"):
        POLICIES["lending"].using(order="nobody")
    with pytest.raises(UsageError, match="moves"):
        POLICIES["lending"].using(order="srtf")


def test_other_placements_are_refused_by_name():
    with pytest.raises(UsageError, match="consolidate"):
        replay(make_jobs(LOAN), cluster=two_vcs(), policy="lending", placement="fgd")


# --- an engine of its own: seconds, one node per VC, no costs, looks at everything at every instant ----------------


class Plain:
    def __init__(
        self,
        rows: list[dict[str, Any]],
        sizes: dict[str, int],
        *,
        blocks: bool,
        outages: list[tuple[str, int, int]] = (),
    ) -> None:
        self.outages = outages  # host, down, up
        self.out: set[str] = set()
        self.kills = {row["job_id"]: 0 for row in rows}
        self.coming = sorted(rows, key=place)
        self.sizes, self.blocks = sizes, blocks
        self.left = {row["job_id"]: row["duration_s"] for row in rows}
        self.first: dict[str, float] = {}
        self.end: dict[str, float] = {}
        self.stops = dict.fromkeys(self.left, 0)
        self.waiting: list[dict[str, Any]] = []
        self.now = -1.0
        #: Job, host, since when; in the order of their starts.
        self.running: list[tuple[dict[str, Any], str, float]] = []

    def free(self, host: str) -> float:
        if host in self.out:
            return 0
        return self.sizes[host] - sum(row["num_gpus"] for row, where, _ in self.running if where == host)

    def begin(self, row: dict[str, Any], host: str, now: float) -> None:
        self.waiting.remove(row)
        self.running.append((row, host, now))
        self.first.setdefault(row["job_id"], now)

    def in_the_way(self, row: dict[str, Any]) -> list[Any] | None:
        """Guests that must go for a job to start at home; None if it does not fit even so."""
        home = row["vc"]
        guests = [one for one in reversed(self.running) if one[1] == home and one[0]["vc"] != home]
        out, room = [], self.free(home) - row["num_gpus"]
        while room < 0 and guests:
            out.append(guests.pop(0))
            room += out[-1][0]["num_gpus"]
        if room < 0:
            return None
        for guest in reversed(out):
            if guest[0]["num_gpus"] <= room:
                room -= guest[0]["num_gpus"]
                out.remove(guest)
        return out

    def at_home(self, home: str, now: float) -> None:
        for row in [row for row in self.waiting if row["vc"] == home]:
            out = self.in_the_way(row)
            if out is None and self.blocks:
                return
            for guest in out or []:
                self.running.remove(guest)
                self.left[guest[0]["job_id"]] -= now - guest[2]
                self.stops[guest[0]["job_id"]] += 1
                self.waiting.append(guest[0])
            self.waiting.sort(key=place)
            if out is not None:
                self.begin(row, home, now)

    def borrow(self, now: float) -> bool:
        asked: set[Any] = set()
        before = len(self.running)
        for row in list(self.waiting):
            ask = row["vc"] if self.blocks else (row["vc"], row["num_gpus"])
            if ask not in asked:
                asked.add(ask)
                hosts = sorted((one for one in sorted(self.sizes) if one != row["vc"]), key=lambda one: -self.free(one))
                host = next((one for one in hosts if self.free(one) >= row["num_gpus"]), None)
                if host is not None:
                    self.begin(row, host, now)
        return len(self.running) > before

    def run(self) -> dict[str, tuple[float, float, int]]:
        """First start, end, preemptions and kills of every job."""
        while self.coming or self.running or self.waiting:
            instants = [second(row) for row in self.coming[:1]]
            instants += [at for _, *span in self.outages for at in span if at > self.now]
            self.now = now = min(instants + [since + self.left[row["job_id"]] for row, _, since in self.running])
            for one in [one for one in self.running if one[2] + self.left[one[0]["job_id"]] == now]:
                self.running.remove(one)
                self.end[one[0]["job_id"]] = now
            self.node_events(now)
            while self.coming and second(self.coming[0]) == now:
                self.waiting.append(self.coming.pop(0))
            self.start_all(now)
        return {name: (self.first[name], self.end[name], self.stops[name], self.kills[name]) for name in self.left}

    def node_events(self, now: float) -> None:
        """All of a host comes and goes at once, and what ran there has lost all that it did since it started there."""
        self.out = {host for host, down, up in self.outages if down <= now < up}
        struck = {host for host, down, _ in self.outages if down == now}
        for one in [one for one in self.running if one[1] in struck]:
            self.running.remove(one)
            self.waiting.append(one[0])
            self.kills[one[0]["job_id"]] += 1
        self.waiting.sort(key=place)

    def start_all(self, now: float) -> None:
        while True:
            for home in sorted(self.sizes):
                self.at_home(home, now)
            if not self.borrow(now):
                return


def place(row: dict[str, Any]) -> tuple[Any, int]:
    return row["submit_time"], int(row["job_id"])


def second(row: dict[str, Any]) -> float:
    return float((row["submit_time"] - START).total_seconds())


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("blocks", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_an_engine_of_its_own_agrees(seed: int, blocks: bool, fails: bool):  # noqa: FBT001
    rng = random.Random(seed)
    sizes = {"a": 4, "b": 8, "c": 2}
    rows = []
    for i in range(60):
        vc = rng.choice("aabbc")
        gpus = rng.choice([g for g in (1, 1, 2, 3, 4, 8) if g <= sizes[vc]])
        rows.append(job(str(i), rng.randint(0, 60), gpus, rng.randint(1, 20), vc))
    nodes = pl.DataFrame({"node_id": list("123"), "num_gpus": list(sizes.values()), "vc": list(sizes)})
    spans = [(rng.choice("abc"), at, at + rng.randint(1, 15)) for at in rng.sample(range(200), 12)] if fails else []
    cluster = failing(nodes, spans)
    schedule = ends(rows, policy="lending" if blocks else "lending_skip", cluster=cluster)
    counted = schedule.select("job_id", "start_s", "end_s", "num_preemptions", "num_restarts")
    found = {name: tuple(values) for name, *values in counted.iter_rows()}
    begin = min(second(row) for row in rows)
    expected = Plain(rows, sizes, blocks=blocks, outages=spans).run()
    assert found == {name: (a - begin, b - begin, *counts) for name, (a, b, *counts) in expected.items()}
    assert sum(stops for _, _, stops, _ in expected.values()) > 0
    assert (sum(kills for *_, kills in expected.values()) > 0) == fails


def failing(nodes: pl.DataFrame, spans: list[tuple[str, int, int]]) -> Cluster:
    """Nodes that fail with their VC, from and until seconds."""
    if not spans:
        return Cluster(nodes)
    node_of = dict(nodes.select("vc", "node_id").iter_rows())
    rows = [
        {"node_id": node_of[vc], "down": START + timedelta(seconds=down), "up": START + timedelta(seconds=up)}
        for vc, down, up in spans
    ]
    return Cluster(nodes, outages=pl.DataFrame(rows))
