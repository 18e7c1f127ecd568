"""The accuracies that Hayou et al. print, as they print them: Tables 1, 2, 3, 5, 8, 9, 10, and the winners of Table 6.

Percent of the test images, mean ± standard deviation of 3 runs, from published.txt: one head a block (table, data,
network, nonlinearity, sparsities), then its rows, one a method. Slips of the print are kept (docs/hayou-accuracy).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

COMPETITION = "C"  # what Table 6 prints where it sees no clear winner


@dataclass(frozen=True)
class Entry:
    """One printed accuracy in percent; ``sd`` is None if nothing stands behind it, or nothing that is a number."""

    value: float
    sd: float | None


@dataclass(frozen=True)
class Printed:
    """One block of a printed table: a network on a data set; ``rows``: method -> one entry for each sparsity."""

    data: str
    network: str
    activation: str
    sparsities: tuple[float, ...]
    rows: Mapping[str, tuple[Entry, ...]]

    def entry(self, method: str, sparsity: float) -> Entry | None:
        """What is printed for a method at a sparsity, ``"none"`` at 0; None if nothing is."""
        row = self.rows.get(method)
        if row is None or (method == "none") != (sparsity == 0):
            return None
        if method == "none":
            return row[0]
        return row[self.sparsities.index(sparsity)] if sparsity in self.sparsities else None


def _entry(text: str) -> Entry:
    value, _, sd = text.partition("±")
    return Entry(float(value), float(sd) if sd.count(".") == 1 else None)


def _read(text: str) -> dict[str, tuple[Printed, ...]]:
    found: dict[str, list[Printed]] = {}
    rows: dict[str, tuple[Entry, ...]] = {}
    for line in text.strip().splitlines():
        if ":" in line:
            head, _, sparsities = line.partition(":")
            table, data, network, activation = head.split()
            rows = {}
            block = Printed(data, network, activation, tuple(map(float, sparsities.split())), rows)
            found.setdefault(table, []).append(block)
        else:
            for row in line.split("|"):
                method, *entries = row.split()
                rows[method] = tuple(map(_entry, entries))
    return {table: tuple(blocks) for table, blocks in found.items()}


PUBLISHED = _read(Path(__file__).with_suffix(".txt").read_text("utf-8"))
"""Table -> its blocks. Table 10 prints Table 9 once more, to the digit, under the caption "vanilla-CNN"."""
PUBLISHED["tab10"] = PUBLISHED["tab9"]

_COLUMNS = (0.85, 0.9, 0.95, 0.98)

WINNERS: dict[tuple[str, str], dict[float, str]] = {
    key: {s: word for s, word in zip(_COLUMNS, words.split(), strict=True) if word != "-"}
    for key, words in {
        ("cifar10", "ResNet-32"): "- C C grasp",
        ("cifar10", "ResNet-50"): "- C sbp-sr grasp",
        ("cifar10", "ResNet-104"): "- sbp-sr sbp-sr sbp-sr",
        ("cifar10", "VGG16"): "C C C -",
        ("cifar10", "3xVGG16"): "eoc-rescaling eoc-rescaling eoc-rescaling -",
        ("cifar100", "ResNet-32"): "- sbp-sr sbp-sr sbp-sr",
        ("cifar100", "ResNet-50"): "- sbp-sr sbp-sr sbp-sr",
        ("cifar100", "ResNet-104"): "- sbp-sr sbp-sr sbp-sr",
        ("tiny-imagenet", "ResNet-32"): "C C synflow -",
        ("tiny-imagenet", "ResNet-50"): "sbp-sr C sbp-sr -",
        ("tiny-imagenet", "ResNet-104"): "sbp-sr sbp-sr sbp-sr -",
    }.items()
}
"""Table 6: (data, network) -> sparsity -> method, or :data:`COMPETITION`; what has a dash is left out."""


def block(table: str, data: str, network: str, activation: str = "relu") -> Printed | None:
    """The block of a table for a network on a data set; None if the table has none."""
    for each in PUBLISHED.get(table, ()):
        if (each.data, each.network, each.activation) == (data, network, activation):
            return each
    return None
