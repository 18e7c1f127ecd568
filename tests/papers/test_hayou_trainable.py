"""Hayou Figures 3 and 5: the trials, what is made of them, and the claims on made-up results."""

import copy
import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from epoch0.data import load
from epoch0.papers.hayou import trainable
from epoch0.papers.hayou.trainable import ARTIFACTS, INITS, WAYS, network, presets, runs_of, trained
from epoch0.papers.sweep import Spec, Sweep
from epoch0.papers.trials import images
from epoch0.prune import apply, keep, snip
from epoch0.prune.effects.rescale import rescale
from epoch0.train.evaluation import Accuracy
from epoch0.train.loop import train
from pictures import whole_picture

FIGURE_3, FIGURE_5 = ARTIFACTS[:3], ARTIFACTS[3:]
TINY = Spec(
    data="digits", activation="tanh", depth=3, width=16, edge=(1.0, 0.0), ordered=(1.0, 0.3), sparsities=(0.2, 0.6),
    examples=40, rescaling="measured", steps=25, batch_size=32, learning_rate=0.05, tested=100,
)  # fmt: skip


def test_a_trial_is_pruning_and_training_each_network_alone() -> None:
    """The same by hand, one network after another."""
    found = trained(TINY, seed=3)
    first, last = load("digits", "train"), load("digits", "test")
    x, y = torch.as_tensor(first.inputs("standard")), torch.as_tensor(first.labels)
    test = Accuracy(torch.as_tensor(last.inputs("standard", like=first))[:100], torch.as_tensor(last.labels)[:100])
    batch, labels = images("digits", 40, 3, flatten=True, dtype=torch.float64)
    for i, init in enumerate(INITS):
        for j, sparsity in enumerate(TINY.sparsities):
            net = network(TINY, init, 3, 64, 10)
            wide = network(TINY, init, 3, 64, 10).double()
            loss = F.cross_entropy(wide(batch), labels)
            weights = {name: p for name, p in wide.named_parameters() if p.dim() == 2}
            grads = torch.autograd.grad(loss, list(weights.values()))
            scores = {n: (w * g).abs().detach() for (n, w), g in zip(weights.items(), grads, strict=True)}
            every = torch.cat([score.flatten() for score in scores.values()])
            least = every.sort().values[round(sparsity * len(every))]
            apply(net, {name: score >= least for name, score in scores.items()})
            if init == "rescaled":
                rescale(net, "measured", x=batch.float())
            train(net, (x, y), steps=25, batch_size=32, learning_rate=0.05, seed=3)
            # rounding may turn an image or two
            assert abs(test(net.eval())["accuracy"] - found["accuracy"][i, j]) <= 0.02
    assert found["accuracy"].shape == (3, 2) and not found["diverged"].any()
    assert found["chance"] == np.bincount(last.labels[:100]).max() / 100


