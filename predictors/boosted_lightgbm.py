"""The boosted model with LightGBM as learner (``pip install 'gpu-hindcast[lightgbm]'``)."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np

from analysis.errors import BadFileError, HindcastError
from predictors.base import predictor
from predictors.boosted import BoostedTrees, Matrix

__all__ = ["BoostedLightgbm"]


@predictor("boosted_lightgbm")
class BoostedLightgbm(BoostedTrees):
    """LightGBM with absolute loss; needs the extra ``lightgbm`` and the system's OpenMP library."""

    model_file = "model.txt"

    def _learn(self, matrix: Matrix, log_label: Matrix) -> None:
        lightgbm = _lightgbm()
        params = {
            "objective": "regression_l1",
            "num_leaves": self.max_leaves,
            "learning_rate": self.learning_rate,
            "seed": self.random_state,
            "deterministic": True,
            "force_row_wise": True,
            "num_threads": 1,
            "verbosity": -1,
        }
        self.model_ = lightgbm.train(params, lightgbm.Dataset(matrix, label=log_label), num_boost_round=self.num_trees)

    def _apply(self, matrix: Matrix) -> Matrix:
        return np.asarray(self.model_.predict(matrix, num_threads=1), dtype=np.float64)

    def _write_parts(self, folder: Path) -> None:
        if self.has_model_:
            (folder / self.model_file).write_text(self.model_.model_to_string(), encoding="utf-8")

    def _read_parts(self, folder: Path) -> None:
        if not self.has_model_:
            return
        lightgbm = _lightgbm()
        path = folder / self.model_file
        fix = "Fit the model again with 'hindcast train'."
        try:
            self.model_ = lightgbm.Booster(model_str=path.read_text(encoding="utf-8"))
        except (lightgbm.basic.LightGBMError, UnicodeDecodeError, ValueError) as error:
            found = f"text that LightGBM cannot read ({str(error)[:80]})"
            raise BadFileError(path, kind="damaged", found=found, expected="a LightGBM model", fix=fix) from error
        if self.model_.num_feature() != len(self.features_):
            found = f"a model of {self.model_.num_feature()} features"
            raise BadFileError(
                path, kind="wrong_columns", found=found, expected=f"{len(self.features_)} features", fix=fix
            )


def _lightgbm() -> ModuleType:
    try:
        import lightgbm
    except ImportError as error:
        msg = (
            "boosted_lightgbm: the package lightgbm is not installed; install it with "
            "\"pip install 'gpu-hindcast[lightgbm]'\", or use the predictor 'boosted', which needs nothing more."
        )
        raise HindcastError(msg) from error
    except OSError as error:  # the wheel is there, the OpenMP library that it links to is not
        msg = (
            f"boosted_lightgbm: lightgbm cannot load its system library ({error}); install OpenMP with "
            "'apt install libgomp1' or 'brew install libomp', or use the predictor 'boosted', which needs neither."
        )
        raise HindcastError(msg) from error
    return lightgbm
