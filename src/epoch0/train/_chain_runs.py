"""Some networks of a stack of dense chains are carried forward and back, by a plan (for _chain)."""

import torch
from torch import Tensor

from epoch0.train._chain_constant import Run
from epoch0.train._chain_plan import Part


def carry_on(part: Part, inputs: Tensor) -> Tensor:
    """Outputs of some networks, (networks, batch or 1, classes), in memory that is used again."""
    given = _given(part.run, inputs)
    for step in part.steps:
        step.forward(given)
    return part.steps[-1].output


def carry_back(part: Part, inputs: Tensor, gradient: Tensor, rate: float | None = None) -> None:
    """Write the gradients of some networks, from the last layer back to the first that wants one.

    With a learning rate, which takes a plan for descending, each weight is moved as soon as nothing else needs it as it
    was, and biases in the end.
    """
    run, steps, given = part.run, part.steps, _given(part.run, inputs)
    for untouched in part.zeros:
        untouched.zero_()
    if run.constant:
        torch.sum(gradient[run.networks], 1, keepdim=True, out=steps[-1].delta)
    else:
        steps[-1].delta.copy_(gradient[run.networks])
    wanting = [i for i, step in enumerate(steps) if step.for_weight is not None or step.for_bias is not None]
    first = min(wanting, default=len(steps))
    for index in range(len(steps) - 1, first - 1, -1):
        step = steps[index]
        step.backward(step.delta, step.output)
        if step.for_bias is not None:
            torch.sum(step.delta, 1, keepdim=True, out=step.for_bias)
        if step.differentiate is not None:
            step.differentiate(given)
        if index > first:
            assert step.pass_back is not None
            step.pass_back()
        if rate is not None and step.for_weight is not None:
            if step.multiplier is None:
                step.weight.add_(step.for_weight, alpha=-rate)
            else:  # the mask first: times 0 or 1 is exact, so this rounds as gradients masked before would
                step.weight.addcmul_(step.multiplier, step.for_weight, value=-rate)
    if rate is not None:
        moving = [(step.bias, step.for_bias) for step in steps]
        pairs = [(bias, own) for bias, own in moving if bias is not None and own is not None]
        if pairs:
            torch._foreach_add_([bias for bias, _ in pairs], [own for _, own in pairs], alpha=-rate)


def _given(run: Run, inputs: Tensor) -> Tensor:
    """The inputs of some networks: all of them, or any one where they make no difference."""
    return inputs[:1] if run.constant else inputs
