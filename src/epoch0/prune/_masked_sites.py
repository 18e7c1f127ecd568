"""The masked weights of a recorded model and what follows each: what rescaling can set (Hayou et al. 2021, 2.3)."""

from dataclasses import dataclass, field

from torch import Tensor

from epoch0.initialization.follow import Follow, Follower
from epoch0.initialization.sites import MATRIX, Site, fill_with_noise, find_sites, read_masks
from epoch0.prune._prunable import plain_name
from epoch0.tracing.tape import Tape, tape


@dataclass(eq=False)
class Masked:
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
    """Sums of numbers, one a weight, over the weights into each unit; over input channels and kernel of a convolution.

    >>> by_row(site, site.view.square()).shape                 # Conv2d(3, 16, 5): a weight of shape (16, 3, 5, 5)
    torch.Size([16])
    """
    if site.op.name in MATRIX:
        return values.sum(tuple(range(values.dim() - 1)))
    if "transpose" in site.op.name:
        groups = site.groups
        parts = values.reshape(groups, values.shape[0] // groups, values.shape[1], -1)
        return parts.sum((1, 3)).reshape(-1)
    return values.flatten(1).sum(1)


def masked_sites(record: Tape, seed: int) -> tuple[list[Masked], dict[str, str], list[Follow]]:
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
    found, follower = dict[str, Masked](), Follower(record)
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
        found[site.name] = Masked(site, follow, [site])
    reasons = {plain_name(name): reason for name, reason in untouched.items()}
    return list(found.values()), reasons, [follow for follow in follows if follow.activation is not None]
