"""Changes that are tried on a copy, assessed as the model was, and reported only if they helped."""

import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import epoch0 as e0
from epoch0.diagnosis.checkup import WAYS, advice, try_remedies
from epoch0.diagnosis.result import Remedy
from epoch0.diagnosis.rows import measured
from epoch0.diagnosis.step import OPTIMIZERS, steps
from epoch0.diagnosis.trial import trial
from epoch0.diagnosis.verdict import Recipe, assess
from epoch0.errors import InputError
from epoch0.seeds import generator
from epoch0.tracing.call import Call
from epoch0.tracing.tape import tape


def deep() -> nn.Module:
    """14 ReLU layers as torch initializes them: gains of 1/6."""
    torch.manual_seed(0)
    layers = [module for _ in range(14) for module in (nn.Linear(16, 16), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(16, 4))


def batch() -> tuple[Tensor, Tensor]:
    x = torch.randn(64, 16, generator=generator(1))
    return x, x[:, :4].argmax(1)


def recipe(optimizer: Any, chance: float, cause: str = "vanishing") -> Recipe:
    return Recipe(optimizer, chance >= 0.5, chance, 1e-3, 0.1, "because", "step 0", cause)


def pair(adam: float, sgd: float, cause: str = "vanishing") -> dict[Any, Recipe]:
    return {"adam": recipe("adam", adam, cause), "sgd": recipe("sgd", sgd, cause)}


def test_the_copy_is_assessed_as_the_model_would_be_after_the_call() -> None:
    net, (x, y) = deep(), batch()
    before = {name: t.clone() for name, t in net.state_dict().items()}
    tried = try_remedies(Call.of(net, x, y), pair(0.02, 0.03), None, "train", 0)
    assert all(torch.equal(t, before[name]) for name, t in net.state_dict().items())
    assert tried[0].change == "e0.initialize(model, x=batch)" and tried[0].before == 0.03
    e0.initialize(net, x=x, seed=0)
    call = Call.of(net, x, y)
    first = steps(call)
    with tape(call) as record:
        signs = measured(record, 2, 0).signs
    chances = [assess(first[optimizer], signs, None, first["adam"]).probability for optimizer in OPTIMIZERS]
    assert tried[0].after == pytest.approx(max(chances)) and max(chances) > 0.5
    assert tried[0].helps and len(tried) == 1  # what helps ends the search


@pytest.mark.slow
def test_with_a_trial_the_copies_have_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["epoch0.diagnosis.trial"], "OTHERS", 3)
    net, (x, y) = deep(), batch()
    call = Call.of(net, x, y)
    tried = try_remedies(call, pair(0.02, 0.03), trial(call, 4), "train", 0)
    assert "rain" in tried[0].verdict
    e0.initialize(net, x=x, seed=0)
    call = Call.of(net, x, y)
    with tape(call) as record:
        signs = measured(record, 2, 0).signs
    first, done = steps(call), trial(call, 4)
    chances = [assess(first[optimizer], signs, done, first["adam"]).probability for optimizer in OPTIMIZERS]
    assert tried[0].after == pytest.approx(max(chances), abs=1e-6)


def test_what_does_not_help_or_cannot_be_tried_is_no_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    net, (x, y) = deep(), batch()
    call = Call.of(net, x, y)
    monkeypatch.setattr(sys.modules["epoch0.diagnosis.checkup"], "initialize", lambda model, **settings: None)
    tried = try_remedies(call, pair(0.02, 0.03), None, "train", 0)
    assert [one.change for one in tried] == list(WAYS)
    first = steps(call)
    again = max(assess(first[kind], _signs(call), None, first["adam"]).probability for kind in OPTIMIZERS)
    assert all(one.after == pytest.approx(again) and not one.helps for one in tried)

    def refuse(model: nn.Module, **settings: Any) -> None:
        raise InputError("no")

    monkeypatch.setattr(sys.modules["epoch0.diagnosis.checkup"], "initialize", refuse)
    assert try_remedies(call, pair(0.02, 0.03), None, "train", 0) == []


def _signs(call: Call) -> Any:
    with tape(call) as record:
        return measured(record, 2, 0).signs


def test_a_little_better_is_not_help() -> None:
    """The chance has to rise by a tenth, and to one that is expected to train."""
    net, (x, y) = deep(), batch()
    tried = try_remedies(Call.of(net, x, y), pair(0.99, 0.99), None, "train", 0)
    assert len(tried) == len(WAYS) and not any(one.helps for one in tried)


def test_advice_is_one_sentence_for_each_thing_to_do() -> None:
    helped = Remedy("e0.initialize(model, x=batch)", 0.02, 0.97, "Trains with either.", True)
    not_helped = Remedy("e0.initialize(model, x=batch)", 0.02, 0.04, "Will not train.", False)
    trains = list(advice(pair(0.6, 0.9), []))
    assert trains == ["Begin with SGD with momentum at a rate of about 0.001; nothing has to change."]
    (told,) = advice(pair(0.02, 0.01), [not_helped, helped])
    assert told.endswith(": tried on a copy, its chance to train is 97 % instead of 2 %. Trains with either.")
    failed = list(advice(pair(0.02, 0.01, "no gradient"), [not_helped]))
    assert len(failed) == 1 and "tried on a copy did not help" in failed[0]
    assert list(advice(pair(0.02, 0.01), [])) == []


@pytest.mark.parametrize("share", [0.8, 0.0])
def test_dropout_is_left_out_where_the_weights_are_not_the_reason(share: float) -> None:
    """Eight ReLU layers of He weights with dropout of most: no other weights mend it."""
    torch.manual_seed(0)
    x = torch.randn(96, 16, generator=generator(1))
    layers = [m for _ in range(8) for m in (nn.Linear(16, 16), nn.ReLU(), nn.Dropout(share))]
    net = nn.Sequential(*layers, nn.Linear(16, 4))
    for module in net:
        if isinstance(module, nn.Linear):
            nn.init.kaiming_normal_(module.weight)
    kept = [module.p for module in net if isinstance(module, nn.Dropout)]
    found = e0.checkup(net, x, x[:, :4].argmax(1), trial=False, remedies=True)
    told = [remedy for remedy in found.remedies if remedy.change == "Leave dropout out"]
    assert kept == [module.p for module in net if isinstance(module, nn.Dropout)]
    if share:
        assert not found.trains and told and told[0].helps and "Leave dropout out: tried on a copy" in found.advice[0]
        assert "are too large" not in found.verdict  # the loss is, by what is left out
    else:
        assert not told
