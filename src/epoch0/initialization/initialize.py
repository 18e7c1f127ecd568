"""Set every layer's weights so that its gain is the target: 1 is the edge of chaos (Hayou et al. 2021, 2.2 and B.1.2).

Nothing but parameters changes, and on any error not even they.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn.utils.prune import BasePruningMethod

from epoch0.arguments import Positive, Seed, Std, checked, refuse_lazy
from epoch0.errors import InputError
from epoch0.initialization.draw import KINDS, draw_attentions, draw_biases, draw_weights
from epoch0.initialization.plan import make_plan
from epoch0.initialization.result import Initialization, notes, row
from epoch0.initialization.scale import ScalePass, apply, measured_rounds, standard
from epoch0.initialization.sites import Plan, find_sites
from epoch0.interrupts import whole
from epoch0.seeds import generator
from epoch0.tracing.call import Forward
from epoch0.tracing.guard import bare, check_model, unchanged
from epoch0.tracing.layers import layers, require_nonlinearity
from epoch0.tracing.tape import Tape, tape

# why weights are left alone
ASIDE = "no signal that is followed meets it as a weight: another input's, an embedding, a scale, or behind a detach"
UNUSED = "the forward was not seen to use it"
BIAS_STD = 0.2  # of layers whose activation has a scale; Hayou et al. use it for tanh and ELU


@checked
def initialize(
    model: nn.Module,
    at: str = "edge_of_chaos",
    *,
    chi: Positive | None = None,
    method: Annotated[str, ("theory", "measured")] = "theory",
    x: Any = None,
    forward: Forward | None = None,
    bias_std: Std | None = None,
    weights: Annotated[str, tuple(KINDS)] = "mirrored",
    seed: Seed = 0,
) -> Initialization:
    """Draw or rescale a model's weights so that each layer's gain is the target.

    >>> net = epoch0.networks.mlp([784, 256, 256, 10], "relu", seed=0)
    >>> print(initialize(net, x=torch.randn(64, 784)))                       # chi = 1 in all three layers
    3 weights set for a gain of 1, by theory, seed 0
    ...
    >>> round(initialize(net, chi=1.1, method="measured", x=torch.randn(64, 784)).layers[0].weight_std, 2)
    1.48

    A gain goes from a layer's input to behind its activation, without averages over places. Each residual branch gets
    the gain target/blocks, so that a block has 1 + target/blocks. Weights before a norm get the standard scale, which
    the norm undoes. The result names what was kept; docs/initialize has the rules.

    By default weights are orthogonal, units come in pairs of opposite weights wherever the next layer can take the
    difference, and residual blocks that are sound stay. Without ``chi`` the first layer brings inputs, and the last one
    outputs, to unit size where they are far from it or a function that saturates follows. Weights that are pruned, by
    ``epoch0.prune.apply`` or ``torch.nn.utils.prune``, stay so, and what has ``requires_grad=False`` stays.

    Args:
        model: any module. Its parameters change in place; mode, buffers, gradients, hooks and random states stay.
        at: ``"edge_of_chaos"``: a gain of 1.
        chi: another gain, > 0.
        method: ``"theory"``: one pass, weight_std^2 E phi'(h)^2 is the target; ``"measured"``: the mean over the units
            that are there in the place of E, then all layers are checked, and corrected where they are still off.
        x: a batch, as the model is called with; None: Gaussian of unit variance.
        forward: ``forward(model, x)``, for a model that is called in another way.
        bias_std: of fresh biases where an activation follows; None: 0, but 0.5 in a first layer of up to 32 inputs, and
            0.2 for Gaussian and uniform weights before activations with a scale (tanh); elsewhere biases become 0.
        weights: ``"mirrored"``: as above; ``"gaussian"``, ``"uniform"`` or ``"orthogonal"``: all are drawn, for
            the target and nothing else; ``"keep"`` rescales those there are; biases stay unless ``bias_std`` is given.
        seed: of the draw; each weight has a stream of its own, named by the weight.

    Raises:
        InputError: if an argument, the model or the input cannot be used, or a layer cannot have the target.

    Source: Hayou et al. 2021, B.1.2 (gain), Proposition 2 (branches), appendix H (density);
    Balduzzi et al. 2017 (pairs); Saxe et al. 2014 (orthogonal weights); THEORY section 3.
    """
    if at != "edge_of_chaos":
        raise InputError(f"at={at!r} is not known; it is 'edge_of_chaos' (a gain of 1), or give chi=... instead.")
    target, mirrored = 1.0 if chi is None else float(chi), weights == "mirrored"
    x, remarks = (x, []) if x is not None else gaussian_input(model, seed)
    refuse_lazy(model, written=True)
    frozen = {name for name, p in bare(model).named_parameters() if not p.requires_grad}
    with tape(model, x, forward=forward) as record:
        require_nonlinearity(record)
        sites, untouched = find_sites(record, seed)
        found = layers(record)
        needed = {event for layer in found for event in layer.events}
        used = {name for op in record.ops for name in op.weights}
        others = {name: ASIDE if name in used else UNUSED for name, p in record.model.named_parameters() if p.dim() > 1}
        others |= {site.name: "the first output does not depend on it" for site in sites}
        untouched = others | untouched | dict.fromkeys(frozen, "it is frozen: requires_grad is off")
        sites = [site for site in sites if site.op in needed and site.name not in frozen]
        untouched = {name: why for name, why in untouched.items() if name not in {site.name for site in sites}}
        if not sites:
            reasons = "; ".join(f"{name}: {reason}" for name, reason in list(untouched.items())[:5])
            raise InputError(f"no weight of the model can be set{': ' + reasons if reasons else ', it has none'}.")
        for site in sites:
            if site.mask is not None and not bool(site.mask.any()):
                raise InputError(f"the mask of '{site.name}' keeps none of its {site.view.numel()} weights; keep some.")
        plan = make_plan(record, found, sites, target, weights, mirrored and chi is None, frozen)
        biases = _prepare(record, plan, weights, bias_std, seed)
        attentions, drawn = draw_attentions(record, found, plan, seed) if mirrored else ([], [])
        if any(step.tied and not step.kept for step in plan.steps):  # signals may start at other values now
            with tape(record.call, batch_norm=record.batch_norm) as anew:
                record = replace(record, x=anew.x)
        one_pass = ScalePass(record, plan, method, seed, biases)
        rounds, gains, off = 1, dict[str, float](), list[str]()
        if method == "theory":
            one_pass.run()
            apply(plan, record)
        else:
            rounds, gains, off = measured_rounds(one_pass, record, found)
        factors = {name: norm.factor for norm in plan.norms for name in norm.parameters}
        changed = [s.site.name for s in plan.steps if not s.kept] + list(biases) + list(factors) + drawn
        values = {name: record.model.get_parameter(name).detach().clone() for name in changed}
        # the gain of each layer for a fresh perturbation when all is set
        for step in plan.steps:
            if step.layer.kind != "residual block" and (goal := plan.layer_targets[step.layer.name]) is not None:
                plan.layer_targets[step.layer.name] = goal * step.fresh
        rows = (*(row(step, plan, biases, gains) for step in plan.steps), *attentions)
        left = {name: why for name, why in untouched.items() if name not in drawn and name not in factors}
        fields = target, method, plan.blocks, rounds, seed, (*remarks, *record.notes, *notes(plan, record, off, rounds))
        result = Initialization(rows, plan.layer_targets, left, factors, *fields)
    write_parameters(bare(model), values)
    return result


def _prepare(record: Tape, plan: Plan, weights: str, bias_std: float | None, seed: int) -> dict[str, Tensor]:
    """Weights of unit scale and biases into the parameters; the biases by name."""
    biases: dict[str, Tensor] = {}
    for step in plan.steps:
        if step.first is not None or step.kept:
            continue
        draw_weights(step, weights, seed)
        if step.tied:
            step.weight_std = standard(step)
            step.site.view.mul_(step.weight_std)
        activation, name = step.follow.activation, step.site.bias
        if not name or name in biases:
            continue
        bias = record.model.get_parameter(name).detach()
        # without biases what a network makes of x and of -x, or of 2x, is the same: of few inputs that is much
        few = weights == "mirrored" and step.begins and step.site.op.kind != "convolution"
        few &= step.site.view[0].numel() <= FEW_INPUTS
        if name not in plan.frozen and (bias_std is not None or weights != "keep"):
            scaled = activation is not None and not activation.homogeneous and weights != "mirrored"
            default = FIRST_BIAS_STD if few else BIAS_STD if scaled else 0.0
            std = 0.0 if activation is None or step.scale_free else default if bias_std is None else bias_std
            fresh = draw_biases(name, bias.shape, step.half is not None, seed)
            bias.copy_(fresh * (std / float(fresh.square().mean().sqrt())))
        biases[name] = bias
    return biases


@whole
def write_parameters(model: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Write values into parameters by name: all of them, or none where one fails."""
    for name, value in values.items():
        kind = model.get_parameter(name).dtype
        if not bool(value.to(kind).isfinite().all()):
            raise InputError(f"'{name}' would leave the range of {kind}. Nothing was changed.")
    with contextlib.ExitStack() as undo:
        for name, value in values.items():
            parameter = model.get_parameter(name).detach()
            undo.callback(parameter.copy_, parameter.clone())
            parameter.copy_(value)
        undo.pop_all()  # nothing failed
    for module in model.modules():
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, BasePruningMethod):
                setattr(module, hook._tensor_name, hook.apply_mask(module))  # what the hook would do at the next call


