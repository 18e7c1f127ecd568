"""A figure as data: what one trial needs, which of its fields vary over which values, and how many runs there are."""

import functools
import hashlib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from epoch0.arguments import checked, methods_checked
from epoch0.errors import InputError, suggest
from epoch0.experiments.claims import Claim
from epoch0.experiments.experiment import Spec as Spec
from epoch0.experiments.experiment import Trial
from epoch0.papers.tables import Array, Claims, Mean, Table, mean_and_error
from epoch0.results import Grid

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from epoch0.experiments.cost import Cost

AUTHORS = {
    "price-tanner": "Price & Tanner",
    "raghu": "Raghu et al.",
    "arpit-bengio": "Arpit & Bengio",
    "hanin-rolnick": "Hanin & Rolnick",
    "hayou": "Hayou et al.",
}  # the packages of the papers have the same names; their modules declare figures and tables in ``ARTIFACTS``
KINDS = {"fig": "Figure", "tab": "Table", "th": "Theorem", "prop": "Proposition", "cor": "Corollary", "lemma": "Lemma"}

Results = Sequence[Mapping[str, Any]]
Axis = Sequence[Any] | Mapping[Any, Any]
Columns = Mapping[str, Any]


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
        parts = [np.asarray(result[name]) for result in self.results]
        found = np.concatenate(parts) if self.joined else np.stack(parts)
        return found.astype(np.float64) if found.dtype.kind == "f" else found


@dataclass(eq=False)
class Found:
    """The cells of a sweep in the order of its axes, the last axis fastest."""

    sweep: "Sweep"
    cells: list[Cell]
    also: Mapping[str, "Found"] = field(default_factory=dict)
    table: Table = field(default_factory=Table)  #: the artifact's table of it, for its claims and its picture

    def __iter__(self) -> Iterator[Cell]:
        return iter(self.cells)

    def where(self, **values: Any) -> list[Cell]:
        """The cells with these values of axes."""
        return [cell for cell in self.cells if all(cell.at[name] == value for name, value in values.items())]

    def one(self, **values: Any) -> Cell:
        """The only cell at these values; none needed if there is one cell."""
        (cell,) = self.where(**values)
        return cell

    def __getitem__(self, name: str) -> Array:
        """What all cells returned under a name, shape (axis, ..., runs, ...)."""
        values = np.stack([cell[name] for cell in self.cells])
        return values.reshape(*(len(axis) for axis in self.sweep.axes.values()), *values.shape[1:])

    def rows(self, of: Callable[[Cell], Columns | tuple[Columns, ...]]) -> Table:
        """One row a combination of the axes and of ``inner``: its values, the runs, means and errors, what is exact.

        ``of`` gives one to three mappings of a cell: ``measured``, ``exact``, ``inner``. Measured are arrays (samples,
        *inner), mostly of runs, or a :class:`Mean` of shape inner; the column ``runs`` counts the samples. What is
        exact is one value, or values that broadcast to shape inner; it may replace ``runs``. Inner are names and values
        of the dimensions that follow the samples.
        """
        table = Table()
        for cell in self.cells:
            result = of(cell)
            measured, exact, inner = (*(result if isinstance(result, tuple) else (result,)), {}, {})[:3]
            shape = [len(values) for values in inner.values()]
            each = {name: item if isinstance(item, Mean) else mean_and_error(item) for name, item in measured.items()}
            count = next((len(value) for value in measured.values() if not isinstance(value, Mean)), cell.runs)
            beside = {name: np.broadcast_to(np.array(item, dtype=object), shape) for name, item in exact.items()}
            for place, chosen in zip(np.ndindex(*shape), itertools.product(*inner.values()), strict=True):
                row: dict[str, Any] = {**cell.at, **dict(zip(inner, chosen, strict=True)), "runs": count}
                for name, (mean, error) in each.items():
                    row[name], row[f"{name}_error"] = float(np.asarray(mean)[place]), float(np.asarray(error)[place])
                table.append({**row, **{name: values[place] for name, values in beside.items()}})
        return table


def by_cell(of: Callable[..., Any]) -> Callable[..., Table]:
    """Decorate a function whose last argument is a cell, as :meth:`Found.rows` takes, to make the whole table."""

    @functools.wraps(of)
    def table(*given: Any) -> Any:
        return given[-1].rows(functools.partial(of, *given[:-1]))

    return table


