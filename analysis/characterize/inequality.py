"""How unevenly the cluster is used: Lorenz curves, Gini coefficients and shares of the largest users and VCs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from analysis.characterize.buckets import WEIGHT, grouped_schema
from analysis.characterize.registry import characterization
from analysis.characterize.tenants import USERS, VCS

__all__ = ["concentration", "concentration_curve", "gini", "lorenz"]

Floats = NDArray[np.float64]

TENANTS: Final = ("user", "vc")
#: What a tenant's part is measured in, and the column that holds it.
PARTS: Final = {"jobs": "num_jobs", "gpu_time": "sum_gpu_us"}
TOP: Final = (1, 5, 10)
TOP_PERCENT: Final = (1, 5, 10, 20)
#: Points of a Lorenz curve besides its beginning.
NUM_POINTS: Final = 100

CONCENTRATION_SCHEMA: Final = {
    "tenant": pl.Enum(TENANTS),
    "weight": WEIGHT,
    "num_tenants": pl.Int64(),
    "known_share": pl.Float64(),
    "gini": pl.Float64(),
    "effective_tenants": pl.Float64(),
    **{f"top_{number}_share": pl.Float64() for number in TOP},
    **{f"top_{percent}pct_share": pl.Float64() for percent in TOP_PERCENT},
}
CURVE_SCHEMA: Final = {
    "tenant": pl.Enum(TENANTS),
    "weight": WEIGHT,
    "tenant_share": pl.Float64(),
    "share": pl.Float64(),
}


def gini(parts: Floats) -> float:
    """Gini coefficient: 0 where all have the same, (n - 1) / n where one of n has all.

    Parameters
    ----------
    parts : array of float
        What each has, in any order; not negative, not all 0.

    References
    ----------
    .. [1] C. Gini, "Measurement of Inequality of Incomes", The Economic Journal 31, 1921, doi:10.2307/2223319.

    Examples
    --------
    >>> gini(np.array([5.0, 5.0])), gini(np.array([0.0, 0.0, 0.0, 8.0]))
    (0.0, 0.75)
    """
    ordered, number = np.sort(parts), len(parts)
    rank = 2 * np.arange(1, number + 1) - number - 1
    return float((rank * ordered).sum() / (number * ordered.sum()))


def lorenz(parts: Floats, at: Floats) -> Floats:
    """Share of the whole that the poorest share ``at`` of all have, between two of them interpolated linearly.

    References
    ----------
    .. [1] M. O. Lorenz, "Methods of Measuring the Concentration of Wealth", Publications of the American Statistical
       Association 9(70), 1905, doi:10.2307/2276207.

    Examples
    --------
    >>> lorenz(np.array([3.0, 1.0]), np.array([0.0, 0.5, 0.75, 1.0])).tolist()
    [0.0, 0.25, 0.625, 1.0]
    """
    reached = np.append(0.0, np.cumsum(np.sort(parts)))
    curve: Floats = np.interp(at, np.linspace(0, 1, len(reached)), reached / reached[-1])
    return curve


def _parts(
    cubes: tuple[pl.DataFrame, ...], by: tuple[str, ...]
) -> Iterator[tuple[dict[str, Any], Floats, float | None]]:
    """Parts of each group's tenants by kind of tenant and weight, and the share of the whole that has a tenant."""
    for tenant, cube in zip(TENANTS, cubes, strict=True):
        if tenant in by:
            continue
        keys = [*by, tenant]
        summed = cube.group_by(keys).agg(pl.col(list(PARTS.values())).sum()).sort(keys)
        groups = summed.partition_by(by, as_dict=True, maintain_order=True) if by else {(): summed}
        for key, group in groups.items():
            known = group.filter(pl.col(tenant).is_not_null())
            for weight, column in PARTS.items():
                parts = known.filter(pl.col(column) > 0)[column].to_numpy().astype(np.float64)
                if len(parts):
                    name = {**dict(zip(by, key, strict=True)), "tenant": tenant, "weight": weight}
                    yield name, parts, float(parts.sum()) / float(group[column].sum())


