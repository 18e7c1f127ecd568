"""The reference of Hayou Table 2 that prunes trained networks: train, prune by OBD, repeat (section 4.2)."""

from collections.abc import Callable

from torch import Tensor, nn

from epoch0.papers.hayou.recipe import Recipe
from epoch0.prune import apply, keep
from epoch0.prune.masks.iterate import scheduled
from epoch0.prune.scores.curvature import obd


def train_and_prune(
    net: nn.Module,
    recipe: Recipe,
    batches: list[tuple[Tensor, Tensor]],
    train: Callable[[int, int], bool],
    seed: int,
) -> bool:
    """Train a network, prune it by its saliencies, train what is left, until the sparsity is reached.

    >>> train_and_prune(net, recipe, batches, lambda stage, epochs: trains(net, stage, epochs), seed=0)
    True

    Each round keeps the same fraction of what the round before has kept. Saliencies are those of the trained network,
    batch norm with its running statistics. The last pruning is not followed by a training here: that one is common
    to all methods, so the pruned network has the schedule and the epochs of every other. What the reference spends
    before is its own: ``recipe.obd_rounds`` trainings of ``recipe.obd_epochs``.

    Args:
        net: trained and masked in place.
        recipe: how often, how long, how sparse.
        batches: what saliencies are estimated on.
        train: ``train(stage, epochs)`` trains the network in place and says whether it stayed finite.
        seed: of the random probes.

    Returns:
        Whether every training stayed finite; if one did not, the network is left as it was then.

    Source: LeCun, Denker, Solla 1990, section 2.2; Hayou et al. 2021, section 4.2.
    """
    epochs = recipe.epochs if recipe.obd_epochs is None else recipe.obd_epochs
    for stage, sparsity in enumerate(scheduled(recipe.sparsity, recipe.obd_rounds, "exponential")):
        if not train(stage, epochs):
            return False
        apply(net, keep(obd(net, None, batches, batch_norm="eval", seed=seed), sparsity))
    return True
