"""Pruning in a checkup: what SNIP would leave of each layer at a sparsity, and from when on one dies (Hayou 2.2)."""

from dataclasses import dataclass

from epoch0 import prune
from epoch0.arguments import BatchNorm
from epoch0.results import first_names
from epoch0.tracing.call import Call


@dataclass(frozen=True)
class LayerOutlook:
    """What pruning would leave of one weight."""

    name: str  #: of the weight
    weights: int  #: how many it has
    density: float  #: fraction kept with the scores of this batch
    predicted: float  #: fraction that a network with score moments like these is expected to keep
    vanishes: float  #: probability that such a network keeps nothing of it
    critical: float  #: sparsity from which on nothing is left of it, with the scores of this batch
    status: str  #: ``"dies"`` (with the scores of this batch), ``"at risk"`` (a chance above 5 %) or ``"survives"``


@dataclass(frozen=True)
class PruningForecast:
    """What SNIP, with one threshold for all layers, would leave of a model.

    >>> found = checkup(net, images, labels, sparsity=0.95, trial=False).pruning_forecast  # (100, 64), (100,)
    >>> round(found.critical_sparsity, 3), found.first
    (0.996, '0.weight')
    """

    sparsity: float  #: fraction of all weights removed
    layers: tuple[LayerOutlook, ...]  #: one row a weight, in the model's order
    critical_sparsity: float  #: the smallest sparsity at which some layer is emptied, with the scores of this batch
    first: str  #: the layer that is emptied there
    expected: float  #: that sparsity as expected of networks with such score moments
    expected_sd: float  #: its standard deviation
    sentence: str  #: the forecast in words


def forecast_pruning(call: Call, sparsity: float, batch_norm: BatchNorm) -> PruningForecast:
    """Score the weights on the batch and say what a sparsity leaves, exactly for this batch and as expected."""
    given = [(call.batch, call.targets)]
    scores = prune.snip(call.model, given, loss=call.criterion, batch_norm=batch_norm, forward=call.forward)
    kept, critical = prune.keep(scores, sparsity).density_of, prune.critical_sparsity(scores)
    predicted = prune.predicted_density(scores, sparsity)
    rows = []
    for row in predicted.layers:
        status = "dies" if kept[row.layer] == 0 else "at risk" if row.layer in predicted.at_risk else "survives"
        numbers = (row.weights, kept[row.layer], row.density, row.vanishes, critical.layers[row.layer])
        rows.append(LayerOutlook(row.layer, *numbers, status))
    dying, at_risk = ([row.name for row in rows if row.status == word] for word in ("dies", "at risk"))
    what = f"no layer would be emptied{f', but {first_names(at_risk)} may' if at_risk else ''}"
    what = f"{first_names(dying)} would be emptied" if dying else what
    expected = predicted.critical_sparsity, predicted.critical_sparsity_sd
    said = (
        f"Pruned by SNIP to sparsity {sparsity:g}: {what}; the first to vanish is {critical.layer}, at {critical:.4g} "
        f"(expected {expected[0]:.3g} ± {expected[1]:.1g})."
    )
    return PruningForecast(float(sparsity), tuple(rows), float(critical), critical.layer, *expected, said)
