"""The accuracies that Hayou et al. print, as they print them: Tables 1, 2, 3, 5, 8, 9, 10, and the winners of Table 6.

Percent of the test images, mean ± standard deviation of 3 runs. Slips of the print are kept (docs/hayou-accuracy).
"""

from collections.abc import Mapping
from dataclasses import dataclass

COMPETITION = "C"  # what Table 6 prints where it sees no clear winner

_PRINT = """
tab1 cifar10 ResNet-32 relu: 0.9 0.95 0.98 0.995 0.999
  snip 92.26±0.32 91.18±0.17 87.78±0.16 77.56±0.36 9.98±0.08
  sbp-sr 92.56±0.06 91.21±0.30 88.25±0.35 79.54±1.12 51.56±1.12
tab1 cifar10 ResNet-50 relu: 0.9 0.95 0.98 0.995 0.999
  snip 91.95±0.13 92.12±0.34 89.26±0.23 80.49±2.41 19.98±14.12
  sbp-sr 92.05±0.06 92.74±0.32 89.57±0.21 82.68±0.52 58.76±1.82
tab1 cifar10 ResNet-104 relu: 0.9 0.95 0.98 0.995 0.999
  snip 93.25±0.53 92.98±0.12 91.58±0.19 33.63±33.27 10.11±0.09
  sbp-sr 94.69±0.13 93.88±0.17 92.08±0.14 87.47±0.23 72.70±0.48
tab2 cifar10 ResNet-32 relu: 0.9 0.95 0.98
  none 94.80 | obd 93.74 93.58 93.49 | random 89.95±0.23 89.68±0.15 86.13±0.25
  magnitude 90.21±0.55 88.35±0.75 86.83±0.27 | snip 92.26±0.32 91.18±0.17 87.78±0.16
  grasp 92.20±0.31 91.39±0.25 88.70±0.42 | grasp-sr 92.30±0.19 91.16±0.13 87.8±0.32
  synflow 92.01±0.22 91.67±0.17 88.10±0.25 | sbp-sr 92.56±0.06 91.21±0.30 88.25±0.35
tab2 cifar10 ResNet-50 relu: 0.9 0.95 0.98
  none 94.90 | random 85.11±4.51 88.76±0.21 85.32±0.47 | magnitude 90.11±0.32 89.06±0.09 87.32±0.16
  snip 91.95±0.13 92.12±0.34 89.26±0.23 | grasp 92.10±0.21 91.74±0.35 89.97±0.25
  synflow 92.05±0.20 91.83±0.23 89.61±0.17 | sbp-sr 92.05±0.06 92.74±0.32 89.57±0.21
tab2 cifar10 ResNet-104 relu: 0.9 0.95 0.98
  none 94.92 | random 89.80±0.33 87.86±1.22 85.52±2.12 | magnitude 90.05±1.23 88.95±0.65 87.83±1.21
  snip 93.25±0.53 92.98±0.12 91.58±0.19 | grasp 93.08±0.17 92.93±0.09 91.19±0.35
  synflow 93.43±0.10 92.85±0.18 91.03±0.25 | sbp-sr 94.69±0.13 93.88±0.17 92.08±0.14
tab2 cifar100 ResNet-32 relu: 0.9 0.95 0.98
  none 74.64 | obd 73.83 71.98 67.79 | random 63.13±2.94 64.55±0.32 19.83±3.21
  magnitude 67.07±0.31 64.92±0.77 59.53±2.19 | snip 69.31±0.52 65.63±0.15 55.70±1.13
  grasp 69.24±0.24 66.50±0.11 58.43±0.43 | grasp-sr 69.12±0.15 65.49±0.21 58.63±0.23
  synflow 69.03±0.20 65.23±0.31 58.73±0.30 | sbp-sr 69.51±0.21 66.72±0.12 59.51±0.15
tab2 cifar100 ResNet-50 relu: 0.9 0.95 0.98
  none 74.9 | random 65.67±0.57 60.23±2.21 28.32±10.35 | magnitude 68.51±0.21 63.32±1.32 55.21±0.35
  snip 70.43±0.43 67.85±1.02 60.38±0.78 | grasp 70.53±0.32 67.84±0.25 63.88±0.45
  synflow 70.43±0.30 67.95±0.22 63.95±0.11 | sbp-sr 71.79±0.13 68.98±0.15 64.45±0.34
tab2 cifar100 ResNet-104 relu: 0.9 0.95 0.98
  none 75.24 | random 66.73±1.32 64.98±0.11 30.31±4.51 | magnitude 69.57±0.35 64.31±0.78 60.21±2.41
  snip 71.94±0.22 68.73±0.09 63.31±0.41 | grasp 73.33±0.21 70.95±1.12 66.91±0.33
  synflow 72.85±0.20 70.33±0.15 67.02±0.10 | sbp-sr 74.17±0.11 71.84±0.13 67.73±0.28
tab3 tiny-imagenet ResNet-32 relu: 0.85 0.9 0.95
  sbp-sr 57.25±0.09 55.67±0.21 50.63±0.21 | snip 56.92±0.33 54.99±0.37 49.48±0.48
  grasp 57.25±0.11 55.53±0.11 51.34±0.29 | synflow 56.75±0.09 55.60±0.07 51.50±0.21
tab3 tiny-imagenet ResNet-50 relu: 0.85 0.9 0.95
  sbp-sr 59.8±0.18 57.74±0.06 53.97±0.27 | snip 58.91±0.23 56.15±0.31 51.19±0.47
  grasp 58.46±0.29 57.48±0.35 52.5±0.41 | synflow 59.31±0.17 57.67±0.15 53.14±0.31
tab3 tiny-imagenet ResNet-104 relu: 0.85 0.9 0.95
  sbp-sr 62.84±0.13 61.96±0.11 57.9±0.31 | snip 59.94±0.34 58.14±0.28 54.9±0.42
  grasp 61.1±0.41 60.14±0.38 56.36±0.51 | synflow 61.71±0.08 60.81±0.14 55.91±0.43
tab5 cifar10 VGG16 relu: 0.85 0.9 0.95
  snip 93.09±0.11 92.97±0.08 92.61±0.10 | synflow 93.21±0.13 93.05±0.11 92.19±0.12
  eoc-rescaling 93.15±0.12 92.90±0.15 92.70±0.06
tab5 cifar10 3xVGG16 relu: 0.85 0.9 0.95
  snip 93.30±0.10 93.12±0.20 92.85±0.15 | synflow 92.95±0.13 92.91±0.21 92.70±0.20
  eoc-rescaling 93.97±0.17 93.75±0.15 93.40±0.16
tab8 imagenet ResNet-50 relu: 0.85 0.9 0.95
  snip 69.05 64.25 44.90 | grasp 69.45 66.41 62.10 | synflow 69.50 66.20 62.05 | sbp-sr 69.75 67.02 62.66
tab9 cifar10 ResNet-32 relu: 0.9 0.98 0.995 0.999
  sbp-sr 92.56±0.06 88.25±0.35 79.54±1.12 51.56±1.12 | snip 92.24±0.25 87.63±0.16 77.56±0.36 10±0
tab9 cifar10 ResNet-32 tanh: 0.9 0.98 0.995 0.999
  sbp-sr 90.97±0.2 86.62±0.38 75.04±0.49 51.88±0.56 | snip 90.69±0.28 85.47±0.18 10±0 10±0
tab9 cifar10 ResNet-50 relu: 0.9 0.98 0.995 0.999
  sbp-sr 92.05±0.06 89.57±0.21 82.68±0.52 58.76±1.82 | snip 91.64±0.14 89.20±0.54 80.49±2.41 19.98±14.12
tab9 cifar10 ResNet-50 tanh: 0.9 0.98 0.995 0.999
  sbp-sr 90.43±0.32 88.18±0.10 80.09±0.0.55 58.21±1.61 | snip 89.55±0.10 10±0 10±0 10±0
"""
# one head a block (table, data, network, nonlinearity, sparsities), then its rows, one a method


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


PUBLISHED = _read(_PRINT)
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
