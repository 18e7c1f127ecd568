"""Tables of measured means with their errors, and functions that decide the claims about them."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from epoch0.experiments.claims import Claim, between, equal_within_error, fitted_exponent

Array = NDArray[Any]
Decision = Callable[[str], Claim]  # the text of a claim -> the claim, decided
Claims = Mapping[str, Decision]  # a paper's statement -> the function that decides it


class Mean(NamedTuple):
    """A mean and its standard error, numbers or arrays of one shape."""

    mean: Any
    error: Any


def mean_and_error(values: Any) -> Mean:
    """Mean over the first axis and its standard error, which is NaN for a single value: (...) of (runs, ...)."""
    values = np.asarray(values, dtype=np.float64)
    mean = values.mean(axis=0)
    error = values.std(axis=0, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else np.full_like(mean, math.nan)
    return Mean(float(mean), float(error)) if np.ndim(mean) == 0 else Mean(mean, error)


def means(values: Iterable[Any]) -> Mean:
    """Mean and error of each of several settings, (runs,) each: two arrays (settings,)."""
    return Mean(*np.transpose([mean_and_error(value) for value in values]))


def slopes(values: Array) -> Array:
    """Least-squares slope of values along the last axis, a step apart, shape (...) of (..., places)."""
    places = np.arange(values.shape[-1]) - (values.shape[-1] - 1) / 2
    return np.asarray(values @ places / (places @ places))


def columns_of(**values: Array) -> dict[str, float]:
    """Two columns of a row for each name: the mean over the first axis, and its standard error as ``name_error``."""
    each = {name: mean_and_error(item) for name, item in values.items()}
    return {f"{name}{part}": item[i] for name, item in each.items() for i, part in enumerate(("", "_error"))}


def mean_growth(growth: Array) -> tuple[float, float, int]:
    """Mean over all layers of all networks (networks, layers), its error over networks, and the networks that count. A
    layer that nothing reaches, NaN, has no growth factor. The others count equally: a mean of each network's own mean
    would give the layers before a death more weight, among them the one that killed, and understate.
    """
    alive = ~np.isnan(growth)
    kept = alive.any(axis=1)
    total, count = np.where(alive, growth, 0.0)[kept].sum(axis=1), alive[kept].sum(axis=1)
    return (*ratio_of_sums(total, count), len(total))


def ratio_of_sums(above: Array, below: Array) -> Mean:
    """The sum of some numbers over that of others, of the same independent runs, and its standard error."""
    runs, mean = len(above), above.sum() / below.sum()
    if runs < 2:
        return Mean(float(mean), math.nan)
    spread = math.sqrt(float(((above - mean * below) ** 2).sum()) / (runs - 1))
    return Mean(float(mean), spread / float(below.mean()) / math.sqrt(runs))


class Table(list[dict[str, Any]]):
    """Rows with the operations that claims and pictures need."""

    def where(self, **values: Any) -> "Table":
        """The rows with these values in these columns; a tuple or list stands for any of its values."""
        sets = {name: value if isinstance(value, tuple | list) else (value,) for name, value in values.items()}
        return Table(row for row in self if all(row[name] in allowed for name, allowed in sets.items()))

    def by(self, column: str) -> Iterator[tuple[Any, "Table"]]:
        """Each value of a column, in the order in which they come, with its rows."""
        for value in dict.fromkeys(row[column] for row in self):
            yield value, self.where(**{column: value})

    def column(self, name: str) -> Array:
        """One column; what is None is NaN."""
        values = np.array([row[name] for row in self])
        return values.astype(float) if values.dtype == object else values

    def of(self, *names: str) -> Any:
        """Several columns."""
        return tuple(self.column(name) for name in names)

    def labels(self, template: str) -> list[str]:
        """One text a row, such as ``"width {width}, layer {layer}"``: the settings in the evidence of a claim."""
        return [template.format_map(row) for row in self]

    def claim(self, decide: Callable[..., Claim], column: str, *bounds: Any, names: str, **more: Any) -> Decision:
        """Decide a claim about a column of means, row by row; bounds are names of columns, numbers or arrays."""
        given = [self.column(bound) if isinstance(bound, str) else bound for bound in bounds]
        means, errors, runs = self.of(column, f"{column}_error", "runs")
        return by(decide, means, errors, *given, runs, self.labels(names), **more)

    def bounded(self, text: str, open: Array, decide: Callable[..., Claim], *columns: str, names: str) -> Claims:
        """The claim about a bound in the settings where it can fail; its text names the others, with their bounds."""
        rows, left = (Table(row for row, can in zip(self, open, strict=True) if can == word) for word in (True, False))
        others = "; ".join(left.labels(f"{names}: {{{columns[1]}:.2g}}"))
        others = f" ({len(left)} of {len(self)} settings cannot fail and are not counted, by their bounds: {others})"
        return {text + others * bool(left): rows.claim(decide, *columns, names=names)} if rows else {}

    def power(self, x: str, column: str, exponent: float, within: float, name: str) -> Decision:
        """Decide that a column of means goes like a power of another column, see :func:`power`."""
        means, errors, runs = self.of(column, f"{column}_error", "runs")
        return power(self.column(x), means, errors, runs, exponent, within, name)

    def alike(self, column: str, group: str, groups: str, settings: str, **more: Any) -> Decision:
        """Decide that the groups that a column makes have equal means; ``groups``, ``settings``: texts with columns."""

        def decide(text: str) -> Claim:
            parts = [rows for _, rows in self.by(group)]
            values = (np.stack([one.column(name) for one in parts], 1) for name in (column, f"{column}_error", "runs"))
            names = [rows.labels(groups)[0] for rows in parts]
            return equal_within_error(text, *values, settings=parts[0].labels(settings), groups=names, **more)

        return decide


def by(decide: Callable[..., Claim], *arguments: Any, **more: Any) -> Decision:
    """Decide a claim, given all but its text."""
    return lambda text: decide(text, *arguments, **more)


def more(decide: Decision, before: str = "", after: str = "", **numbers: float) -> Decision:
    """The same with more evidence, in front or behind, and more numbers."""

    def decide_more(text: str) -> Claim:
        claim = decide(text)
        evidence = "; ".join(part for part in (before, claim.evidence, after) if part)
        return replace(claim, evidence=evidence, numbers={**claim.numbers, **numbers})

    return decide_more


def over_runs(decide: Callable[..., Claim], values: Any, *bounds: Any, names: Sequence[str]) -> Decision:
    """The same for means over runs: of shape (runs,), (runs, settings), or a list of arrays (runs,), one a setting."""
    if isinstance(values, list):
        return by(decide, *means(values), *bounds, [len(value) for value in values], names)
    return by(decide, *mean_and_error(np.reshape(values, (len(values), -1))), *bounds, len(values), names)


def power(x: Any, means: Array, errors: Array, runs: Any, exponent: float, within: float, name: str) -> Decision:
    """Decide that a mean goes like a power of x, its exponent within so much of another."""
    value = [[item] for item in fitted_exponent(x, means, errors)]
    return by(between, *value, exponent - within, exponent + within, int(np.sum(runs)), [name])


def agrees(text: str, measured: Any, errors: Any, exact: Any, samples: Any, *rest: Any, **options: Any) -> Claim:
    """Measured means are the exact values: they differ by less than ``resolution``, relatively; or in no setting."""
    means = np.stack(np.broadcast_arrays(np.asarray(measured), exact), 1)
    spread = np.stack([np.broadcast_to(errors, means.shape[:1]), np.zeros(len(means))], 1)
    count = np.stack([np.broadcast_to(samples, means.shape[:1])] * 2, 1)
    options = {"groups": ("measured", "exact"), **dict(zip(("settings", "resolution"), rest, strict=False)), **options}
    return equal_within_error(text, means, spread, count, **options)
