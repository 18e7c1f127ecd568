"""One trial of Hayou et al.'s accuracy tables: its recipe; build, score, prune, rescale, train, test (section 4)."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from epoch0 import prune
from epoch0.distributions import Law
from epoch0.networks import resnet, vanilla_cnn, vgg
from epoch0.papers.trials import checkpoint_of
from epoch0.prune import Masks, apply, bake, iterate, keep, masks_of, on_paths
from epoch0.prune.effects.rescale import rescaled as rescale
from epoch0.prune.scores.synaptic_flow import scheduled
from epoch0.seeds import numpy_generator
from epoch0.train import Evaluation, Training, chosen_device, image_sources, train
from epoch0.train.device import precision_for

VGG_SIDE = 16  # smallest image that is halved four times; smaller ones are enlarged for VGG
_BATCHES, _STAGES = 20, 21  # streams of a seed: the images that are scored, and the seeds of trainings before the last

Batches = list[tuple[Tensor, Tensor]]


class Method(NamedTuple):
    """A way to prune: a function of :mod:`epoch0.prune` that scores (None: no pruning), and what comes with it."""

    label: str
    score: str | None
    stable: bool = False  # on a Stable ResNet
    rescaled: str | None = None  # kept weights, in one of the ways of :func:`epoch0.prune.rescale`


# By their names in recipes. "obd" trains, prunes and trains again; all others prune at initialization and train once.
METHODS: dict[str, Method] = {
    "none": Method("not pruned", None),
    "obd": Method("OBD", "obd"),
    "random": Method("random", "random"),
    "magnitude": Method("magnitude", "magnitude"),
    "snip": Method("SNIP", "snip"),
    "grasp": Method("GraSP", "grasp"),
    "grasp-sr": Method("GraSP-SR", "grasp", stable=True),
    "synflow": Method("SynFlow", "synflow"),
    "sbp-sr": Method("SBP-SR", "snip", stable=True),
    "eoc-rescaling": Method("EOC + rescaling", "snip", rescaled="layer"),
    "eoc-row": Method("EOC + row (Algorithm 1)", "snip", rescaled="row"),
    "eoc-measured": Method("EOC + measured", "snip", rescaled="measured"),
}


@dataclass(frozen=True)
class Network:
    """A "resnet", "vgg" or "vanilla_cnn" up to its inputs and classes; whether it is stable is the method's. ``width``
    is a factor on the channels, of a vanilla CNN their number; ``weights`` the law, times sqrt(fan_in).
    """

    kind: str = "resnet"
    depth: int = 32
    width: float = 2.0
    activation: str = "relu"
    variant: str = "cifar"
    stem: str | None = None
    repeat: int = 1
    norm: str | None = "batch"
    padding: str = "zeros"
    weights: Law | None = None
    biases: Law | None = None

    @property
    def name(self) -> str:
        """Its name in tables, such as ResNet-32."""
        if self.kind == "vgg":
            return f"{f'{self.repeat}x' if self.repeat > 1 else ''}VGG{self.depth}"
        return f"V-CNN-{self.depth}" if self.kind == "vanilla_cnn" else f"ResNet-{self.depth}"


@dataclass(frozen=True)
class Recipe:
    """One training run: everything but the seed.

    >>> Recipe(Network("resnet", 32, 2.0), "cifar10", "sbp-sr", 0.995).epochs   # one entry of Table 1
    160

    The defaults are the paper's where it says something, else those of Wang et al. (2020), to whom it points;
    docs/hayou-accuracy lists what both leave open. The OBD reference is trained first, and again after each of its
    prunings, by an exponential schedule; the last training is that of all methods.
    """

    network: Network
    data: str
    method: str
    sparsity: float
    epochs: int = 160
    batch_size: int = 128
    learning_rate: float = 0.1
    drops: tuple[float, ...] = (0.5, 0.75)  #: where the rate falls, in fractions of the epochs, or epochs if integers
    drop_factor: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    augment: bool = True
    batch_norm: str = "train"
    score_per_class: int = 10
    score_batches: int = 1  #: more than one saves memory, and each has its own batch statistics
    synflow_steps: int = 100
    #: score, prune and rescale without batch norm, then add it, as public code of two authors does for EOC + rescaling
    norm_after: bool = False
    obd_rounds: int = 2
    obd_batches: int = 8
    examples: int | None = None  #: the first so many images only, None takes all; of test images, ``tested``
    tested: int | None = None
    tested_every: int = 1

    @property
    def trainings(self) -> int:
        """Number of trainings of one run."""
        return 1 + (self.obd_rounds if self.method == "obd" else 0)

    @property
    def tests(self) -> int:
        """Tests of all trainings of a run, the one before each included."""
        return self.trainings * (1 + -(-self.epochs // self.tested_every))


class Sets(NamedTuple):
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
    plain, test = image_sources(recipe.data)
    shape, classes = shape_for(recipe.network, plain.shape), plain.classes
    plain = plain if recipe.examples is None else plain.first(recipe.examples)
    test = test if recipe.tested is None else test.first(recipe.tested)
    if (factor := shape[-1] // plain.shape[-1]) > 1:
        plain, test = (replace(part, images=enlarged(part.images, factor)) for part in (plain, test))
    return Sets(plain, plain.augmented() if recipe.augment else plain, test, shape, classes)


def shape_for(network: Network, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Of the inputs that a network gets from images of that shape: VGG's pools need sides of 16."""
    factor = -(-VGG_SIDE // min(shape[1:])) if network.kind == "vgg" else 1
    return (shape[0], *(factor * side for side in shape[1:]))


def enlarged(images: Tensor, factor: int) -> Tensor:
    """Every pixel as a square of that side: images that are too small for VGG's pools."""
    return images.repeat_interleave(factor, -1).repeat_interleave(factor, -2)


def build(network: Network, shape: tuple[int, ...], classes: int, stable: bool, seed: int) -> nn.Module:
    """The network for inputs of that shape; plain and stable ones of a seed have the same weights."""
    fields = {"resnet": ("variant", "stem", "norm"), "vgg": ("padding", "norm"), "vanilla_cnn": ()}
    more = {name: getattr(network, name) for name in ("weights", "biases", *fields[network.kind])}
    more |= {"inputs": shape, "classes": classes, "activation": network.activation, "seed": seed}
    if network.kind == "resnet":
        return resnet(network.depth, network.width, stable, **more)
    if network.kind == "vgg":
        return vgg(network.depth, network.width, network.repeat, **more)
    return vanilla_cnn(network.depth, int(network.width), **more)


def scored_batches(sets: Sets, seed: int, batches: int, per_class: int) -> Batches:
    """Training images drawn without replacement, as many of each class, not augmented, in that many batches. Of several
    batches each has as many of each class as it can; a class with fewer images gives all it has.
    """
    source, rows = numpy_generator(seed, _BATCHES), []
    for label in range(sets.classes):
        own = np.flatnonzero(sets.plain.targets.cpu().numpy() == label)
        rows += list(enumerate(source.choice(own, min(per_class, len(own)), replace=False)))
    chosen = np.array([image for _, image in sorted(rows, key=lambda row: row[0])])
    parts = [torch.as_tensor(np.sort(part)) for part in np.array_split(chosen, batches) if len(part)]
    return [sets.plain.batch(part, 0) for part in parts]


def masks_at_initialization(net: nn.Module, recipe: Recipe, data: Batches, shape: tuple[int, ...], seed: int) -> Masks:
    """Masks of a method that prunes at initialization; gradients see the batches, SynFlow an input of that shape."""
    score = METHODS[recipe.method].score
    if score == "synflow":
        return iterate(net, partial(prune.synflow, x=shape), recipe.sparsity, steps=recipe.synflow_steps)
    if score in ("snip", "grasp"):
        return keep(getattr(prune, score)(net, data, batch_norm=recipe.batch_norm), recipe.sparsity)
    return keep(prune.random(net, seed) if score == "random" else prune.magnitude(net), recipe.sparsity)


def hand_over(bare: nn.Module, net: nn.Module) -> None:
    """Copy the weights and masks of a pruned network without batch norm, baked in, to the same network with it."""
    kinds, masks = (nn.Linear, nn.Conv2d), masks_of(bare)
    each = ([(name, m) for name, m in item.named_modules() if isinstance(m, kinds)] for item in (bare, net))
    bake(bare)
    given = {}
    for (old, first), (new, second) in zip(*each, strict=True):
        second.weight.data.copy_(first.weight)
        if first.bias is not None and second.bias is not None:
            second.bias.data.copy_(first.bias)
        if f"{old}.weight" in masks:
            given[f"{new}.weight"] = masks[f"{old}.weight"]
    apply(net, given)


def run(recipe: Recipe, seed: int) -> dict[str, Any]:
    """Prune, train, test.

    Everything random follows from the seed: weights, images that are scored, order of training. Methods of one seed
    have the same of each. With the environment variable EPOCH0_CHECKPOINTS a killed run resumes, on a CPU bit for bit.

    Returns:
        ``accuracy`` after the last epoch, ``best`` of all tests, ``chance`` of the best constant: shares of the test
        images. ``history``: lists of ``epoch``, ``loss`` since the test before, and ``accuracy``. ``dead``: layers of
        which nothing is kept. ``on_paths``: ``kept`` weights on a path. ``diverged``: accuracies are those of chance.
    """
    device, method, sets = chosen_device(), METHODS[recipe.method], sets_of(recipe)
    precision, per_epoch = precision_for("auto", device), -(-len(sets.train) // recipe.batch_size)

    def built(network: Network) -> nn.Module:
        return build(network, sets.shape, sets.classes, method.stable, seed).to(device)

    def falling(optimizer: torch.optim.Optimizer, steps: int) -> torch.optim.lr_scheduler.LRScheduler:
        at = [round(place * (per_epoch if place >= 1 else steps)) for place in recipe.drops]
        return torch.optim.lr_scheduler.MultiStepLR(optimizer, at, recipe.drop_factor)

    sgd = partial(torch.optim.SGD, momentum=recipe.momentum, weight_decay=recipe.weight_decay)
    setup: dict[str, Any] = {"batch_size": recipe.batch_size, "optimizer": sgd, "learning_rate": recipe.learning_rate}
    setup |= {"schedule": falling, "device": device, "precision": precision, "checkpoint_every": per_epoch}
    setup |= {"evaluate": Evaluation(sets.test, precision=precision), "evaluate_every": recipe.tested_every * per_epoch}
    # where convolutions are faster so; on a CPU circular ones are not
    setup["channels_last"] = precision == "bfloat16" or (device.type == "cpu" and recipe.network.kind == "resnet")
    net = built(recipe.network)
    fit, diverged = partial(train, net, sets.train, epochs=recipe.epochs, **setup), False
    count, times = (recipe.obd_batches,) * 2 if method.score == "obd" else (recipe.score_batches, 1)
    batches = scored_batches(sets, seed, count, times * recipe.score_per_class)
    with checkpoint_of(recipe, seed) as path:
        if method.score == "obd":
            # train, prune by what batches say, train what is left; each round keeps the same fraction of the one before
            # (LeCun, Denker, Solla 1990, section 2.2); saliencies are those of the trained net, in evaluation mode
            for stage, sparsity in enumerate(scheduled(recipe.sparsity, recipe.obd_rounds)):
                own = None if path is None else path.with_name(f"{path.name}-{stage}")
                stage_seed = int(numpy_generator(seed, _STAGES, stage).integers(2**62))
                if diverged := fit(checkpoint=own, seed=stage_seed).diverged:
                    break
                apply(net, keep(prune.obd(net, batches, batch_norm="eval", seed=seed), sparsity))
        elif method.score is not None:
            scored = built(replace(recipe.network, norm=None)) if recipe.norm_after else net
            apply(scored, masks_at_initialization(scored, recipe, batches, sets.shape, seed))
            if method.rescaled:
                rescale(scored, method.rescaled, x=batches[0][0].to(device), seed=seed)
            if recipe.norm_after:
                hand_over(scored, net)
        done = None if diverged else fit(checkpoint=path, seed=seed)
    found = {**_trained(done, sets), "kept": None, "on_paths": None, "dead": []}
    if method.score is not None and not diverged:
        masks = masks_of(net)
        found |= {"kept": masks.kept, "on_paths": on_paths(net, masks, sets.shape).kept, "dead": list(masks.dead)}
    return found


def _trained(done: Training | None, sets: Sets) -> dict[str, Any]:
    """Results of the last training; None is one that was not begun because the one before diverged."""
    rows = [] if done is None else [row for row in done.history if "test_accuracy" in row]
    epochs, accuracies = ([float(row[name]) for row in rows] for name in ("epoch", "test_accuracy"))
    history = {"epoch": epochs, "loss": [row["loss"] for row in rows], "accuracy": accuracies}
    lost = done is None or done.diverged
    last, best = (sets.chance, sets.chance) if lost else (accuracies[-1], max(accuracies))
    return {"accuracy": last, "best": best, "chance": sets.chance, "diverged": lost, "history": history}
