"""The rows and the notes of a result, in words (THEORY section 3)."""

from collections.abc import Mapping

from torch import Tensor

from epoch0.initialization._result import LayerInit
from epoch0.initialization._steps import Plan, Step
from epoch0.tracing.tape import Tape


def rows(plan: Plan, biases: Mapping[str, Tensor], gains: Mapping[str, float]) -> tuple[LayerInit, ...]:
    """One row a weighted operation.

    Args:
        plan: with what was found.
        biases: their values, by name.
        gains: measured gain of each layer; empty if none was.
    """
    return tuple(_row(step, plan, biases, gains) for step in plan.steps)


def _row(step: Step, plan: Plan, biases: Mapping[str, Tensor], gains: Mapping[str, float]) -> LayerInit:
    site, rule = step.site, step.follow.activation
    kept = site.original if site.mask is None else site.original[site.mask]
    before = site.factor * float(kept.double().square().mean().sqrt()) * site.fan_in**0.5
    bias = biases.get(site.bias)
    return LayerInit(
        name=site.name,
        module=site.module,
        layer=step.layer.name,
        kind=site.op.kind,
        activation="none" if rule is None else rule.name,
        fan_in=site.fan_in,
        density=site.density,
        weight_std_before=abs(before),
        weight_std=abs(before) if step.kept else step.weight_std,
        bias_std=float("nan") if bias is None else float(bias.double().square().mean().sqrt()),
        q=step.q,
        target=step.goal,
        predicted=step.predicted,
        measured=_measured(step, gains),
        status=_status(step, plan),
    )


def _measured(step: Step, gains: Mapping[str, float]) -> float | None:
    """Gain of the stretch that the goal is for, where that is a layer but for its averages."""
    if step.layer.weighted != 1 or step.layer.name not in gains:
        return None
    return gains[step.layer.name] / (step.averages * step.lead)


def _status(step: Step, plan: Plan) -> str:
    if step.kept:
        return step.kept
    if step.first is not None:
        return f"uses the weights of {step.first.site.module}, which were set there"
    if step.scale_free:
        return "the norm after it fixes the gain"
    follow = step.follow
    words = ["in pairs"] if step.half else []
    if step.by_size:
        words.append(f"brings {'inputs' if step.begins else 'outputs'} to unit size")
    if step.closes:
        words.append(f"ends a branch, one of {plan.blocks}")
    if step.halved:
        words.append("shortcut: makes up for the activation behind the sum")
    if follow.gate:
        words.append("its result is multiplied with another signal")
    if follow.affine is not None:
        words.append("counts the fixed norm behind it")
    if follow.no_law:
        words.append(f"no law for {follow.no_law} behind it")
    if abs(step.pooled - 1) > 0.02:
        what = "averages and scalings" if step.makes_up else "scalings"
        words.append(f"makes up for {what} behind it that pass {step.pooled:.3g}")
    averages = step.lead if step.makes_up else step.lead * step.averages
    if abs(averages - 1) > 0.02:
        words.append(f"averages pass {averages:.3g} of it, which the target leaves out")
    return "; ".join(words) or "set"


def notes(plan: Plan, tape: Tape, off: list[str], rounds: int) -> list[str]:
    """What a reader must know."""
    found = []
    if tape.has_batch_norm:
        statistics = "of this batch, as in training" if tape.batch_norm == "train" else "that were kept while training"
        found.append(f"batch norm used the statistics {statistics}")
    if tape.has_dropout:
        found.append("dropout was off")
    if plan.blocks:
        count = "1 residual block" if plan.blocks == 1 else f"{plan.blocks} residual blocks"
        closed = sum(step.closes for step in plan.steps) + len(plan.norms)
        found.append(f"{count}; the branches of {closed} were scaled")
    if off:
        found.append(f"after {rounds} rounds still off the target: {', '.join(dict.fromkeys(off))}")
    return [*found, *plan.notes]
