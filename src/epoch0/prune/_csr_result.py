"""What making a model sparse saved: bytes and seconds, layer by layer and in all (THEORY section 4)."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from epoch0.columns import aligned

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class LayerExport:
    """One layer, dense and sparse.

    Attributes:
        name: of the module.
        kind: of the module, ``"Linear"``.
        shape: of its weight.
        density: fraction of its weights that is not zero.
        sparse: whether it is sparse in the new model.
        dense_bytes: memory of the weight.
        csr_bytes: memory of its sparse rows; None if they were not built.
        dense_seconds: for one call; None if it was not timed.
        csr_seconds: the same, sparse.
        input_shape: what it was timed on; fewer examples than the batch where the first sight was hopeless.
        status: in words.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    density: float
    sparse: bool
    dense_bytes: int
    csr_bytes: int | None
    dense_seconds: float | None
    csr_seconds: float | None
    input_shape: tuple[int, ...]
    status: str

    @property
    def speedup(self) -> float | None:
        """Dense over sparse seconds; None if it was not timed."""
        return None if self.dense_seconds is None or self.csr_seconds is None else self.dense_seconds / self.csr_seconds


@dataclass(frozen=True, eq=False)
class CsrExport:
    """A model made sparse, and what it saved.

    Attributes:
        model: the new model, in eval mode.
        layers: one row a linear layer or convolution, in the order of the modules.
        dense_bytes: memory of all parameters and buffers with the masks baked in.
        csr_bytes: memory of those of the new model.
        dense_seconds: for the batch; None without one.
        csr_seconds: the same, of the new model.
        largest_difference: of an output entry of the two models on the batch; None without one.
        threads: torch's threads while it was timed. With one these are CPU seconds.
    """

    model: nn.Module
    layers: tuple[LayerExport, ...]
    dense_bytes: int
    csr_bytes: int
    dense_seconds: float | None
    csr_seconds: float | None
    largest_difference: float | None
    threads: int

    @property
    def speedup(self) -> float | None:
        """Dense over sparse seconds of the whole model; None without a batch."""
        return None if self.dense_seconds is None or self.csr_seconds is None else self.dense_seconds / self.csr_seconds

    @property
    def summary(self) -> str:
        """What came out, in one line."""
        count, threads = sum(layer.sparse for layer in self.layers), f"{self.threads} thread{'s' * (self.threads != 1)}"
        if count == 0:
            line = f"no layer of {len(self.layers)} is sparse, all stay dense: {_size(self.dense_bytes)}"
            return f"{line}{'' if self.dense_seconds is None else f', {_time(self.dense_seconds)} a batch'} ({threads})"
        line = (
            f"{count} of {len(self.layers)} layers sparse; {_size(self.csr_bytes)} instead of {_size(self.dense_bytes)}"
        )
        if self.speedup is not None and self.csr_seconds is not None:
            line += f"; {_time(self.csr_seconds)} a batch, {self.speedup:.2f} times as fast"
        return f"{line} ({threads})"

    def __str__(self) -> str:
        """The summary and one line a layer."""
        lines = aligned([_HEAD, *(_cells(layer) for layer in self.layers)])
        return "\n".join([self.summary, *lines])

    def save(self, path: str | Path) -> Path:
        """Write the sparse model: its sparse layers as rows, all else dense; the file appears whole or not at all.

        >>> export.save("sparse.safetensors").stat().st_size / export.csr_bytes        # little else is in it
        1.02
        >>> net = epoch0.prune.load_csr(build(), "sparse.safetensors")                  # build(): a fresh dense model

        The file holds what ``state_dict`` of the model does (no hooks, no code), each shared tensor once, and the kinds
        and settings of its modules, so that :func:`~epoch0.prune.load_csr` can tell another architecture.

        Args:
            path: where to; the ending must be ``.safetensors`` and the folder must exist. A file there is replaced.

        Returns:
            The path.

        Raises:
            InputError: if the path is wrong, or the file cannot be written; an older file is intact then.
        """
        from epoch0.prune._csr_file import save_csr

        return save_csr(self, path)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the model as plain numbers, strings, lists and dicts."""
        found = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in ("model", "layers")}
        rows = [{**_row(layer), "shape": list(layer.shape), "input_shape": list(layer.input_shape)}
                for layer in self.layers]  # fmt: skip
        return {**found, "speedup": self.speedup, "layers": rows}

    def to_pandas(self) -> "pandas.DataFrame":
        """One row a layer, with the attributes of :class:`LayerExport` as columns."""
        import pandas

        return pandas.DataFrame([_row(layer) for layer in self.layers])


_HEAD = ("layer", "kind", "shape", "density", "bytes", "sparse", "examples", "seconds", "sparse", "speedup", "status")


def _row(layer: LayerExport) -> dict[str, Any]:
    return {**asdict(layer), "speedup": layer.speedup}


def _cells(layer: LayerExport) -> tuple[str, ...]:
    return (
        layer.name or "(the model)",
        layer.kind,
        "x".join(map(str, layer.shape)),
        f"{layer.density:.4g}",
        _size(layer.dense_bytes),
        "-" if layer.csr_bytes is None else _size(layer.csr_bytes),
        str(layer.input_shape[0]) if len(layer.input_shape) > 1 else "-",
        "-" if layer.dense_seconds is None else _time(layer.dense_seconds),
        "-" if layer.csr_seconds is None else _time(layer.csr_seconds),
        "-" if layer.speedup is None else f"{layer.speedup:.2f}",
        layer.status,
    )


def _size(count: int) -> str:
    return f"{count / 1e6:.3g} MB" if count >= 1e6 else f"{count / 1e3:.3g} kB"


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
