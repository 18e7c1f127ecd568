"""What a layer is made of, and how a checkup was measured, in words."""

from collections.abc import Sequence

from epoch0.diagnosis.result import LayerCheckup
from epoch0.diagnosis.verdict import SATURATED
from epoch0.measure.gain import Gain
from epoch0.results import first_names
from epoch0.tracing.layers import Layer
from epoch0.tracing.tape import Tape

NORMS = {
    "batch_norm": "batch norm",
    "layer_norm": "layer norm",
    "group_norm": "group norm",
    "instance_norm": "instance norm",
    "rms_norm": "RMS norm",
}
"""Torch's names of the norms, in words."""

UNKNOWN = "its weights are not as random as the law takes them to be, as after training, or it is very narrow"
"""What is said where no other cause was found."""


def kind(record: Tape, layer: Layer) -> str:
    """What a layer is made of, in words: its operations in order, each said once.

    >>> from epoch0.tracing.layers import layers
    >>> from epoch0.tracing.tape import tape
    >>> net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    >>> with tape(net, torch.randn(5, 1, 8, 8)) as record:
    ...     kind(record, layers(record)[0])
    'convolution, batch norm, relu'
    """
    words: dict[str, int] = {}
    first, last = (record.nodes[node].op for node in (layer.input, layer.output))
    for op in record.ops[max(first, 0) : last + 1]:
        if not any(layer.input < node <= layer.output for node in op.outputs):
            continue
        word = op.kind or NORMS.get(op.name, "")
        if op.elementwise:
            word = op.name.replace("_", " ")
        elif "pool" in op.name:
            word = "max pool" if "max" in op.name else "average pool"
        if word:
            words[word] = words.get(word, 0) + 1
    parts = ", ".join(word if count == 1 else f"{count} {word}s" for word, count in words.items())
    return f"{layer.kind}: {parts}" if layer.kind in ("residual block", "block") and parts else parts or layer.kind


def notes(measured: Gain, rows: Sequence[LayerCheckup], targets: bool, more: Sequence[str]) -> list[str]:
    """How it was measured, and what was seen beside the gains."""
    said = [*more]
    if measured.batch_norm == "train":
        said.append(
            "Batch norm was measured as training sees it, with the statistics of this batch; its running statistics "
            "are untouched."
        )
    elif measured.batch_norm == "eval":
        said.append("Batch norm was measured with its running statistics, as in evaluation; training sees other gains.")
    if measured.dropout:
        said.append("Dropout was off.")
    start = "the loss" if targets else "random directions at the output, as there are no targets"
    said.append(
        f"Each gain is the mean over {measured.directions} random directions (seed {measured.seed}) on "
        f"{measured.examples} examples, ± its standard error; gradient norms start from {start}. The model was given "
        "back unchanged."
    )
    pooled = [f"{row.name} (over {row.averaged:g} places)" for row in rows if row.averaged > 1]
    if pooled:
        said.append(
            f"Average pooling in {', '.join(pooled)} is left out of the judgement: it divides the gain by the places "
            "once, whatever the weights, and the gradients of shared weights add up over the places again."
        )
    said.extend(_predictions(measured))
    saturated = [row.name for row in rows if row.saturated is not None and row.saturated >= SATURATED]
    if saturated:
        said.append(
            f"More than half of the values are saturated after {', '.join(saturated)}: the weights are so large "
            "that most units sit at their limits."
        )
    mostly_dead = [f"{row.name} ({row.dead_units:.0%})" for row in rows if 0.5 < row.dead_units < 1]
    if mostly_dead:
        said.append(f"More than half of the units are zero for every example after {', '.join(mostly_dead)}.")
    collapsed = [row for row in rows if row.status == "collapsed"]
    if collapsed:
        said.append(
            f"From {collapsed[0].name} on all examples point the same way (mean 1 - cosine "
            f"{collapsed[0].dissimilarity:.1g}): the network hardly sees its input."
        )
    return said


def _predictions(measured: Gain) -> list[str]:
    """How the measured gains compare with the law, and why they differ where that is known."""
    known = [layer for layer in measured.layers if layer.predicted is not None]
    off = [layer for layer in known if "than predicted" in layer.agreement]
    if known and not off:
        which = "every layer" if len(known) == measured.depth else f"the {len(known)} layers that have a law"
        which = "the one layer that has a law" if len(known) == 1 < measured.depth else which
        return [f"Measured gains are as predicted from the weights in {which}, within three standard errors."]
    said = []
    for cause in dict.fromkeys(layer.cause for layer in off):
        which = first_names([f"{layer.name} ({_in_short(layer.agreement)})" for layer in off if layer.cause == cause])
        said.append(f"The measured gain is not the predicted one in {which}: {cause or UNKNOWN}.")
    return said


def _in_short(agreement: str) -> str:
    """The word and the factor of a disagreement: "lower ×0.85"."""
    word, _, factor = agreement.partition(" than predicted")
    return f"{word}{factor.replace('(', '').replace(')', '')}"
