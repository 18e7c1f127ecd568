"""What is studied: random networks as plain torch modules, one at a time or by the thousand."""

from epoch0.networks.constructions import folding, sawtooth
from epoch0.networks.dense import mlp
from epoch0.networks.ensemble import Ensemble, ensemble

__all__ = ["Ensemble", "ensemble", "folding", "mlp", "sawtooth"]
