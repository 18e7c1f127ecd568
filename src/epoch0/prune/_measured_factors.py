"""Factors at which each pruned layer's pre-activations have the variance of a dense one (after Mishkin & Matas 2016).

The variance asked for is that of mean-field theory: sigma_w^2 E phi(sqrt(q) Z)^2 with q the variance measured one layer
before. A mean of phi^2 over the units that are left would not do: units without kept weights have none, and a ReLU
whose weights were kept because it is active passes more than the half (Hayou et al. 2021, B.1 and 2.3).
"""

import math

import numpy as np
import torch
from torch import Tensor

from epoch0.errors import InputError
from epoch0.initialization.follow import Follow
from epoch0.initialization.sites import Site
from epoch0.prune._masked_sites import Masked
from epoch0.theory.mean_field.moments import moments_of
from epoch0.tracing.tape import Change, Tape


def measured_factors(
    record: Tape, found: list[Masked], follows: list[Follow], targets: dict[str, float]
) -> dict[str, Tensor]:
    """One pass in which each masked layer's output is scaled where it arises, so that the next sees what it will get.

    Args:
        record: of the model.
        found: its masked weights.
        follows: every activation behind weights.
        targets: weight_std of each masked weight, by name.

    Returns:
        The factor of each masked weight, once for each of its rows.

    Raises:
        InputError: if a layer passes nothing on.
    """
    one_pass = _Pass(record, found, follows, targets)
    one_pass.run()
    return {each.name: torch.full_like(each.row_sums(), one_pass.factors[each.name]) for each in found}


def no_scale(each: Masked) -> InputError:
    """The error for a layer that no factor helps."""
    return InputError(
        f"'{each.name}' passes nothing on, or its signals overflow, so no factor gives it a variance: keep more of its "
        "weights (keep(..., floor=...)), or take the layer out. Nothing was changed."
    )


class _Pass:
    def __init__(self, record: Tape, found: list[Masked], follows: list[Follow], targets: dict[str, float]) -> None:
        self.record, self.targets = record, targets
        self.at = {site.op.outputs[0]: (each, site) for each in found for site in each.uses}
        self.inputs = {site.op.inputs[0] for _, site in self.at.values()}
        self.before = {follow.biased: follow for follow in follows}
        self.behind = {follow.end: follow for follow in follows}
        self.made_by = {node: op for op in record.ops for node in op.outputs}
        self.factors: dict[str, float] = {}
        self.kept: dict[int, Tensor] = {}
        self.expected: dict[int, float] = {}  # by node behind an activation: E phi^2 for the variances before it
        self.dense: dict[int, float] = {}  # likewise: that over the mean square that is there

    def run(self) -> None:
        nodes = {*self.at, *self.inputs, *self.before, *self.behind}
        with torch.no_grad():
            self.record.run(self.record.x, {node: self._visit(node) for node in nodes})

    def _visit(self, node: int) -> Change:
        def change(tensor: Tensor) -> Tensor | None:
            changed = self._scaled(*self.at[node], tensor) if node in self.at else None
            now = tensor if changed is None else changed
            if node in self.before:
                follow = self.before[node]
                assert follow.activation is not None
                variances = now.double().square().reshape(len(now), -1).mean(1).cpu().numpy()
                self.expected[follow.end] = float(np.mean(moments_of(follow.activation).square(variances)))
            if node in self.behind and node in self.expected:
                there = float(now.double().square().mean())
                self.dense[node] = self.expected[node] / there if there > 0 else 1.0
            if node in self.inputs:
                self.kept[node] = now.clone()  # a later operation may work in place
            return changed

        return change

    def _scaled(self, each: Masked, site: Site, output: Tensor) -> Tensor:
        inside = self.record.model.get_parameter(site.bias).detach() if site.bias else None
        if inside is None or each.follow.biased != each.site.op.outputs[0]:
            bias = torch.zeros_like(output[:1])
        else:
            bias = inside.reshape(-1, *[1] * (output.dim() - 2)) if site.op.kind == "convolution" else inside
        bare = output - bias
        if each.name not in self.factors:
            node = site.op.inputs[0]
            mask, site.mask = site.mask, None  # what a layer without a mask would give, on average over its weights
            arriving = float(site.through(self.kept[node].double().square()).mean())
            site.mask = mask
            wanted = self.targets[each.name] ** 2 * arriving * self._over_dense(node)
            got = float(bare.double().square().mean())
            if not (got > 0 and math.isfinite(got) and wanted > 0 and math.isfinite(wanted)):
                raise no_scale(each)
            self.factors[each.name] = math.sqrt(wanted / got)
        return bare * self.factors[each.name] + bias

    def _over_dense(self, node: int) -> float:
        """Mean square that a dense network would have here over the one that is there, if one activation decides it."""
        while node not in self.dense:
            op = self.made_by.get(node)
            if op is None or op.kind or len(op.inputs) != 1:
                return 1.0
            node = op.inputs[0]
        return self.dense[node]
