"""Boosted trees of LightGBM or scikit-learn as tables that answer many rows, to the last bit as the library does.

A library walks from node to node: hundreds of tests per row, each waiting for the one before. Here every tree has a
word of bits, one per leaf. A feature's value decides by one search among its thresholds which of its tests fail, in all
trees; each threshold has the words that are left when all tests up to it have failed, so a row costs one AND per
feature it is tested on. The lowest bit left in a tree is the row's leaf [1]_, and the leaves are added tree after tree
as the library adds them.

References
----------
.. [1] C. Lucchese et al., "QuickScorer: A Fast Algorithm to Rank Documents with Additive Ensembles of Regression
   Trees", SIGIR 2015, doi:10.1145/2766462.2767733; words for every threshold instead of every node are our choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Forest", "Node", "Tree", "forest_of", "lightgbm_trees", "sklearn_trees"]

Floats = NDArray[np.float64]
ALL: Final = 0xFFFFFFFF
MOST_LEAVES: Final = 32


class Node(NamedTuple):
    """A test (value <= threshold goes left; ``unknown_left``: so does NaN); a child below 0 is a leaf, -1 the first."""

    feature: int
    threshold: float
    unknown_left: bool
    left: int
    right: int


class Tree(NamedTuple):
    """Tests, the first of them at the root, and the values of leaves; no test: one leaf."""

    nodes: Sequence[Node]
    leaves: Sequence[float]


class Forest(NamedTuple):
    """What ``forest_kernels.forest_pass`` reads; ``bounds`` are those of each feature's thresholds and their masks."""

    columns: NDArray[np.int64]
    is_moved: NDArray[np.bool_]
    bounds: NDArray[np.int64]
    thresholds: Floats
    unknown: NDArray[np.int64]
    masks: NDArray[np.uint32]
    leaves: Floats
    start: float

    def say(self, matrix: NDArray[np.float32], base: NDArray[np.float32]) -> Floats:
        """Sum of the leaves of each row; columns that are moved are seen less their base."""
        # numba takes half a second to import: only who computes pays.
        from predictors.forest_kernels import forest_pass

        out = np.empty(len(matrix))
        forest_pass(matrix, base, self, out)
        return out


def forest_of(trees: Sequence[Tree], *, columns: Sequence[int], is_moved: Sequence[bool], start: float) -> Forest:
    """Lay out trees whose features are places in ``columns`` of a matrix.

    Raises
    ------
    ValueError
        If a tree has more than 32 leaves, or children that do not exist or come before their parent.
    """
    leaves = np.zeros((len(trees), MOST_LEAVES))
    failing: dict[int, list[tuple[float, int, int, bool]]] = {}
    for place, tree in enumerate(trees):
        order = _numbered(tree)
        leaves[place, : len(order)] = [tree.leaves[leaf] for leaf in order]
        spans = _spans(tree, order)
        for node, (first, stop) in zip(tree.nodes, spans, strict=True):
            mask = ALL ^ ((1 << stop) - (1 << first))
            failing.setdefault(node.feature, []).append((node.threshold, place, mask, node.unknown_left))
    used = sorted(failing)
    parts = [_masks(failing[feature], len(trees)) for feature in used]
    counts = [len(thresholds) for thresholds, _, _ in parts]
    bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    known = [masks for _, masks, _ in parts]
    unknown = [row for _, _, row in parts]
    empty = np.zeros((0, len(trees)), dtype=np.uint32)
    return Forest(
        columns=np.array([columns[feature] for feature in used], dtype=np.int64),
        is_moved=np.array([is_moved[feature] for feature in used], dtype=np.bool_),
        bounds=bounds,
        thresholds=np.concatenate([np.zeros(0), *(thresholds for thresholds, _, _ in parts)]),
        unknown=bounds[-1] + np.arange(len(used)),
        masks=np.ascontiguousarray(np.vstack([empty, *known, *unknown])),
        leaves=leaves,
        start=float(start),
    )


