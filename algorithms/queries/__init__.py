"""The local stage of SPADE-DFL: directions, queries and the estimators made of them."""

from .directions import draw_directions
from .estimators import DirectionKind, Estimator, Increment, local_stage, split_keys, values_of

__all__ = ["DirectionKind", "Estimator", "Increment", "draw_directions", "local_stage", "split_keys", "values_of"]
