"""The checkup: what happens to norms, tangents and gradients layer by layer, what it means, what to change.

It joins the gains of the layers (Hayou section 2.2; measured, and predicted from the weights) with the judgement of
:mod:`epoch0.diagnosis.verdict` and the cure of :mod:`epoch0.diagnosis.remedy`.
"""

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from epoch0.diagnosis.advice import advice
from epoch0.diagnosis.expressivity import count_regions, plan
from epoch0.diagnosis.fragility import about as about_noise
from epoch0.diagnosis.fragility import check_noise, fragility
from epoch0.diagnosis.notes import about_pruning, about_regions, kind
from epoch0.diagnosis.notes import notes as how
from epoch0.diagnosis.outlook import look_ahead
from epoch0.diagnosis.reading import alike_after, averaged_over, in_columns, judged
from epoch0.diagnosis.remedy import Gains, Remedy, find_remedy, matrices_of, try_branches
from epoch0.diagnosis.result import Checkup, LayerCheckup
from epoch0.diagnosis.verdict import SATURATED, read_passage, read_phase, read_status, read_verdict
from epoch0.measure._gain_result import LayerGain
from epoch0.measure._passes import forward_squares
from epoch0.measure.gain import gain
from epoch0.measure.signals import Signals, signals
from epoch0.tracing.guard import bare
from epoch0.tracing.layers import layers, require_nonlinearity
from epoch0.tracing.loss import Loss
from epoch0.tracing.tape import tape


def checkup(
    net: nn.Module,
    x: Tensor,
    targets: Any = None,
    *,
    loss: Loss | None = None,
    batch_norm: str = "train",
    directions: int = 8,
    sparsity: float | None = None,
    noise: float | None = 0.1,
    seed: int = 0,
    name: str | None = None,
    inputs: str | None = None,
    notes: Sequence[str] = (),
) -> Checkup:
    """Judge a network before its first epoch: will it train at this depth, which layers are to blame, what to change.

    >>> net = epoch0.networks.mlp([784, *[256] * 20, 10], weights=epoch0.Gaussian(1.0))
    >>> found = checkup(net, torch.randn(64, 784))              # x of shape (examples, ...)
    >>> found.outcome, found.phase, found.trainable_depth
    ('vanishing', 'ordered', 9)

    Args:
        net: any module from one tensor to one tensor, in whatever mode; it is given back unchanged to the bit.
        x: a batch, shape (examples, ...); about 100 examples are enough.
        targets: classes or values, as for :func:`epoch0.gain`; without them gradients start from random directions at
            the output.
        loss: ``loss(outputs, targets) -> scalar``; cross-entropy or mean squared error by default.
        batch_norm: ``"train"``: batch norm as training sees it, running statistics untouched; ``"eval"``: running
            statistics.
        directions: random directions a layer, >= 2; errors fall with the square root.
        sparsity: also say what pruning this fraction of the weights by SNIP would leave of each layer.
        noise: also put so much noise into one layer's weights at a time, relative to their root mean square, and see
            what the outputs make of it; None leaves it out.
        seed: of the directions and the noise.
        name: what to call the model; its class by default.
        inputs: what x is, in words; its shape by default.
        notes: sentences to add to the notes.

    Raises:
        InputError: if the model has no nonlinearity, or the model, the input, the targets or their combination cannot
            be measured.

    Source: Schoenholz et al. 2017 (depth scales); Hayou et al. 2021, section 2.2 (phases).
    """
    net = bare(net)
    if noise is not None:
        check_noise(noise)
    outlook = None if sparsity is None else look_ahead(net, x, targets, loss, sparsity, batch_norm, seed)
    measured = gain(net, x, targets, loss, batch_norm=batch_norm, directions=directions, seed=seed)
    with tape(net, x, batch_norm=batch_norm) as record:
        require_nonlinearity(record)
        found = layers(record)
        states = signals(record, found)
        shapes = [record.nodes[node].shape[1:] for node in (0, *(layer.output for layer in found))]
        kinds = [kind(record, layer) for layer in found]
        pools = [averaged_over(record, layer) for layer in found]
        branches = try_branches(record, found, directions, seed)
        planned = plan(record, directions)
        noisy = None if noise is None else fragility(record, found, measured.layers, noise, targets, seed)

    def forward_gains(stream: int) -> Gains:
        with tape(net, x, batch_norm=batch_norm) as again:
            squares = forward_squares(again, layers(again), directions, seed + stream, fresh=True).total
        return squares.mean(axis=0).tolist(), (squares.std(axis=0, ddof=1) / math.sqrt(directions)).tolist()

    start = ([row.forward for row in measured.layers], [row.forward_error for row in measured.layers])
    remedy = find_remedy(net, found, start, forward_gains, branches)
    alike = alike_after(states)
    weights = [matrices_of(net, layer) for layer in found]
    best = [judged(row, pool) for row, pool in zip(measured.layers, pools, strict=True)]
    rows = tuple(
        _row(
            row,
            kinds[i],
            pools[i],
            best[i],
            states[i : i + 2],
            shapes[i : i + 2],
            alike[i],
            weights[i],
            remedy,
            i,
        )
        for i, row in enumerate(measured.layers)
    )
    bent = [pair for pair, layer in zip(best, found, strict=True) if layer.nonlinearities]
    backward, forward = read_passage(*in_columns(best[1:])), read_passage(*in_columns(best))
    worst = max(backward, forward, key=lambda passage: abs(passage.log_gain))
    phase = read_phase(*in_columns(bent))
    verdict = read_verdict(
        backward,
        forward,
        dead=[row.name for row in rows if row.status == "dead"],
        overflowing=[row.name for row in rows if row.status == "overflows"],
        collapsed=[row.name for row in rows if row.status == "collapsed"],
    )
    regions, reason = count_regions(net, x, planned, seed)
    model = name or type(net).__name__
    return Checkup(
        model=model,
        subject=inputs or f"a batch of shape {tuple(x.shape)}",
        reading=verdict,
        phase_reading=phase,
        backward=backward,
        forward=forward,
        input_gradient=measured.input_gradient,
        layers=rows,
        advice=tuple(advice(verdict, phase, worst, [row.name for row in rows], found, remedy)),
        notes=(
            *how(measured, rows, targets is not None, notes),
            *about_regions(regions, reason, planned),
            *about_noise(noisy),
            *about_pruning(outlook, len(x)),
        ),
        regions=regions,
        regions_reason=reason,
        outlook=outlook,
        fragility=noisy,
    )