def _masks(
    tests: list[tuple[float, int, int, bool]], num_trees: int
) -> tuple[Floats, NDArray[np.uint32], NDArray[np.uint32]]:
    """Thresholds of a feature in order, the words left when tests up to each have failed, and those of a NaN."""
    thresholds = np.unique([threshold for threshold, _, _, _ in tests])
    masks = np.full((len(thresholds), num_trees), ALL, dtype=np.uint32)
    unknown = np.full((1, num_trees), ALL, dtype=np.uint32)
    for place, (_, tree, mask, unknown_left) in zip(
        np.searchsorted(thresholds, [test[0] for test in tests]), tests, strict=True
    ):
        masks[place, tree] &= np.uint32(mask)
        if not unknown_left:
            unknown[0, tree] &= np.uint32(mask)
    return thresholds, np.bitwise_and.accumulate(masks, axis=0), unknown


def _numbered(tree: Tree) -> list[int]:
    """Leaves from left to right."""
    if not tree.nodes:
        return [0]
    found: list[int] = []
    ahead = [0]
    while ahead:
        place = ahead.pop()
        if place < 0:
            found.append(-place - 1)
            continue
        node = tree.nodes[place]
        if not all(child < 0 or place < child < len(tree.nodes) for child in (node.left, node.right)):
            msg = "a tree whose nodes point outside of it or back"
            raise ValueError(msg)
        ahead += [node.right, node.left]
    if len(found) > MOST_LEAVES or sorted(found) != list(range(len(tree.leaves))):
        msg = f"a tree of {len(found)} leaves; expected each of them once, at most {MOST_LEAVES}"
        raise ValueError(msg)
    return found


def _spans(tree: Tree, order: list[int]) -> list[tuple[int, int]]:
    """Of each node the leaves below its left child: first and one past the last, from left to right."""
    where = {leaf: place for place, leaf in enumerate(order)}
    below: dict[int, tuple[int, int]] = {}

    def span(child: int) -> tuple[int, int]:
        return (where[-child - 1], where[-child - 1] + 1) if child < 0 else below[child]

    for place in range(len(tree.nodes) - 1, -1, -1):  # children come after their parents
        node = tree.nodes[place]
        below[place] = (span(node.left)[0], span(node.right)[1])
    return [span(node.left) for node in tree.nodes]


def lightgbm_trees(model_text: str) -> list[Tree]:
    """Trees of a LightGBM model's text.

    Raises
    ------
    ValueError
        If it holds tests on categories, or missing values that are neither none nor NaN.
    """
    blocks = model_text.split("\nTree=")[1:]
    return [_lightgbm_tree(dict(line.split("=", 1) for line in block.splitlines() if "=" in line)) for block in blocks]


def _lightgbm_tree(told: dict[str, str]) -> Tree:
    leaves = [float(value) for value in told["leaf_value"].split()]
    if len(leaves) == 1:
        return Tree([], leaves)
    names = ("split_feature", "threshold", "decision_type", "left_child", "right_child")
    rows = zip(*(told[name].split() for name in names), strict=True)
    return Tree([_lightgbm_node(*row) for row in rows], leaves)


def _lightgbm_node(feature: str, threshold: str, decision: str, left: str, right: str) -> Node:
    kind = int(decision)
    missing = kind >> 2
    if kind & 1 or missing not in {0, 2}:
        msg = f"a test of LightGBM's type {kind}"
        raise ValueError(msg)
    # Where training saw no NaN, one is read as 0.
    unknown_left = bool(kind & 2) if missing == 2 else float(threshold) >= 0
    return Node(int(feature), float(threshold), unknown_left, int(left), int(right))


def sklearn_trees(model: Any) -> tuple[list[Tree], float]:
    """Trees of a fitted HistGradientBoostingRegressor without categories, and what it starts from."""
    trees = [_sklearn_tree(each.nodes) for stage in model._predictors for each in stage]
    return trees, float(np.ravel(model._baseline_prediction)[0])


def _sklearn_tree(nodes: Any) -> Tree:
    is_leaf = nodes["is_leaf"].astype(bool)
    if is_leaf[0]:
        return Tree([], [float(nodes["value"][0])])
    # Tests and leaves are numbered apart.
    name = np.where(is_leaf, -np.cumsum(is_leaf), np.cumsum(~is_leaf) - 1)
    return Tree(list(_sklearn_nodes(nodes[~is_leaf], name)), nodes["value"][is_leaf].tolist())


def _sklearn_nodes(tests: Any, name: NDArray[np.int64]) -> Iterator[Node]:
    for test in tests:
        left, right = (int(name[test[side]]) for side in ("left", "right"))
        yield Node(
            int(test["feature_idx"]), float(test["num_threshold"]), bool(test["missing_go_to_left"]), left, right
        )
