"""Read a dense network as mean-field theory sees it: widths, standard deviations, nonlinearity (Hayou 2021, B.1)."""

import math

from torch import Tensor, nn

from epoch0.activations import Activation, known_module
from epoch0.errors import InputError
from epoch0.theory.pruning.dense import predicted_density
from epoch0.theory.pruning.prediction import PredictedDensity
from epoch0.tracing.guard import bare, check_input, check_model

_PASSING = (nn.Flatten, nn.Identity, nn.Dropout)


def mean_field_density(
    model: nn.Module, sparsity: float, x: Tensor | None, examples: int, seed: int
) -> PredictedDensity:
    """The mean-field prediction for a chain of linear layers with one nonlinearity between them.

    Args:
        model: a sequence of linear layers; dropout and flattening are passed over.
        sparsity: fraction of all weights removed.
        x: a batch whose mean square and correlation are used, shape (examples, ...), or None.
        examples: size of the batch where x is None.
        seed: of the drawings.

    Raises:
        InputError: naming the first module that mean-field theory of dense networks does not cover.
    """
    check_model(model)
    layers, rule = _chain(bare(model))
    sizes = [next(iter(layers.values())).in_features, *(layer.out_features for layer in layers.values())]
    weight_std = [_rms(layer.weight) * math.sqrt(layer.in_features) for layer in layers.values()]
    bias_std = [0.0 if layer.bias is None else _rms(layer.bias) for layer in layers.values()]
    square, correlation = 1.0, 0.0
    if x is not None:
        batch = check_input(model, x).detach().flatten(1).double()
        examples, square = len(batch), float((batch**2).mean())
        if square == 0:
            raise InputError("x is 0 everywhere: nothing enters the network.")
        if examples > 1:
            together = float((batch.sum(dim=0) ** 2).mean()) / examples**2  # mean over all pairs, a row with itself too
            correlation = min(max((together * examples / square - 1) / (examples - 1), 0.0), 1.0)
    return predicted_density(
        rule, weight_std, bias_std, sizes, sparsity, input_square=square, input_correlation=correlation,
        examples=examples, seed=seed, names=[f"{name}.weight" if name else "weight" for name in layers],
    )  # fmt: skip


def _chain(model: nn.Module) -> tuple[dict[str, nn.Linear], Activation]:
    layers: dict[str, nn.Linear] = {}
    rule: Activation | None = None
    behind = False
    for name, module in model.named_modules():
        if next(module.children(), None) is not None:
            if not isinstance(module, nn.Sequential):
                raise _unknown(name, module)
            continue
        if isinstance(module, nn.Linear):
            if layers and not behind:
                raise InputError(f"there is no nonlinearity before '{name}'; use how='measured'.")
            layers[name], behind = module, False
        elif (found := known_module(module)) is not None and not isinstance(module, nn.Identity):
            if rule is not None and found != rule:
                raise InputError(
                    f"'{name}' is {found.name} after {rule.name}; mean field takes only one; use how='measured'."
                )
            rule, behind = found, bool(layers)
        elif not isinstance(module, _PASSING):
            raise _unknown(name, module)
    if not layers:
        raise InputError(f"the model {type(model).__name__} has no linear layer.")
    if rule is None:
        raise InputError("the model has no nonlinearity that is known by name; use how='measured'.")
    return layers, rule


def _unknown(name: str, module: nn.Module) -> InputError:
    where = f"'{name}' ({type(module).__name__})" if name else f"the model ({type(module).__name__})"
    return InputError(
        f"mean field knows nn.Sequential chains of linear layers with one nonlinearity; {where} is neither. "
        "Use how='measured' with a batch."
    )


def _rms(tensor: Tensor) -> float:
    return math.sqrt(float((tensor.detach().double() ** 2).mean()))
