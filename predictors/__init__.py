"""Predictors of job durations that see only the past."""
