"""The weighted operations of a model and the parameters behind them: which can be set, and why others are not.

Weights may be seen through a mask (``torch.nn.utils.prune``, an elementwise parametrization) or transposed; anything
else between a parameter and its operation (weight norm, low rank, slices) is left alone (Hayou et al. 2021, App. H).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from epoch0.errors import InputError, suggest
from epoch0.seeds import generator
from epoch0.tracing.graph import Op
from epoch0.tracing.tape import Tape

MATRIX = ("matmul", "mm", "addmm")
"""Operations whose weights are (inputs, outputs)."""


@dataclass(eq=False)
class Site:
    """One weighted operation whose weights can be set.

    Attributes:
        op: the operation.
        name: the parameter, by qualified name.
        parameter: the parameter.
        view: its memory in the orientation in which the operation uses it.
        original: its values as they came, in that orientation.
        effective: the weights that the operation used.
        direct: whether the operation uses the parameter itself.
        bias: name of the bias parameter, empty if there is none.
        fan_in: weights into one unit that meet an entry of the input, on average over the units: at a zero-padded
            border they are fewer.
        mask: which weights are kept, in the orientation of the view; None: all.
        factor: constant between the parameter and the weights that are used.
    """

    op: Op
    name: str
    parameter: nn.Parameter
    view: Tensor
    original: Tensor
    effective: Tensor
    direct: bool
    bias: str
    fan_in: float = 0.0
    mask: Tensor | None = None
    factor: float = 1.0

    @property
    def module(self) -> str:
        """The module it runs in, or its parameter if the model itself makes the call."""
        return self.op.module or self.name

    @property
    def density(self) -> float:
        """Fraction of the weights that is kept."""
        return 1.0 if self.mask is None else float(self.mask.double().mean())

    @property
    def groups(self) -> int:
        """Groups of a convolution, else 1."""
        return int(self.op.given.get("groups", 1))

    def used(self) -> Tensor:
        """The weights as the operation uses them, from what the parameter holds now."""
        weights = self.view if self.factor == 1.0 else self.view * self.factor
        return weights if self.mask is None else weights * self.mask

    def responses(self, x: Tensor, weight: Tensor) -> Tensor:
        """What the operation gives for this input with these weights, without bias."""
        if self.op.name == "addmm":
            return x @ weight
        result: Tensor = self.op.with_arguments(input=x, weight=weight, bias=None)({})
        return result

    def through(self, squares: Tensor) -> Tensor:
        """Mean squares behind weights of variance 1/fan_in, for mean squares before them.

        Without a mask one output unit a group stands for all.
        """
        squares = squares.double()
        if self.mask is not None:
            weight = self.mask
        elif self.op.name in MATRIX:
            weight = torch.ones_like(self.view[..., :1])
        elif "transpose" in self.op.name:
            weight = torch.ones_like(self.view[:, :1])
        else:
            weight = torch.ones_like(self.view[:: self.view.shape[0] // self.groups])
        return self.responses(squares, weight.double() / self.fan_in)


def find_sites(tape: Tape) -> tuple[list[Site], dict[str, str]]:
    """The operations that can be set, in order, and the reason for each other parameter of a weighted operation."""
    parameters = dict(tape.model.named_parameters())
    memory = {p.untyped_storage().data_ptr(): name for name, p in parameters.items() if p.numel()}
    sites, untouched = list[Site](), dict[str, str]()
    for op in tape.ops:
        if not op.kind or not tape.nodes[op.outputs[0]].depends:
            continue
        found = _site(op, parameters, memory)
        if isinstance(found, Site):
            ones = found.view.new_ones((1, *tape.nodes[op.inputs[0]].shape[1:]))
            found.fan_in = 1.0
            found.fan_in = float(found.through(ones).double().mean())
            sites.append(found)
        else:
            untouched.update(dict.fromkeys(op.weights, found))
    for site in sites:
        untouched.pop(site.name, None)
        untouched.pop(site.bias, None)
    return sites, untouched


def _site(op: Op, parameters: dict[str, nn.Parameter], memory: dict[int, str]) -> Site | str:
    if op.kind in ("attention", "recurrent", "bilinear"):
        return f"weights of a {op.kind} operation: no law"
    if op.call is None or len(op.inputs) != 1:
        return f"{op.name} is no product of one input with weights"
    simple = op.name in ("linear", *MATRIX) or op.kind == "convolution"
    scaled = op.name == "addmm" and op.call.kwargs  # alpha and beta
    weight, bias = (op.given.get(role) if simple and not scaled else None for role in ("weight", "bias"))
    if not isinstance(weight, Tensor) or weight.dim() < 2:
        return f"{op.name} is no product of one input with weights on its right"
    own = memory.get(weight.untyped_storage().data_ptr())
    offset = memory.get(bias.untyped_storage().data_ptr(), "") if isinstance(bias, Tensor) else ""
    if own is not None:
        parameter = parameters[own]
        if parameter.numel() != weight.numel():
            return "only a part of the parameter is used at a time"
        return Site(op, own, parameter, weight, weight.clone(), weight.clone(), True, offset)
    candidates = [name for name in op.weights if name != offset and parameters[name].dim() >= 2]
    if len(candidates) != 1:
        return "its weights are made of several parameters"
    parameter = parameters[candidates[0]]
    if parameter.shape != weight.shape:
        return "its weights are another shape than the parameter"
    view = parameter.detach()
    return Site(op, candidates[0], parameter, view, view.clone(), weight.clone(), False, offset)


def fill_with_noise(sites: list[Site], seed: int) -> None:
    """Give the parameters that are not used directly other values, which :func:`read_masks` compares with."""
    for place, site in enumerate(sites):
        if not site.direct:
            noise = torch.randn(site.view.shape, generator=generator(seed, place))
            site.view.copy_(noise * float(site.original.double().square().mean().sqrt().clamp(min=1e-3)))


def read_masks(sites: list[Site], again: list[Site], untouched: dict[str, str]) -> list[Site]:
    """Find the mask of weights that are no parameter themselves, from two records with different parameters.

    Args:
        sites: of the model as it came.
        again: of the same model after :func:`fill_with_noise`.
        untouched: gains a reason for what is no mask.

    Returns:
        The sites that can be set.
    """
    kept = []
    for site, other in zip(sites, again, strict=True):
        if not site.direct:
            mask = other.effective != 0
            if not bool(mask.any()):
                raise _nothing_kept(site)
            factor = float((other.effective / other.original)[mask].double().median())
            pairs = ((other.effective, other.original), (site.effective, site.original))
            if not all(torch.allclose(seen, factor * mask * own, rtol=1e-4, atol=1e-12) for seen, own in pairs):
                untouched[site.name] = "its weights are no masked copy of the parameter"
                continue
            site.factor, site.mask = factor, None if bool(mask.all()) else mask
        kept.append(site)
    return kept


def apply_masks(sites: list[Site], masks: Mapping[str, Tensor] | None) -> None:
    """Join the user's masks to those found.

    Raises:
        InputError: for a mask of an unknown parameter, of another shape or dtype, or one that keeps nothing.
    """
    masks = masks or {}
    names = list(dict.fromkeys(site.name for site in sites))
    for name, mask in masks.items():
        if name not in names:
            raise InputError(
                f"masks: {name!r} is no weight that can be set.{suggest(name, names)} Those are {', '.join(names)}."
            )
        if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
            kind = f"tensor of {mask.dtype}" if isinstance(mask, Tensor) else type(mask).__name__
            raise InputError(f"masks[{name!r}] is a {kind}; give a tensor of torch.bool, True where a weight is kept.")
    for site in sites:
        if site.name in masks:
            mask, shape = masks[site.name], tuple(site.parameter.shape)
            if tuple(mask.shape) != shape:
                raise InputError(f"masks[{site.name!r}] has shape {tuple(mask.shape)}, the weight {shape}.")
            seen = _as_used(site, mask.to(site.view.device))
            site.mask = seen if site.mask is None else site.mask & seen
        if site.mask is not None and not bool(site.mask.any()):
            raise _nothing_kept(site)


def _as_used(site: Site, mask: Tensor) -> Tensor:
    """A mask of the parameter's shape in the orientation of the view."""
    if not site.direct:
        return mask
    same = torch.empty_strided(site.parameter.size(), site.parameter.stride(), dtype=torch.bool, device=mask.device)
    offset = site.view.storage_offset() - site.parameter.storage_offset()
    return torch.as_strided(same.copy_(mask), site.view.size(), site.view.stride(), offset)


def _nothing_kept(site: Site) -> InputError:
    return InputError(
        f"the mask of '{site.name}' keeps none of its {site.view.numel()} weights, so no scale gives its layer a gain; "
        "keep some, or take the layer out."
    )