def _row(
    row: LayerGain,
    kind: str,
    pool: float,
    judged: tuple[float, float],
    states: Sequence[Signals],
    shapes: Sequence[tuple[int, ...]],
    collapsed: bool,
    weights: Sequence[str],
    remedy: Remedy,
    index: int,
) -> LayerCheckup:
    before, after = states
    status = read_status(*judged, depth=len(remedy.factors))
    if status not in ("dead", "overflows"):
        status = "collapsed" if collapsed else "saturated" if after.saturated >= SATURATED else status
    return LayerCheckup(
        name=row.name,
        kind=kind,
        shape_in=tuple(shapes[0]),
        shape_out=tuple(shapes[1]),
        norm_in=before.size,
        norm_out=after.size,
        forward_gain=row.forward,
        forward_error=row.forward_error,
        backward_gain=row.backward,
        backward_error=row.backward_error,
        predicted=row.predicted,
        predicted_error=row.predicted_error,
        agreement=row.agreement,
        averaged=pool,
        tangent=math.sqrt(row.tangent),
        gradient=row.gradient,
        weight_gradient=math.hypot(*row.weight_gradients.values()),
        unlikeness=None if math.isnan(after.unlikeness) else after.unlikeness,
        dead_units=after.dead,
        saturated=None if math.isnan(after.saturated) else after.saturated,
        weights=tuple(weights),
        factor=remedy.factors[index],
        factor_note=remedy.reasons[index],
        status=status,
    )