@characterization(
    "concentration",
    title="How unevenly the cluster is used",
    definition=(
        "Users and virtual clusters by their part of the jobs, and those with GPU time by their part of it; jobs "
        "without a name are left out (known_share: the rest). gini: 0 where all have the same, 1 where one has all. "
        "effective_tenants: inverse Herfindahl index, how many of equal size would be as concentrated. top_5_share: "
        "part of the five largest; top_5pct_share: part of the largest 5 % (rounded up)."
    ),
    source=(
        "M. O. Lorenz, 1905, doi:10.2307/2276207; C. Gini, 1921, doi:10.2307/2223319; A. O. Hirschman, American "
        "Economic Review 54, 1964; top 5 % of users as in Q. Hu et al. (Helios), SC 2021, "
        "doi:10.1145/3458817.3476223"
    ),
    empty_means="The log names neither users nor virtual clusters.",
    inputs=(USERS, VCS),
)
def concentration(users: pl.DataFrame, vcs: pl.DataFrame, *, by: tuple[str, ...] = ()) -> pl.DataFrame:
    """Gini coefficient and shares of the largest users and virtual clusters, by jobs and by GPU time.

    Parameters
    ----------
    users, vcs : DataFrame
        Collected from ``USERS`` and ``VCS``.
    by : tuple of str
        Columns of the grouping; the same kind of tenant is left out.

    Returns
    -------
    DataFrame, a row per group, kind of tenant and weight
        tenant, weight, num_tenants, known_share (of the jobs or GPU time), gini (0-1), effective_tenants,
        top_1_share, top_5_share, top_10_share, top_1pct_share … top_20pct_share (0-1).
    """
    rows = []
    for name, parts, known in _parts((users, vcs), by):
        shares = np.sort(parts)[::-1] / parts.sum()
        reached = np.cumsum(shares)

        def of_largest(number: int, reached: Floats = reached) -> float:
            return min(float(reached[min(number, len(reached)) - 1]), 1.0)

        rows.append(
            {
                **name,
                "num_tenants": len(parts),
                "known_share": known,
                "gini": gini(parts),
                "effective_tenants": 1 / float(np.square(shares).sum()),
                **{f"top_{number}_share": of_largest(number) for number in TOP},
                **{
                    f"top_{percent}pct_share": of_largest(math.ceil(len(parts) * percent / 100 - 1e-9))
                    for percent in TOP_PERCENT
                },
            }
        )
    table = pl.DataFrame(rows, schema=grouped_schema(by, CONCENTRATION_SCHEMA), orient="row")
    return table.sort([*by, "tenant", "weight"])


@characterization(
    "concentration_curve",
    title="Lorenz curves of users and virtual clusters",
    definition=(
        "Share of the jobs, or of the GPU time, that the smallest so many percent of the users (virtual clusters) "
        "have. On the diagonal all would have the same; the further below it, the more a few have."
    ),
    source="M. O. Lorenz, 1905, doi:10.2307/2276207",
    empty_means="The log names neither users nor virtual clusters.",
    inputs=(USERS, VCS),
)
def concentration_curve(users: pl.DataFrame, vcs: pl.DataFrame, *, by: tuple[str, ...] = ()) -> pl.DataFrame:
    """Lorenz curves of users and virtual clusters, by jobs and by GPU time, at every percent of them.

    Parameters
    ----------
    users, vcs : DataFrame
        Collected from ``USERS`` and ``VCS``.
    by : tuple of str
        Columns of the grouping; the same kind of tenant is left out.

    Returns
    -------
    DataFrame, 101 rows per group, kind of tenant and weight
        tenant, weight, tenant_share (of the tenants, the smallest first, 0-1), share (of the jobs or GPU time, 0-1).
    """
    at = np.linspace(0, 1, NUM_POINTS + 1)
    columns = grouped_schema(by, CURVE_SCHEMA)
    parts = [pl.DataFrame(schema=columns)]
    for name, values, _ in _parts((users, vcs), by):
        curve = pl.DataFrame({"tenant_share": at, "share": lorenz(values, at)})
        named = (pl.lit(value, columns[column]).alias(column) for column, value in name.items())
        parts.append(curve.with_columns(named).select(list(columns)))
    return pl.concat(parts).sort([*by, "tenant", "weight", "tenant_share"])
