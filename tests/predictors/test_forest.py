"""Trees laid out as tables say what their library says, to the last bit, and what a plain walk says."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

from predictors.forest import Node, Tree, forest_of, lightgbm_trees, sklearn_trees


def rows(num_rows: int = 700) -> np.ndarray:
    """Columns of many values, of few, with NaN and without, and one that holds 0 and the tiny."""
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(num_rows, 6)).astype(np.float32)
    matrix[:, 1] = rng.integers(0, 4, num_rows)
    matrix[:, 2:4][rng.random((num_rows, 2)) < 0.2] = np.nan
    matrix[:, 5] = rng.choice([0.0, 1e-40, -1e-40, 1.0, -1.0], num_rows)
    return matrix


def goal(matrix: np.ndarray) -> np.ndarray:
    noise = np.random.default_rng(1).normal(0, 0.2, len(matrix))
    return np.nan_to_num(matrix[:, 2], nan=3.0) * matrix[:, 1] + np.sin(3 * matrix[:, 0]) + matrix[:, 5] + noise


def unseen() -> np.ndarray:
    """Rows at and beside what was learned from, with NaN also where training had none."""
    asked = np.vstack([rows(), rows() * 2, rows() + 1]).astype(np.float32)
    asked[::7, 0] = np.nan
    asked[::11, 5] = np.nan
    asked[3] = np.nan
    asked[4], asked[5] = np.inf, -np.inf
    return asked


@pytest.mark.parametrize("leaves", [4, 8, 31])
def test_lightgbm_to_the_last_bit(leaves):
    lightgbm = pytest.importorskip("lightgbm")
    params = {"objective": "regression_l1", "num_leaves": leaves, "num_threads": 1, "verbosity": -1, "seed": 0}
    data = lightgbm.Dataset(rows(), label=goal(rows()))
    model = lightgbm.train(params, data, num_boost_round=60)
    forest = forest_of(lightgbm_trees(model.model_to_string()), columns=range(6), is_moved=[False] * 6, start=0.0)
    asked = unseen()
    assert np.array_equal(forest.say(asked, np.zeros(len(asked), dtype=np.float32)), model.predict(asked))
    again = lightgbm.Booster(model_str=model.model_to_string())
    assert np.array_equal(again.predict(asked), model.predict(asked))


@pytest.mark.parametrize("leaves", [4, 8, 31])
def test_scikit_learn_to_the_last_bit(leaves):
    model = HistGradientBoostingRegressor(loss="absolute_error", max_iter=60, max_leaf_nodes=leaves, random_state=0)
    model.fit(rows(), goal(rows()))
    trees, start = sklearn_trees(model)
    forest = forest_of(trees, columns=range(6), is_moved=[False] * 6, start=start)
    asked = unseen()
    asked[np.abs(asked) < 1e-35] = 0  # LightGBM alone reads the tiny as 0
    assert np.array_equal(forest.say(asked, np.zeros(len(asked), dtype=np.float32)), model.predict(asked))


def test_a_tree_by_hand():
    """Test 0: column 7 less its base <= 1; if so test 1: column 3 <= 5, NaN to the left."""
    tree = Tree(
        [Node(0, 1.0, unknown_left=False, left=1, right=-1), Node(1, 5.0, unknown_left=True, left=-2, right=-3)],
        [100.0, 20.0, 3.0],
    )
    forest = forest_of([tree, Tree([], [0.5])], columns=[7, 3], is_moved=[True, False], start=0.25)
    matrix = np.zeros((5, 8), dtype=np.float32)
    matrix[:, 7] = [3, 4, 4, 3, np.nan]
    matrix[:, 3] = [5, 5, 6, np.nan, 0]
    base = np.array([2, 2, 3, 2, 0], dtype=np.float32)
    assert forest.say(matrix, base).tolist() == [20.75, 100.75, 3.75, 20.75, 100.75]


@pytest.mark.parametrize(
    "tree",
    [
        Tree([Node(0, 1.0, unknown_left=False, left=0, right=-1)], [1.0]),  # its own child
        Tree([Node(0, 1.0, unknown_left=False, left=5, right=-1)], [1.0]),  # a node that does not exist
        Tree([Node(0, 1.0, unknown_left=False, left=-1, right=-1)], [1.0]),  # one leaf twice
        Tree([Node(0, 1.0, unknown_left=False, left=-1, right=-9)], [1.0, 2.0]),  # a leaf that does not exist
    ],
)
def test_a_tree_that_points_elsewhere_is_refused(tree):
    with pytest.raises(ValueError, match="a tree"):
        forest_of([tree], columns=[0], is_moved=[False], start=0.0)


def test_a_test_on_categories_is_refused():
    text = "x\nTree=0\nsplit_feature=0\nthreshold=0\ndecision_type=1\nleft_child=-1\nright_child=-2\nleaf_value=1 2\n"
    with pytest.raises(ValueError, match="type 1"):
        lightgbm_trees(text)