@dataclass(frozen=True)
class Sweep:
    """A function, the spec of one trial, and which fields of it take which values.

    docs/reproduce.md shows what each can say. The spec is a :class:`Spec` without the fields that axes give, or a
    frozen dataclass. ``seed`` is that of run 0, the others follow; or a function of the cell's spec and the run; or a
    text with names of fields in braces, and perhaps ``{run}``: the seed, if it is a number once filled, or else the
    name of one. ``block`` is for a function that measures the ``networks`` from the ``first`` on, as its spec has them,
    and whose arrays begin with the networks; 0 is one run a trial. Blocks have the seed of run 0 or their ``first``.
    """

    function: Callable[[Any, int], dict[str, Any]]  #: a trial, a module-level function of (spec, seed)
    spec: Any  #: a field ``data``, its own or of a part, names the data set that the trials load
    axes: Mapping[str, Axis] = field(default_factory=dict)
    runs: int | Mapping[str, Sequence[int]] = 1  #: of each combination; or axis -> one number for each of its values
    seed: int | str | Callable[[Any, int], int] = 0
    stride: int = field(default=0, kw_only=True)  #: how much further the seeds of the next cell begin
    block: int | Callable[[Any], int] = 0  #: runs a trial, or spec -> runs a trial
    also: Mapping[str, "Sweep"] = field(default_factory=dict)  #: further sweeps of the same figure by name
    converged: bool = False  #: whether runs whose result says ``diverged`` are left out of what is gathered

    def but(self, **changes: Any) -> "Sweep":
        """The sweep with other values of named axes, other fields of the spec, or other attributes."""
        own = {name: changes.pop(name) for name in list(changes) if name in Sweep.__dataclass_fields__}
        axes = {name: changes.pop(name, values) for name, values in self.axes.items()}
        if unknown := changes.keys() - vars(self.spec).keys():
            raise TypeError(f"the sweep has no axis or field {', '.join(unknown)}")
        return replace(self, **{"axes": axes, "spec": with_fields(self.spec, changes), **own})

    def presets(self, **quick: Any) -> dict[str, "Sweep"]:
        """The sweep as the paper's preset, and the quick one, in which some things are otherwise, as in :meth:`but`."""
        return {"quick": self.but(**quick), "paper": self}

    def __getitem__(self, name: str) -> Any:
        """The values of an axis, or a field of the spec, or the runs."""
        if name in self.also:
            return self.also[name]
        if name == "runs":
            return self.runs if isinstance(self.runs, int) else _Listed(*self.runs.values())
        for key, values in self.axes.items():
            if name in (parts := key.split()):
                chosen = [value if len(parts) == 1 else value[parts.index(name)] for value in values]
                return _Listed(dict.fromkeys(chosen))
        value = getattr(self.spec, name)
        return _Listed(value) if isinstance(value, tuple) else value

    def fill(self, template: str) -> str:
        """A text with its names replaced by the values of axes and fields, as in ``"{runs} networks of {width}"``."""
        return template.format_map(self)

    def ranged(self, name: str) -> str:
        """The values of an axis or field as text: all of a few, the first and last of many numbers."""
        values = _Listed(dict.fromkeys(self[name])) if isinstance(self[name], tuple) else self[name]
        if isinstance(values, tuple) and len(values) > 6 and all(isinstance(value, int | float) for value in values):
            return f"{values[0]:g} to {values[-1]:g}"
        return f"{values:g}" if isinstance(values, float) else f"{values}"

    def cells(self) -> list[tuple[dict[str, Any], Any, int]]:
        """The combinations of the axes: names and values, spec, runs."""
        every = self.axes.values()
        pairs = (values.items() if isinstance(values, Mapping) else [(one, one) for one in values] for values in every)
        made = []
        for chosen in itertools.product(*map(enumerate, pairs)):
            at: dict[str, Any] = {}
            fields: dict[str, Any] = {}
            runs = self.runs if isinstance(self.runs, int) else 0
            for key, (index, (label, value)) in zip(self.axes, chosen, strict=True):
                names = key.split()
                at |= zip(names, label if len(names) > 1 else (label,), strict=True)
                own = value if len(names) > 1 else (value,)
                fields |= value if isinstance(value, Mapping) else zip(names, own, strict=True)
                if not isinstance(self.runs, int) and key in self.runs:
                    runs = self.runs[key][index]
            made.append((at, with_fields(self.spec, fields), runs))
        return made

    def trials_of(self, spec: Any, runs: int, place: int = 0) -> list[Trial]:
        """The trials of one cell, the first, second, ... of all."""
        block, trials = self.block(spec) if callable(self.block) else self.block, []
        for run in range(0, runs, block or 1):
            if isinstance(self.seed, str):
                text = self.seed.format(**vars(spec), run=run)
                own = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
                seed = int(text) if text.isdecimal() else own
            elif isinstance(self.seed, int):
                seed = self.seed + (0 if block else run) + place * self.stride
            else:
                seed = self.seed(spec, run)
            part = with_fields(spec, {"first": run, "networks": min(block, runs - run)}) if block else spec
            trials.append(Trial(self._name, part, seed))
        return trials

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
        left, cells = iter(results), []
        for at, spec, runs in self.cells():
            own = list(itertools.islice(left, len(self.trials_of(spec, runs))))
            if not (kept := [item for item in own if not (self.converged and item["diverged"])]):
                title = " ".join(map(str, at.values()))
                raise InputError(f"all {runs} networks {title} diverged; a lower learning rate would help.")
            cells.append(Cell(at, spec, len(kept) if self.converged else runs, kept, bool(self.block)))
        further = {name: list(itertools.islice(left, len(sweep.trials()))) for name, sweep in self.also.items()}
        return Found(self, cells, {name: self.also[name].gather(own) for name, own in further.items()})

    def costs(self, cost: "Callable[[Any], Cost]") -> "list[Cost]":
        """The costs of the trials, those of one name together; ``cost`` gives that of one spec, without trials."""
        found: dict[str, tuple[Cost, list[Trial]]] = {}
        for trial in self.trials():
            one = cost(trial.spec)
            found.setdefault(one.name, (one, []))[1].append(trial)
        return [replace(item, trials=trials) for item, trials in found.values()]

    @property
    def data(self) -> str | None:
        """Name of the data set that the trials load, if any."""
        own = [*(_data_of(spec) for _, spec, _ in self.cells()), *(sweep.data for sweep in self.also.values())]
        return next(filter(None, own), None)

    def to_dict(self) -> dict[str, Any]:
        axes = {  # labels need not be text: pairs, not names
            name: [list(pair) for pair in values.items()] if isinstance(values, Mapping) else list(values)
            for name, values in self.axes.items()
        }
        also = {name: item.to_dict() for name, item in self.also.items()}
        return {"function": self._name, "spec": self.spec, "axes": axes, "runs": self.runs, **also}


