"""Predictors of job durations that see only the past."""

from predictors.backtest import BacktestResult, backtest
from predictors.base import PREDICTORS, DurationPredictor, make_predictor, predictor
from predictors.baselines import GlobalMedian, LastTwo, RequestedLimit, UserMedian, VcGpusMedian, VcMedian
from predictors.boosted import Boosted
from predictors.boosted_lightgbm import BoostedLightgbm
from predictors.defaults import DEFAULT_MODELS, default_models
from predictors.frame import predict_frame
from predictors.scores import SCORES, score_all
from predictors.split_study import compare_splits
from predictors.store import load_model, save_model
from predictors.training_view import known_end, training_view

__all__ = [
    "DEFAULT_MODELS",
    "PREDICTORS",
    "SCORES",
    "BacktestResult",
    "Boosted",
    "BoostedLightgbm",
    "DurationPredictor",
    "GlobalMedian",
    "LastTwo",
    "RequestedLimit",
    "UserMedian",
    "VcGpusMedian",
    "VcMedian",
    "backtest",
    "compare_splits",
    "default_models",
    "known_end",
    "load_model",
    "make_predictor",
    "predict_frame",
    "predictor",
    "save_model",
    "score_all",
    "training_view",
]
