"""Raghu Figures 7 and 17: trials against the library's own training, claims on made results, cost and picture."""

from functools import partial

import numpy as np
import pytest
import torch

from epoch0.data import load
from epoch0.experiments.claims import VERDICTS
from epoch0.experiments.experiment import resolve
from epoch0.papers.catalogue import find
from epoch0.papers.raghu.trained import scattered, tanh_net, trained_alone
from epoch0.papers.sweep import Spec, Sweep
from epoch0.train.loop import train
from pictures import whole_picture

SPEC = Spec(
    data="digits", side=0, width=12, hidden=3, variance=1.0, layer=1, epochs=2, batch_size=128, learning_rate=0.1,
    momentum=0.9, judged=10_000,
)  # fmt: skip


def small(side: int = 0) -> Sweep:
    return Sweep(trained_alone, SPEC.but(side=side), {"layer": (1, 2)}, runs=2)


def made(rows: list[list[float]], runs: int = 6) -> tuple[Sweep, list[dict]]:
    """Results whose final accuracies are given, (train, test) a layer, with a spread of 0.002 over runs."""
    setting = Sweep(trained_alone, SPEC.but(hidden=len(rows) + 1), {"layer": tuple(range(1, len(rows) + 1))}, runs=runs)
    noise = np.random.default_rng(0).normal(0, 0.002, (len(rows), runs))
    return setting, [
        {
            **{split: np.array([0.1, 0.5, rows[i][j] + noise[i, run]]) for j, split in enumerate(("train", "test"))},
            "diverged": False,
        }
        for i in range(len(rows))
        for run in range(runs)
    ]


def test_a_trial_trains_that_layer_as_the_library_does() -> None:
    """Twin: the same network, everything else frozen by hand, through the plain loop."""
    spec = SPEC.but(layer=2)
    found = trained_alone(spec, 3)
    data, test = load("digits", "train"), load("digits", "test")
    x, y = torch.as_tensor(data.inputs("standard")), torch.as_tensor(data.labels)
    net = tanh_net(spec, 64, 10, 3)
    net.requires_grad_(False)
    net[4].requires_grad_(True)
    momentum = partial(torch.optim.SGD, momentum=0.9)
    train(net, (x, y), epochs=2, batch_size=128, optimizer=momentum, learning_rate=0.1, seed=3)
    with torch.no_grad():
        right = net(torch.as_tensor(test.inputs("standard", like=data))).argmax(1) == torch.as_tensor(test.labels)
        fitted = net(x).argmax(1) == y
    assert found["test"][-1] == pytest.approx(right.double().mean().item(), abs=1e-9)
    assert found["train"][-1] == pytest.approx(fitted.double().mean().item(), abs=1e-9)
    assert found["train"].shape == found["test"].shape == (3,) and not found["diverged"]
    assert found["train"][-1] > found["train"][0] + 0.2


def test_one_network_for_all_layers() -> None:
    trials = find("raghu/fig7").trials(small())
    assert [(trial.spec.layer, trial.seed) for trial in trials] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    starts = [resolve(trial.function)(trial.spec.but(epochs=1), trial.seed)["test"][0] for trial in trials]
    assert starts[0] == starts[2] and starts[1] == starts[3]


def test_images_are_put_whole_at_places_of_their_split() -> None:
    images = load("digits", "test").images[:50]
    moved = scattered(images, 14, 1).reshape(50, 14, 14)
    assert (moved.sum((1, 2)) == images.sum((1, 2, 3))).all()
    corners = {tuple(np.argwhere(one)[0]) for one in moved}
    assert len(corners) > 20
    assert not np.array_equal(scattered(images, 14, 0), scattered(images, 14, 1))


@pytest.mark.parametrize(
    ("rows", "verdicts"),
    [
        ([[0.95, 0.50], [0.90, 0.45], [0.85, 0.40]], ["holds"] * 5),
        ([[0.85, 0.40], [0.90, 0.45], [0.95, 0.50]], ["fails", "fails", "fails", "holds", "holds"]),
        ([[0.95, 0.93], [0.90, 0.89], [0.85, 0.84]], ["holds", "holds", "holds", "fails", "fails"]),
        ([[0.95, 0.50], [0.85, 0.45], [0.88, 0.40]], ["fails", "holds", "holds", "holds", "holds"]),
    ],
)
def test_claims_follow_the_accuracies(rows: list[list[float]], verdicts: list[str]) -> None:
    """Spreads of 0.002 over 6 runs against differences of 0.03 and more: beyond any chance."""
    setting, results = made(rows)
    for name, expected in (("fig17", verdicts), ("fig7", verdicts[:3])):
        _, claims, *_ = find(f"raghu/{name}").decided(setting, results)
        assert [claim.verdict for claim in claims] == expected


def test_table_is_by_layer_and_epoch() -> None:
    setting, results = made([[0.9, 0.5], [0.8, 0.4]])
    rows = find("raghu/fig7").read(setting, results).table
    assert [(row["hidden_layer"], row["epoch"]) for row in rows] == [(i, e) for i in (2, 3) for e in (0, 1, 2)]
    ends = [float(np.mean([r["train"][-1] for r in results[6 * i : 6 * i + 6]])) for i in (0, 1)]
    assert [rows[2]["train_accuracy"], rows[5]["train_accuracy"]] == pytest.approx(ends)


@pytest.mark.parametrize("name", ["fig7", "fig17"])
@pytest.mark.parametrize("preset", ["quick", "paper"])
def test_costs_count_every_run_and_train_one_layer(name: str, preset: str) -> None:
    artifact = find(f"raghu/{name}")
    setting = artifact.setting(preset)
    costs = artifact.costs(setting)
    assert sum(len(cost.trials) for cost in costs) == len(artifact.trials(setting))
    assert {trial.key for cost in costs for trial in cost.trials} == {t.key for t in artifact.trials(setting)}
    base = setting.spec
    inputs = {"digits": 64, "mnist": 784, "cifar10": 3072}[base.data] if not base.side else base.side**2
    net = costs[-1].model()
    free = [key for key, parameter in net.named_parameters() if parameter.requires_grad]
    assert free == ["14.weight", "14.bias"] and costs[-1].inputs == (inputs,)


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", ["fig7", "fig17"])
def test_from_trial_to_picture(name: str) -> None:
    artifact, setting = find(f"raghu/{name}"), small(10 if name == "fig17" else 0)
    results = [resolve(trial.function)(trial.spec, trial.seed) for trial in artifact.trials(setting)]
    rows, claims, *_ = artifact.decided(setting, results)
    assert all(np.isfinite(value) for row in rows for value in row.values())
    assert {claim.verdict for claim in claims} <= set(VERDICTS)
    picture = whole_picture(artifact, setting, results)
    assert len(picture.axes) == 2 and len(picture.axes[0].lines) == 2
    assert len(picture.axes[0].collections) == 2  # bands
