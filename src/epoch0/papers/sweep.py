"""A figure as data: what one trial needs, which of its fields vary over which values, and how many runs there are.

>>> from epoch0.papers.arpit_bengio.norms import NormsSpec, shallow     # the spec of a trial, and the trial
>>> sweep = Sweep(shallow, NormsSpec((50,), "he", inputs=100), {"init": ("he", "glorot")}, runs=20, block=10)
>>> len(sweep.trials()), sweep.told("{runs} networks, {inputs} inputs, {init}")
(4, '20 networks, 100 inputs, he, glorot')
>>> found = sweep.gather([shallow(trial.spec, trial.seed) for trial in sweep.trials()])
>>> found["forward"].shape                                      # initializations, runs, inputs
(2, 20, 100)
>>> table = found.rows(lambda cell: {"ratio": cell["forward"].mean(1)}, lambda cell: {"exact": cell.spec.size})
>>> list(table[0])
['init', 'runs', 'ratio', 'ratio_error', 'exact']
>>> table.where(init="he").told("{init}, {runs} networks")
['he, 20 networks']
"""

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from typing import Any

import numpy as np

from epoch0.experiments.claims import Claim, equal_within_error
from epoch0.experiments.cost import Cost
from epoch0.experiments.experiment import Trial
from epoch0.papers.means import Array, Mean, mean_and_error, means

Results = Sequence[Mapping[str, Any]]
Axis = Sequence[Any] | Mapping[Any, Any]
Decision = Callable[[str], Claim]  # the text of a claim -> the claim, decided
Claims = Mapping[str, Decision]  # what a paper says -> what decides it


class Table(list[dict[str, Any]]):
    """Rows, and what claims and pictures ask of them."""

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
        """Several columns, each an array."""
        return tuple(self.column(name) for name in names)

    def told(self, template: str) -> list[str]:
        """One text a row, such as ``"width {width}, layer {layer}"``: the settings in the evidence of a claim."""
        return [template.format_map(row) for row in self]

    def claim(self, decide: Callable[..., Claim], column: str, *bounds: Any, names: str, **more: Any) -> Decision:
        """What decides a claim about a column of means, row by row; bounds are names of columns, numbers or arrays.

        >>> from epoch0.experiments.claims import at_most
        >>> rows = Table([{"width": 4, "loss": 0.5, "loss_error": 0.01, "runs": 9, "bound": 0.7}])
        >>> rows.claim(at_most, "loss", "bound", names="width {width}")("the loss is below its bound").verdict
        'holds'
        """
        given = [self.column(one) if isinstance(one, str) else one for one in bounds]
        means, errors, runs = self.of(column, f"{column}_error", "runs")
        return by(decide, means, errors, *given, runs, self.told(names), **more)

    def alike(self, column: str, group: str, groups: str, settings: str, **more: Any) -> Decision:
        """What decides that groups of rows have equal means in a column, in every setting that other columns make.

        ``group`` is the column that tells groups apart; ``groups`` and ``settings`` are texts with names of columns.
        """
        parts = [rows for _, rows in self.by(group)]
        values = (np.stack([rows.column(name) for rows in parts], 1) for name in (column, f"{column}_error", "runs"))
        names = [rows.told(groups)[0] for rows in parts]
        return by(equal_within_error, *values, settings=parts[0].told(settings), groups=names, **more)


@dataclass(frozen=True, eq=False)
class Cell:
    """One combination of the axes' values, measured."""

    at: Mapping[str, Any]  #: names of the axes -> their values here
    spec: Any  #: of its trials
    runs: int
    results: Results  #: of its trials, as they returned them
    joined: bool  #: whether a trial does several runs, which are then the first axis of what it returns

    def __getitem__(self, name: str) -> Array:
        """What all runs returned under a name, shape (runs, ...); floats are float64."""
        parts = [np.asarray(one[name]) for one in self.results]
        found = np.concatenate(parts) if self.joined else np.stack(parts)
        return found.astype(np.float64) if found.dtype.kind == "f" else found


