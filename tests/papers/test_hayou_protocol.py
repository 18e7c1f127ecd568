"""The trial behind Hayou's accuracy tables: against plain torch code, masked to the end, killed and gone on with."""

import contextlib
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import MultiStepLR

from epoch0.data import load
from epoch0.distributions import Gaussian
from epoch0.errors import InputError
from epoch0.experiments.encoding import decode, encode
from epoch0.experiments.experiment import Trial
from epoch0.networks import resnet
from epoch0.papers.hayou import protocol
from epoch0.papers.hayou.protocol import (
    METHODS,
    Network,
    Recipe,
    build,
    hand_over,
    masks_at_initialization,
    run,
    scored_batches,
    sets_of,
)
from epoch0.prune import apply, keep, masks_of, obd, rescale, snip
from epoch0.seeds import generator
from epoch0.train.loop import ORDER

TINY = Recipe(
    Network("resnet", 8, 0.25), "digits", "snip", 0.8, epochs=2, batch_size=50, augment=False, examples=200, tested=100,
    synflow_steps=5, obd_rounds=2, obd_batches=2,
)  # fmt: skip
PRUNING = [method for method in METHODS if method != "none"]


@pytest.fixture
def trained(monkeypatch):
    """The networks that runs train, in the order of their trainings."""
    nets = []

    def noted(net, *arguments, **options):
        nets.append(net)
        return original(net, *arguments, **options)

    original = protocol.train
    monkeypatch.setattr(protocol, "train", noted)
    return nets


# ---- a run against plain code


def plain_run(recipe, seed, stable):
    """Build, score, prune, train and test as ten lines of torch would, with masks put on by hand."""
    first, last = load("digits", "train"), load("digits", "test")
    x = torch.as_tensor(first.inputs("standard", flatten=False))[: recipe.examples]
    y = torch.as_tensor(first.labels)[: recipe.examples]
    xt = torch.as_tensor(last.inputs("standard", like=first, flatten=False))[: recipe.tested]
    yt = torch.as_tensor(last.labels)[: recipe.tested]
    net = resnet(recipe.network.depth, recipe.network.width, stable, 10, inputs=(1, 8, 8), seed=seed)
    ((sx, sy),) = scored_batches(sets_of(recipe), seed, 1, recipe.score_per_class)
    weights = [m.weight for m in net.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    gradients = torch.autograd.grad(nn.functional.cross_entropy(net.train()(sx), sy), weights)
    scores = [(w * g).detach().abs() for w, g in zip(weights, gradients, strict=True)]
    every = torch.cat([score.flatten() for score in scores]).sort().values
    masks = [score >= every[round(recipe.sparsity * len(every))] for score in scores]
    for m in net.modules():
        if isinstance(m, nn.BatchNorm2d):
            m.reset_running_stats()  # scoring is not training
    optimizer = torch.optim.SGD(net.parameters(), lr=recipe.learning_rate, momentum=0.9, weight_decay=5e-4)
    per_epoch = -(-len(x) // recipe.batch_size)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [per_epoch, round(1.5 * per_epoch)], gamma=0.1)
    with torch.no_grad():
        for weight, mask in zip(weights, masks, strict=True):
            weight *= mask
    accuracies = []
    for epoch in range(recipe.epochs):
        order = torch.randperm(len(x), generator=generator(seed, ORDER, epoch))
        net.train()
        for chosen in order.split(recipe.batch_size):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x[chosen]), y[chosen]).backward()
            for weight, mask in zip(weights, masks, strict=True):
                weight.grad *= mask
            optimizer.step()
            schedule.step()
        net.eval()
        with torch.no_grad():
            accuracies.append(float((net(xt).argmax(1) == yt).double().mean()))
    return masks, weights, accuracies