def test_a_network_with_a_dead_layer_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rescaling has nothing to rescale there; the trial goes on and says so."""

    def harsh(scores, sparsity):
        masks = dict(keep(scores, sparsity))
        if sparsity > 0.5:
            masks["2.weight"] = torch.zeros_like(masks["2.weight"])
        return type(keep(scores, sparsity))(masks)

    monkeypatch.setattr(trainable, "keep", harsh)
    found = trained(TINY.but(steps=2), seed=0)
    assert found["dead"].tolist() == [[0, 1]] * 3


def test_a_killed_trial_goes_on_from_its_checkpoint(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = trained(TINY, seed=1)
    monkeypatch.setenv("EPOCH0_CHECKPOINTS", str(tmp_path))
    evaluate = Accuracy.__call__
    steps = []

    def killed(self: Accuracy, model: nn.Module) -> dict:
        steps.append(1)
        if len(steps) == 2:
            raise KeyboardInterrupt
        return evaluate(self, model)

    with monkeypatch.context() as patch:
        patch.setattr(Accuracy, "__call__", killed)
        with pytest.raises(KeyboardInterrupt):
            trained(TINY, seed=1)
    again = trained(TINY, seed=1)
    assert again["accuracy"].tolist() == whole["accuracy"].tolist()
    assert list(tmp_path.iterdir()) == [], "a finished trial leaves nothing behind"


def test_panels_share_their_trials_and_the_paper_preset_is_the_papers() -> None:
    for preset in ("quick", "paper"):
        own = [artifact.trials(artifact.setting(preset)) for artifact in FIGURE_3]
        assert own[0] == own[1] == own[2] == FIGURE_5[3].trials(FIGURE_5[3].setting(preset))
        assert not set(own[0]) & set(FIGURE_5[0].trials(FIGURE_5[0].setting(preset)))
    setting = FIGURE_3[0].setting("paper")
    base = setting.spec
    assert sorted(setting["depth"]) == [2, 20, 40, 60, 80, 100] and base.width == 100 and base.data == "mnist"
    assert base.sparsities == tuple(s / 10 for s in range(1, 10))
    assert (base.learning_rate, base.batch_size, base.steps) == (1e-3, 100, 10_000)
    assert [artifact.id for artifact in (*FIGURE_3, *FIGURE_5)] == [
        *(f"hayou/fig3{letter}" for letter in "abc"), *(f"hayou/fig5{letter}" for letter in "abcdef")
    ]  # fmt: skip
    for activation in ("tanh", "elu"):
        point = presets(activation)["paper"].spec.edge
        assert point == trainable.EDGE


def made_up(setting: Sweep, trains) -> list[dict]:
    """Results in which ``trains(init, depth, sparsity)`` decides, with a little noise from run to run."""
    shape = (len(INITS), len(setting["sparsities"]))
    found = []
    for trial in setting.trials():
        accuracy, dead = np.empty(shape), np.zeros(shape)
        for i, init in enumerate(INITS):
            for j, sparsity in enumerate(setting["sparsities"]):
                good = trains(init, trial.spec.depth, sparsity)
                accuracy[i, j] = 0.7 + 0.01 * trial.seed if good else 0.1
                dead[i, j] = 0 if init != "ordered" else trial.spec.depth * sparsity // 20
        found.append({"accuracy": accuracy, "dead": dead, "diverged": np.zeros(shape, bool), "chance": 0.11})
    return found


SETTING = Sweep(trained, TINY.but(sparsities=(0.1, 0.5, 0.9)), {"depth": (100, 60, 20, 2)}, runs=3)


def as_in_the_paper(init: str, depth: int, sparsity: float) -> bool:
    worst = {"rescaled": 1000, "edge": 30, "ordered": 8}[init]
    return depth * sparsity < worst


def test_results_come_back_to_their_places() -> None:
    found = FIGURE_3[2].read(SETTING, made_up(SETTING, as_in_the_paper))
    edge = runs_of(found, "accuracy", "edge")
    assert edge.shape == (3, 4, 3)
    assert edge[2, 3, 0] == pytest.approx(0.72)  # run 2, depth 100 at 10 %
    assert edge[2, 3, 2] == 0.1 and edge[1, 1, 1] == pytest.approx(0.71)
    rows = found.table
    assert len(rows) == 36 and rows[0]["initialization"] == "ordered phase"
    row = next(row for row in rows if (row["initialization"], row["depth"], row["sparsity"]) == ("EOC", 20, 0.5))
    assert row["trainable"] == 1.0 and row["accuracy"] == pytest.approx(0.71) and row["accuracy_error"] > 0


def verdicts(results: list[dict]) -> dict[str, list[str]]:
    return {artifact.id[-1]: [c.verdict for c in artifact.decided(SETTING, results)[1]] for artifact in FIGURE_3}


def test_claims_hold_for_the_papers_picture_and_fail_for_others() -> None:
    assert verdicts(made_up(SETTING, as_in_the_paper)) == {"a": ["holds"] * 4, "b": ["holds"] * 3, "c": ["holds"] * 3}
    # rescaling does nothing: deep networks do not train with it
    useless = verdicts(made_up(SETTING, lambda init, d, s: init != "ordered" and d < 60))
    assert useless["a"][:3] == ["fails"] * 3 and useless["a"][3] != "holds"
    # the ordered phase trains as well as any
    all_train = verdicts(made_up(SETTING, lambda init, d, s: True))
    assert all_train["c"][0] == "fails" and all_train["b"][0] == "fails"
    none = made_up(SETTING, as_in_the_paper)
    for one in none:
        one["dead"][:] = 0
    assert verdicts(none)["c"] == ["holds", "fails", "holds"]
    worse = verdicts(made_up(SETTING, lambda init, d, s: init == "ordered"))
    assert worse["b"][1] == "fails"


@pytest.mark.slow
def test_other_ways_to_rescale_are_judged_alike_and_shown() -> None:
    ways = {way: SETTING.but(spec=TINY.but(sparsities=(0.1, 0.5, 0.9), inits=INITS[:1]), depth=(60,)) for way in WAYS}
    both = SETTING.but(also=ways)
    results = made_up(SETTING, as_in_the_paper)
    for fine in (True, False):
        for one in ways.values():
            results += [{**each, **{n: each[n][:1] for n in ("accuracy", "dead", "diverged")}}
                        for each in made_up(one, lambda init, d, s, fine=fine: fine or s < 0.9)]  # fmt: skip
        told = {c.text: c.verdict for c in FIGURE_3[0].decided(both, results)[1]}
        named = [verdict for text, verdict in told.items() if any(way in text for way in WAYS.values())]
        assert named == ["holds", "holds" if fine else "fails"] * 2
        texts = [text.get_text() for text in whole_picture(FIGURE_3[0], both, results).axes[0].get_yticklabels()]
        assert texts[-2:] == ["60, row", "60, measured"]
        del results[-6:]
    tiny = trained(TINY.but(steps=2, inits=INITS[:1], rescaling="row"), seed=0)
    assert tiny["accuracy"].shape == (1, 2)


def test_pictures_and_words() -> None:
    results = made_up(SETTING, as_in_the_paper)
    few = copy.deepcopy(results)
    for one in few[1:]:
        one["dead"][:] = 0
    few[0]["dead"][:] = 1
    texts = [text.get_text() for artifact in FIGURE_3 for text in artifact.decided(SETTING, few)[2]().axes[0].texts]
    assert {text for text in texts if "dead" in text} == {"0.33 dead"}, "one dead layer in three runs"
    for artifact in FIGURE_3:
        picture = whole_picture(artifact, SETTING, results)
        texts = [text.get_text() for text in picture.axes[0].texts]
        assert sum(text.isdigit() for text in texts) == 12
        assert not any(re.match("0(.0)? dead", text) for text in texts), "what is there is not rounded away"
        assert "margin" not in artifact.caption(SETTING) and "sigma_w" in artifact.caption(SETTING)
    assert "rescaling: measured" in FIGURE_3[0].caption(SETTING)


def test_costs_count_every_network() -> None:
    """And one of them is really timed."""
    setting = FIGURE_3[0].setting("paper")
    costs = FIGURE_3[0].costs(setting)
    assert [len(cost.trials) for cost in costs] == [3] * 6 + [6] * 6 and costs[0].images == 10_000 * 100
    assert sum(len(cost.trials) for cost in costs) == len(FIGURE_3[0].trials(setting))
    tiny = FIGURE_3[0].costs(SETTING)[-1]  # the shallowest
    assert len(tiny.model()) == 3 * len(SETTING["sparsities"])
    assert 0 < tiny.seconds_a_step(0.3) < 1


@pytest.mark.parametrize("depth", [20])
def test_scores_of_the_library_are_those_of_the_trial(depth: int) -> None:
    """SNIP of the library against the plain formula, on the deepest network that is quick."""
    spec = TINY.but(depth=depth)
    net = network(spec, "ordered", 0, 64, 10).double()
    batch = images("digits", 40, 0, flatten=True, dtype=torch.float64)
    scores = snip(net, [batch])
    F.cross_entropy(net(batch[0]), batch[1]).backward()
    for name, parameter in net.named_parameters():
        if parameter.dim() == 2:
            torch.testing.assert_close(scores[name], (parameter * parameter.grad).abs().detach())