class Found:
    """The cells of a sweep in the order of its axes, the last axis fastest."""

    def __init__(self, sweep: "Sweep", cells: Sequence[Cell], also: Mapping[str, "Found"]) -> None:
        self.sweep = sweep
        self.cells = list(cells)
        self.also = dict(also)
        self.table = Table()  # what the artifact makes of it, for its claims and its picture

    def __iter__(self) -> Iterator[Cell]:
        return iter(self.cells)

    def where(self, **values: Any) -> list[Cell]:
        """The cells at these values."""
        return [cell for cell in self.cells if all(cell.at[name] == value for name, value in values.items())]

    def one(self, **values: Any) -> Cell:
        """The only cell at these values; none needed if there is one cell."""
        (cell,) = self.where(**values)
        return cell

    def __getitem__(self, name: str) -> Array:
        """What all cells returned under a name, shape (axis, ..., runs, ...)."""
        return self.grid(lambda cell: cell[name])

    def grid(self, of: Callable[[Cell], Any]) -> Array:
        """A number or array of each cell, all cells together; the axes come first."""
        values = np.stack([np.asarray(of(cell)) for cell in self.cells])
        return values.reshape(*(len(axis) for axis in self.sweep.axes.values()), *values.shape[1:])

    def rows(
        self,
        measured: Callable[[Cell], Mapping[str, Any]],
        exact: Callable[..., Mapping[str, Any]] | None = None,
        **inner: Sequence[Any],
    ) -> Table:
        """One row a combination of the axes and of ``inner``: its values, the runs, means and errors, what is exact.

        Args:
            measured: cell -> name -> an array (samples, *inner), mostly of runs, or a :class:`Mean` of shape inner; the
                column ``runs`` counts the samples.
            exact: cell, and the inner values by name -> further columns; may replace ``runs``.
            inner: names and values of the dimensions that follow the runs.
        """
        table = Table()
        for cell in self.cells:
            values = measured(cell)
            each = {name: one if isinstance(one, Mean) else mean_and_error(one) for name, one in values.items()}
            count = next((len(value) for value in values.values() if not isinstance(value, Mean)), cell.runs)
            for place in itertools.product(*(range(len(one)) for one in inner.values())):
                named = {name: inner[name][i] for name, i in zip(inner, place, strict=True)}
                row: dict[str, Any] = {**cell.at, **named, "runs": count}
                for name, (mean, error) in each.items():
                    row[name], row[f"{name}_error"] = float(np.asarray(mean)[place]), float(np.asarray(error)[place])
                table.append({**row, **(exact(cell, **named) if exact else {})})
        return table