@pytest.mark.sample(1)
@pytest.mark.parametrize("method", ["snip", "sbp-sr"])
def test_a_run_is_what_plain_code_does(trained, method: str) -> None:
    recipe = replace(TINY, method=method)
    found = run(recipe, 3)
    masks, weights, accuracies = plain_run(recipe, 3, stable=method == "sbp-sr")
    assert found["kept"] == sum(int(mask.sum()) for mask in masks)
    own = [m.weight for m in trained[0].modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    for ours, theirs in zip(own, weights, strict=True):
        assert ours.detach().numpy() == pytest.approx(theirs.detach().numpy(), abs=1e-4)
    # one image in a hundred may tip over from rounding
    assert found["history"]["accuracy"][1:] == pytest.approx(accuracies, abs=0.0101)
    assert found["accuracy"] == found["history"]["accuracy"][-1] and found["best"] == max(found["history"]["accuracy"])


def test_without_pruning_nothing_is_masked(trained) -> None:
    found = run(replace(TINY, method="none", sparsity=0.0), 0)
    assert found["kept"] is None and found["dead"] == [] and found["accuracy"] > 0.15
    with pytest.raises(InputError, match="not pruned"):
        masks_of(trained[0])


@pytest.mark.sample(2)
@pytest.mark.parametrize("method", PRUNING)
def test_every_method_leaves_exactly_the_sparsity_and_zeros_to_the_end(trained, method: str) -> None:
    found = run(replace(TINY, method=method), 1)
    net = trained[-1]
    masks = masks_of(net)
    assert found["kept"] == masks.kept == masks.total - round(0.8 * masks.total)
    weights = dict(net.named_modules())
    for name, mask in masks.items():
        weight = weights[name.removesuffix(".weight")].weight.detach()
        assert not weight[~mask].any() and (not mask.any() or weight[mask].any())
    assert found["dead"] == list(masks.dead)
    assert found["on_paths"] <= found["kept"]
    assert decode(encode(found)) == found  # fits into the store


def test_methods_of_one_seed_share_weights_and_stable_ones_divide_their_branches() -> None:
    plain, stable = (build(TINY.network, (1, 8, 8), 10, kind, 5) for kind in (False, True))
    for a, b in zip(plain.parameters(), stable.parameters(), strict=True):
        assert torch.equal(a, b)
    scales = [m.scale for m in stable.modules() if hasattr(m, "scale")]
    assert scales == pytest.approx([3**-0.5] * 3)
    x = torch.randn(4, 1, 8, 8, generator=generator(0))
    assert not torch.allclose(plain(x), stable(x))


def test_scores_see_as_many_images_of_each_class_and_other_ones_for_another_seed() -> None:
    sets = sets_of(TINY)
    ((images, labels),) = scored_batches(sets, 0, 1, 10)
    assert labels.bincount().tolist() == [10] * 10 and images.shape == (100, 1, 8, 8)
    parts = scored_batches(sets, 0, 5, 10)
    assert [part[1].bincount().tolist() for part in parts] == [[2] * 10] * 5
    joined = torch.cat([part[0] for part in parts]).flatten(1)
    # the same images, drawn without replacement
    assert sorted(map(tuple, joined.tolist())) == sorted(map(tuple, images.flatten(1).tolist()))
    assert len(set(map(tuple, joined.tolist()))) == 100
    assert not torch.equal(scored_batches(sets, 1, 1, 10)[0][0], images)
    few = scored_batches(sets, 0, 1, 1000)[0][1].bincount().tolist()
    assert few == sets.plain.targets.bincount().tolist()


def test_the_batch_norm_mode_of_scores_is_obeyed() -> None:
    net = build(Network("resnet", 20, 0.5), (1, 8, 8), 10, False, 0)
    sets = sets_of(TINY)
    batches = scored_batches(sets, 0, 1, 10)
    for mode in ("train", "eval"):
        recipe = replace(TINY, network=Network("resnet", 20, 0.5), sparsity=0.98, batch_norm=mode)
        masks = masks_at_initialization(net, recipe, batches, (1, 8, 8), 0)
        assert masks == keep(snip(net, batches, batch_norm=mode), 0.98)


# ---- the reference


@pytest.mark.slow
def test_the_reference_prunes_trained_networks_by_obd_in_rounds(monkeypatch) -> None:
    recipe = replace(TINY, method="obd", sparsity=0.75, obd_rounds=2)
    seen = []
    original = protocol.train

    def noted(net, *arguments, **options):
        masked = None
        with contextlib.suppress(InputError):
            masked = masks_of(net)
        seen.append((masked, options["epochs"], options["seed"]))
        return original(net, *arguments, **options)

    monkeypatch.setattr(protocol, "train", noted)
    run(recipe, 2)
    (no, *_), (half, *_), (last, *_) = seen
    total = last.total
    assert no is None and half.kept == total - round(0.5 * total) and last.kept == total - round(0.75 * total)
    assert all(bool((half[name] | ~last[name]).all()) for name in last), "what was removed came back"
    assert [epochs for _, epochs, _ in seen] == [2, 2, 2]
    assert len({seed for _, _, seed in seen}) == 3 and seen[-1][2] == 2
    # the first masks are those of the trained dense network
    dense = build(recipe.network, (1, 8, 8), 10, False, 2)
    sets = sets_of(recipe)
    original(
        dense, sets.train, epochs=2, batch_size=50, learning_rate=0.1,
        optimizer=partial(torch.optim.SGD, momentum=0.9, weight_decay=5e-4),
        schedule=lambda optimizer, steps: MultiStepLR(optimizer, [round(steps / 2), round(3 * steps / 4)], 0.1),
        seed=seen[0][2],
    )  # fmt: skip
    scores = obd(dense, scored_batches(sets, 2, 2, 20), batch_norm="eval", seed=2)
    assert keep(scores, 0.5) == half


# ---- rescaling, and norms that come later


def test_rescaling_reaches_the_weights_that_are_trained(trained) -> None:
    network = Network("vanilla_cnn", 4, 6, "tanh", weights=Gaussian(1.0))
    recipe = Recipe(network, "digits", "snip", 0.5, epochs=1, learning_rate=1e-9, augment=False, examples=50, tested=20,
                    weight_decay=0.0, momentum=0.0)  # fmt: skip
    run(recipe, 0)
    run(replace(recipe, method="eoc-rescaling"), 0)
    squares = [
        [float(m.weight.detach().square().flatten(1).sum(1).mean()) for m in net.modules() if isinstance(m, nn.Conv2d)]
        for net in trained
    ]
    # tanh without biases is on the edge of chaos at sigma_w = 1: the mean row has that sum of squares
    assert squares[1] == pytest.approx([1.0] * 4, abs=1e-4)
    assert squares[0] != pytest.approx([1.0] * 4, abs=0.01)


def test_a_norm_that_comes_after_pruning_takes_weights_and_masks_over() -> None:
    network = Network("vgg", 11, 1 / 16, padding="circular")
    bare, net = (build(each, (1, 16, 16), 10, False, 0) for each in (replace(network, norm=None), network))
    x, y = torch.randn(20, 1, 16, 16, generator=generator(1)), torch.arange(20) % 10
    masks = keep(snip(bare, [(x, y)]), 0.6)
    apply(bare, masks)
    rescale(bare, x=x)
    kinds = (nn.Conv2d, nn.Linear)
    wanted = [m.weight.detach().clone() for m in bare.modules() if isinstance(m, kinds)]
    hand_over(bare, net)
    got = [m.weight.detach() for m in net.modules() if isinstance(m, kinds)]
    assert all(torch.equal(a, b) for a, b in zip(wanted, got, strict=True))
    assert [mask.tolist() for mask in masks_of(net).values()] == [mask.tolist() for mask in masks.values()]
    assert any(isinstance(m, nn.BatchNorm2d) for m in net.modules())


# ---- killed, gone on with; diverged


class Killed(Exception):
    pass


# each training tests itself before the first epoch and after each: sbp-sr 3 times, OBD 3 + 3 + 3 times
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("method", "tests"), [("sbp-sr", 2), pytest.param("obd", 3, marks=pytest.mark.slow), ("obd", 6)]
)
def test_a_killed_run_goes_on_to_the_same_bits(tmp_path, monkeypatch, method: str, tests: int) -> None:
    recipe = replace(TINY, method=method)
    whole = run(recipe, 4)
    monkeypatch.setenv("EPOCH0_CHECKPOINTS", str(tmp_path / "kept"))
    original = protocol.Evaluation.__call__
    calls = []

    def dies(self, model):
        calls.append(1)
        if len(calls) > tests:
            raise Killed
        return original(self, model)

    monkeypatch.setattr(protocol.Evaluation, "__call__", dies)
    with pytest.raises(Killed):
        run(recipe, 4)
    files = list((tmp_path / "kept").iterdir())
    assert files, "no checkpoint was written"
    monkeypatch.setattr(protocol.Evaluation, "__call__", original)
    steps = []
    trains = protocol.train
    monkeypatch.setattr(protocol, "train", lambda *a, **o: steps.append(o["checkpoint"].exists()) or trains(*a, **o))
    assert run(recipe, 4) == whole
    assert steps[0], "it began anew"
    assert list((tmp_path / "kept").iterdir()) == [], "a finished run leaves nothing behind"


