"""Errors of torch when a model cannot be run or differentiated, reworded into one clear error."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from epoch0.errors import InputError, first_line
from epoch0.tracing.graph import Op


class NoForwardDerivative(InputError):
    """An operation has no forward derivative in torch; it may still have a backward one."""


def explain_first_run(
    error: Exception, model: nn.Module, given: str, stack: Sequence[tuple[str, nn.Module, tuple[Any, ...], int]]
) -> InputError:
    """The error of a model's own forward, and in which module, with what that one wants and got where that is known."""
    path, module, args, _ = stack[-1] if stack else ("", model, (), 0)
    where = f"{type(module).__name__} '{path}'" if path else f"the model {type(module).__name__}"
    inner = next((tuple(a.shape) for a in args if isinstance(a, Tensor)), None)
    wants = module.extra_repr() if type(module).__module__.startswith("torch.nn.") else ""
    where += (f" ({wants})" if wants else "") + (f" of an input {inner}" if inner else "")
    text = f"the model fails on {given}, in {where}: {type(error).__name__}: {first_line(error)}"
    if isinstance(error, NotImplementedError) and 'required "forward"' in str(error):
        text += " (forward=lambda model, batch: ... calls it in another way.)"
    if isinstance(error, TypeError) and getattr(model, "automatic_optimization", True) is False:
        text += " (Its training_step steps by itself, so it gives no loss: pass inputs, targets and loss=.)"
    elif isinstance(error, TypeError) and "argument" in str(error) and not args:
        text += " (A tuple is model(*batch), a mapping model(**batch); targets are an argument of their own; "
        text += "forward=lambda model, batch: ... calls it in any other way.)"
    return InputError(text)


def explain_replay(error: Exception, events: Sequence[Op], index: int) -> Exception:
    """The error for an operation that cannot be differentiated; others come back as they are."""
    text, place = str(error), next((place for place, event in enumerate(events) if event.index == index), len(events))
    kind = "operation"
    if "autograd.Function" in text:
        # it fails in its own code: after operations of its own, before the one that uses its result
        hidden = [p for p, event in enumerate(events) if event.index < 0 and p >= place - 1]
        place, kind = (hidden[0], "autograd function") if hidden else (place, kind)
    after = f"an {kind}"
    if place < len(events):
        module = events[place].module
        after = f"{kind} {events[place].name}" + (f" in module '{module}'" if module else "")
    if "torch.utils.checkpoint" in text:
        why = "the model computes parts again in the backward pass, not as they were measured"
        return InputError(f"{why} ({first_line(error)[:100]}); turn gradient checkpointing off to measure it.")
    if "forward mode AD" in text or "forward AD" in text or "jvp" in text:
        why = f"{after} has no forward derivative in torch ({first_line(error)})"
        return NoForwardDerivative(f"{why}: give the autograd function a jvp, or write it with torch functions.")
    if "derivative for" in text and "not implemented" in text:
        return InputError(f"{after} has no derivative in torch ({first_line(error)}); use functions that have one.")
    return error
