"""Prune a network at initialization: score its weights, keep the best, rescale what is left (Hayou et al. 2021).

>>> scores = epoch0.prune.snip(net, None, [(images, labels)])
>>> epoch0.prune.apply(net, epoch0.prune.keep(scores, sparsity=0.98))
"""

from epoch0.prune._apply import apply, bake, masks_of
from epoch0.prune._keep import PruningWarning, keep
from epoch0.prune._masks import Masks
from epoch0.prune._scores import Scores
from epoch0.prune.baselines import magnitude, random
from epoch0.prune.connection_sensitivity import snip

__all__ = ["Masks", "PruningWarning", "Scores", "apply", "bake", "keep", "magnitude", "masks_of", "random", "snip"]
