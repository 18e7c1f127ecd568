"""Hayou's Tables 1, 2, 3, 5, 8, 9, 10 as artifacts: the paper's protocol, and what stands in for it on two cores.

Quick presets train on the embedded 8x8 digits for 4 epochs. ResNet-20 and ResNet-32 with halved filters have 67,848 and
116,232 weights, a sixteenth of networks with doubled ones, so SNIP loses every path at 99.7 % or a little above, where
the paper's networks do at 99.9 %; a ResNet-20 with the filters of its authors has 270,608 and is pruned to the paper's
99.9 %. Networks, sparsities, epochs and batch size were chosen after looking at runs of SNIP and SBP-SR, so that both
outcomes occur; the methods were not tuned.

Of Table 5, what the paper leaves open is taken from public code of two of its authors: circular padding; batch norm
behind every convolution; EOC + rescaling is scored and rescaled without batch norm, which is added for the training,
while SNIP and SynFlow see the network that is trained. Behind batch norm the size of a layer's weights does not change
what the layer computes: rescaling decides how large a step of a given learning rate is, and the masks differ by how
they were scored. The quick preset has VGG11 and 3xVGG11, with an eighth of the filters, on digits, every pixel a square
of 2x2 for the pools: 3xVGG16 does not train on them in a few epochs, not even unpruned. Networks, epochs, learning rate
and where it falls were chosen after looking at runs with other seeds, see docs/hayou-accuracy.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from epoch0.experiments.claims import Claim, equal_within_error
from epoch0.papers.catalogue import Artifact
from epoch0.papers.hayou import accuracy
from epoch0.papers.hayou.accuracy import Panel, compared, joined, panel, panels_of, percent
from epoch0.papers.hayou.recipe import METHODS, Network, Recipe
from epoch0.papers.sweep import Found, Sweep, Table, mean_and_error

FOUR = ("snip", "grasp", "synflow", "sbp-sr")
PAIR = ("snip", "sbp-sr")
SEVEN = ("none", "random", "magnitude", *FOUR)
EVERY = ("none", "obd", "random", "magnitude", "snip", "grasp", "grasp-sr", "synflow", "sbp-sr")

_ANY = 0.5  # a sparsity for bases, whose method and sparsity are replaced
_RUNS = 4  # of quick presets; the paper has 3
_TO_999, _TO_98, _TO_95 = (0.9, 0.95, 0.98, 0.995, 0.999), (0.9, 0.95, 0.98), (0.85, 0.9, 0.95)
_WIDER = (0.995, 0.999)
_DEPTHS = (32, 50, 104)


def paper_recipe(depth: int, data: str, activation: str = "relu") -> Recipe:
    """Section 4.2: doubled filters, SGD at 0.1, a tenth of it from 1/2 and from 3/4 of the epochs on."""
    epochs = {"cifar10": 160, "cifar100": 250, "tiny-imagenet": 300}[data]
    tiny = data == "tiny-imagenet"
    network = Network("resnet", depth, 2.0, activation, variant="tiny_imagenet" if tiny else "cifar")
    # ten of each of 200 classes do not fit into one batch of GraSP on every device
    return Recipe(network, data, "snip", _ANY, epochs, score_batches=10 if tiny else 1)


def quick_recipe(depth: int, activation: str = "relu", width: float = 0.5) -> Recipe:
    """Digits, which are not flipped, on narrow networks; OBD looks at 400 of them, a quarter."""
    network = Network("resnet", depth, width, activation)
    return Recipe(network, "digits", "snip", _ANY, 4, 64, augment=False, obd_batches=4, tested_every=2)


def _paper(
    data: str, methods: tuple[str, ...], sparsities: tuple[float, ...], depths: Iterable[int] = _DEPTHS
) -> list[Sweep]:
    return [panel(paper_recipe(depth, data), methods, sparsities, 3) for depth in depths]


def _quick(
    depth: int, methods: tuple[str, ...], sparsities: tuple[float, ...], width: float = 0.5, activation: str = "relu"
) -> Sweep:
    return panel(quick_recipe(depth, activation, width), methods, sparsities, _RUNS)


# Table 6 has these panels of the paper's preset, and those of Table 5, too
SECOND = {
    "quick": [_quick(20, EVERY, (0.98, 0.995)), _quick(32, FOUR, (0.98, 0.995))],
    "paper": [
        each
        for name in ("cifar10", "cifar100")
        for each in (*_paper(name, EVERY, _TO_98, (32,)), *_paper(name, SEVEN, _TO_98, (50, 104)))
    ],
}
THIRD = _paper("tiny-imagenet", FOUR, _TO_95)
_BOTTLENECKS = Recipe(  # of a ResNet-50 with a sixteenth of the filters
    Network("resnet", 50, 1 / 16, variant="imagenet", stem="3x3"), "digits", "snip", _ANY, 4, 64, augment=False
)
_IMAGENET = Recipe(  # appendix F; what is left open as in He et al.: batches of 256, decay 1e-4
    Network("resnet", 50, 1.0, variant="imagenet"), "imagenet", "snip", _ANY, 90, 256, drops=(30, 60, 80),
    weight_decay=1e-4, score_per_class=1, score_batches=10,
)  # fmt: skip
_NINTH = {
    "quick": [
        _quick(depth, PAIR, sparsities, width, activation)
        for depth, width, sparsities in ((20, 1.0, _WIDER), (32, 0.5, (0.98, 0.995, 0.997)))
        for activation in ("relu", "tanh")
    ],
    "paper": [
        panel(paper_recipe(depth, "cifar10", activation), PAIR, (0.9, 0.98, 0.995, 0.999), 3)
        for depth in (32, 50)
        for activation in ("relu", "tanh")
    ],
}


# ---- Table 5: VGG16, and 3xVGG16 with thrice the convolutions between its pools


OURS = "eoc-rescaling"
OTHERS = ("snip", "synflow")
SIMILAR = 0.01  # relative size of a difference that would show where the paper says that methods perform similarly
NOT_MUCH = 1.0  # points by which 3xVGG16 may be ahead where the paper sees no great improvement


def claims_5(found: Found) -> list[Claim]:
    """Section 4.3: on VGG16 the three are alike, on 3xVGG16 rescaling wins."""
    once, thrice = panels_of(found)
    leads = {
        f"{METHODS[other].label}, {percent(s)}": (thrice.lead(OURS, other, s), once.lead(OURS, other, s))
        for other in OTHERS
        for s in thrice.sparsities
    }
    gained = {percent(s): (thrice.accuracy(OURS, s), once.accuracy(OURS, s)) for s in thrice.sparsities}
    label, runs = METHODS[OURS].label, thrice.runs
    larger = f"the larger the blocks between pools, the better rescaling does: its lead is larger on {thrice.network}"
    much = f"{thrice.network} does not improve much on {once.network} ({label}): by {NOT_MUCH:g} point or less"
    return [
        _similar(once),
        *(
            compared(f"{thrice.name}: {label} is ahead of {METHODS[other].label}", thrice.pairs(OURS, other), runs)
            for other in OTHERS
        ),
        compared(larger, leads, runs),
        compared(much, gained, runs, NOT_MUCH, most=True),
    ]


def _similar(panel: Panel) -> Claim:
    methods = (*OTHERS, OURS)
    each = [[mean_and_error(panel.accuracy(method, s)) for method in methods] for s in panel.sparsities]
    return equal_within_error(
        f"{panel.name}: the three methods perform similarly",
        [[one.mean for one in row] for row in each], [[one.error for one in row] for row in each],
        panel.runs, resolution=SIMILAR, settings=[percent(s) for s in panel.sparsities],
        groups=[METHODS[method].label for method in methods],
    )  # fmt: skip


def table_5(found: Found) -> Table:
    """The rows of all accuracy tables; ``best`` marks the best method of a network and sparsity, or those that tie."""
    marks: dict[tuple[str, float, str], str] = {}
    for each in panels_of(found):
        for sparsity in each.sparsities:
            best = each.winner(sparsity)
            for method in (best.best, *best.tied):
                marks[each.network, sparsity, METHODS[method].label] = "tie" if best.tied else "best"
    rows = accuracy.table("tab5", found)
    return Table({**row, "best": marks.get((row["network"], row["sparsity"], row["method"]), "")} for row in rows)


def about_5(sweep: Sweep) -> str:
    """The setting in one line."""
    each = [sweep.spec, *(one.spec for one in sweep.also.values())]
    names = " and ".join(recipe.network.name for recipe in each)
    enlarged = ", every pixel 2x2" if sweep.spec.data == "digits" else ""
    return sweep.told(
        f"{names}, filters times {sweep.spec.network.width:g}, circular padding, on {{data}}{enlarged}; "
        "{epochs} epochs of SGD at {learning_rate:g}, batches of {batch_size}; EOC + rescaling is scored and rescaled "
        "without batch norm, the others with it in {batch_norm} mode; {runs} runs; bars: two standard errors"
    )


def _panels(
    data: str, depth: int, width: float, sparsities: Sequence[float], epochs: int, batch_size: int, runs: int,
    **more: Any,
) -> list[Sweep]:  # fmt: skip
    networks = [Network("vgg", depth, width, repeat=repeat, padding="circular") for repeat in (1, 3)]
    bases = [Recipe(each, data, "snip", 0.5, epochs, batch_size, norm_after=True, **more) for each in networks]
    return [panel(base, (*OTHERS, OURS), sparsities, runs) for base in bases]


FIFTH = {
    "quick": _panels(
        "digits", 11, 1 / 8, (0.9,), 5, 32, 7, augment=False, synflow_steps=30, learning_rate=0.03, drops=(0.8,)
    ),
    "paper": _panels("cifar10", 16, 1.0, (0.85, 0.9, 0.95), 160, 128, 3),
}


def _table(
    name: str, text: str, source: str, quick: list[Sweep], paper: list[Sweep], *, chance: bool = False
) -> Artifact:
    """``chance``: one of the tables that go to sparsities at which SNIP is at chance."""
    decide = partial(accuracy.chance_claims, name, 0.98) if chance else partial(accuracy.claims, name, 0.0)
    return Artifact(
        f"hayou/{name}", text, f"Hayou et al., Table {name[3:]}, {source}",
        {"quick": joined(quick), "paper": joined(paper)}, partial(accuracy.table, name), decide,
        partial(accuracy.draw, name), accuracy.about, accuracy.cost,
    )  # fmt: skip


ARTIFACTS = (
    _table(
        "tab1", "Accuracy of pruned ResNets, SNIP and SBP-SR", "section 1",
        [_quick(20, PAIR, _WIDER, 1.0), *(_quick(depth, PAIR, (0.98, 0.99, 0.995, 0.997)) for depth in (20, 32))],
        _paper("cifar10", PAIR, _TO_999), chance=True,
    ),
    _table("tab2", "Accuracy after pruning by nine methods", "section 4.2", SECOND["quick"], SECOND["paper"]),
    _table(
        "tab3", "Accuracy of pruned ResNets on Tiny ImageNet", "section 4.2",
        [_quick(depth, FOUR, (0.98, 0.99, 0.995)) for depth in (20, 32)], THIRD,
    ),
    Artifact(
        "hayou/tab5", "Accuracy of pruned VGG16 and 3xVGG16", "Hayou et al., Table 5, section 4.3",
        {preset: joined(panels) for preset, panels in FIFTH.items()}, table_5, claims_5,
        partial(accuracy.draw, "tab5"), about_5, accuracy.cost,
    ),
    _table(
        "tab8", "Accuracy of a pruned ResNet-50 on ImageNet", "appendix F",
        [panel(_BOTTLENECKS, FOUR, _TO_98, 3)], [panel(_IMAGENET, FOUR, _TO_95, 3)],
    ),
    _table("tab9", "Accuracy of pruned ReLU and tanh ResNets", "appendix G", _NINTH["quick"], _NINTH["paper"],
           chance=True),
    _table("tab10", 'Accuracy of a pruned "vanilla-CNN", which is Table 9 once more', "appendix G", _NINTH["quick"],
           _NINTH["paper"], chance=True),
)  # fmt: skip
