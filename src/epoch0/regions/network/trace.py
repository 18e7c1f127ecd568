"""Any piecewise linear module as a list of steps, by torch.fx (DESIGN: one walk, two shapes)."""

from inspect import signature

import torch
from torch import Tensor, fx, nn

from epoch0.errors import InputError
from epoch0.networks import nonlinearities
from epoch0.regions.network.reader import PROBE, Reader
from epoch0.regions.network.steps import Program
from epoch0.seeds import generator
from epoch0.tracing.guard import bare, check_model, unchanged

_LEAVES = ("torch.nn", "torch.ao.nn", nonlinearities.__name__)


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return not isinstance(m, nn.Sequential) and m.__module__.startswith(_LEAVES)


def trace(model: nn.Module, shape: tuple[int, ...], device: torch.device | str | None = None) -> Program:
    """Read the model into steps, in float64 and evaluation mode; the model stays as it is.

    Args:
        model: any torch module built from affine and piecewise linear operations.
        shape: of one input point.
        device: where the steps run; the model's own by default.

    Raises:
        InputError: naming the node and the operation that is not piecewise linear, or that mixes points.
    """
    model = bare(model)
    check_model(model)
    parameter = next(p for p in model.parameters())
    notes: tuple[str, ...] = ()
    if any(m.training and isinstance(m, _MODAL) for m in model.modules()):
        notes = ("the model is in training mode; its regions are those of evaluation mode.",)
    with unchanged(model), torch.no_grad():
        model.eval()
        probe = torch.randn(PROBE, *shape, generator=generator(0), dtype=torch.float64)
        dtype = parameter.dtype if parameter.is_floating_point() else torch.float32
        try:  # the run also brings weights up to date that hooks compute, such as those of pruned layers
            expected = model(probe.to(parameter.device, dtype))
        except Exception as error:
            said = (str(error).splitlines() or [type(error).__name__])[0]
            raise InputError(
                f"the model does not take points of shape {shape}: {said}. Points are one floating point tensor; wrap "
                "a model that takes anything else, one of token ids from its embedding's output on."
            ) from error
        if not isinstance(expected, Tensor):
            kind = type(expected).__name__
            raise InputError(f"the model returns a {kind}; regions need one tensor as the output: wrap the model.")
        try:
            tracer = _Tracer()
            graph = tracer.trace(model, concrete_args=_defaults(model))
        except Exception as error:
            raise InputError(
                f"torch.fx cannot trace {type(model).__name__}: {error}. Its forward must not branch on values; "
                "wrap the part without branches in a module of its own."
            ) from error
        reader = Reader(model, torch.device(device or parameter.device), shape, probe)
        program = reader.read(graph, notes)
        _check(program, model, probe.to(reader.device), expected, parameter.device)
    return program


def _defaults(model: nn.Module) -> dict[str, object]:
    """Arguments of the forward beyond the input, at their defaults."""
    parameters = list(signature(model.forward).parameters.values())[1:]
    return {p.name: p.default for p in parameters if p.default is not p.empty}


_MODAL = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd, nn.RReLU)


def _check(program: Program, model: nn.Module, probe: Tensor, expected: Tensor, home: torch.device) -> None:
    """Refuse a reading that does not compute what the model computes."""
    ours = program.forward(probe).cpu()
    scale = float(ours.abs().max()) or 1.0
    if ours.shape == expected.shape and float((ours - expected.double().cpu()).abs().max()) <= 1e-3 * scale:
        return
    from copy import deepcopy  # a chaotic network in float32 may be far from itself in float64

    twin = deepcopy(model).double().eval()(probe.to(home)).cpu()
    if ours.shape != twin.shape or float((ours - twin).abs().max()) > 1e-9 * scale:
        raise InputError(
            f"the steps read from {type(model).__name__} do not compute what it computes; its forward changes tensors "
            "in place or has state. Write it without."
        )
