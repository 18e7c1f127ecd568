"""Weights that lie on a path from the input to the output; the others do nothing (Vysogorets & Kempe 2023)."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call

from epoch0.errors import InputError
from epoch0.prune._apply import check_masks
from epoch0.prune._masks import Masks
from epoch0.prune._places import places
from epoch0.prune._reach import Reach
from epoch0.tracing.forward_derivatives import prepare_forward_derivatives
from epoch0.tracing.guard import bare, unchanged
from epoch0.tracing.operations import tensors_in


def on_paths(model: nn.Module, masks: Mapping[str, Tensor], x: Tensor | tuple[int, ...]) -> Masks:
    """The weights that are kept and lie on a path of kept weights from the input to the output.

    >>> effective = on_paths(model, masks, x=(3, 32, 32))
    >>> effective.kept <= masks.kept, effective.sparsity >= masks.sparsity
    (True, True)

    A path goes through weights that are kept, through sums, products, nonlinearities and whatever moves entries; the
    signal it carries is that of the input. So a unit without inputs starts no path even if it has a bias, and the
    statistics of norms and the denominators of a softmax are no paths. Where two signals are multiplied, either one
    passes where the other is not always zero. Parameters without a mask count as kept. This is exact entry by entry,
    at every place of an image: a weight of a convolution that only ever meets padding is on no path, so the shape of
    the input matters. Rows of an embedding count as input. It takes one pass forward and one backward, with zeros and
    ones: nothing overflows.

    Args:
        model: what the masks are for; if it is pruned already, its own masks count too. It stays as it is.
        masks: bool tensors by name.
        x: a batch of shape (examples, ...), of which only the shape counts (and integers, such as tokens, of the first
            example), or the shape of one example.

    Returns:
        Masks with the same names.

    Raises:
        InputError: if the masks are another model's, the model does not take such inputs, or an operation has no rule.

    Source: Vysogorets & Kempe 2023, effective sparsity.
    """
    model = bare(model)
    check_masks(model, masks)
    where = places(model)
    homes = {id(where[name][0].parameter): name for name in masks}
    prepare_forward_derivatives()
    with unchanged(model), forward_ad.dual_level():
        model.eval()
        seen: dict[str, Tensor] = {}
        values: dict[str, Tensor] = {}
        for key, parameter in model.named_parameters():
            if id(parameter) in homes:
                name = homes[id(parameter)]
                values[key] = seen[name] = masks[name].to(parameter.device, torch.float32).requires_grad_()
            elif parameter.is_floating_point():
                values[key] = torch.ones_like(parameter, dtype=torch.float32, requires_grad=False)
        for key, buffer in model.named_buffers():
            if buffer.is_floating_point():
                values[key] = (buffer != 0).float()
        parameter = next(iter(where.values()))[0].parameter
        start = _start(x, parameter.device)
        with torch.enable_grad():
            try:
                with Reach():
                    result = functional_call(model, values, (start,))
            except InputError:
                raise
            except Exception as error:
                raise InputError(
                    f"the paths of {type(model).__name__} cannot be followed for an input of shape "
                    f"{tuple(start.shape)}: {error}"
                ) from error
        nest = result.to_tuple() if hasattr(result, "to_tuple") else result
        outputs = [out for out in tensors_in(nest) if out.is_floating_point() and out.requires_grad]
        ones = [torch.ones_like(out) for out in outputs]
    found = dict.fromkeys(seen)
    if outputs:
        gradients = torch.autograd.grad(outputs, list(seen.values()), ones, allow_unused=True)
        found = dict(zip(seen, gradients, strict=True))
    effective = {}
    for name, mask in masks.items():
        reached = found[name]
        effective[name] = torch.zeros_like(mask) if reached is None else mask & (reached > 0).to(mask.device)
    return Masks._own(effective)


def _start(x: Tensor | tuple[int, ...], device: torch.device) -> Tensor:
    """One example of ones that depend on the input; or the first example, where it is made of integers."""
    shape = x.shape[1:] if isinstance(x, Tensor) else tuple(x)
    if isinstance(x, Tensor) and not x.is_floating_point():
        return x[:1].to(device)
    if not all(isinstance(n, int) and n > 0 for n in shape):
        raise InputError(f"x={tuple(shape)}: an example needs a shape such as (3, 32, 32), all integers > 0.")
    ones = torch.ones(1, *shape, device=device)
    start: Tensor = forward_ad.make_dual(ones, torch.ones_like(ones))
    return start
