"""Hayou's accuracy tables as artifacts: the paper's protocol, and what stands in for it on two cores (section 4, F, G).

Quick presets train on the embedded 8x8 digits for 4 epochs. ResNet-20 and ResNet-32 with halved filters have 67,848 and
116,232 weights, a sixteenth of networks with doubled ones, so SNIP loses every path at 99.7 % or a little above, where
the paper's networks do at 99.9 %; a ResNet-20 with the filters of its authors has 270,608 and is pruned to the paper's
99.9 %. Networks, sparsities, epochs and batch size were chosen after looking at runs of SNIP and SBP-SR, so that both
outcomes occur; the methods were not tuned.
"""

from collections.abc import Callable
from typing import Any

from epoch0.papers.catalogue import OldArtifact
from epoch0.papers.hayou import (
    accuracy,
    accuracy_claims,
    accuracy_costs,
    accuracy_picture,
    accuracy_winners,
    accuracy_winners_picture,
    vgg,
)
from epoch0.papers.hayou.accuracy import Panel, Setting
from epoch0.papers.hayou.accuracy_winners import WinnersSetting
from epoch0.papers.hayou.recipe import Network, Recipe

AT_INITIALIZATION = ("random", "magnitude", "snip", "grasp", "synflow", "sbp-sr")
FOUR = ("snip", "grasp", "synflow", "sbp-sr")
PAIR = ("snip", "sbp-sr")
EVERY = ("none", "obd", "random", "magnitude", "snip", "grasp", "grasp-sr", "synflow", "sbp-sr")

_ANY = 0.5
"""A sparsity for bases, whose method and sparsity are replaced."""


def paper_recipe(depth: int, data: str, activation: str = "relu") -> Recipe:
    """Section 4.2: doubled filters, SGD at 0.1, a tenth of it from 1/2 and from 3/4 of the epochs on."""
    epochs = {"cifar10": 160, "cifar100": 250, "tiny-imagenet": 300}[data]
    if data == "tiny-imagenet":
        network = Network("resnet", depth, 2.0, activation, variant="tiny_imagenet")
        # ten of each of 200 classes do not fit into one batch of GraSP on every device
        return Recipe(network, data, "snip", _ANY, epochs, score_batches=10)
    return Recipe(Network("resnet", depth, 2.0, activation), data, "snip", _ANY, epochs)


def imagenet_recipe() -> Recipe:
    """Appendix F: 90 epochs, drops at 30, 60, 80; what is left open as in He et al.: batches of 256, decay 1e-4."""
    return Recipe(
        Network("resnet", 50, 1.0, variant="imagenet"), "imagenet", "snip", _ANY, 90, 256, drops=(30, 60, 80),
        weight_decay=1e-4, score_per_class=1, score_batches=10,
    )  # fmt: skip


def quick_recipe(depth: int, activation: str = "relu", width: float = 0.5) -> Recipe:
    """Digits, which are not flipped, on narrow networks; OBD looks at 400 of them, a quarter."""
    network = Network("resnet", depth, width, activation)
    return Recipe(network, "digits", "snip", _ANY, 4, 64, augment=False, obd_batches=4, tested_every=2)


def quick_bottlenecks() -> Recipe:
    """A ResNet-50 of bottlenecks with a sixteenth of the filters."""
    network = Network("resnet", 50, 1 / 16, variant="imagenet", stem="3x3")
    return Recipe(network, "digits", "snip", _ANY, 4, 64, augment=False)


_RUNS = 4
"""Of quick presets; the paper has 3."""

_TO_999 = (0.9, 0.95, 0.98, 0.995, 0.999)
_TO_98 = (0.9, 0.95, 0.98)
_TO_95 = (0.85, 0.9, 0.95)
_QUICK_HIGH = (0.98, 0.99, 0.995, 0.997)
_WIDER_HIGH = (0.995, 0.999)


def _first() -> dict[str, Setting]:
    quick = (
        Panel(quick_recipe(20, width=1.0), PAIR, _WIDER_HIGH, _RUNS),
        *(Panel(quick_recipe(depth), PAIR, _QUICK_HIGH, _RUNS) for depth in (20, 32)),
    )
    paper = tuple(Panel(paper_recipe(depth, "cifar10"), PAIR, _TO_999, 3, "tab1") for depth in (32, 50, 104))
    return {"quick": Setting(quick, "tab1", 0.98), "paper": Setting(paper, "tab1", 0.98)}


