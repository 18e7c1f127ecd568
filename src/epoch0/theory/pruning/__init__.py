"""Predict what pruning at initialization leaves of each layer, before anything is built (Hayou et al. 2021)."""

from epoch0.theory.pruning.dense import magnitude_bound, magnitude_density, magnitude_limit, ordered_bound
from epoch0.theory.pruning.dense import predicted_density as predicted_density
from epoch0.theory.pruning.prediction import LayerDensity, PredictedDensity

__all__ = ["LayerDensity", "PredictedDensity", "magnitude_bound", "magnitude_density"]
__all__ += ["magnitude_limit", "ordered_bound", "predicted_density"]