@dataclass(frozen=True)
class Sweep:
    """A function, the spec of one trial, and which fields of it take which values.

    ``axes`` are field -> its values; or its labels, each with its value or with the values of several fields by name;
    ``"depth width"`` are two fields that take pairs of values. ``seed`` is that of run 0, the others follow; or a
    function of the cell's spec and the run; or a text with names of fields in braces, and perhaps ``{run}``, for a seed
    that only the filled text has. ``block`` is for a function whose spec has ``first`` and ``networks`` and whose
    arrays begin with the networks; 0 is one run a trial. Blocks have the seed of run 0, or of their ``first``.
    """

    function: Callable[[Any, int], dict[str, Any]]  #: a trial, a module-level function of (spec, seed)
    spec: Any  #: a frozen dataclass; a field ``data``, its own or of a part, names the data set that the trials load
    axes: Mapping[str, Axis] = field(default_factory=dict)
    runs: int | Mapping[str, Sequence[int]] = 1  #: of each combination; or axis -> one number for each of its values
    seed: int | str | Callable[[Any, int], int] = 0
    stride: int = field(default=0, kw_only=True)  #: how much further the seeds of the next cell begin
    block: int | Callable[[Any], int] = 0  #: runs a trial, or spec -> runs a trial
    also: Mapping[str, "Sweep"] = field(default_factory=dict)  #: further sweeps of the same figure by name

    def but(self, **changes: Any) -> "Sweep":
        """The sweep with other values of named axes, other fields of the spec, or other attributes."""
        own = {name: changes.pop(name) for name in list(changes) if name in Sweep.__dataclass_fields__}
        axes = {name: changes.pop(name, values) for name, values in self.axes.items()}
        return replace(self, **{"axes": axes, "spec": replace(self.spec, **changes), **own})

    def __getitem__(self, name: str) -> Any:
        """The values of an axis, or a field of the spec, or the runs."""
        if name == "runs":
            return self.runs if isinstance(self.runs, int) else _Listed(*self.runs.values())
        for key, values in self.axes.items():
            if name in (parts := key.split()):
                chosen = [value if len(parts) == 1 else value[parts.index(name)] for value in values]
                return _Listed(dict.fromkeys(chosen))
        value = getattr(self.spec, name)
        return _Listed(value) if isinstance(value, tuple) else value

    def told(self, template: str) -> str:
        """A text with its names replaced by the values of axes and fields, as in ``"{runs} networks of {width}"``."""
        return template.format_map(self)

    def ranged(self, name: str) -> str:
        """The values of an axis or field as text: all of a few, the first and last of many numbers."""
        values = _Listed(dict.fromkeys(self[name])) if isinstance(self[name], tuple) else self[name]
        many = isinstance(values, tuple) and len(values) > 6 and all(isinstance(one, int | float) for one in values)
        return (
            f"{values[0]:g} to {values[-1]:g}"
            if many
            else f"{values}"
            if not isinstance(values, tuple)
            else f"{values:s}"
        )

    def cells(self) -> list[tuple[dict[str, Any], Any, int]]:
        """The combinations of the axes: names and values, spec, runs."""
        made = []
        for place in itertools.product(*(range(len(values)) for values in self.axes.values())):
            at: dict[str, Any] = {}
            fields: dict[str, Any] = {}
            runs = self.runs if isinstance(self.runs, int) else 0
            for (key, values), index in zip(self.axes.items(), place, strict=True):
                names, label = key.split(), list(values)[index]
                value = values[label] if isinstance(values, Mapping) else label
                at |= zip(names, label if len(names) > 1 else (label,), strict=True)
                own = value if len(names) > 1 else (value,)
                fields |= value if isinstance(value, Mapping) else zip(names, own, strict=True)
                if not isinstance(self.runs, int) and key in self.runs:
                    runs = self.runs[key][index]
            made.append((at, replace(self.spec, **fields), runs))
        return made

    def trials_of(self, spec: Any, runs: int, place: int = 0) -> list[Trial]:
        """The trials of one cell, the first, second, ... of all."""
        block = self.block(spec) if callable(self.block) else self.block

        def seed(run: int) -> int:
            if isinstance(self.seed, str):
                text = self.seed.format(**vars(spec), run=run)
                return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
            if isinstance(self.seed, int):
                return self.seed + (0 if block else run) + place * self.stride
            return self.seed(spec, run)

        if not block:
            return [Trial(self._name, spec, seed(run)) for run in range(runs)]
        parts = [replace(spec, first=run, networks=min(block, runs - run)) for run in range(0, runs, block)]
        return [Trial(self._name, part, seed(part.first)) for part in parts]

    @property
    def _name(self) -> str:
        return f"{self.function.__module__}:{self.function.__qualname__}"

    def trials(self) -> list[Trial]:
        """All trials, cell by cell, and those of the further sweeps."""
        cells = enumerate(self.cells())
        own = [trial for place, (_, spec, runs) in cells for trial in self.trials_of(spec, runs, place)]
        return own + [trial for sweep in self.also.values() for trial in sweep.trials()]

    def gather(self, results: Results) -> Found:
        """The results of :meth:`trials`, in their order, cell by cell."""
        left = iter(results)
        cells = [
            Cell(at, spec, runs, list(itertools.islice(left, len(self.trials_of(spec, runs)))), bool(self.block))
            for at, spec, runs in self.cells()
        ]
        further = {name: list(itertools.islice(left, len(sweep.trials()))) for name, sweep in self.also.items()}
        return Found(self, cells, {name: self.also[name].gather(own) for name, own in further.items()})

    def costs(self, cost: Callable[[Any], Cost]) -> list[Cost]:
        """What the trials cost, those of one name together; ``cost`` tells it of one spec, without trials."""
        found: dict[str, tuple[Cost, list[Trial]]] = {}
        for trial in self.trials():
            one = cost(trial.spec)
            found.setdefault(one.name, (one, []))[1].append(trial)
        return [replace(one, trials=trials) for one, trials in found.values()]

    @property
    def data(self) -> str | None:
        """Name of the data set that the trials load, if any."""
        own = (_data_of(spec) for _, spec, _ in self.cells())
        return next((name for name in (*own, *(sweep.data for sweep in self.also.values())) if name), None)

    def to_dict(self) -> dict[str, Any]:
        """What it is, for JSON."""
        axes = {  # labels need not be text: pairs, not names
            name: [list(pair) for pair in values.items()] if isinstance(values, Mapping) else list(values)
            for name, values in self.axes.items()
        }
        told = {"function": self._name, "spec": self.spec}
        return {**told, "axes": axes, "runs": self.runs, **{name: one.to_dict() for name, one in self.also.items()}}


