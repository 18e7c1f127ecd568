"""Two checkups side by side: what the object and the terminal say is what the checkups hold."""

import json

import pytest
import torch

import epoch0 as e0
from epoch0.diagnosis import Checkup, checkup
from epoch0.diagnosis.result import Comparison
from epoch0.diagnosis.verdict import NAMES
from epoch0.diagnosis.wording import chance, number
from epoch0.errors import InputError


def look(std: float, depth: int = 12) -> Checkup:
    x = torch.randn(32, 16, generator=torch.Generator().manual_seed(1))
    y = x[:, :4].argmax(1)
    net = e0.networks.mlp([16, *[32] * depth, 4], weights=e0.Gaussian(std), seed=1)
    return checkup(net, x, y, directions=4, trial=False, remedies=False)


@pytest.fixture(scope="module")
def pair() -> tuple[Checkup, Checkup]:
    return look(0.1), look(2**0.5)


@pytest.fixture(scope="module")
def found(pair: tuple[Checkup, Checkup]) -> Comparison:
    return pair[0].compare(pair[1])


def test_the_dictionary_holds_both(pair: tuple[Checkup, Checkup], found: Comparison) -> None:
    before, after = pair
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert (plain["before"]["outcome"], plain["after"]["outcome"]) == (before.outcome, "trains")
    assert not before.trains and plain["before"]["recipes"] == json.loads(json.dumps(before.to_dict()["recipes"]))
    assert (plain["before"]["chi"], plain["after"]["chi"]) == (before.chi, after.chi)
    assert plain["before"]["phase"] == before.phase and plain["after"]["verdict"] == after.verdict
    assert plain["before"] == json.loads(json.dumps(before.to_dict()))
    assert plain["after"] == json.loads(json.dumps(after.to_dict()))


def test_there_are_two_rows_a_layer(pair: tuple[Checkup, Checkup], found: Comparison) -> None:
    rows, many = found.rows(), len(pair[0].layers)
    assert [row["when"] for row in rows] == ["before"] * many + ["after"] * many
    for row, layer in zip(rows, (*pair[0].layers, *pair[1].layers), strict=True):
        kept = ("name", "norm_out", "forward_gain", "agreement", "tangent", "gradient", "update")
        assert all(row[key] == getattr(layer, key) for key in kept)


def test_the_text_says_both_verdicts_and_every_layer(pair: tuple[Checkup, Checkup], found: Comparison) -> None:
    text = str(found)
    assert all(one.verdict in text for one in pair)
    for one, other in zip(pair[0].layers, pair[1].layers, strict=True):
        for key in ("forward_gain", "tangent", "gradient"):
            assert f"{number(getattr(one, key), 2)} → {number(getattr(other, key), 2)}" in text


@pytest.mark.parametrize("width", [72, 100, 150])
def test_the_terminal_loses_columns_not_digits(
    pair: tuple[Checkup, Checkup], found: Comparison, width: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found.print(width=width)
    out = capsys.readouterr().out
    assert "…" not in out and max(len(line) for line in out.splitlines()) <= width
    assert "before" in out and "after" in out and pair[0].outcome in out
    for name, recipe in pair[1].recipes.items():
        line = next(line for line in out.splitlines() if line.startswith(f"{NAMES[name]} "))
        assert f"{chance(pair[0].recipes[name].probability)} → {chance(recipe.probability)}" in line
    for one, other in zip(pair[0].layers, pair[1].layers, strict=True):
        gradients = (number(layer.gradient, 2) for layer in (one, other))
        assert " → ".join(gradients) in out and f"{one.status} → {other.status}" in out
    heading = next(line for line in out.splitlines() if line.startswith("layer"))
    assert ("what it is" in heading) == (width == 150)


def test_nothing_passes_before() -> None:
    dead, alive = look(1e-30, 3), look(2**0.5, 3)
    found = dead.compare(alive)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False)) == found.to_dict()
    found.print(width=90)
    assert not dead.trains and alive.trains and dead.verdict in str(found) and alive.verdict in str(found)


def test_checkups_of_two_models_are_refused(pair: tuple[Checkup, Checkup]) -> None:
    with pytest.raises(InputError, match=r"13 layers before and 4 after, '8' is in one of them only"):
        pair[0].compare(look(1.0, 3))
