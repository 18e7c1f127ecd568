"""What a checkup says of pruning: exact for the batch, expected beside it, in every form a checkup takes."""

import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import epoch0 as e0
from command_line import epoch0
from epoch0.diagnosis import Checkup
from epoch0.diagnosis.checkup import made_up
from epoch0.diagnosis.result import PruningForecast
from epoch0.errors import InputError


def network(weight_std: float = 1.0) -> nn.Module:
    sizes = [20, *[40] * 10, 5]
    return e0.networks.mlp(sizes, "tanh", weights=e0.Gaussian(weight_std), biases=e0.Gaussian(0.3), seed=1)


def batch() -> tuple[Tensor, Tensor]:
    source = e0.seeds.generator(2)
    return torch.randn(64, 20, generator=source), torch.randint(5, (64,), generator=source)


def checked(*given: Any, **settings: Any) -> Checkup:
    return e0.checkup(*given, **{"trial": False, "remedies": False, "directions": 2, **settings})


def pruning_forecast(net: nn.Module, sparsity: float, **options: object) -> PruningForecast:
    found = checked(net, *batch(), sparsity=sparsity, **options).pruning_forecast
    assert found is not None
    return found


def dying(found: PruningForecast) -> tuple[str, ...]:
    return tuple(row.name for row in found.layers if row.status == "dies")


def test_it_is_what_pruning_would_leave() -> None:
    net = network()
    found = pruning_forecast(net, 0.6)
    scores = e0.prune.snip(net, [batch()])
    masks = e0.prune.keep(scores, 0.6)
    assert {row.name: row.density for row in found.layers} == masks.density_of
    assert dying(found) == masks.dead
    critical = e0.prune.critical_sparsity(scores)
    assert (found.critical_sparsity, found.first) == (float(critical), critical.layer)
    assert [row.weights for row in found.layers] == [score.numel() for score in scores.values()]


def test_expected_densities_are_close_to_the_true_ones() -> None:
    # 11 weights of 200 to 1,600 entries: the standard error of a density is at most 0.5/sqrt(200) = 0.035; 4 of them
    found = pruning_forecast(network(), 0.5)
    assert max(abs(row.density - row.predicted) for row in found.layers) < 4 * 0.035


def test_the_ordered_phase_loses_layers_and_the_edge_keeps_them() -> None:
    ordered, edge = pruning_forecast(network(0.5), 0.7), pruning_forecast(network(1.3), 0.7)
    assert dying(ordered) and ordered.critical_sparsity < 0.7
    assert not dying(edge) and edge.critical_sparsity > 0.7
    assert "would be emptied" in ordered.sentence and ordered.first in ordered.sentence
    assert "no layer would be emptied" in edge.sentence


@pytest.mark.parametrize("sparsity", [0.3, 0.9])
def test_each_status_follows_from_the_numbers(sparsity: float) -> None:
    found = pruning_forecast(network(0.7), sparsity)
    for row in found.layers:
        expected = "dies" if row.density == 0 else "at risk" if row.vanishes > 0.05 else "survives"
        assert row.status == expected
        assert (row.density == 0) == (row.critical <= sparsity)


def test_without_targets_the_loss_is_that_of_the_ones_made_up_and_it_says_so() -> None:
    x, _ = batch()
    found = checked(network(), x, sparsity=0.5)
    made, _ = made_up(x, network()(x), 0)
    masks = e0.prune.keep(e0.prune.snip(network(), [(x, made)]), 0.5)
    assert found.pruning_forecast is not None
    assert {row.name: row.density for row in found.pruning_forecast.layers} == masks.density_of
    assert any("classes were made up" in note for note in found.notes)


class Labelled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def forward(self, inputs: Tensor, labels: Tensor) -> dict[str, Tensor]:
        outputs = self.net(inputs)
        return {"logits": outputs, "loss": nn.functional.cross_entropy(outputs, labels)}


def test_labels_of_the_batch_and_a_call_of_ones_own_are_taken() -> None:
    x, y = batch()
    plain = pruning_forecast(network(), 0.5)
    called = checked(network(), {"image": x}, y, sparsity=0.5, forward=lambda net, b: net(b["image"])).pruning_forecast
    assert called == plain
    labelled = checked(Labelled(), {"inputs": x, "labels": y}, sparsity=0.5).pruning_forecast
    assert labelled is not None
    assert [row.density for row in labelled.layers] == [row.density for row in plain.layers]


def test_positions_have_values_of_their_own() -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 3, 1))
    found = checked(net, torch.randn(8, 1, 6, 6, generator=e0.seeds.generator(0)), sparsity=0.5).pruning_forecast
    assert found is not None and [row.name for row in found.layers] == ["0.weight", "2.weight"]


def test_it_is_not_there_unless_asked_for() -> None:
    found = checked(network(), *batch())
    assert found.pruning_forecast is None and found.to_dict()["pruning_forecast"] is None


@pytest.mark.parametrize("sparsity", [-0.1, 1.0, 95.0, float("nan")])
def test_no_fraction_is_refused_and_the_model_stays(sparsity: float) -> None:
    net = network()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    with pytest.raises(InputError, match="sparsity"):
        checked(net, *batch(), sparsity=sparsity)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(p.grad is None for p in net.parameters())


@pytest.mark.slow
def test_page_terminal_and_comparison_show_it(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = (checked(network(std), *batch(), sparsity=0.7) for std in (0.5, 1.3))
    page = before.to_html(tmp_path / "one.html").read_text()
    assert "What would pruning leave?" in page and "✕ dies" in page
    assert before.pruning_forecast is not None and after.pruning_forecast is not None
    assert before.pruning_forecast.sentence in page
    before.print(width=200)
    assert before.pruning_forecast.sentence in capsys.readouterr().out
    assert after.pruning_forecast.sentence in str(before.compare(after))
    assert checked(network(), *batch()).to_html(tmp_path / "none.html").read_text().count("pruning leave") == 0


def test_command_line(tmp_path) -> None:
    model = tmp_path / "nets.py"
    build = "return e0.networks.mlp([64, 30, 30, 10], 'tanh', seed=0)"
    model.write_text(f"import epoch0 as e0\ndef build():\n    {build}\n")
    code, out, _ = epoch0("checkup", f"{model}:build", "--data", "digits", "--sparsity", "0.9", "--json")
    assert code == 0
    found = json.loads(out)["pruning_forecast"]
    assert found["sparsity"] == 0.9 and len(found["layers"]) == 3
    kept = sum(round(row["density"] * row["weights"]) for row in found["layers"])
    weights = sum(row["weights"] for row in found["layers"])
    assert kept == weights - round(0.9 * weights)
    code, _, said = epoch0("checkup", f"{model}:build", "--sparsity", "90")
    assert code == 2 and "90" in said and "0.9" in said
