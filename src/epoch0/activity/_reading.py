"""What is watched in a network: the layers that switch, at which values, and how to get those values (Raghu 2.1)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from epoch0.errors import InputError
from epoch0.networks.nonlinearities import activation_of
from epoch0.regions.network.steps import Affine, Fold, Largest, Program
from epoch0.regions.network.trace import trace
from epoch0.tracing.guard import bare, check_model, unchanged

OUTPUT = "output"
"""Name of the network's output where it is watched."""


@dataclass(frozen=True)
class Watched:
    """One layer that switches.

    Attributes:
        name: of the module or node.
        width: its elements; of a maximum, its windows.
        faces: values at which an element switches; none for a maximum, which switches from entry to entry.
        entries: of each window of a maximum, else 0.
    """

    name: str
    width: int
    faces: tuple[float, ...]
    entries: int = 0


@dataclass(frozen=True, eq=False)
class Reading:
    """A network as the values it switches by.

    Attributes:
        layers: what is watched, in order of execution; the output, if it is, comes last.
        values: points (m, \\*shape), float64 on the CPU, to the values of each layer, (m, width); of a
            maximum the entry, as a number.
        program: the network step by step where it is piecewise linear, else None.
        notes: what the user should know.
    """

    layers: tuple[Watched, ...]
    values: Callable[[Tensor], list[Tensor]]
    program: Program | None
    notes: tuple[str, ...] = ()


def read(model: nn.Module, shape: tuple[int, ...], threshold: float | Sequence[float] | None, output: bool) -> Reading:
    """Read a network.

    Args:
        model: any torch module whose nonlinearities are piecewise linear, or, with a threshold, modules of any kind.
        shape: of one input.
        threshold: value or values of the pre-activation at which a neuron of a smooth network counts as switching; for
            the output, where it is watched, the value it crosses (0 by default).
        output: watch the output alone.

    Raises:
        InputError: a smooth network without a threshold, or one with no nonlinearity that can be watched.
    """
    faces = _faces(threshold)
    model = bare(model)
    check_model(model)
    try:
        program = trace(model, shape, "cpu")
    except InputError as error:
        if "does not take points" in str(error) or not (faces or output):
            hint = "" if "does not take points" in str(error) else (
                " Or name a threshold: threshold=0.0 counts how often pre-activations of any nonlinearity pass 0."
            )  # fmt: skip
            raise InputError(f"{error}{hint}") from None
        return _by_hooks(model, shape, faces, output)
    if output:
        return Reading((_output(program.output_shape, faces),), lambda x: [_rows(program.forward(x))], program,
                       program.notes)  # fmt: skip
    if faces and (single := [s for s in program.folds if isinstance(s, Largest)]):
        raise InputError(f"threshold={threshold!r}: the maximum '{single[0].name}' has no pre-activation to compare.")
    layers = tuple(_layer(step, width, faces) for step, width in zip(program.folds, program.sizes, strict=True))
    if not layers:
        raise InputError("the network has no nonlinearity: no neuron switches. of='output' watches the output's sign.")
    return Reading(layers, _by_program(program), program, program.notes)


def _faces(threshold: float | Sequence[float] | None) -> tuple[float, ...]:
    if threshold is None:
        return ()
    values = (threshold,) if isinstance(threshold, int | float) else tuple(threshold)
    faces = tuple(sorted({float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)}))
    if not faces or len(faces) != len(values) or not all(abs(v) < float("inf") for v in faces):
        raise InputError(f"threshold={threshold!r}; give one finite number or several different ones.")
    return faces


def _layer(step: Fold | Largest, width: int, faces: tuple[float, ...]) -> Watched:
    if isinstance(step, Largest):
        return Watched(step.name, len(step.windows), (), step.windows.shape[1])
    return Watched(step.name, width, faces or step.faces)


def _output(shape: tuple[int, ...], faces: tuple[float, ...]) -> Watched:
    return Watched(OUTPUT, int(torch.Size(shape).numel()), faces or (0.0,))


def _rows(values: Tensor) -> Tensor:
    return values.reshape(len(values), -1)


def _by_program(program: Program) -> Callable[[Tensor], list[Tensor]]:
    last, folds = program.last_uses(), len(program.folds)

    def values(points: Tensor) -> list[Tensor]:
        slots, found = {0: points}, []
        with torch.no_grad():
            for step, done in zip(program.steps, last, strict=True):
                before = [slots[slot] for slot in step.inputs]
                if isinstance(step, Fold):
                    found.append(_rows(before[0]))
                elif isinstance(step, Largest):
                    windows = _rows(before[0])[:, step.windows]
                    found.append(windows.argmax(dim=2).double())
                if len(found) == folds:
                    break
                slots[step.output] = step.run(*before)
                for slot in done:
                    slots.pop(slot, None)
        return found

    return values


def _by_hooks(model: nn.Module, shape: tuple[int, ...], faces: tuple[float, ...], output: bool) -> Reading:
    """A network with any nonlinearities that are modules: what goes into them is what switches."""
    weights = {
        name: (t.detach().double() if t.is_floating_point() else t.detach()).cpu()
        for name, t in [*model.named_parameters(), *model.named_buffers()]
    }
    chosen = {name: m for name, m in model.named_modules() if activation_of(m) is not None and not list(m.children())}
    names: list[str] = []

    def values(points: Tensor) -> list[Tensor]:
        found: list[Tensor] = []

        def hook(name: str) -> Callable[..., None]:
            def keep(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
                found.append(_rows(inputs[0]))
                names.append(name)

            return keep

        names.clear()
        with unchanged(model), torch.no_grad():
            model.eval()
            if not output:
                for name, module in chosen.items():
                    module.register_forward_pre_hook(hook(name))
            made = functional_call(model, weights, (points,))
        if not isinstance(made, Tensor):
            raise InputError(f"the model returns a {type(made).__name__}; one tensor is needed.")
        return [_rows(made)] if output else list(found)

    probe = torch.zeros(2, *shape, dtype=torch.float64)
    widths = [v.shape[1] for v in values(probe)]
    if not widths:
        raise InputError(
            f"{type(model).__name__} has no nonlinearity that is a module of its own (nn.Tanh, nn.GELU, ...), so none "
            "of its pre-activations can be watched; of='output' watches the output."
        )
    if output:
        return Reading((Watched(OUTPUT, widths[0], faces or (0.0,)),), values, None)
    layers = tuple(Watched(name, width, faces) for name, width in zip(names, widths, strict=True))
    return Reading(layers, values, None)


def splits(program: Program | None) -> bool:
    """Whether the exact walk on circles can follow: affine steps and folds only."""
    return program is not None and all(isinstance(step, Affine | Fold) for step in program.steps)
