"""What a set of masks leaves: kept weights, dead layers, rows and columns, and weights that do nothing (THEORY 4)."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from epoch0.columns import aligned
from epoch0.errors import InputError
from epoch0.initialization.result import first_names
from epoch0.prune._masks import Masks
from epoch0.prune._paths import on_paths

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class LayerMask:
    """What is left of one weight.

    Attributes:
        name: of the weight.
        shape: of the weight; a row is an index of its first dimension, a column one of its second.
        weights: how many it has.
        kept: how many of them are kept.
        effective: how many of those lie on a path from input to output; None without a model.
        density: fraction kept.
        dead_rows: units or output channels of which no weight is kept (inputs, for a transposed convolution).
        dead_columns: inputs or input channels of a group that meet no weight that is kept; 0 for a vector.
        status: in words.
    """

    name: str
    shape: tuple[int, ...]
    weights: int
    kept: int
    effective: int | None
    density: float
    dead_rows: int
    dead_columns: int
    status: str


@dataclass(frozen=True)
class MaskSummary:
    """What a set of masks leaves.

    Attributes:
        layers: one row a weight, in the order of the masks.
        total: weights.
        kept: weights kept.
        effective: those of them that lie on a path from input to output; None without a model.
    """

    layers: tuple[LayerMask, ...]
    total: int
    kept: int
    effective: int | None

    @property
    def sparsity(self) -> float:
        """Fraction removed."""
        return 1.0 - self.kept / max(self.total, 1)

    @property
    def effective_sparsity(self) -> float | None:
        """Fraction that is removed or lies on no path; None without a model."""
        return None if self.effective is None else 1.0 - self.effective / max(self.total, 1)

    @property
    def dead(self) -> tuple[str, ...]:
        """Names of the layers of which nothing is kept."""
        return tuple(layer.name for layer in self.layers if layer.kept == 0)

    @property
    def verdict(self) -> str:
        """What a reader must know, in one line."""
        if self.effective == 0:
            return "no path leads from the input to the output: the model computes a constant"
        if self.dead:
            return f"{len(self.dead)} of {len(self.layers)} layers are dead: {first_names(self.dead)}"
        idle = [layer.name for layer in self.layers if layer.effective == 0]
        if idle:
            return f"no path goes through {first_names(idle)}"
        return "every layer keeps weights" if self.effective is None else "every layer lies on a path"

    def __str__(self) -> str:
        """Counts, verdict and one line a layer."""
        first = f"{self.kept:,} of {self.total:,} weights kept, sparsity {self.sparsity:.4%}"
        if self.effective is not None:
            first += f"; {self.effective:,} on a path, effective sparsity {self.effective_sparsity:.4%}"
        lines = aligned([_HEAD, *(_cells(layer) for layer in self.layers)])
        return "\n".join([first, self.verdict, *lines])

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, strings, lists and dicts."""
        return {
            "total": self.total,
            "kept": self.kept,
            "sparsity": self.sparsity,
            "effective": self.effective,
            "effective_sparsity": self.effective_sparsity,
            "dead": list(self.dead),
            "verdict": self.verdict,
            "layers": [{**asdict(layer), "shape": list(layer.shape)} for layer in self.layers],
        }

    def to_pandas(self) -> "pandas.DataFrame":
        """One row a layer, with the attributes of :class:`LayerMask` as columns."""
        import pandas

        columns = list(LayerMask.__dataclass_fields__)
        return pandas.DataFrame([asdict(layer) for layer in self.layers], columns=columns)


def summarise(masks: Masks, model: nn.Module | None, x: Tensor | tuple[int, ...] | None) -> MaskSummary:
    """The summary of masks; :meth:`epoch0.prune._masks.Masks.summary` describes it.

    >>> summarise(masks, model, (3, 32, 32)).effective_sparsity
    0.9812
    """
    if (model is None) != (x is None):
        missing = "the shape of one example, x=(3, 32, 32)," if x is None else "the model"
        raise InputError(f"the effective sparsity needs {missing} too; without both, summary() leaves it out.")
    effective = None if model is None or x is None else on_paths(model, masks, x)
    layers = tuple(_layer(name, mask, None if effective is None else effective[name]) for name, mask in masks.items())
    return MaskSummary(layers, masks.total, masks.kept, None if effective is None else effective.kept)


def _layer(name: str, mask: Tensor, on_path: Tensor | None) -> LayerMask:
    kept, effective = int(mask.count_nonzero()), None if on_path is None else int(on_path.count_nonzero())
    rows = columns = 0
    if mask.dim() > 0:
        rows = int((~mask.reshape(mask.shape[0], -1).any(1)).sum())
    if mask.dim() > 1:
        columns = int((~mask.transpose(0, 1).reshape(mask.shape[1], -1).any(1)).sum())
    if kept == 0:
        status = "dead: nothing is kept"
    elif effective == 0:
        status = "idle: no path goes through it"
    elif effective is not None and effective < kept:
        status = f"{kept - effective} kept weights on no path"
    else:
        status = "ok"
    return LayerMask(name, tuple(mask.shape), mask.numel(), kept, effective, kept / max(mask.numel(), 1), rows, columns,
                     status)  # fmt: skip


_HEAD = ("weights", "shape", "kept", "of", "density", "effective", "dead rows", "dead columns", "status")


def _cells(layer: LayerMask) -> tuple[str, ...]:
    return (
        layer.name,
        "x".join(map(str, layer.shape)),
        f"{layer.kept:,}",
        f"{layer.weights:,}",
        f"{layer.density:.4g}",
        "-" if layer.effective is None else f"{layer.effective:,}",
        str(layer.dead_rows),
        str(layer.dead_columns),
        layer.status,
    )


