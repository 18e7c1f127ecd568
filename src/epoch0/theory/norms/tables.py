"""Two tables for the reader: the width that norms need, and what norms do at a width, by all three methods."""

from dataclasses import asdict, dataclass
from typing import Any

from epoch0.arguments import Count, Inside, checked
from epoch0.errors import InputError
from epoch0.results import Result, aligned
from epoch0.theory.norms.failure import METHODS, Direction, failure_probability, required_width, tolerance
from epoch0.theory.norms.ratio import NormRatio

LEVEL = 0.95
"""Of the interval in :class:`NormsAtWidth`: one input's ratio is inside with this probability."""


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


@dataclass(frozen=True)
class NormsAtWidth(Result):
    """What layers of one width do to norms.

    >>> print(at_width(500, layers=10, eps=0.2))
    10 ReLU layers of width 500, weights N(0, 2/500), no biases: ratio of output to input
    squared norm   mean 1, standard deviation 0.323, median 0.953, 95 % between 0.508 and 1.76
    norm           off by 12.6 % in the mean, by at most 30.4 % with probability 0.95
    Some layer changes the squared norm of 1 input by more than a factor 1 ± 0.2 (forward):
    method    probability  eps at 0.05
    paper          1.0000       0.3935
    chernoff       1.0000       0.3590
    exact          0.3695       0.2824

    ``mean`` to ``interval`` (95 % for one input) are of the ratio of squared norms over networks, ``mean_distortion``
    and ``distortion`` (not exceeded with probability 95 %) of the norm itself. By method: ``failures``, the probability
    that some layer changes some input's squared norm by more than eps, and ``tolerances``, the least eps that is kept
    with probability 1 - delta (None if none below 1 is).
    """

    width: int
    layers: int
    eps: float
    delta: float
    samples: int
    direction: str
    mean: float
    std: float
    median: float
    interval: tuple[float, float]
    mean_distortion: float
    distortion: float
    failures: dict[str, float]
    tolerances: dict[str, float | None]

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries, numbers and strings, ready for JSON."""
        return asdict(self) | {"interval": list(self.interval)}

    def rows(self) -> list[dict[str, Any]]:
        """One row a method: the failure probability at this width, and the tolerance that is kept."""
        return [{"method": m, "failure": p, "tolerance": self.tolerances[m]} for m, p in self.failures.items()]

    def __str__(self) -> str:
        cells = [["method", "probability", f"eps at {self.delta:g}"]]
        for method, kept in self.tolerances.items():
            cells.append([method, f"{self.failures[method]:.4f}", "-" if kept is None else f"{kept:.4f}"])
        low, high = self.interval
        head = (
            f"{_count(self.layers, 'ReLU layer')} of width {self.width}, weights N(0, 2/{self.width}), no biases: "
            "ratio of output to input\n"
            f"squared norm   mean {self.mean:g}, standard deviation {self.std:.3g}, median {self.median:.3g}, "
            f"{100 * LEVEL:g} % between {low:.3g} and {high:.3g}\n"
            f"norm           off by {100 * self.mean_distortion:.3g} % in the mean, by at most "
            f"{100 * self.distortion:.3g} % with probability {LEVEL:g}\n"
            f"Some layer changes the squared norm of {_count(self.samples, 'input')} by more than a factor "
            f"1 ± {self.eps:g} ({self.direction}):"
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


@checked
def at_width(
    width: Count,
    layers: Count = 1,
    eps: Inside = 0.1,
    delta: Inside = 0.05,
    samples: Count = 1,
    direction: Direction = "forward",
) -> NormsAtWidth:
    """The law of the norm ratio at a width, with failure probabilities and tolerances by all three methods.

    >>> found = at_width(1919)
    >>> round(found.failures["exact"], 5), round(found.std, 4)
    (0.04997, 0.051)
    """
    failures = {method: failure_probability(eps, width, samples, method, direction, layers) for method in METHODS}
    law = NormRatio((width,) * layers)
    tolerances: dict[str, float | None] = {}
    for method in METHODS:
        try:
            tolerances[method] = tolerance(width, delta, samples, layers, method, direction)
        except InputError:  # every argument has been checked: no tolerance below 1 is kept
            tolerances[method] = None
    asked = (width, layers, eps, delta, samples, direction)
    squares = (law.mean, law.std, law.quantile(0.5), law.interval(LEVEL))
    norms = (law.mean_distortion, law.distortion_quantile(LEVEL))
    return NormsAtWidth(*asked, *squares, *norms, failures, tolerances)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