def _data_of(spec: Any) -> str | None:
    """The field ``data`` of a spec, or of one inside it."""
    inner = (_data_of(one) for one in vars(spec).values() if is_dataclass(one))
    return getattr(spec, "data", None) or next(filter(None, inner), None)


class _Listed(tuple[Any, ...]):
    """Several values, in a text joined by commas; ``{ends[0]}`` is one of them."""

    def __format__(self, template: str) -> str:
        return ", ".join(f"{one:g}" if isinstance(one, float) else str(one) for one in self)


def by(decide: Callable[..., Claim], *arguments: Any, **more: Any) -> Decision:
    """What decides a claim, given all but its text.

    >>> from epoch0.experiments.claims import exact
    >>> by(exact, 2**3 == 8, "8 teeth")("there are 2^3 teeth").verdict
    'holds'
    """
    return lambda text: decide(text, *arguments, **more)


def more(decide: Decision, before: str = "", after: str = "", **numbers: float) -> Decision:
    """The same with more evidence, in front or behind, and more numbers."""

    def told(text: str) -> Claim:
        claim = decide(text)
        evidence = "; ".join(part for part in (before, claim.evidence, after) if part)
        return replace(claim, evidence=evidence, numbers={**claim.numbers, **numbers})

    return told


def over_runs(decide: Callable[..., Claim], values: Any, *bounds: Any, names: Sequence[str]) -> Decision:
    """The same for means over runs, the first axis, at one setting or several: shape (runs,) or (runs, settings).

    A list has one array (runs,) for each setting, which may have different runs.

    >>> from epoch0.experiments.claims import at_least
    >>> over_runs(at_least, np.array([1.2, 1.21, 1.22, 1.2]), 1.0, names=["growth"])("it grows").verdict
    'holds'
    """
    if isinstance(values, list):
        return by(decide, *means(values), *bounds, [len(one) for one in values], names)
    return by(decide, *mean_and_error(np.reshape(values, (len(values), -1))), *bounds, len(values), names)


def agrees(
    text: str,
    measured: Any,
    errors: Any,
    exact: Any,
    samples: Any,
    settings: Sequence[str],
    resolution: float,
    groups: tuple[str, str] = ("measured", "exact"),
    alike: bool = True,
) -> Claim:
    """Measured means are the exact values: they differ by less than ``resolution``, relatively; or in no setting.

    >>> agrees("the mean is 1", [1.001, 0.999], [0.002, 0.002], 1.0, 50, ["a", "b"], resolution=0.05).verdict
    'holds'
    """
    means = np.stack(np.broadcast_arrays(np.asarray(measured), exact), 1)
    spread = np.stack([np.broadcast_to(errors, means.shape[:1]), np.zeros(len(means))], 1)
    count = np.stack([np.broadcast_to(samples, means.shape[:1])] * 2, 1)
    how: dict[str, Any] = {"settings": settings, "groups": groups, "alike": alike}
    return equal_within_error(text, means, spread, count, resolution=resolution, **how)
