"""Prune a network at initialization: score its weights, keep the best, rescale what is left (Hayou et al. 2021).

>>> scores = epoch0.prune.snip(net, None, [(images, labels)])
>>> epoch0.prune.apply(net, epoch0.prune.keep(scores, sparsity=0.98))
>>> epoch0.prune.rescale(net, how="measured", x=images)
"""

from epoch0.prune._apply import apply, bake, masks_of
from epoch0.prune._conditioning import Conditioning, conditioning
from epoch0.prune._critical import CriticalSparsity, critical_sparsity
from epoch0.prune._iterate import iterate
from epoch0.prune._keep import PruningWarning, keep
from epoch0.prune._masks import Masks
from epoch0.prune._paths import on_paths
from epoch0.prune._predict import predicted_density
from epoch0.prune._rescaling import Rescaling
from epoch0.prune._scores import Scores
from epoch0.prune._summary import MaskSummary
from epoch0.prune.baselines import magnitude, random
from epoch0.prune.brain_damage import obd
from epoch0.prune.connection_sensitivity import snip
from epoch0.prune.gradient_flow import grasp
from epoch0.prune.rescale import rescale
from epoch0.prune.skeletonization import force
from epoch0.prune.synaptic_flow import synflow

__all__ = [
    "Conditioning", "CriticalSparsity", "MaskSummary", "Masks", "PruningWarning", "Rescaling", "Scores",
    "apply", "bake", "conditioning", "critical_sparsity", "force", "grasp", "iterate", "keep", "magnitude",
    "masks_of", "obd", "on_paths", "predicted_density", "random", "rescale", "snip", "synflow",
]  # fmt: skip
