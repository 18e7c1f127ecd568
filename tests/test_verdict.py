"""Judging gains: phases, passages through the depth, verdicts, statuses; all from made-up numbers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from epoch0.diagnosis.verdict import TRAINABLE, Passage, read_passage, read_phase, read_status, read_verdict

GAINS = st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=50)


@given(GAINS)
def test_a_passage_is_the_product_of_the_gains(gains: list[float]) -> None:
    passage = read_passage(gains, [0.0] * len(gains))
    assert passage.log_gain == pytest.approx(sum(math.log(g) for g in gains), abs=1e-9)
    assert passage.orders == pytest.approx(passage.log_gain / 2 / math.log(10))
    assert passage.error == 0
    if passage.log_gain < 1400:
        assert passage.factor == pytest.approx(math.exp(passage.log_gain / 2))


@given(GAINS)
def test_the_opposite_passage_mirrors_the_verdict(gains: list[float]) -> None:
    there, back = read_passage(gains, [0.0] * len(gains)), read_passage([1 / g for g in gains], [0.0] * len(gains))
    mirror = {"vanishing": "exploding", "exploding": "vanishing", "trains": "trains"}
    assert mirror[read_verdict(there, there).outcome] == read_verdict(back, back).outcome


@pytest.mark.parametrize(
    ("gain", "outcome", "words"),
    [
        (0.5, "vanishing", "Will not train as it is: gradients vanish, the first layer receives one 3.0 orders of"),
        (0.7, "vanishing", "Hard to train as it is: gradients vanish, the first layer receives one 1.5 orders"),
        (0.8, "trains", "with little depth to spare: over 20 layers gradients shrink by a factor of 9.3; 20 is"),
        (1.0, "trains", "Expected to train: over 20 layers gradients change by a factor of 1.0 and signals by 1.0."),
        (1.25, "trains", "gradients grow by a factor of 9.3"),
        (2.0, "exploding", "gradients explode, the first layer receives one 3.0 orders of magnitude larger"),
    ],
)
def test_verdicts_in_order_of_gain(gain: float, outcome: str, words: str) -> None:
    passage = read_passage([gain] * 20, [0.0] * 20)
    verdict = read_verdict(passage, passage)
    assert verdict.outcome == outcome and words in verdict.sentence and verdict.trains == (outcome == "trains")


def test_depth_matters_not_the_gain_alone() -> None:
    shallow, deep = (read_passage([0.6] * depth, [0.0] * depth) for depth in (5, 50))
    assert read_verdict(shallow, shallow).trains
    assert read_verdict(deep, deep).outcome == "vanishing"


def test_the_limit_is_six_correlation_lengths() -> None:
    chi = 0.9
    most = math.floor(TRAINABLE / abs(math.log(chi)))  # Schoenholz et al. 2017: depth <= 6 xi, xi = 1/|log chi|
    assert read_verdict(*[read_passage([chi] * most, [0.0] * most)] * 2).trains
    assert not read_verdict(*[read_passage([chi] * (most + 1), [0.0] * (most + 1))] * 2).trains


def test_signals_count_when_gradients_are_well() -> None:
    well, ill = Passage(0.1, 0.0, 9), Passage(-14.0, 0.0, 10)
    verdict = read_verdict(well, ill)
    assert verdict.outcome == "vanishing" and "signals vanish" in verdict.sentence


def test_dead_collapsed_and_overflowing_layers_decide() -> None:
    well = Passage(0.0, 0.0, 5)
    assert read_verdict(well, well, dead=["3"]).sentence == "Cannot train: nothing passes through layer 3."
    assert read_verdict(read_passage([1.0, 0.0], [0.0, 0.0]), well).outcome == "dead"
    assert read_verdict(well, well, collapsed=["7"]).outcome == "collapsed"
    verdict = read_verdict(well, well, overflowing=["b"], dead=["c"])
    assert verdict.outcome == "exploding" and "overflow from layer b" in verdict.sentence


def test_phase_is_critical_only_if_one_is_inside_the_interval() -> None:
    assert read_phase([0.9, 1.1, 1.0, 1.02], [0.01] * 4).phase == "critical"
    assert read_phase([0.9, 0.91, 0.9], [0.01] * 3).phase == "ordered"
    assert read_phase([1.1, 1.12, 1.1], [0.01] * 3).phase == "chaotic"
    # one layer: only the noise of the measurement speaks
    assert read_phase([0.9], [0.01]).phase == "ordered"
    assert read_phase([0.9], [0.1]).phase == "critical"
    assert read_phase([], []).phase == "unknown"
    assert read_phase([0.0, 0.5], [0.0, 0.01]).layers == 1


@given(GAINS, st.floats(0, 0.5))
def test_the_interval_holds_the_geometric_mean(gains: list[float], noise: float) -> None:
    reading = read_phase(gains, [noise * g for g in gains])
    assert reading.chi == pytest.approx(math.exp(sum(math.log(g) for g in gains) / len(gains)))
    assert reading.low <= reading.chi * (1 + 1e-12) and reading.chi <= reading.high * (1 + 1e-12)


def test_status_of_a_layer_speaks_of_the_depth() -> None:
    assert read_status(0.9, 0.001, 5) == "keeps"
    assert read_status(0.9, 0.001, 50) == "shrinks"
    assert read_status(1.1, 0.001, 50) == "grows"
    assert read_status(1.1, 0.2, 50) == "unclear"
    assert read_status(0.0, 0.0, 5) == "dead"
    assert read_status(math.inf, 0.0, 5) == read_status(math.nan, 0.0, 5) == "overflows"
