"""The masked layers of a recorded model, what follows each, and measured factors (Hayou et al. 2021, 2.3).

A measured factor gives a layer's pre-activations the variance of a dense one (after Mishkin & Matas 2016). The variance
asked for is that of mean-field theory: sigma_w^2 E phi(sqrt(q) Z)^2 with q the variance measured one layer before. A
mean of phi^2 over the units that are left would not do: units without kept weights have none, and a ReLU whose weights
were kept because it is active passes more than the half (Hayou et al. 2021, B.1 and 2.3).
"""

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from epoch0.errors import InputError
from epoch0.initialization.follow import Follow, Follower
from epoch0.initialization.sites import MATRIX, Site, fill_with_noise, find_sites, read_masks
from epoch0.prune.masks.places import plain_name
from epoch0.theory.mean_field.moments import moments_of
from epoch0.tracing.tape import Change, Tape, tape


@dataclass(eq=False)
class MaskedLayer:
    """One masked weight.

    Attributes:
        site: its operation and its parameter; ``site.mask`` is never None.
        follow: what comes after it.
        uses: all operations that use it, the first included.
    """

    site: Site
    follow: Follow
    uses: list[Site] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Its name in the model before it was masked."""
        return plain_name(self.site.name)

    def row_sums(self) -> Tensor:
        """Sum of the squared kept weights into each unit or channel, float64, shape (rows,)."""
        return by_row(self.site, self.site.used().double().square())

    def kept_of_rows(self) -> Tensor:
        """How many weights of each row are kept, float64, shape (rows,)."""
        assert self.site.mask is not None
        return by_row(self.site, self.site.mask.double())

    def per_row(self, factors: Tensor) -> Tensor:
        """One factor a row in the shape in which it multiplies the weights."""
        site = self.site
        if site.op.name in MATRIX:
            return factors
        if "transpose" in site.op.name:
            groups, inputs = site.groups, site.view.shape[0] // site.groups
            spread = factors.reshape(groups, 1, -1).expand(groups, inputs, -1).reshape(site.view.shape[:2])
            return spread.reshape(*spread.shape, *[1] * (site.view.dim() - 2))
        return factors.reshape(-1, *[1] * (site.view.dim() - 1))


def by_row(site: Site, values: Tensor) -> Tensor:
    """Sums of numbers, one a weight, over the weights into each unit: from (16, 3, 5, 5) of a convolution to (16,)."""
    if site.op.name in MATRIX:
        return values.sum(tuple(range(values.dim() - 1)))
    if "transpose" in site.op.name:
        groups = site.groups
        parts = values.reshape(groups, values.shape[0] // groups, values.shape[1], -1)
        return parts.sum((1, 3)).reshape(-1)
    return values.flatten(1).sum(1)


def masked_sites(record: Tape, seed: int) -> tuple[list[MaskedLayer], dict[str, str], list[Follow]]:
    """Every masked weight that a weighted operation uses, in order, why each other is left alone, and all activations.

    A weight counts as masked if it is seen through a mask (a parametrization, ``torch.nn.utils.prune``) or if some of
    its entries are zero, as a baked mask leaves them.

    Args:
        record: of the model; its parameters get other values for one run and have their own again.
        seed: of those values.
    """
    sites, untouched = find_sites(record)
    if any(not site.direct for site in sites):
        fill_with_noise(sites, seed)
        try:
            with tape(record.call, batch_norm=record.batch_norm) as second:
                again = find_sites(second)[0]
        finally:
            for site in sites:
                site.view.copy_(site.original)
        pairs = list(zip(sites, again, strict=True))
        dead = {site.name for site, other in pairs if not site.direct and not bool(other.effective.any())}
        untouched |= dict.fromkeys(dead, "its mask keeps nothing, and no factor changes that")
        alive = [pair for pair in pairs if pair[0].name not in dead]
        seen = {site.name for site in sites if not site.direct}
        sites = read_masks([site for site, _ in alive], [other for _, other in alive], untouched)
    else:
        seen = set()
    found, follower = dict[str, MaskedLayer](), Follower(record)
    follows = [follower.follow(op.outputs[0]) for op in record.ops if op.kind and record.nodes[op.outputs[0]].depends]
    for site in sites:
        if site.name in found:
            found[site.name].uses.append(site)
            continue
        if site.name not in seen:
            kept = site.original != 0
            if not bool(kept.any()):
                untouched[site.name] = "all of it is zero, and no factor changes that"
                continue
            if bool(kept.all()):
                untouched[site.name] = "it is not masked"
                continue
            site.mask = kept
        elif site.mask is None:  # a mask that keeps everything
            site.mask = site.view.new_ones(site.view.shape).bool()
        follow = follower.follow(site.op.outputs[0])
        if follow.norm:
            untouched[site.name] = "the norm after it undoes any scale"
            continue
        site.bias = site.bias or follow.bias
        found[site.name] = MaskedLayer(site, follow, [site])
    reasons = {plain_name(name): reason for name, reason in untouched.items()}
    return list(found.values()), reasons, [follow for follow in follows if follow.activation is not None]


def measured_factors(
    record: Tape, found: list[MaskedLayer], follows: list[Follow], targets: dict[str, float]
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


def no_scale(each: MaskedLayer) -> InputError:
    """The error for a layer that no factor helps."""
    return InputError(
        f"'{each.name}' passes nothing on, or its signals overflow, so no factor gives it a variance: keep more of its "
        "weights (keep(..., floor=...)), or take the layer out. Nothing was changed."
    )


class _Pass:
    def __init__(
        self, record: Tape, found: list[MaskedLayer], follows: list[Follow], targets: dict[str, float]
    ) -> None:
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

    def _scaled(self, each: MaskedLayer, site: Site, output: Tensor) -> Tensor:
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
