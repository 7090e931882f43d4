"""Predictors of job durations that see only the past."""

from predictors.additive import Additive
from predictors.backtest import BacktestResult, backtest
from predictors.backtest_plan import Plan
from predictors.base import PREDICTORS, DurationPredictor, make_predictor, predictor
from predictors.baselines import GlobalMedian, LastTwo, RequestedLimit, UserMedian, VcGpusMedian, VcMedian
from predictors.boosted import Boosted
from predictors.boosted_lightgbm import BoostedLightgbm
from predictors.calibration import CALIBRATIONS
from predictors.concordance import concordance
from predictors.defaults import DEFAULT_MODEL, DEFAULT_MODELS, default_models
from predictors.explain import JobExplanation, explain_job
from predictors.explain_importance import permutation_importance
from predictors.explain_model import explain_backtest
from predictors.explain_shapes import shape_table
from predictors.frame import predict_frame
from predictors.guarded import Guarded
from predictors.predictive import Predictive
from predictors.qssf import Qssf
from predictors.scores import SCORES, score_all, score_interval
from predictors.split_study import compare_splits
from predictors.store import load_model, save_model
from predictors.survival import BoostedSurvival
from predictors.training_view import known_end, training_view

__all__ = [
    "CALIBRATIONS",
    "DEFAULT_MODEL",
    "DEFAULT_MODELS",
    "PREDICTORS",
    "SCORES",
    "Additive",
    "BacktestResult",
    "Boosted",
    "BoostedLightgbm",
    "BoostedSurvival",
    "DurationPredictor",
    "GlobalMedian",
    "Guarded",
    "JobExplanation",
    "LastTwo",
    "Plan",
    "Predictive",
    "Qssf",
    "RequestedLimit",
    "UserMedian",
    "VcGpusMedian",
    "VcMedian",
    "backtest",
    "compare_splits",
    "concordance",
    "default_models",
    "explain_backtest",
    "explain_job",
    "known_end",
    "load_model",
    "make_predictor",
    "permutation_importance",
    "predict_frame",
    "predictor",
    "save_model",
    "score_all",
    "score_interval",
    "shape_table",
    "training_view",
]
