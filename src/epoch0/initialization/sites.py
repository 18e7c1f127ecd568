"""Weighted operations of a model: the parameters behind them, what comes after them, and what is planned (Hayou B.1).

Weights may be seen through a mask (``torch.nn.utils.prune``, a parametrization) or transposed; anything
else between a parameter and its operation (weight norm, low rank, slices) is left alone (Hayou et al. 2021, App. H).
What comes after is an activation, found by tracing, be it several calls (``h * sigmoid(h)``), then pools and norms.
"""

from collections import defaultdict
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from epoch0.activations import Activation
from epoch0.errors import InputError
from epoch0.measure.law import in_words
from epoch0.seeds import generator
from epoch0.tracing.graph import Op, is_average, is_linear, made_activation, only_moves
from epoch0.tracing.layers import Layer, needed
from epoch0.tracing.operations import PRODUCTS
from epoch0.tracing.tape import Tape, tape


@dataclass(frozen=True)
class Follow:
    """What follows a weighted operation before the next weights."""

    activation: Activation | None  # the function of one number that is applied to it; None if nothing is
    end: int  # node behind the activation, or behind the operation itself
    trail: tuple[Op, ...]  # the linear operations behind it, in order, up to the first that is not
    averages: tuple[Op, ...]  # the averages over places before the next weights that are not in the trail
    norm: bool  # whether a norm follows before the next weights: then the scale of the weights does not matter
    no_law: str  # what follows and has a gain that is only known by measuring, in words; else empty
    gate: bool  # whether the result is multiplied with another signal
    bias: str  # the parameter of a bias that is added by an operation of its own; empty if there is none
    biased: int  # node behind that addition, else the output of the operation


class Follower:
    """Walks a record from the output of a weighted operation on."""

    def __init__(self, tape: Tape) -> None:
        self.tape, self.events = tape, needed(tape)
        self.users: dict[int, list[Op]] = defaultdict(list)
        for node, event in ((n, e) for e in self.events for n in e.inputs):
            self.users[node].append(event)

    def only_user(self, node: int) -> Op | None:
        """The one operation that uses a tensor; None if several do."""
        users = self.users[node]
        return users[0] if len(users) == 1 and node != self.tape.output else None

    def follow(self, start: int) -> Follow:
        """What follows this tensor before the next weights, or before several operations use it."""
        node, bias, biased = start, "", start
        activation: Activation | None = None
        active = norm = False
        trail, averages, reasons, linear = list[Op](), list[Op](), list[str](), True
        while True:
            if not active and (found := self._region(node)) is not None:
                (node, activation, name), active = found, True
                if activation is None:
                    reasons.append(name)
            op = self.only_user(node)
            if op is None or op.kind or op.index < 0 or len(op.inputs) != 1 or op.results != 1:
                reasons += ["code that cannot be followed"] if op is not None and op.index < 0 else []
                break
            known, passed = only_moves(op), False
            adds = op.name == "add" and len(op.weights) == 1 and op.call is not None and len(op.call.constants()) == 1
            if op.meaning.kind == "norm":
                norm = True
            elif not active and not bias and node == start and adds:
                bias, biased, passed = op.weights[0], op.outputs[0], True
            elif is_linear(op):
                known = active or not self._activation_ahead(op.outputs[0])
                reasons += [] if known else [in_words(op.name)]
            elif not known:
                reasons.append(in_words(op.name))
            linear = linear and (known or passed)
            if linear and active == (activation is not None) and not passed:
                trail.append(op)
            elif is_average(op):
                averages.append(op)
            node = op.outputs[0]
        gate = any(user.meaning.kind in PRODUCTS and len(user.inputs) > 1 for user in self.users[node])
        no_law = reasons[0] if reasons else ""
        return Follow(activation, node, tuple(trail), tuple(averages), norm, no_law, gate, bias, biased)

    def _activation_ahead(self, node: int) -> bool:
        """Whether an activation comes before the next weights."""
        while self._region(node) is None:
            if (op := self.only_user(node)) is None or op.kind or len(op.inputs) != 1:
                return False
            node = op.outputs[0]
        return True

    def _region(self, start: int) -> tuple[int, Activation | None, str] | None:
        """The longest function of one number from here on: the node behind it, the activation, its name."""
        nodes, steps = {start}, list[Op]()
        for event in self.events:
            if event.index > self.tape.nodes[start].op and self._pointwise(event, nodes, start):
                nodes.add(event.outputs[0])
                steps.append(event)
        for last in reversed(steps):
            wanted, inside = {last.outputs[0]}, list[Op]()
            for op in reversed(steps):
                if op.outputs[0] in wanted:
                    inside.insert(0, op)
                    wanted.update(op.inputs)
            kept = {start, *(op.outputs[0] for op in inside)} - {last.outputs[0]}
            if self.tape.output not in kept and all(user in inside for node in kept for user in self.users[node]):
                return last.outputs[0], *_activation(start, last, inside)
        return None

    def _pointwise(self, op: Op, nodes: set[int], start: int) -> bool:
        if not op.inputs or not set(op.inputs) <= nodes or op.call is None or op.cut or op.results != 1:
            return False
        same = self.tape.nodes[op.outputs[0]].shape == self.tape.nodes[start].shape
        return same and (op.elementwise or op.meaning.arithmetic) and (op.call.key is not None or op.rule is not None)


