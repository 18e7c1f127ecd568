"""Raghu's figures of trained networks and of conv nets: small settings from trial to picture, claims that can fail."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from epoch0.curves import Arc
from epoch0.data import load
from epoch0.errors import InputError
from epoch0.experiments.claims import VERDICTS
from epoch0.experiments.experiment import resolve
from epoch0.measure.length import trajectory_length
from epoch0.papers.catalogue import find
from epoch0.papers.raghu import trained as trained_module
from epoch0.papers.raghu.convnet import LABELS, LAYERS, ConvNet, by_variance
from epoch0.papers.raghu.trained import DenseNet, accurate, named, scale, trained
from epoch0.papers.sweep import Spec, Sweep
from epoch0.seeds import numpy_generator
from pictures import whole_picture

# the first forward derivative loads a part of torch that uses its own deprecated script compiler
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")

FIGURES = ("fig6", "fig8", "fig9", "fig10", "fig18")
NET = ConvNet((4,) * 5, (16, 8), colours=1, size=8)
SPEC = Spec(
    data="digits", network=NET, at=(0, 1, 2), batch_size=16, learning_rate=0.01, arcs=2, points=4, absolute=(0.25, 1.0),
    relative=(0.25, 1.0), draws=2, tested=50, examples=64,
)  # fmt: skip


def small(name: str) -> tuple[Any, Sweep]:
    """The artifact, and its quick preset with tiny networks, few steps and two runs."""
    artifact = find(f"raghu/{name}")
    networks = [spec.network for _, spec, _ in artifact.setting("quick").cells()]
    if isinstance(networks[0], ConvNet):
        return artifact, named(SPEC, [replace(NET, norm=net.norm) for net in networks], 2)
    tiny = [DenseNet((64, 8, 8, 8, 10), net.variance) for net in networks]
    return artifact, named(SPEC.but(network=tiny[0], absolute=(), relative=(), draws=0), tiny, 2)


@pytest.fixture(scope="module")
def ran() -> dict[str, dict[str, Any]]:
    """Results by key: trials of several figures are run once."""
    return {}


def results_of(artifact: Any, setting: Any, ran: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    trials = artifact.trials(setting)
    for trial in trials:
        if trial.key not in ran:
            ran[trial.key] = resolve(trial.function)(trial.spec, trial.seed)
    return [ran[trial.key] for trial in trials]


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", FIGURES)
def test_from_trial_to_picture(name: str, ran: dict[str, dict[str, Any]]) -> None:
    artifact, setting = small(name)
    results = results_of(artifact, setting, ran)
    rows, claims, *_ = artifact.decided(setting, results)
    assert rows and all(np.isfinite(v) for row in rows for v in row.values() if isinstance(v, float))
    assert len(claims) >= 2 and {claim.verdict for claim in claims} <= set(VERDICTS)
    whole_picture(artifact, setting, results)


@pytest.mark.parametrize("preset", ["quick", "paper"])
def test_one_training_for_three_figures(preset: str) -> None:
    """Figures 6, 8 and 9 share the networks without batch norm, 6 and 10 those with it."""
    keys = {name: {t.key for t in find(f"raghu/{name}").trials(find(f"raghu/{name}").setting(preset))} for name in
            FIGURES}  # fmt: skip
    assert keys["fig8"] == keys["fig9"] < keys["fig6"] == keys["fig10"]
    assert not keys["fig18"] & keys["fig6"]
    (cost,) = find("raghu/fig8").costs(find("raghu/fig8").setting(preset))
    assert {trial.key for trial in cost.trials} == keys["fig8"]
    assert len(cost.trials) == len(keys["fig8"])


def test_a_trial_measures_what_the_library_measures() -> None:
    """Step 0 against the untrained network measured directly; the last step's accuracy against that without noise."""
    found = trained(SPEC, seed=3)
    weights, _, _ = (int(numpy_generator(3, s).integers(2**31)) for s in (0, 1, 3))
    net = NET.build(weights)
    train, test = load("digits", "train"), load("digits", "test")
    held = torch.from_numpy(test.inputs("standard", flatten=False, like=train))[:50]
    source = numpy_generator(3, 2)
    lengths = []
    for place in range(2):
        first, second = source.choice(50, size=2, replace=False).tolist()
        names = [layer.output for layer in LAYERS]
        arc = Arc(held[first], held[second])
        lengths.append(trajectory_length(net, arc, layers=names, points=4, seed=place).lengths)
    assert found["layers"] == list(LABELS)
    assert found["kinds"] == [layer.kind for layer in LAYERS]
    np.testing.assert_allclose(found["lengths"][0], np.mean(lengths, axis=0), rtol=1e-5)
    assert found["scale"][0, 0] == pytest.approx(9 * float((net.conv1.weight.detach().double() ** 2).mean()), rel=1e-6)
    labels = torch.from_numpy(test.labels[:50])
    assert found["accuracy"][0] == pytest.approx(float((net(held).argmax(1) == labels).double().mean()))
    assert found["accuracy"][-1] == found["clean"]
    assert found["absolute"].shape == found["relative"].shape == (8, 2)
    assert not np.allclose(found["lengths"][0], found["lengths"][-1])


