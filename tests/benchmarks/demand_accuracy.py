"""How far demand forecasts are off on Philly's active nodes, against the naive forecasts.

    python -m tests.benchmarks.demand_accuracy --data ../shared/data

Hourly means of the nodes in use; the last 40 % of the hours are forecast, each from what was known 1, 6, 24 and 168
hours before, learners anew every week. ``--to 0.6 --split 0.48`` is the part on which the method was developed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import polars as pl

from predictors.targets import backtest_demand, demand_series

FILE = "philly/philly_active_nodes.csv.gz"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--split", type=float, default=0.6)
    parser.add_argument("--to", dest="last", type=float, default=1.0)
    parser.add_argument("--refit", default="weekly")
    given = parser.parse_args()
    hours = demand_series(pl.read_csv(given.data / FILE), value="active")
    hours = hours.head(int(given.last * hours.height))
    result = backtest_demand(hours, split=given.split, refit=given.refit)
    for row in result.scores.to_dicts():
        told = {name: round(value, 3) if isinstance(value, float) else value for name, value in row.items()}
        sys.stdout.write(f"{told}\n")
    sys.stdout.write(f"{result.forecasts.group_by('horizon_h', 'choice').len().sort('horizon_h').rows()}\n")


if __name__ == "__main__":
    main()
