"""The gain that each layer should have by its weights: the law of a random tangent through it (Hayou B.1.2).

One more run of the model, in which a layer's operations are walked with the mean square of a random tangent at every
entry: through weights by their squares, through activations by E phi'(sqrt(q) Z)^2 at the measured q, through norms at
the measured statistics. What has no law says so.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from epoch0.measure import law_rules
from epoch0.measure.law_flow import Chain, Flow, NoLaw, chained, worked_out
from epoch0.measure.law_rules import in_words
from epoch0.tracing.graph import Op
from epoch0.tracing.layers import Layer, stretches
from epoch0.tracing.tape import Change, Tape


@dataclass(frozen=True)
class Law:
    """What the law says about one layer."""

    predicted: float | None  # expected chi, None where there is no law
    error: float  # standard deviation of chi around it that a finite width leaves
    reason: str  # why there is no law; empty where there is one


class Walk:
    """The law of each layer, worked out while the model runs, from what is carried at each tensor still to be used."""

    def __init__(self, tape: Tape, layers: Sequence[Layer]) -> None:
        self.tape, self.examples = tape, len(tape.x)
        self.events = [event for _, _, piece in stretches(tape) for event in piece]
        self.ends = {layer.output for layer in layers}
        self.made_by = {node: event for event in self.events for node in event.outputs}
        self.last_use = {node: place for place, event in enumerate(self.events) for node in event.inputs}
        self.place = {id(event): place for place, event in enumerate(self.events)}
        self.flows: dict[int, Flow | Chain | str] = {}
        self.values: dict[int, Tensor] = {}
        self.found: list[Law] = []

    def changes(self) -> dict[int, Change]:
        """What to do at each tensor of the run, without gradients; nothing is replaced."""
        return {0: partial(self._start, 0), **{node: partial(self._arrive, node) for node in self.made_by}}

    def _arrive(self, node: int, tensor: Tensor) -> None:
        event = self.made_by[node]
        if node not in self.flows:  # carry everything through the operation, or note why that cannot be done
            outputs = event.outputs[: max(event.results, 1)]
            try:
                self.flows.update(zip(outputs, self._through(event), strict=True))
            except NoLaw as reason:
                self.flows.update(dict.fromkeys(outputs, str(reason)))
            self.flows.update(dict.fromkeys(event.outputs[len(outputs) :], "a tensor changed under another name"))
        if node in self.ends:
            self._finish(node)
            self._start(node, tensor)
        else:
            self.values[node] = tensor.clone() if node in self.tape.overwritten else tensor
        place = self.place[id(event)]
        for used in [n for n in self.values if self.last_use.get(n, -1) <= place]:
            del self.values[used]
            if used not in self.ends:
                self.flows[used] = ""

    def _start(self, node: int, tensor: Tensor) -> None:
        self.flows = {node: Flow(torch.ones_like(tensor), "known", frozenset({"input"}))}
        self.values = {node: tensor.clone() if node in self.tape.overwritten else tensor}

    def _finish(self, node: int) -> None:
        try:
            flow = self._resolved(node)
            predicted = float(flow.square.double().mean())
            if not math.isfinite(predicted):
                raise NoLaw("numbers overflow")
            self.found.append(Law(predicted, predicted * math.sqrt(flow.variance), ""))
        except NoLaw as reason:
            self.found.append(Law(None, math.nan, str(reason)))

    def _through(self, event: Op) -> Sequence[Flow | Chain]:
        name, inputs = event.name, event.inputs
        for node in inputs:
            if isinstance(reason := self.flows.get(node, "a tensor of another layer"), str):
                raise NoLaw(reason)
        if event.index < 0:
            raise NoLaw(f"code that cannot be followed ({name})")
        one, kind = inputs[0] if len(inputs) == 1 else None, event.meaning.kind
        if event.meaning.elementwise or event.meaning.arithmetic:
            links = [self._link(node) for node in inputs]
            base = self.tape.nodes[links[0].base].shape
            if self.tape.nodes[event.outputs[0]].shape == base and (chain := chained(event, links)) is not None:
                return [chain]
            if one is not None:
                if name == "prelu":
                    raise NoLaw("a slope for each channel")
                return [law_rules.scaled(event, self._resolved(one))]
            if kind == "sum" and len(inputs) == 2:
                flows = [self._resolved(node) for node in inputs]
                return [law_rules.added(event, flows, [self.values[node] for node in inputs])]
            raise NoLaw("a product of two signals" if kind in ("product", "quotient") else in_words(name))
        if kind == "join":
            return [law_rules.joined(event, {node: self._resolved(node) for node in inputs})]
        if one is None:
            raise NoLaw("a product of two signals" if event.meaning.weighted and not event.kind else in_words(name))
        return law_rules.linear(event, self._resolved(one), self.values[one], self.tape.batch_norm)

    def _link(self, node: int) -> Chain:
        flow = self.flows[node]
        if isinstance(flow, Chain):
            return flow
        assert isinstance(flow, Flow)
        return Chain(node, flow, self.values[node], lambda h: h, "h", "")

    def _resolved(self, node: int) -> Flow:
        """What is carried at a tensor, any function of one number worked out."""
        flow = self.flows[node]
        if isinstance(flow, str):
            raise NoLaw(flow)
        if isinstance(flow, Chain):
            flow = self.flows[node] = worked_out(flow, self.examples)
        return flow
