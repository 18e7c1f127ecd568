"""Hayou et al.'s Tables 4 and 5: runs as plain code does them, and claims that come out each way."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from epoch0.distributions import Gaussian
from epoch0.experiments.experiment import resolve
from epoch0.networks import vanilla_cnn
from epoch0.papers.hayou import tables
from epoch0.papers.hayou.protocol import METHODS, build, enlarged, scored_batches, sets_of, shape_for
from epoch0.papers.hayou.tables import EDGE, FURTHER, ORDERED, PRINTED, RESCALED, STARTS
from epoch0.seeds import generator
from pictures import whole_picture


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch):
    monkeypatch.setenv("EPOCH0_DEVICE", "cpu")
    monkeypatch.delenv("EPOCH0_CHECKPOINTS", raising=False)


TABLE_4, TABLE_5 = (one for one in tables.ARTIFACTS if one.id in ("hayou/tab4", "hayou/tab5"))


def setting(preset="quick", more=None):
    """A preset; of the quick one perhaps with another number of further runs."""
    quick = TABLE_4.setting("quick")
    return tables.sweep_4(quick.spec, (10, 50, 100), 3, more, seed=300) if more else TABLE_4.setting(preset)


def recipe_of(given, depth, start):
    """What is run at that depth from that start."""
    return next(spec for at, spec, _ in given.cells() if at == {"depth": depth, "start": start.label})


def runs_at(given, depth, start):
    return next(runs for at, _, runs in given.cells() if at == {"depth": depth, "start": start.label})


def tiny():
    """Table 4 with small networks and a few steps."""
    quick = setting()
    network = replace(quick.spec.network, width=4)
    small = {"examples": 40, "tested": 60, "epochs": 2, "tested_every": 1, "batch_size": 10, "score_per_class": 2}
    base = replace(quick.spec, network=network, learning_rate=0.004, drops=(0.5, 0.75), drop_factor=0.3, **small)
    return tables.sweep_4(base, (2, 3), 2, 3, seed=20)


def made(given, accuracies, spread=0.5, chance=0.1, **more):
    """Results in the order of the trials: accuracies in percent by depth and label."""
    return [
        {"accuracy": (accuracies[at["depth"], at["start"]] + step) / 100, "chance": chance, "dead": [],
         "diverged": False}
        | more
        for at, _, runs in given.cells()
        for step in np.linspace(-1, 1, runs) * spread
    ]  # fmt: skip


def as_printed(given):
    at = [at for at, *_ in given.cells()]
    told = {start.label: (start.printed or RESCALED.printed) for start in STARTS.values()}
    return {(one["depth"], one["start"]): told[one["start"]][one["depth"]].value for one in at}


def verdicts(given, accuracies, spread=0.5):
    return {claim.text: claim.verdict for claim in TABLE_4.decided(given, made(given, accuracies, spread))[1]}


def rows_of(given, results):
    return TABLE_4.decided(given, results)[0]


# ---- what is run


def test_trials_of_both_presets() -> None:
    for preset in ("quick", "paper"):
        given = setting(preset)
        trials = given.trials()
        assert given["depth"] == (10, 50, 100) and min(runs for *_, runs in given.cells()) == 3
        # 15 entries of three runs; quick has three more of four that are printed, and seeds of its own
        assert len({trial.key for trial in trials}) == len(trials) == (57 if preset == "quick" else 45)
        more = [trial for trial in trials if trial.seed > 302]
        assert {trial.seed for trial in trials} == (set(range(300, 306)) if preset == "quick" else {0, 1, 2})
        rates = {trial.spec.learning_rate for trial in trials}
        assert rates == ({start.rate for start in STARTS.values()} if preset == "quick" else {0.001})
        where = [recipe_of(given, 100, RESCALED), *(recipe_of(given, 10, start) for start in PRINTED)]
        assert all(trial.spec in where for trial in more) and len(more) == (12 if preset == "quick" else 0)
        assert {trial.spec.sparsity for trial in trials} == {0.5}
    assert setting("paper").spec.data == "mnist" and setting("quick").spec.data == "digits"


def test_starts_of_one_seed_differ_in_scale_and_rescaling_alone() -> None:
    given = setting()
    ordered, edge, rescaled, row, measured = (recipe_of(given, 50, start) for start in STARTS.values())
    assert (ordered.network.weights, ordered.network.biases) == (Gaussian(0.9), Gaussian(0.1))
    assert edge.network == rescaled.network and edge.network.depth == 50
    for other in (ordered, rescaled, row, measured):
        same = {"method": edge.method, "network": edge.network, "learning_rate": edge.learning_rate}
        assert replace(other, **same) == edge
    assert [METHODS[one.method].rescaled for one in (edge, rescaled, row, measured)] == [
        None,
        "layer",
        "row",
        "measured",
    ]


def test_as_many_steps_as_in_section_4_1() -> None:
    base = setting("paper").spec
    # 10,000 iterations of 100 of 60,000 images, in whole epochs
    assert base.batch_size == 100 and base.learning_rate == 1e-3
    assert base.epochs == math.ceil(10_000 * 100 / 60_000)


def plain_run(given, depth, start, seed):
    """SNIP, rescaling by layer and SGD with momentum, in plain torch; losses and accuracies after each epoch."""
    recipe = recipe_of(given, depth, start)
    sets = sets_of(recipe)
    laws = {"weights": Gaussian(start.weight_std), "biases": Gaussian(start.bias_std)}
    net = vanilla_cnn(depth, 4, 3, sets.shape, 10, "tanh", seed=seed, **laws)
    weights = [parameter for name, parameter in net.named_parameters() if name.endswith("weight")]
    ((x, y),) = scored_batches(sets, seed, 1, 2)
    gradients = torch.autograd.grad(F.cross_entropy(net(x), y), weights)
    scores = torch.cat([(w * g).abs().flatten() for w, g in zip(weights, gradients, strict=True)])
    kept = torch.zeros(len(scores))
    kept[scores.argsort(descending=True)[: len(scores) - round(0.5 * len(scores))]] = 1
    masks = [m.view_as(w) for m, w in zip(kept.split([w.numel() for w in weights]), weights, strict=True)]
    with torch.no_grad():
        for weight, mask in zip(weights, masks, strict=True):
            if start is RESCALED or start is FURTHER[0]:
                # tanh without biases, and no activation behind the last: sigma_w = 1 everywhere
                rows = (weight * mask).square().flatten(1).sum(1)
                scale = (
                    (rows.mean() if start is RESCALED else rows.clamp(min=1e-30))
                    .sqrt()
                    .reshape(-1, *[1] * (weight.dim() - 1))
                )
                weight /= scale
    parameters = list(net.parameters())
    momenta = [torch.zeros_like(parameter) for parameter in parameters]
    images, labels = (torch.cat(parts) for parts in zip(*[sets.train.batch(torch.arange(40), 0)], strict=True))
    tests, truth = sets.test.batch(torch.arange(60), 0)
    steps, done, rows = 2 * 4, 0, []

    def outputs(inputs):
        named = dict(net.named_parameters())
        for (name, weight), mask in zip([(n, p) for n, p in named.items() if n.endswith("weight")], masks, strict=True):
            named[name] = weight * mask
        return torch.func.functional_call(net, named, (inputs,))

    for epoch in range(2):
        order, losses = torch.randperm(40, generator=generator(seed, 0, epoch)), []
        for batch in order.split(10):
            rate = recipe.learning_rate * (1.0 if done < 0.5 * steps else 0.3 if done < 0.75 * steps else 0.09)
            loss = F.cross_entropy(outputs(images[batch]), labels[batch])
            with torch.no_grad():
                for parameter, momentum, g in zip(
                    parameters, momenta, torch.autograd.grad(loss, parameters), strict=True
                ):
                    momentum.mul_(0.9).add_(g)
                    parameter -= rate * momentum
            losses.append(loss.item())
            done += 1
        rows.append((np.mean(losses), (outputs(tests).argmax(1) == truth).double().mean().item()))
    return rows


@pytest.mark.sample(1)
@pytest.mark.parametrize("start", (*PRINTED, FURTHER[0]), ids=lambda start: start.label)
def test_a_run_is_what_plain_torch_does(start) -> None:
    given = tiny()
    trial = next(t for t in given.trials() if t.spec == recipe_of(given, 3, start) and t.seed == 21)
    result = resolve(trial.function)(trial.spec, trial.seed)
    losses, accuracies = zip(*plain_run(given, 3, start, 21), strict=True)
    assert result["history"]["loss"][1:] == pytest.approx(losses, rel=1e-5)
    assert result["history"]["accuracy"][1:] == pytest.approx(accuracies, abs=1e-9)
    assert result["accuracy"] == pytest.approx(accuracies[-1])


def test_a_tiny_table_from_end_to_end() -> None:
    given = tiny()
    results = [resolve(trial.function)(trial.spec, trial.seed) for trial in given.trials()]
    rows, claims, *_ = TABLE_4.decided(given, results)
    assert [(row["depth"], row["start"]) for row in rows] == [(d, s.label) for d in (2, 3) for s in STARTS.values()]
    first = [100 * result["accuracy"] for result in results[:3]]
    assert rows[0]["accuracy"] == pytest.approx(np.mean(first))
    assert rows[0]["accuracy_sd"] == pytest.approx(np.std(first, ddof=1))
    last = [100 * result["accuracy"] for result in results[-7:-4]]
    assert [row["runs"] for row in rows] == [3] * 3 + [2] * 4 + [3] + [2] * 2 and len(results) == 24
    assert rows[-3]["accuracy"] == pytest.approx(np.mean(last))
    assert all(math.isnan(row["printed"]) for row in rows)
    assert len(claims) == 8
    assert len(whole_picture(TABLE_4, given, results).axes) == 2


# ---- what is claimed


def test_the_printed_table_is_beside_the_paper_preset() -> None:
    given = setting("paper")
    rows = rows_of(given, made(given, as_printed(given)))
    rows = [row for row in rows if row["start"] in [start.label for start in PRINTED]]
    assert [row["printed"] for row in rows] == [98.12, 98.20, 98.18, 10.0, 98.75, 98.90, 10.0, 10.0, 99.15]
    assert [row["printed_sd"] for row in rows] == [0.13, 0.17, 0.21, 0.0, 0.11, 0.07, 0.0, 0.0, 0.08]


def test_claims_hold_of_the_paper_s_own_numbers() -> None:
    given = setting("paper")
    found = verdicts(given, as_printed(given), spread=0.1)
    assert len(found) == 10 and set(found.values()) == {"holds"}


@pytest.mark.parametrize(
    ("depth", "start", "accuracy", "words"),
    [
        (100, RESCALED, 10.0, "depth 100: EOC + rescaling trains"),
        (100, EDGE, 60.0, "depth 100: EOC without rescaling stays at chance"),
        (100, ORDERED, 60.0, "depth 100: the ordered phase stays at chance"),
        (50, ORDERED, 60.0, "depth 50: the ordered phase stays at chance"),
        (50, EDGE, 10.0, "depth 50: both EOC starts train"),
        (10, ORDERED, 10.0, "depth 10: all three train"),
        (10, EDGE, 50.0, "depth 10: ... and are equally accurate"),
    ],
)
def test_each_claim_can_fail_by_itself(depth, start, accuracy, words) -> None:
    given = setting("paper")
    found = verdicts(given, as_printed(given) | {(depth, start.label): accuracy})
    failed = {text for text, verdict in found.items() if verdict == "fails"}
    assert any(text.startswith(words) for text in failed)
    # the deepest network is asked for twice; equality is between the three networks that are asked to train
    assert len(failed) == (2 if accuracy == 10.0 and depth != 50 else 1)


def test_noise_leaves_claims_undecided() -> None:
    given = setting("paper")
    accuracies = as_printed(given) | {(100, "EOC + rescaling"): 35.0}
    found = verdicts(given, accuracies, spread=20.0)
    assert next(v for text, v in found.items() if text.startswith("depth 100: EOC + rescaling")) == "undecided"


def test_each_entry_is_judged_by_its_own_runs() -> None:
    accuracies = as_printed(setting()) | {(100, "EOC + rescaling"): 55.0}
    for runs, verdict in ((3, "undecided"), (6, "holds")):
        # three runs within 20 points of 55 do not decide against 30; six do: 2.5 and 5 standard errors or more
        found = verdicts(setting(more=runs), accuracies, spread=20.0)
        assert next(v for text, v in found.items() if text.startswith("depth 100: EOC + rescaling")) == verdict
    assert "runs: 6, 3" in TABLE_4.caption(setting())


def test_diverged_runs_and_dead_layers_are_in_the_table() -> None:
    given = setting()
    results = made(given, as_printed(given))
    results[0] |= {"diverged": True, "dead": ["2.weight", "4.weight"], "accuracy": 0.1}
    first, *others = rows_of(given, results)
    assert first["diverged"] == 1 and first["dead_layers"] == pytest.approx(2 / first["runs"])
    assert not any(row["diverged"] or row["dead_layers"] for row in others)


def test_the_picture_has_errors_and_the_print() -> None:
    """In brackets on MNIST, in a table of its own beside the digits."""
    for preset, drawn in (("quick", 2), ("paper", 1)):
        given = setting(preset)
        axes = whole_picture(TABLE_4, given, made(given, as_printed(given)), preset).axes
        runs = runs_at(given, 10, ORDERED)
        error = np.std(np.linspace(-0.5, 0.5, runs), ddof=1) / runs**0.5
        texts = [{cell.get_text().get_text() for cell in each.tables[0].get_celld().values()} for each in axes]
        assert len(axes) == drawn and any(f"± {error:.1f}" in text for text in texts[0])
        assert any(text.strip("()") == "98.12 ± 0.13" for text in "\n".join(texts[-1]).splitlines())


def test_costs() -> None:
    given = setting("paper")
    lines = TABLE_4.costs(given)
    assert [len(line.trials) for line in lines] == [15, 15, 15]
    assert {t.key for line in lines for t in line.trials} == {t.key for t in given.trials()}
    assert lines[0].images == 17 * 60_000


# ---- VGG


def vgg_setting(preset="paper"):
    return TABLE_5.setting(preset)


def panels(given):
    return [given, *given.also.values()]


def vgg_made(given, accuracies, spread=0.1):
    """Results in the order of the trials; accuracies in percent by network, method and sparsity."""
    results = []
    for panel in panels(given):
        for method, sparsity in panel.axes["method sparsity"]:
            at = accuracies[panel.spec.network.name, method, sparsity]
            for step in np.linspace(-1, 1, panel.runs) * spread:
                results.append({"accuracy": (at + step) / 100, "best": (at + step) / 100, "chance": 0.1, "dead": [],
                                "on_paths": 100, "diverged": False})  # fmt: skip
    return results


def vgg_printed(given):
    return {
        (panel.spec.network.name, method, sparsity): tables.printed("tab5", panel.spec)[
            tables.OURS if method in tables.WAYS else method, sparsity
        ].value
        for panel in panels(given)
        for method, sparsity in panel.axes["method sparsity"]
    }


def test_vgg_scores_without_batch_norm_where_it_is_rescaled() -> None:
    for preset in ("quick", "paper"):
        for trial in vgg_setting(preset).trials():
            recipe = trial.spec
            assert recipe.norm_after == (METHODS[recipe.method].rescaled is not None) == ("eoc" in recipe.method)
            assert recipe.network.norm == "batch" and recipe.network.padding == "circular"
    rates = {(trial.spec.method, trial.spec.learning_rate) for trial in vgg_setting("quick").trials()}
    assert len(rates) == 5 and "SGD at 0.03 or 0.1, " in tables.about(TABLE_5.presets["quick"])
    trials = vgg_setting().trials()
    # two networks, five methods, three sparsities, three runs
    assert len({trial.key for trial in trials}) == len(trials) == 90
    networks = [trial.spec.network for trial in trials]
    assert {(net.repeat, net.depth, net.width) for net in networks} == {(1, 16, 1), (3, 16, 1)}


def test_the_printed_numbers_of_table_5() -> None:
    given = vgg_setting()
    rows, *_ = TABLE_5.decided(given, vgg_made(given, vgg_printed(given)))
    rows = [row for row in rows if row["printed"] == row["printed"]]
    assert [row["printed"] for row in rows[:9]] == [93.09, 92.97, 92.61, 93.21, 93.05, 92.19, 93.15, 92.90, 92.70]
    assert [row["printed"] for row in rows[9:]] == [93.30, 93.12, 92.85, 92.95, 92.91, 92.70, 93.97, 93.75, 93.40]


def test_claims_of_the_printed_numbers() -> None:
    given = vgg_setting()
    _, found, *_ = TABLE_5.decided(given, vgg_made(given, vgg_printed(given)))
    assert [claim.verdict for claim in found] == ["holds"] * 9


@pytest.mark.parametrize(
    ("changes", "failing"),
    [
        ({("3xVGG16", "snip"): 96.0}, {1, 3, 5, 7}),
        ({("3xVGG16", "synflow"): 96.0}, {2, 4, 6, 7}),
        ({("VGG16", "snip"): 80.0, ("VGG16", "synflow"): 80.0}, {0, 7}),
        ({("VGG16", "eoc-rescaling"): 80.0}, {0, 8}),
        ({("3xVGG16", "eoc-row"): 80.0}, {3, 4}),
        ({("3xVGG16", "eoc-measured"): 80.0}, {5, 6}),
    ],
)
def test_each_claim_of_vgg_can_fail(changes, failing) -> None:
    given = vgg_setting()
    accuracies = {key: changes.get(key[:2], value) for key, value in vgg_printed(given).items()}
    _, found, *_ = TABLE_5.decided(given, vgg_made(given, accuracies))
    assert {place for place, claim in enumerate(found) if claim.verdict == "fails"} == failing


def tiny_vgg(runs=1):
    small = {"examples": 12, "tested": 10, "epochs": 1, "batch_size": 12, "score_per_class": 1, "synflow_steps": 2}
    return tables.joined([
        panel.but(network=replace(panel.spec.network, width=1 / 32), **small, runs=runs)
        for panel in panels(vgg_setting("quick"))
    ])  # fmt: skip


def tenth_of(trial, layers: int) -> int:
    """How many weights are kept of a network of so many layers."""
    network = trial.spec.network
    net = build(network, shape_for(network, (1, 8, 8)), 10, False, 0)
    weights = [part.weight.numel() for part in net.modules() if isinstance(part, nn.Linear | nn.Conv2d)]
    assert len(weights) == layers
    return round(0.1 * sum(weights))


def test_a_tiny_vgg_from_end_to_end() -> None:
    trial = next(t for t in tiny_vgg().trials() if t.spec.method == tables.OURS)
    result = resolve(trial.function)(trial.spec, trial.seed)
    assert result["kept"] == tenth_of(trial, 9)
    assert 0 <= result["accuracy"] <= 1 and not result["diverged"]


@pytest.mark.slow
def test_a_tiny_vgg_table() -> None:
    given = tiny_vgg(runs=2)
    results = [resolve(trial.function)(trial.spec, trial.seed) for trial in given.trials()]
    counts = [tenth_of(trial, layers) for trial, layers in zip(given.trials(), [9] * 10 + [25] * 10, strict=True)]
    assert [result["kept"] for result in results] == counts
    rows, claims, *_ = TABLE_5.decided(given, results)
    assert len(rows) == 10 and len(claims) == 9
    assert len(whole_picture(TABLE_5, given, results).axes) >= 2


def test_costs_of_vgg() -> None:
    given = vgg_setting()
    lines = TABLE_5.costs(given)
    assert [len(line.trials) for line in lines] == [45, 45]
    assert {t.key for line in lines for t in line.trials} == {t.key for t in given.trials()}


# ---- larger images


@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4))
def test_enlarged_pixels_against_kronecker(factor, height, width) -> None:
    images = torch.randn(2, 3, height, width, generator=generator(height * 10 + width))
    twin = np.kron(images.numpy(), np.ones((factor, factor), np.float32))
    assert np.array_equal(enlarged(images, factor).numpy(), twin)