def test_trials_of_other_recipes_and_seeds_have_files_of_their_own(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("EPOCH0_CHECKPOINTS", str(tmp_path))
    seen = []
    monkeypatch.setattr(protocol, "train", lambda *a, **options: seen.append(options["checkpoint"]) or stopped())

    def stopped():
        raise Killed

    recipes = [(TINY, 0), (TINY, 1), (replace(TINY, sparsity=0.9), 0), (replace(TINY, method="sbp-sr"), 0)]
    for each in recipes:
        with pytest.raises(Killed):
            run(*each)
    assert len(set(seen)) == 4 and all(path.parent == tmp_path for path in seen)
    monkeypatch.delenv("EPOCH0_CHECKPOINTS")
    with pytest.raises(Killed):
        run(TINY, 0)
    assert seen[-1] is None


@pytest.mark.parametrize("method", ["snip", "obd"])
def test_a_diverging_run_is_recorded_with_chance(method: str) -> None:
    found = run(replace(TINY, method=method, learning_rate=1e30), 0)
    assert found["diverged"] and found["accuracy"] == found["chance"] == found["best"]
    assert decode(encode(found))["diverged"]
    labels = load("digits", "test").labels[:100]
    assert found["chance"] == np.bincount(labels).max() / 100


# ---- recipes


def test_a_recipe_is_its_trial_and_comes_back() -> None:
    recipe = replace(TINY, network=replace(TINY.network, weights=Gaussian(1.3)), drops=(30, 60, 80))
    trial = Trial("epoch0.papers.hayou.protocol:run", recipe, 0)
    assert trial.spec == recipe and isinstance(trial.spec.drops[0], int)
    assert trial.key != Trial("epoch0.papers.hayou.protocol:run", replace(recipe, batch_norm="eval"), 0).key
