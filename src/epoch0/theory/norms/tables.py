"""A table for the reader: the width that norms need, by all three methods."""

from dataclasses import asdict, dataclass
from typing import Any

from epoch0.arguments import Count, Inside, checked
from epoch0.results import Result, aligned
from epoch0.theory.norms.failure import METHODS, Direction, failure_probability, required_width


@dataclass(frozen=True)
class NormSummary(Result):
    """The least width by each method.

    >>> print(summary(eps=0.1, delta=0.05, layers=10))
    Width for 10 ReLU layers to keep the squared norm of 1 input within a factor 1 ± 0.1 in each,
    with probability at least 0.95 (forward):
    method    width  to exact  failure
    paper      6743      1.72   0.0500
    chernoff   6029      1.53   0.0500
    exact      3928      1.00   0.0500

    ``widths`` and ``failures`` are by method: the least width, and the failure probability there, just below delta.
    """

    eps: float
    delta: float
    samples: int
    layers: int
    direction: str
    widths: dict[str, int]
    failures: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries, numbers and strings, ready for JSON."""
        return asdict(self)

    def rows(self) -> list[dict[str, Any]]:
        """One row a method: its width and the failure probability there."""
        return [{"method": m, "width": width, "failure": self.failures[m]} for m, width in self.widths.items()]

    def __str__(self) -> str:
        cells = [["method", "width", "to exact", "failure"]]
        for method, width in self.widths.items():
            cells.append([method, str(width), f"{width / self.widths['exact']:.2f}", f"{self.failures[method]:.4f}"])
        head = (
            f"Width for {_count(self.layers, 'ReLU layer')} to keep the squared norm of "
            f"{_count(self.samples, 'input')} within a factor 1 ± {self.eps:g} in each,\n"
            f"with probability at least {1 - self.delta:g} ({self.direction}):"
        )
        return "\n".join([head, *aligned(cells, numbers=slice(1, None))])


@checked
def summary(
    eps: Inside, delta: Inside, samples: Count = 1, layers: Count = 1, direction: Direction = "forward"
) -> NormSummary:
    """The least width by the paper, by the best Chernoff bound and by the exact law, side by side.

    >>> summary(eps=0.1, delta=0.05).widths
    {'paper': 4152, 'chernoff': 3698, 'exact': 1919}
    """
    widths = {method: required_width(eps, delta, samples, layers, method, direction) for method in METHODS}
    failures = {m: failure_probability(eps, width, samples, m, direction, layers) for m, width in widths.items()}
    return NormSummary(eps, delta, samples, layers, direction, widths, failures)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