SIZES = (32, 28, 64, 224, 96, 128, 16, 8, 256, 299)  # sides of images, in the order in which they are tried
EXAMPLES, IMAGES = 64, 16
FEW_INPUTS = 32  # up to so many the units of a first layer get biases, which "mirrored" weights else leave out
FIRST_BIAS_STD = 0.5  # of these, beside inputs of unit size

_INPUT = 4


def gaussian_input(model: nn.Module, seed: int) -> tuple[Tensor, list[str]]:
    """A batch of Gaussian inputs that the model takes, and notes on it."""
    model = bare(model)
    check_model(model)
    parameter = next(p for p in model.parameters() if p.is_floating_point())
    for shape in _shapes(model):
        x = torch.randn(shape, generator=generator(seed, _INPUT)).to(parameter)
        with contextlib.suppress(RuntimeError, ValueError, IndexError, TypeError, AssertionError):
            with unchanged(model), torch.no_grad():
                model.eval()(x)
            return x, [f"no input was given: Gaussian numbers of unit variance, shape {shape}"]
    raise InputError(f"no input shape was found that the model {type(model).__name__} takes; give a batch x=...")


def _shapes(model: nn.Module) -> Iterator[tuple[int, ...]]:
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.LayerNorm):
            own = (module.in_features,) if isinstance(module, nn.Linear) else module.normalized_shape
            yield EXAMPLES, *own
            yield EXAMPLES, 16, *own
            return
        if isinstance(module, nn.RNNBase):
            yield EXAMPLES, 16, module.input_size
            return
        if isinstance(module, nn.modules.conv._ConvNd):
            for size in SIZES if len(module.kernel_size) < 3 else (16, 8, 32):
                yield (IMAGES if size <= 64 else 4), module.in_channels, *[size] * len(module.kernel_size)
            return