def test_what_a_batch_norm_does_at_step_0() -> None:
    """By running statistics nothing, to eps; by those of the arc it makes every channel's spread 1."""
    found = trained(SPEC.but(network=replace(NET, norm="batch"), absolute=(), relative=()), seed=0)
    norms = [place for place, kind in enumerate(found["kinds"]) if kind == "batch norm"]
    assert len(norms) == 7
    growth = found["lengths"][0, 1:] / found["lengths"][0, :-1]
    np.testing.assert_allclose(growth[norms], 1.0, atol=1e-4)
    batch = found["lengths_batch"][0, 1:] / found["lengths_batch"][0, :-1]
    assert np.abs(batch[norms] - 1).min() > 1e-3


def test_an_interrupted_trial_goes_on(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between training and noise: the second start does not train again and gives the same numbers."""
    whole = trained(SPEC, seed=1)
    monkeypatch.setenv("EPOCH0_CHECKPOINTS", str(tmp_path))
    noisy = trained_module.robustness

    def killed(*given: Any, **more: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(trained_module, "robustness", killed)
    with pytest.raises(KeyboardInterrupt):
        trained(SPEC, seed=1)
    assert list(tmp_path.iterdir())
    monkeypatch.setattr(trained_module, "robustness", noisy)
    again = trained(SPEC, seed=1)
    for name, value in whole.items():
        np.testing.assert_array_equal(np.asarray(again[name]), np.asarray(value), err_msg=name)
    assert not list(tmp_path.iterdir())


def test_networks_that_diverge_are_left_out_and_counted() -> None:
    wild = SPEC.but(learning_rate=1e8, absolute=(), relative=())
    bad, good = trained(wild, seed=0), trained(SPEC.but(absolute=(), relative=()), seed=0)
    assert bad["diverged"] and bad["lengths"].shape == good["lengths"].shape
    setting = named(wild, [NET], 2)
    found = setting.gather([bad, good])
    assert found.one().runs == 1 and found["lengths"].shape[:2] == (1, 1)
    (claim,) = [decide(text) for text, decide in accurate(found).items()]
    assert claim.verdict == "undecided" and "1 diverged" in claim.evidence
    with pytest.raises(InputError, match="all 2 networks without batch norm diverged"):
        setting.gather([bad, bad])


def test_scale_is_sigma_w_squared() -> None:
    """Five standard errors of a chi-square with 10^6 degrees of freedom; false alarm below 1e-6."""
    weight = torch.randn(1000, 1000, generator=torch.Generator().manual_seed(0)) * (3.0 / 1000) ** 0.5
    assert scale(weight) == pytest.approx(3.0, rel=5 * (2e-6) ** 0.5)


# ---- claims on made results: each can fail


def made(runs: int, spec: Spec, gained: float, first_worse: float, normed: float = 1.0) -> list[dict[str, Any]]:
    """Results of one kind with known answers.

    Args:
        runs: how many.
        spec: what they pretend to be.
        gained: factor from the first step to the last, in every layer more than in the one before.
        first_worse: what accuracy with noise rises a layer.
        normed: growth in a batch norm after the first step.
    """
    source = np.random.default_rng(0)
    found = []
    for _ in range(runs):
        kinds = [layer.kind for layer in LAYERS]
        names = list(LABELS)
        if isinstance(spec.network, ConvNet) and spec.network.norm == "batch":
            kinds = ["convolution", "batch norm", "activation", "linear", "batch norm", "activation", "linear"]
            names = ["conv1", "norm1", "relu1", "fc1", "norm2", "relu2", "output"]
        noise = np.exp(0.01 * source.standard_normal((len(spec.at), len(names) + 1)))
        time = np.linspace(0, 1, len(spec.at))[:, None]
        lengths = noise * np.exp(np.log(gained) * time * np.arange(len(names) + 1))
        for place, kind in enumerate(kinds, start=1):
            if kind == "batch norm":
                lengths[1:, place:] *= normed
        weighted = [layer.label for layer in LAYERS if layer.kind != "pooling"]
        kept = 0.5 + first_worse * np.arange(8)[:, None] + 0.005 * source.standard_normal((8, len(spec.absolute)))
        found.append({
            "diverged": False, "layers": names, "kinds": kinds, "weighted": weighted,
            "accuracy": np.full(len(spec.at), 0.99) + 0.001 * source.standard_normal(len(spec.at)),
            "lengths": lengths, "lengths_batch": lengths, "clean": 0.99, "absolute": kept, "relative": kept,
            "scale": 2 * np.exp(np.log(gained) * time + 0.001 * source.standard_normal((len(spec.at), 8))),
        })  # fmt: skip
    return found


def verdicts(name: str, gained: float, first_worse: float, normed: float = 1.0) -> dict[str, str]:
    artifact = find(f"raghu/{name}")
    setting = artifact.setting("quick")
    results = [r for _, spec, runs in setting.cells() for r in made(runs, spec, gained, first_worse, normed)]
    return {claim.text: claim.verdict for claim in artifact.decided(setting, results)[1]}


def test_robustness_of_layers_is_decided_both_ways() -> None:
    as_printed, reversed_ = verdicts("fig6", 1.1, 0.02), verdicts("fig6", 1.1, -0.02)
    earlier = [text for text in as_printed if "robust" in text]
    assert len(earlier) == 8
    assert {as_printed[text] for text in earlier} == {"holds"}
    assert {reversed_[text] for text in earlier} == {"fails"}


def test_length_and_scale_through_training_are_decided_both_ways() -> None:
    for name, word in (("fig8", "training increases length"), ("fig9", "training increases the weight scale"),
                       ("fig18", "training increases length")):  # fmt: skip
        longer, shorter = verdicts(name, 1.2, 0.0), verdicts(name, 0.8, 0.0)
        said = [text for text in longer if word in text]
        assert said and {longer[text] for text in said} == {"holds"}
        assert {shorter[text] for text in said} == {"fails"}
    after = next(text for text in verdicts("fig8", 1.2, 0.0) if text.startswith("after training"))
    assert (verdicts("fig8", 1.2, 0.0)[after], verdicts("fig8", 0.8, 0.0)[after]) == ("holds", "fails")


def test_batch_norm_is_decided_both_ways() -> None:
    less, more = verdicts("fig10", 1.0, 0.0, normed=0.5), verdicts("fig10", 1.0, 0.0, normed=2.0)
    said = [text for text in less if "reduce length" in text]
    assert len(said) == 4
    assert {less[text] for text in said} == {"holds"} and {more[text] for text in said} == {"fails"}
    output = next(text for text in less if "at the output" in text)
    assert (less[output], more[output]) == ("holds", "fails")


def test_what_the_caption_prints_of_cifar() -> None:
    """Noise of 0.25 in the first layer costs 0.7, in the fifth 0.02: only said of CIFAR-10, and able to hold."""
    artifact = find("raghu/fig6")
    setting = artifact.setting("paper")
    sizes = {"absolute": setting.spec.absolute.index(0.25), "relative": setting.spec.relative.index(0.25)}
    results = [r for _, spec, runs in setting.cells() for r in made(runs, spec, 1.1, 0.0)]
    source = np.random.default_rng(1)
    for result in results:
        for unit, size in sizes.items():
            result[unit] = result[unit].copy()
            result[unit][:, size] = 0.5 + 0.001 * np.arange(8) + 0.0001 * source.standard_normal(8)
        result["absolute"][[0, 3], sizes["absolute"]] += (-0.21, 0.46)
    claims = [claim for claim in artifact.decided(setting, results)[1] if "0.25" in claim.text]
    assert [claim.verdict for claim in claims] == ["holds", "holds", "fails", "fails"] * 2
    assert not [text for text in verdicts("fig6", 1.0, 0.0) if "0.25" in text]


# ---- Figure 4


def test_length_through_untrained_conv_nets(ran: dict[str, dict[str, Any]]) -> None:
    artifact = find("raghu/fig4")
    setting = artifact.setting("quick").but(variance=by_variance(NET, 2.0, 8.0), runs=6, block=4)
    results = results_of(artifact, setting, ran)
    rows, claims, *_ = artifact.decided(setting, results)
    assert [row["layer"] for row in rows if row["kind"] == "pooling"] == [3, 7] * 2
    assert all(row["growth"] < 1 for row in rows if row["kind"] == "pooling")
    output = [row["length"] for row in rows if row["name"] == "output"]
    assert output[1] > 10 * output[0]  # sigma_w^8 in the mean, 256
    assert len(claims) == 7
    whole_picture(artifact, setting, results)
    held = [{"lengths": np.asarray(result["lengths"])[:, ::-1]} for result in results]
    backwards = {claim.text: claim.verdict for claim in artifact.decided(setting, held)[1]}
    assert backwards["pooling layers reduce length: their growth"] != "holds"


def test_a_block_is_part_of_the_whole() -> None:
    artifact = find("raghu/fig4")
    setting = artifact.setting("quick").but(variance=by_variance(NET, 2.0), runs=4, block=4)
    (whole,) = [resolve(t.function)(t.spec, t.seed) for t in artifact.trials(setting)]
    parts = [resolve(t.function)(t.spec, t.seed) for t in artifact.trials(setting.but(block=2))]
    both = np.concatenate([part["lengths"] for part in parts])
    np.testing.assert_allclose(both, whole["lengths"], rtol=0.2)
