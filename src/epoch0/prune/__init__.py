"""Prune a network at initialization: score its weights, keep the best, rescale what is left (Hayou et al. 2021).

>>> scores = epoch0.prune.snip(net, [(images, labels)])
>>> net = epoch0.prune.apply(net, epoch0.prune.keep(scores, sparsity=0.9))
>>> done = epoch0.prune.rescale(net, method="measured", x=images)          # images (100, 64), labels (100,)
>>> [round(layer.factor, 1) for layer in done.layers]
[2.2, 1.1, 0.5]

A model, a batch, masks or a file that cannot be used is one InputError that says why; nothing was changed then.
"""

from typing import TYPE_CHECKING

from epoch0.prune.effects.paths import MaskSummary, on_paths
from epoch0.prune.effects.rescale import Rescaling, rescale
from epoch0.prune.masks.apply import apply, bake, masks_of
from epoch0.prune.masks.masks import CriticalSparsity, Masks, critical_sparsity, keep, predicted_density
from epoch0.prune.scores import TABLE
from epoch0.prune.scores.scores import Scores
from epoch0.prune.scores.synaptic_flow import iterate

__all__ = ["CriticalSparsity", "MaskSummary", "Masks", "Rescaling", "Scores", "apply", "bake", "critical_sparsity"]
__all__ += ["iterate", "keep", "masks_of", "on_paths", "predicted_density", "rescale", *TABLE]

globals().update({name: known.function for name, known in TABLE.items()})

if TYPE_CHECKING:  # the same for type checkers and editors, which do not run the line above
    from epoch0.prune.scores.gradients import force, grasp, obd, snip
    from epoch0.prune.scores.scores import magnitude, random
    from epoch0.prune.scores.synaptic_flow import synflow

    __all__ += ["force", "grasp", "magnitude", "obd", "random", "snip", "synflow"]
