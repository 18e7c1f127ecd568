"""One trial of Hayou et al.'s accuracy tables: build, score, prune, rescale, train, test (section 4)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from epoch0 import prune
from epoch0.errors import InputError
from epoch0.networks import resnet, vanilla_cnn, vgg
from epoch0.papers.hayou.recipe import METHODS, Network, Recipe
from epoch0.papers.trials import checkpoint_of
from epoch0.prune import Masks, apply, bake, iterate, keep, masks_of, on_paths, rescale
from epoch0.prune.masks.iterate import scheduled
from epoch0.prune.masks.keep import select
from epoch0.seeds import numpy_generator
from epoch0.train.data import image_sources
from epoch0.train.device import chosen_device, precision_for
from epoch0.train.evaluation import Evaluation
from epoch0.train.loop import train
from epoch0.train.record import Training

VGG_SIDE = 16  # smallest image that is halved four times; smaller ones are enlarged for VGG
_BATCHES, _STAGES = 20, 21  # streams of a seed: the images that are scored, and the seeds of trainings before the last

Batches = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Sets:
    """The images of a recipe: ``plain`` as they are, for scores; ``train``, the same with augmentation; ``test``."""

    plain: Any
    train: Any
    test: Any
    shape: tuple[int, ...]
    classes: int

    @property
    def chance(self) -> float:
        """Share of the commonest class among the test images: the best that a constant does."""
        return float(self.test.targets.bincount().max()) / len(self.test)


def sets_of(recipe: Recipe) -> Sets:
    """The images that a recipe trains and tests on."""
    plain, test = image_sources(recipe.data)
    shape, classes = shape_for(recipe.network, plain.shape), plain.classes
    factor = shape[-1] // plain.shape[-1]
    if recipe.examples is not None:
        plain = plain.first(recipe.examples)
    if recipe.tested is not None:
        test = test.first(recipe.tested)
    if factor > 1:
        plain, test = (replace(part, images=enlarged(part.images, factor)) for part in (plain, test))
    return Sets(plain, plain.augmented() if recipe.augment else plain, test, shape, classes)


def shape_for(network: Network, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Of the inputs that a network gets from images of that shape: VGG's pools need sides of 16."""
    if network.kind != "vgg" or min(shape[1:]) >= VGG_SIDE:
        return tuple(shape)
    factor = -(-VGG_SIDE // min(shape[1:]))
    return (shape[0], *(factor * side for side in shape[1:]))


def enlarged(images: Tensor, factor: int) -> Tensor:
    """Every pixel as a square of that side: images that are too small for VGG's pools."""
    return images.repeat_interleave(factor, -1).repeat_interleave(factor, -2)


def build(network: Network, shape: tuple[int, ...], classes: int, stable: bool, seed: int) -> nn.Module:
    """The network for inputs of that shape; plain and stable ones of a seed have the same weights."""
    fields = {"resnet": ("variant", "stem", "norm"), "vgg": ("padding", "norm"), "vanilla_cnn": ("head",)}
    more = {name: getattr(network, name) for name in ("weights", "biases", *fields[network.kind])}
    more |= {"inputs": shape, "classes": classes, "activation": network.activation, "seed": seed}
    if network.kind == "resnet":
        return resnet(network.depth, network.width, stable, **more)
    if network.kind == "vgg":
        return vgg(network.depth, network.width, network.repeat, **more)
    return vanilla_cnn(network.depth, int(network.width), network.kernel, **more)


def scored_batches(sets: Sets, seed: int, batches: int, per_class: int) -> Batches:
    """Training images drawn without replacement, as many of each class, not augmented, in that many batches.

    Of several batches each has as many of each class as it can; a class with fewer images gives all it has.
    """
    source = numpy_generator(seed, _BATCHES)
    rows = []
    for label in range(sets.classes):
        own = np.flatnonzero(sets.plain.targets.cpu().numpy() == label)
        rows += list(enumerate(source.choice(own, min(per_class, len(own)), replace=False)))
    # the first of every class, then the second, ...
    chosen = np.array([image for _, image in sorted(rows, key=lambda row: row[0])])
    parts = [torch.as_tensor(np.sort(part)) for part in np.array_split(chosen, batches) if len(part)]
    return [sets.plain.batch(part, 0) for part in parts]


def masks_at_initialization(
    net: nn.Module, recipe: Recipe, batches: Batches, shape: tuple[int, ...], seed: int
) -> Masks:
    """What a method that prunes at initialization keeps; gradients see the batches, SynFlow an input of that shape."""
    score = METHODS[recipe.method].score
    if score == "synflow":
        return iterate(net, partial(prune.synflow, x=shape), recipe.sparsity, steps=recipe.synflow_steps)
    if score in ("random", "magnitude"):
        scores = prune.random(net, seed) if score == "random" else prune.magnitude(net)
    elif score in ("snip", "grasp"):
        by_batches = prune.snip if score == "snip" else prune.grasp
        scores = by_batches(net, batches, batch_norm=recipe.batch_norm)
    else:
        scores = prune.force(net, batches, recipe.sparsity, recipe.force_steps, batch_norm=recipe.batch_norm)
    return select(scores, recipe.sparsity)  # a warning of layers that died would be one line for each trial


def hand_over(bare: nn.Module, net: nn.Module) -> None:
    """Give the weights and masks of a pruned network without batch norm, baked in, to the same network with it."""
    kinds, masks = (nn.Linear, nn.Conv2d), masks_of(bare)
    each = ([(name, m) for name, m in one.named_modules() if isinstance(m, kinds)] for one in (bare, net))
    bake(bare)
    given = {}
    with torch.no_grad():
        for (old, first), (new, second) in zip(*each, strict=True):
            second.weight.copy_(first.weight)
            if first.bias is not None and second.bias is not None:
                second.bias.copy_(first.bias)
            if f"{old}.weight" in masks:
                given[f"{new}.weight"] = masks[f"{old}.weight"]
    apply(net, given)


def train_and_prune(
    net: nn.Module, recipe: Recipe, batches: Batches, train: Callable[[int, int], bool], seed: int
) -> bool:
    """The reference: train, prune by OBD what the batches say, train what is left, until the sparsity is reached.

    Each round keeps the same fraction of what the round before has kept. Saliencies are those of the trained network,
    batch norm with its running statistics. The last pruning is not followed by a training here: that one is common
    to all methods. ``train(stage, epochs)`` says whether the training stayed finite; so does this function.

    Source: LeCun, Denker, Solla 1990, section 2.2; Hayou et al. 2021, section 4.2.
    """
    epochs = recipe.epochs if recipe.obd_epochs is None else recipe.obd_epochs
    for stage, sparsity in enumerate(scheduled(recipe.sparsity, recipe.obd_rounds, "exponential")):
        if not train(stage, epochs):
            return False
        apply(net, keep(prune.obd(net, batches, batch_norm="eval", seed=seed), sparsity))
    return True


def run(recipe: Recipe, seed: int) -> dict[str, Any]:
    """Prune, train, test.

    Everything random follows from the seed: weights, images that are scored, order of training. Methods of one seed
    have the same of each. With the environment variable EPOCH0_CHECKPOINTS a run that was killed goes on where it was,
    on a CPU to the same bits.

    Returns:
        ``accuracy`` after the last epoch, ``best`` of all tests, ``chance`` of the best constant: shares of
        the test images. ``history``: lists of ``epoch``, ``loss`` since the test before, and ``accuracy``. ``dead``:
        layers of which nothing is kept. ``on_paths``: kept weights on a path from input to output, None if paths cannot
        be followed. ``epochs`` of all trainings. ``diverged``: accuracies are those of chance.
    """
    with checkpoint_of(recipe, seed) as path:
        return _run(recipe, seed, path)


def _run(recipe: Recipe, seed: int, checkpoint: Path | None) -> dict[str, Any]:
    device = chosen_device()
    sets, method = sets_of(recipe), METHODS[recipe.method]
    net = build(recipe.network, sets.shape, sets.classes, method.stable, seed).to(device)
    fit = partial(_fit, net, recipe, sets, device)
    fine = True
    if method.score == "obd":
        batches = scored_batches(sets, seed, recipe.obd_batches, recipe.obd_batches * recipe.score_per_class)

        def before(stage: int, epochs: int) -> bool:
            stage_seed = int(numpy_generator(seed, _STAGES, stage).integers(2**62))
            own = None if checkpoint is None else checkpoint.with_name(f"{checkpoint.name}-{stage}")
            return not fit(own, epochs, stage_seed).diverged

        fine = train_and_prune(net, recipe, batches, before, seed)
    elif method.score is not None:
        batches = scored_batches(sets, seed, recipe.score_batches, recipe.score_per_class)
        network = replace(recipe.network, norm=None) if recipe.norm_after else recipe.network
        scored = build(network, sets.shape, sets.classes, method.stable, seed).to(device) if recipe.norm_after else net
        apply(scored, masks_at_initialization(scored, recipe, batches, sets.shape, seed))
        how = recipe.rescale or method.rescale
        if how is not None:
            rescale(scored, how, x=batches[0][0].to(device), seed=seed)
        if recipe.norm_after:
            hand_over(scored, net)
    done = fit(checkpoint, recipe.epochs, seed) if fine else None
    result = {**_trained(done, sets), **_pruned(net, method.score is not None and fine, sets.shape)}
    result |= {"epochs": recipe.epochs_in_all, "device": device.type}
    return {**result, "precision": precision_for(recipe.precision, device)}


def _fit(
    net: nn.Module, recipe: Recipe, sets: Sets, device: torch.device, checkpoint: Path | None, epochs: int, seed: int
) -> Training:
    precision = precision_for(recipe.precision, device)
    per_epoch = -(-len(sets.train) // recipe.batch_size)

    def falling(optimizer: torch.optim.Optimizer, steps: int) -> torch.optim.lr_scheduler.LRScheduler:
        at = [round(place * (per_epoch if place >= 1 else steps)) for place in recipe.drops]
        return torch.optim.lr_scheduler.MultiStepLR(optimizer, at, recipe.drop_factor)

    sgd = partial(torch.optim.SGD, momentum=recipe.momentum, weight_decay=recipe.weight_decay)
    how: dict[str, Any] = {"batch_size": recipe.batch_size, "optimizer": sgd, "learning_rate": recipe.learning_rate}
    how |= {"schedule": falling, "seed": seed, "device": device, "precision": precision}
    how |= {"evaluate": Evaluation(sets.test, precision=precision), "evaluate_every": recipe.tested_every * per_epoch}
    # where convolutions are faster so; on a CPU circular ones are not
    last = precision == "bfloat16" or (device.type == "cpu" and recipe.network.kind == "resnet")
    kept: dict[str, Any] = {"checkpoint": checkpoint, "checkpoint_every": per_epoch}
    return train(net, sets.train, epochs=epochs, channels_last=last, **kept, **how)


def _trained(done: Training | None, sets: Sets) -> dict[str, Any]:
    """What the last training says; None is one that was not begun because the one before diverged."""
    rows = [] if done is None else [row for row in done.history if "test_accuracy" in row]
    lost = done is None or done.diverged
    accuracies = [float(row["test_accuracy"]) for row in rows]
    history = {"epoch": [float(row["epoch"]) for row in rows], "loss": [row["loss"] for row in rows]}
    last, best = (sets.chance, sets.chance) if lost else (accuracies[-1], max(accuracies))
    found: dict[str, Any] = {"accuracy": last, "best": best, "chance": sets.chance}
    found |= {"diverged": lost, "history": {**history, "accuracy": accuracies}}
    return {**found, "images_per_second": None if done is None else done.images_per_second}


def _pruned(net: nn.Module, masked: bool, shape: tuple[int, ...]) -> dict[str, Any]:
    """What the masks that were trained leave."""
    if not masked:
        none = dict.fromkeys(("weights", "kept", "on_paths", "effective_sparsity"))
        return {**none, "names": [], "density": [], "dead": []}
    masks = masks_of(net)
    try:
        live = on_paths(net, masks, shape).kept
    except InputError:  # of networks that paths cannot be followed through
        live = None
    found = {"weights": masks.total, "kept": masks.kept, "names": list(masks), "on_paths": live}
    found |= {"density": list(masks.density_of.values()), "dead": list(masks.dead)}
    return {**found, "effective_sparsity": None if live is None else 1 - live / masks.total}
