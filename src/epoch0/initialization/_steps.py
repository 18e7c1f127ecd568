"""Steps of an initialization: the weights to scale, in order, and the norms at the ends of branches.

An average over k places divides a gain by k whatever the weights, and what the places have in common passes whole: on
the main path it is no part of what weights make up for (Hayou et al. 2021, Proposition 2, for the branches).
"""

from dataclasses import dataclass, field

from epoch0.activations import Activation
from epoch0.initialization.follow import Follow
from epoch0.initialization.sites import Site
from epoch0.tracing.graph import Op
from epoch0.tracing.layers import Layer


@dataclass(eq=False)
class Step:
    """A weighted operation and what its weights are to be.

    Attributes:
        site: the operation.
        follow: what comes after it.
        layer: the layer it is in.
        goal: gain it is to have, from its input to behind the scalings that follow its activation.
        scaled: mean squared stretch of those scalings, 1 without any.
        averages: mean squared stretch of averages over places behind it, 1/4 for a 2 by 2 average.
        makes_up: whether the goal is that of a residual branch or shortcut as a whole, averages and all.
        lead: mean squared stretch of averages in front of the first weights, which the goal leaves out.
        start: node from which its gain counts when something without weights lies between; None: its own input.
        closes: whether it ends a residual branch.
        halved: whether it is a shortcut whose target makes up for the activation behind the sum.
        first: the step that decides the weights when the operation is another use of them.
        shared: whether other operations use the same weights.
        half: the odd half of its activation, where its units are pairs of opposite weights; else None.
        paired: whether what comes in is pairs.
        kept: why its weights stay as they are; empty if they do not.
        begins: whether nothing but the input goes into it.
        last: whether no weights come after it.
        by_size: whether the size of its inputs or outputs decided, and not its gain.
        weight_std: what was found; NaN before.
        q: mean variance of its pre-activations.
        arriving: mean square of a tangent from the start at the operation's input.
        predicted: mean-field gain of the stretch that the goal is for.
        fresh: gain for a perturbation that no pairs have made, over the target.
    """

    site: Site
    follow: Follow
    layer: Layer
    goal: float
    scaled: float = 1.0
    averages: float = 1.0
    makes_up: bool = False
    lead: float = 1.0
    start: int | None = None
    closes: bool = False
    halved: bool = False
    first: "Step | None" = None
    shared: bool = False
    half: Activation | None = None
    paired: bool = False
    kept: str = ""
    begins: bool = False
    last: bool = False
    by_size: bool = False
    weight_std: float = float("nan")
    q: float = float("nan")
    arriving: float = 1.0
    predicted: float | None = None
    fresh: float = 1.0

    @property
    def law(self) -> Activation | None:
        """The function that decides what goes on: the activation, or its odd half."""
        return self.half or self.follow.activation

    @property
    def pooled(self) -> float:
        """Stretch behind its activation that the weights make up for."""
        return self.scaled * self.averages if self.makes_up else self.scaled

    @property
    def target(self) -> float:
        """Gain that it is to have from its input to behind its activation."""
        return self.goal / self.pooled

    @property
    def scale_free(self) -> bool:
        """Whether a norm after the weights undoes their scale."""
        return self.follow.norm and not self.closes


@dataclass(eq=False)
class NormStep:
    """The norm that ends a residual branch.

    Attributes:
        op: the norm.
        weight: the parameter that multiplies.
        bias: the parameter that is added; empty if there is none.
        branch: node at the end of the branch.
        layer: the block.
        start: node at which the block starts.
        goal: gain that the branch is to have.
        factor: what its parameters are multiplied by; NaN before.
    """

    op: Op
    weight: str
    bias: str
    branch: int
    layer: Layer
    start: int
    goal: float
    factor: float = float("nan")

    @property
    def parameters(self) -> list[str]:
        """Names of its parameters."""
        return [name for name in (self.weight, self.bias) if name]


@dataclass(eq=False)
class Plan:
    """Everything that is to be set.

    Attributes:
        steps: in order of execution.
        norms: ends of branches that are norms.
        blocks: number of residual blocks.
        layer_targets: gain that each layer should have when all is set, by name; None where that is not known.
        notes: what a reader must know.
        edges: whether what comes in and what goes out is brought to unit size.
        kept: names of the blocks that stay as they are.
    """

    steps: list[Step]
    norms: list[NormStep]
    blocks: int
    layer_targets: dict[str, float | None]
    notes: list[str] = field(default_factory=list)
    edges: bool = False
    kept: frozenset[str] = frozenset()

    @property
    def starts(self) -> set[int]:
        """Nodes at which a fresh tangent starts."""
        return {s.start for s in self.steps if s.start is not None} | {norm.start for norm in self.norms}