def _activation(start: int, last: Op, inside: list[Op]) -> tuple[Activation | None, str]:
    """The composition of these operations as one activation, and its name."""
    name = ", ".join(op.name for op in inside)
    if len(inside) == 1 and last.elementwise:
        return last.activation, name
    places = {start: 0, **{op.outputs[0]: place + 1 for place, op in enumerate(inside)}}
    calls = [(op, op.call) for op in inside if op.call is not None]
    key = tuple((c.key or (op.name, op.rule), tuple(places[slot.node] for slot in c.slots)) for op, c in calls)

    def function(h: Tensor) -> Tensor:
        values = {start: h}
        for op, call in calls:
            # cloned: a step may change its argument in place
            values[op.outputs[0]] = call({node: values[node].clone() for node in op.inputs})
        return values[last.outputs[0]]

    return made_activation(name, key, function), name


MATRIX = ("matmul", "mm", "addmm")  # operations whose weights are (inputs, outputs)


@dataclass(eq=False)
class Site:
    """One weighted operation whose weights can be set."""

    op: Op
    name: str  # the parameter, by qualified name
    parameter: nn.Parameter
    view: Tensor  # its memory in the orientation in which the operation uses it
    original: Tensor  # its values as they came, in that orientation
    effective: Tensor  # the weights that the operation used
    direct: bool  # whether the operation uses the parameter itself
    bias: str  # name of the bias parameter, empty if there is none
    fan_in: float = 1.0  # weights into one unit that meet an entry of the input: fewer at a zero-padded border
    mask: Tensor | None = None  # which weights are kept, in the orientation of the view; None: all

    @property
    def module(self) -> str:
        """The module it runs in, or its parameter if the model itself makes the call."""
        return self.op.module or self.name

    @property
    def density(self) -> float:
        return 1.0 if self.mask is None else float(self.mask.double().mean())

    @property
    def groups(self) -> int:
        """Groups of a convolution, else 1."""
        return int(self.op.given.get("groups", 1))

    def used(self) -> Tensor:
        """The weights as the operation uses them, from what the parameter holds now."""
        return self.view if self.mask is None else self.view * self.mask

    def by_unit(self, values: Tensor) -> Tensor:
        """Numbers, one a weight, unit by unit: a view of shape (groups, units of a group, inputs of a group, ...)."""
        if self.op.name in MATRIX:
            return values.view(-1, *values.shape[-2:]).transpose(1, 2)
        grouped = values.view(self.groups, -1, *values.shape[1:])
        return grouped.transpose(1, 2) if "transpose" in self.op.name else grouped

    def beside(self, bias: Tensor, dims: int) -> Tensor:
        """A bias in the shape in which it is added to the operation's output of ``dims`` dimensions."""
        return bias.reshape(-1, *[1] * (dims - 2)) if self.op.kind == "convolution" else bias

    def responses(self, x: Tensor, weight: Tensor) -> Tensor:
        """The operation's result for this input with these weights, without bias."""
        if self.op.name == "addmm":
            return x @ weight
        result: Tensor = self.op.with_arguments(input=x, weight=weight, bias=None)({})
        return result

    def through(self, squares: Tensor) -> Tensor:
        """Mean squares behind weights of variance 1/fan_in, for mean squares before them.

        Without a mask one output unit a group stands for all.
        """
        squares = squares.double()
        if squares.dim() < 2:
            raise InputError("the inputs have no batch dimension; give x of shape (examples, ...), as x[None].")
        if self.mask is not None:
            weight = self.mask
        elif self.op.name in MATRIX:
            weight = torch.ones_like(self.view[..., :1])
        elif "transpose" in self.op.name:
            weight = torch.ones_like(self.view[:, :1])
        else:
            weight = torch.ones_like(self.view[:: self.view.shape[0] // self.groups])
        return self.responses(squares, weight.double() / self.fan_in)


def find_sites(record: Tape, seed: int) -> tuple[list[Site], dict[str, str]]:
    """The operations that can be set, in order, and the reason for each other parameter of a weighted operation.

    What lies between a parameter and its operation, perhaps a mask, is read from this record and one with other values.
    """
    sites, untouched = _sites(record)
    if all(site.direct for site in sites):
        return sites, untouched
    for place, site in enumerate(sites):
        if not site.direct:
            noise = torch.randn(site.view.shape, generator=generator(seed, place))
            site.view.copy_(noise * float(site.original.double().square().mean().sqrt().clamp(min=1e-3)))
    try:
        with tape(record.call, batch_norm=record.batch_norm) as second:
            again = _sites(second)[0]
    finally:
        for site in sites:
            site.view.copy_(site.original)
    kept = []
    for site, other in zip(sites, again, strict=True):
        if not site.direct:
            mask = other.effective != 0
            if not all(torch.equal(each.effective, mask * each.original) for each in (site, other)):
                untouched[site.name] = "its weights are no masked copy of the parameter"
                continue
            site.mask = None if bool(mask.all()) else mask
        kept.append(site)
    return kept, untouched


def _sites(record: Tape) -> tuple[list[Site], dict[str, str]]:
    parameters = dict(record.model.named_parameters())
    sites, untouched = list[Site](), dict[str, str]()
    for op in record.ops:
        if not op.kind or not record.nodes[op.outputs[0]].depends:
            continue
        if isinstance(found := _site(record, op, parameters), Site):
            ones = found.view.new_ones((1, *record.nodes[op.inputs[0]].shape[1:]))
            found.fan_in = float(found.through(ones).double().mean())
            sites.append(found)
        else:
            untouched.update(dict.fromkeys(op.weights, found))
    for site in sites:
        untouched.pop(site.name, None)
        untouched.pop(site.bias, None)
    return sites, untouched


def _site(record: Tape, op: Op, parameters: dict[str, nn.Parameter]) -> Site | str:
    if op.kind in ("attention", "recurrent", "bilinear"):
        return f"weights of a {op.kind} operation: no law"
    if op.call is None or len(op.inputs) != 1:
        return f"{op.name} is no product of one input with weights"
    simple = op.name in ("linear", *MATRIX) or op.kind == "convolution"
    scaled = op.name == "addmm" and op.call.kwargs  # alpha and beta
    weight, bias = (op.given.get(role) if simple and not scaled else None for role in ("weight", "bias"))
    if not isinstance(weight, Tensor) or weight.dim() < 2:
        return f"{op.name} is no product of one input with weights on its right"
    own, offset = record.name_of(weight), record.name_of(bias)
    if own:
        if (parameter := parameters[own]).numel() != weight.numel():
            return "only a part of the parameter is used at a time"
        return Site(op, own, parameter, weight, weight.clone(), weight.clone(), True, offset)
    if len(candidates := [name for name in op.weights if name != offset and parameters[name].dim() >= 2]) != 1:
        return "its weights are made of several parameters"
    if (parameter := parameters[candidates[0]]).shape != weight.shape:
        return "its weights are another shape than the parameter"
    view = parameter.detach()
    return Site(op, candidates[0], parameter, view, view.clone(), weight.clone(), False, offset)


@dataclass(eq=False)
class Step:
    """A weighted operation and what its weights are to be."""

    site: Site  # the operation
    follow: Follow  # what comes after it
    layer: Layer  # the layer it is in
    goal: float  # target gain, from its input to behind the scalings that follow its activation
    scaled: float = 1.0  # mean squared gain of those scalings, 1 without any
    averages: float = 1.0  # mean squared gain of averages over places behind it, 1/4 for a 2 by 2 average
    makes_up: bool = False  # whether the goal is that of a residual branch or shortcut as a whole, averages and all
    lead: float = 1.0  # mean squared gain of averages in front of the first weights, which the target leaves out
    start: int | None = None  # node from which its gain counts where something without weights lies between
    closes: bool = False  # whether it ends a residual branch
    halved: bool = False  # whether it is a shortcut whose target makes up for the activation behind the sum
    first: "Step | None" = None  # the step that decides the weights when the operation is another use of them
    tied: bool = False  # whether a lookup uses the weights too: then they have their scale before anything is solved
    half: Activation | None = None  # odd half of its activation, where its units are pairs of opposite weights
    paired: bool = False  # whether what comes in is pairs
    kept: str = ""  # why its weights stay as they are; empty if they do not
    begins: bool = False  # whether nothing but the input goes into it
    last: bool = False  # whether no weights come after it
    by_size: bool = False  # whether the size of its inputs or outputs decided, and not its gain
    weight_std: float = float("nan")  # the result; NaN before
    q: float = float("nan")  # mean variance of its pre-activations
    predicted: float | None = None  # mean-field gain of the segment that the target is for
    fresh: float = 1.0  # gain for a perturbation that no pairs have made, over the target

    @property
    def law(self) -> Activation | None:
        """The function that is passed on: the activation, or its odd half."""
        return self.half or self.follow.activation

    @property
    def pooled(self) -> float:
        """Mean squared gain behind its activation that the weights make up for."""
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
    """The norm that ends a residual branch."""

    parameters: tuple[str, ...]  # names of what multiplies, and of what is added where there is something
    branch: int  # node at the end of the branch
    layer: Layer  # the block
    goal: float  # gain that the branch is to have
    factor: float = float("nan")  # what its parameters are multiplied by; NaN before


@dataclass(eq=False)
class Plan:
    """The weights and norms that an initialization sets, with their targets."""

    steps: list[Step]  # in order of execution
    norms: list[NormStep]  # ends of branches that are norms
    blocks: int  # number of residual blocks
    layer_targets: dict[str, float | None]  # gain of each layer when all is set; None where that is not known
    notes: list[str] = field(default_factory=list)  # remarks for the reader
    edges: bool = False  # whether what comes in and what goes out is brought to unit size
    kept: frozenset[str] = frozenset()  # names of the blocks that stay as they are
    frozen: set[str] = field(default_factory=set)  # names of the parameters that are not trained, which stay too
