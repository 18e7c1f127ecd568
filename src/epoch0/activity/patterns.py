"""On which linear piece every neuron is: the layers that switch, and the patterns of a batch (Raghu 2.1)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from epoch0.arguments import checked
from epoch0.errors import InputError, suggest
from epoch0.networks.dense import Ensemble
from epoch0.networks.nonlinearities import activation_of
from epoch0.regions.network.steps import Fold, Largest, Program
from epoch0.regions.network.trace import trace
from epoch0.results import Result, aligned, counted
from epoch0.tracing.guard import bare, check_model, unchanged

_VALUES = 1 << 24  # numbers of all layers held at a time


@dataclass(frozen=True)
class WatchedLayer:
    """One layer whose neurons switch."""

    name: str  # of the module or node
    width: int  # its elements; of a maximum, its windows
    faces: tuple[float, ...]  # values at which an element switches; none for a maximum, which goes from entry to entry
    entries: int = 0  # of each window of a maximum


@dataclass(frozen=True, eq=False)
class Watched:
    """A network as the pre-activations by which its neurons switch."""

    layers: tuple[WatchedLayer, ...]  # in order of execution
    values: Callable[[Tensor], list[Tensor]]  # float64 points to values (m, width) a layer; of a maximum, its entry
    program: Program | None  # the network step by step where it is piecewise linear
    notes: tuple[str, ...] = ()


def watch(model: nn.Module, shape: tuple[int, ...], threshold: float | Sequence[float] | None) -> Watched:
    """The layers of a network that switch, at the threshold or where their slopes change."""
    levels = () if threshold is None else (threshold,) if isinstance(threshold, int | float) else tuple(threshold)
    faces = tuple(sorted({float(level) for level in levels}))
    if len(faces) != len(levels) or (threshold is not None and not faces):
        raise InputError(f"threshold={threshold!r}; give one finite number or several different ones.")
    model = bare(model)
    check_model(model)
    try:
        program = trace(model, shape, "cpu")
    except InputError as error:
        if "does not take points" in str(error):
            raise
        if not faces:
            raise InputError(f"{error} Or name a threshold: 0.0 counts how often any nonlinearity passes 0.") from None
        return _by_hooks(model, shape, faces)
    layers = []
    for step, width in zip(program.folds, program.sizes, strict=True):
        if isinstance(step, Fold):
            layers.append(WatchedLayer(step.name, width, faces or step.faces))
        elif faces:
            raise InputError(f"threshold={threshold!r}: the maximum '{step.name}' has no pre-activation to compare.")
        else:
            layers.append(WatchedLayer(step.name, len(step.windows), (), step.windows.shape[1]))
    if not layers:
        raise InputError("the network has no nonlinearity: no neuron switches.")
    return Watched(tuple(layers), _by_program(program), program, program.notes)


Method = Annotated[str, ("auto", "exact", "refined")]


def several(model: Any) -> Ensemble | Sequence[nn.Module]:
    """The models that a user passed: an ensemble, or modules in a sequence."""
    models = [model] if isinstance(model, nn.Module) else model
    if isinstance(models, str) or not isinstance(models, Ensemble | Sequence) or not len(models):
        raise InputError(f"model is a {type(model).__name__}; give a module, an ensemble or a list of modules.")
    return models


def _by_program(program: Program) -> Callable[[Tensor], list[Tensor]]:
    final = program.folds[-1]

    def values(points: Tensor) -> list[Tensor]:
        slots, found = {0: points}, []
        with torch.no_grad():
            for step in program.through(slots):
                before = [slots[slot] for slot in step.inputs]
                if isinstance(step, Fold):
                    found.append(before[0].reshape(len(points), -1))
                elif isinstance(step, Largest):
                    found.append(step.entries(before[0]).argmax(dim=2).double())
                if step is final:
                    break
                slots[step.output] = step.run(*before)
        return found

    return values


def in_float64(model: nn.Module) -> dict[str, Tensor]:
    named = [*model.named_parameters(), *model.named_buffers()]
    return {name: (t.detach().double() if t.is_floating_point() else t.detach()).cpu() for name, t in named}


def _by_hooks(model: nn.Module, shape: tuple[int, ...], faces: tuple[float, ...]) -> Watched:
    """A network with any nonlinearities that are modules; their inputs are what switches."""
    weights = in_float64(model)
    chosen = {name: m for name, m in model.named_modules() if activation_of(m) is not None and not list(m.children())}

    def run(points: Tensor) -> list[tuple[str, Tensor]]:
        found: list[tuple[str, Tensor]] = []

        def hook(name: str) -> Callable[..., None]:
            return lambda module, inputs: found.append((name, inputs[0].reshape(len(inputs[0]), -1)))

        with unchanged(model), torch.no_grad():
            model.eval()
            for name, module in chosen.items():
                module.register_forward_pre_hook(hook(name))
            functional_call(model, weights, (points,))
        return found

    if not (probe := run(torch.zeros(2, *shape, dtype=torch.float64))):
        raise InputError(f"{type(model).__name__} has no nonlinearity that is a module of its own (nn.Tanh, say).")
    layers = tuple(WatchedLayer(name, values.shape[1], faces) for name, values in probe)
    return Watched(layers, lambda points: [values for _, values in run(points)], None)


@dataclass(frozen=True, eq=False)
class ActivationPatterns(Result):
    """The patterns of some inputs, one bit for every neuron and face.

    Bits run over neurons as ``numpy.packbits`` packs them. A hard tanh has two faces, so patterns 00, 10 and 11. A
    maximum has one "face" for every entry of a window, set for the largest.
    """

    layers: tuple[str, ...]  #: names of the layers, in order
    neurons: tuple[int, ...]  #: how many each has; of max pooling its windows
    bits: tuple[np.ndarray, ...]  #: for each layer which neurons are above each face, (inputs, faces, bytes), uint8

    def __len__(self) -> int:
        return len(self.bits[0])

    @property
    def packed(self) -> np.ndarray:
        """All layers side by side, uint8 of shape (inputs, bytes). Equal rows are equal patterns."""
        return np.concatenate([part.reshape(len(part), -1) for part in self.bits], axis=1)

    @property
    def count(self) -> int:
        """Distinct patterns of the whole network."""
        return len(np.unique(self.packed, axis=0))

    @property
    def per_layer(self) -> np.ndarray:
        """Distinct patterns of each layer alone, shape (layers,)."""
        return np.array([len(np.unique(part, axis=0)) for part in self.bits])

    def states(self, layer: str) -> np.ndarray:
        """The number of faces each neuron of a layer is above, shape (inputs, neurons): 0, 1 or, for hard tanh, 2."""
        if layer not in self.layers:
            known = ", ".join(self.layers)
            raise InputError(f"there is no layer {layer!r}; there are {known}.{suggest(layer, self.layers)}")
        place = self.layers.index(layer)
        found = np.unpackbits(self.bits[place], axis=2, count=self.neurons[place])
        return np.asarray(found.sum(axis=1, dtype=np.uint8))

    def rows(self) -> list[dict[str, Any]]:
        """One dict a layer."""
        rows = zip(self.layers, self.neurons, self.per_layer.tolist(), strict=True)
        return [{"layer": layer, "neurons": neurons, "patterns": count} for layer, neurons, count in rows]

    def __str__(self) -> str:
        rows = [["layer", "neurons", "distinct patterns"], *(list(map(str, row.values())) for row in self.rows())]
        head = f"{counted(self.count, 'distinct activation pattern')} of {counted(len(self), 'input')}"
        return "\n".join([head, *aligned(rows)])


@checked
def activation_patterns(
    model: nn.Module, x: Tensor, *, threshold: float | Sequence[float] | None = None
) -> ActivationPatterns:
    """On which linear piece of its activation every neuron is, for a batch of inputs.

    >>> net = e0.networks.mlp([64, 100, 100, 10], seed=0)
    >>> p = e0.activation_patterns(net, x)                       # x of shape (100, 64)
    >>> p.count, p.bits[0].shape, p.states("1").shape            # 100 ReLUs fit into 13 bytes
    (100, (100, 1, 13), (100, 100))

    Args:
        model: any torch module with piecewise linear nonlinearities, or any with a threshold; read in float64 and eval
            mode.
        x: shape (inputs, \\*shape of one input).
        threshold: value, or values, of the pre-activation between a neuron's states; default: where its slope changes.

    Source: Raghu et al. 2017, section 2.1.
    """
    if x.dim() < 2 or not len(x):
        raise InputError(f"x has shape {tuple(x.shape)}; give a batch of inputs, (inputs, *shape of one input).")
    network = watch(model, tuple(x.shape[1:]), threshold)
    rows = max(1, _VALUES // sum(layer.width for layer in network.layers))
    found: list[list[np.ndarray]] = [[] for _ in network.layers]
    for part in x.detach().cpu().double().split(rows):
        for layer, values, made in zip(network.layers, network.values(part), found, strict=True):
            faces = [values == entry for entry in range(layer.entries)] or [values > face for face in layer.faces]
            made.append(np.packbits(torch.stack(faces, dim=1).numpy(), axis=2))
    names, widths = zip(*((layer.name, layer.width) for layer in network.layers), strict=True)
    return ActivationPatterns(names, widths, tuple(np.concatenate(parts) for parts in found))
