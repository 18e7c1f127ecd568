"""Operations that together are one function of one number: x * sigmoid(x), h + relu(h), an activation of an activation.

Their tangent is multiplied by the slope of the whole function, whose mean square over the Gaussian is the law
(Hayou B.1.2).
"""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from epoch0.errors import InputError
from epoch0.measure._law_flow import Chain, Flow, NoLaw, Shape, through
from epoch0.tracing.graph import Op, Slot, made_activation

SCALES = frozenset({"product", "quotient", "negation"})
"""Kinds that multiply by a number where one is given."""


def chained(event: Op, links: Sequence[Chain]) -> Chain | None:
    """The output of an operation as a function of one number of an earlier tensor; None if it is no such function.

    Args:
        event: the operation.
        links: its inputs, each as a function of one number of an earlier tensor.
    """
    if event.call is None or event.results != 1 or (event.name == "prelu" and event.rule is None):
        return None
    if event.rule is None and event.call.key is None:
        return None
    base = links[0]
    if any(link.base != base.base for link in links):
        return None
    call, parts = event.call, dict(zip(event.inputs, (link.function for link in links), strict=True))

    def function(h: Tensor) -> Tensor:
        result: Tensor = call({node: part(h.clone()) for node, part in parts.items()})
        return result

    alone = len(links) == 1 and base.activation is None and base.scale == 1.0
    order = tuple(event.inputs.index(slot.node) for slot in call.slots)  # a - b is not b - a
    key = (event.rule, call.key, order, *(link.key for link in links))
    return replace(
        base,
        function=function,
        key=key,
        name=event.name if alone else f"{base.name}, {event.name}" if base.name else event.name,
        activation=event.rule if alone else None,
        scale=_scale(event, base.scale) if len(links) == 1 else None,
    )


def worked_out(chain: Chain, examples: int) -> tuple[Flow, Shape | None]:
    """What is carried after a function of one number, and how far that number is from a centred Gaussian.

    Args:
        chain: the function, and what is carried before it.
        examples: size of the batch.

    Raises:
        NoLaw: if its mean square slope cannot be had.
    """
    if chain.scale is not None:
        flow, factor = chain.flow, chain.scale**2
        random = None if flow.random is None else flow.random * factor
        known = None if flow.known is None else flow.known * chain.scale
        return replace(flow, square=flow.square * factor, known=known, random=random), None
    rule = chain.activation or made_activation(chain.name, chain.key, chain.function)
    if rule is None:
        raise NoLaw(f"{chain.name.replace('_', ' ')} is no activation that a mean can be taken of")
    try:
        return through(chain.flow, chain.value, rule, examples)
    except InputError as error:
        raise NoLaw(f"{chain.name.replace('_', ' ')} has no mean square slope here") from error


def _scale(event: Op, before: float | None) -> float | None:
    """The factor of a multiplication by a number, times what was there."""
    kind = event.meaning.kind
    if before is None or kind not in SCALES or event.call is None:
        return None
    if kind == "negation":
        return -before
    first, second = [*event.call.args, *event.call.kwargs.values()][:2]
    number = second if isinstance(first, Slot) else first
    if isinstance(number, Slot) or (kind == "quotient" and not isinstance(first, Slot)):
        return None
    if len(event.call.args) + len(event.call.kwargs) > 2:
        return None
    return before * float(number) if kind == "product" else before / float(number)