@methods_checked
@dataclass(frozen=True)
class Artifact:
    """One figure or table of a paper, declared: docs/reproduce.md shows a whole one. ``about`` is the line of the
    heading that says what was measured: a text with names of axes and fields in braces, such as ``"{runs} networks of
    width {width}"``, or a function of the sweep.
    """

    id: str  #: paper and figure, such as ``"price-tanner/fig3b"``
    title: str | Callable[[Sweep], str]  #: what it shows, in a few words; of a sweep, if that depends on the preset
    place: str  #: where in the paper it is discussed, such as ``"section 4"``; the rest comes from the id
    presets: Mapping[str, Sweep]  #: ``"quick"`` and ``"paper"`` -> what is run
    table: Callable[[Found], Table]  #: measurements -> tidy rows, later in ``found.table``
    claims: Callable[[Found], Claims]  #: measurements -> the paper's statements, each with what decides it
    draw: Callable[[Found], "Figure"]  #: the same -> a matplotlib figure laid out like the paper's, without heading
    about: str | Callable[[Sweep], str] = ""
    cost: "Callable[[Any], Cost] | None" = None  #: spec -> what one trial costs; None for what trains nothing
    tables: Callable[[Found], Sequence[Grid]] | None = None  #: what is read as tables, as the paper prints them

    @property
    def source(self) -> str:
        """Where it stands: authors, number and place."""
        paper, _, name = self.id.partition("/")
        kind, number = re.fullmatch(r"([a-z]*)(.*)", name).groups()  # type: ignore[union-attr]
        numbered = f"{KINDS[kind]} {number}" if kind in KINDS else ""
        return ", ".join(part for part in (AUTHORS.get(paper, ""), numbered, self.place) if part)

    @checked
    def setting(self, preset: str) -> Sweep:
        """The sweep of that preset; an InputError if there is no such preset."""
        if preset not in self.presets:
            known = f"there are {', '.join(self.presets)}.{suggest(preset, self.presets)}"
            raise InputError(f"{self.id} has no preset {preset!r}; {known}")
        return self.presets[preset]

    def trials(self, setting: Sweep) -> list[Trial]:
        return setting.trials()

    def read(self, setting: Sweep, results: Results) -> Found:
        """The results of the trials in their order, with the table."""
        found = setting.gather(results)
        found.table = self.table(found)
        return found

    def decided(
        self, setting: Sweep, results: Results
    ) -> "tuple[Table, list[Claim], Callable[[], Figure], tuple[Grid, ...]]":
        """Table, claims, a function that draws the picture, and tables to read."""
        found = self.read(setting, results)
        claims = [decide(text) for text, decide in self.claims(found).items()]
        return found.table, claims, lambda: self.draw(found), tuple(self.tables(found) if self.tables else ())

    def titled(self, setting: Sweep) -> str:
        return self.title if isinstance(self.title, str) else self.title(setting)

    def caption(self, setting: Sweep) -> str:
        """What was measured: ``about``, and data, axes and runs that differ by preset and that it does not name; bars.
        An ``about`` without names in braces has all fields of the spec added.
        """
        named = re.findall(r"{(\w+)", self.about) if isinstance(self.about, str) else None
        text = setting.fill(self.about) if isinstance(self.about, str) else self.about(setting)
        parts = [text] if text else []
        if setting.data and setting.data not in text.lower():
            parts.append(f"data: {setting.data}")
        axes = [name for key in setting.axes for name in key.split()]
        kinds = str, int, float, tuple
        own = [name for name, value in vars(setting.spec).items() if name != "data" and type(value) in kinds]
        every = named == []
        for name in dict.fromkeys([*axes, *(own if every else []), "runs"]):
            values = setting.ranged(name)
            varies = not setting.also and len({preset.ranged(name) for preset in self.presets.values()}) > 1
            told = re.search(rf"(?<![\w.]){re.escape(values)}(?![\w.])", text) if named is None else name in named
            if (every or varies) and values and not told and (name != "runs" or values != "1"):
                parts.append(f"{name.replace('_', ' ')}: {values}")
        return "; ".join([*parts, *["bars: two standard errors"] * ("bars" not in text and self.tables is None)])

    def of_paper(self, setting: Sweep) -> str:
        """The paper's own, as far as that setting differs from it: the parts of its caption that are not the same."""
        own, paper = (self.caption(item).split("; ") for item in (setting, self.presets["paper"]))
        return "; ".join(part for part in paper if part not in own) or "the same"

    def costs(self, setting: Sweep) -> "list[Cost]":
        return setting.costs(self.cost) if self.cost else []


def given(value: Any, table: Any, claims: Any, draw: Any) -> tuple[Any, Any, Any]:
    """The three functions of an artifact with that first argument, which tells one of several of a kind."""
    return functools.partial(table, value), functools.partial(claims, value), functools.partial(draw, value)


def with_fields(spec: Any, fields: Mapping[str, Any]) -> Any:
    return spec.but(**fields) if isinstance(spec, Spec) else replace(spec, **fields)


def _data_of(spec: Any) -> str | None:
    """The field ``data`` of a spec, or of one inside it."""
    inner = (_data_of(var) for var in vars(spec).values() if is_dataclass(var) or isinstance(var, Spec))
    return getattr(spec, "data", None) or next(filter(None, inner), None)


class _Listed(tuple[Any, ...]):
    """Several values, in a text joined by commas; ``{ends[0]}`` is one of them, ``{at.last}`` the last."""

    last = property(lambda self: self[-1])

    def __format__(self, template: str) -> str:
        return ", ".join(f"{item:g}" if isinstance(item, float) else str(item) for item in self)