def _second() -> dict[str, Setting]:
    quick = (
        Panel(quick_recipe(20), EVERY, (0.98, 0.995), _RUNS),
        Panel(quick_recipe(32), FOUR, (0.98, 0.995), _RUNS),
    )
    paper = tuple(
        Panel(paper_recipe(depth, name), EVERY if depth == 32 else ("none", *AT_INITIALIZATION), _TO_98, 3, "tab2")
        for name in ("cifar10", "cifar100")
        for depth in (32, 50, 104)
    )
    return {"quick": Setting(quick, "tab2", 0.98), "paper": Setting(paper, "tab2", 0.9)}


def _third() -> dict[str, Setting]:
    quick = tuple(Panel(quick_recipe(depth), FOUR, (0.98, 0.99, 0.995), _RUNS) for depth in (20, 32))
    paper = tuple(Panel(paper_recipe(depth, "tiny-imagenet"), FOUR, _TO_95, 3, "tab3") for depth in (32, 50, 104))
    return {"quick": Setting(quick, "tab3", 0.98), "paper": Setting(paper, "tab3", 0.85)}


def _eighth() -> dict[str, Setting]:
    quick = (Panel(quick_bottlenecks(), FOUR, (0.9, 0.95, 0.98), 3),)
    paper = (Panel(imagenet_recipe(), FOUR, _TO_95, 3, "tab8"),)
    return {"quick": Setting(quick, "tab8", 0.9), "paper": Setting(paper, "tab8", 0.85)}


def _ninth(table: str) -> dict[str, Setting]:
    quick = tuple(
        Panel(quick_recipe(depth, activation, width), PAIR, sparsities, _RUNS)
        for depth, width, sparsities in ((20, 1.0, _WIDER_HIGH), (32, 0.5, (0.98, 0.995, 0.997)))
        for activation in ("relu", "tanh")
    )
    paper = tuple(
        Panel(paper_recipe(depth, "cifar10", activation), PAIR, (0.9, 0.98, 0.995, 0.999), 3, "tab9")
        for depth in (32, 50)
        for activation in ("relu", "tanh")
    )
    return {"quick": Setting(quick, table, 0.98), "paper": Setting(paper, table, 0.98)}


def _sixth() -> dict[str, WinnersSetting]:
    quick = WinnersSetting(_second()["quick"].panels)
    paper = (*_second()["paper"].panels, *vgg.PANELS["paper"], *_third()["paper"].panels)
    return {"quick": quick, "paper": WinnersSetting(paper)}


def _table(
    name: str, title: str, source: str, presets: dict[str, Setting], decide: Callable[..., Any] = accuracy_claims.claims
) -> OldArtifact:
    return OldArtifact(
        f"hayou/{name}", title, f"Hayou et al., {source}", presets, accuracy.trials, accuracy.table, decide,
        accuracy_picture.draw, accuracy.data, accuracy.about, accuracy_costs.costs,
    )  # fmt: skip


TABLE_1 = _table(
    "tab1", "Accuracy of pruned ResNets, SNIP and SBP-SR", "Table 1, section 1", _first(), accuracy_claims.chance_claims
)
TABLE_2 = _table("tab2", "Accuracy after pruning by nine methods", "Table 2, section 4.2", _second())
TABLE_3 = _table("tab3", "Accuracy of pruned ResNets on Tiny ImageNet", "Table 3, section 4.2", _third())
TABLE_6 = OldArtifact(
    "hayou/tab6", "Which algorithm performs better", "Hayou et al., Table 6, section 4.3", _sixth(),
    accuracy_winners.trials, accuracy_winners.table, accuracy_winners.claims, accuracy_winners_picture.draw,
    lambda setting: setting.panels[0].base.data, accuracy_winners.about, accuracy_costs.costs,
)  # fmt: skip
TABLE_8 = _table("tab8", "Accuracy of a pruned ResNet-50 on ImageNet", "Table 8, appendix F", _eighth())
TABLE_9 = _table(
    "tab9", "Accuracy of pruned ReLU and tanh ResNets", "Table 9, appendix G", _ninth("tab9"),
    accuracy_claims.chance_claims,
)  # fmt: skip
TABLE_10 = _table(
    "tab10", 'Accuracy of a pruned "vanilla-CNN", which is Table 9 once more', "Table 10, appendix G", _ninth("tab10"),
    accuracy_claims.chance_claims,
)  # fmt: skip
