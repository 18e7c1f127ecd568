"""Hayou et al.'s figures and tables: measured as plain code measures, and claims that come out each way."""

import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest
import torch
from torch import nn

import epoch0 as e0
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import VERDICTS
from epoch0.experiments.experiment import resolve
from epoch0.networks import mlp, residual_chain, resnet
from epoch0.papers import catalogue
from epoch0.papers.hayou import chains, kept, ordered, rescaled
from epoch0.papers.sweep import Spec
from epoch0.papers.trials import images
from epoch0.seeds import generator, numpy_generator
from epoch0.theory.mean_field import chi, correlation_map, depth_scale, edge_of_chaos, q_star
from pictures import whole_picture

FIGURES = ("fig1a", "fig1b", "lemma1", "th1", "th2", "fig2", "prop1", "prop2", "prop3", "tab7", "fig4", "th4", "wlth")
"""Those without long training; test_hayou_tables.py and others have the rest."""

ORDER = (
    "fig1a", "fig1b", "fig2", "fig3a", "fig3b", "fig3c", "fig4", "fig5a", "fig5b", "fig5c", "fig5d", "fig5e", "fig5f",
    "lemma1", "lemma3", "prop1", "prop2", "prop3", "tab1", "tab2", "tab3", "tab4", "tab5", "tab6", "tab7", "tab8",
    "tab9", "tab10", "th1", "th2", "th4", "wlth",
)  # fmt: skip


def artifact_of(figure):
    return catalogue.find(f"hayou/{figure}")


def setting_of(figure, preset="quick"):
    return artifact_of(figure).setting(preset)


def tiny(figure):
    """The figure's own quick setting with few and small networks."""
    setting = setting_of(figure)
    if figure in ("fig1a", "fig1b"):
        return setting.but(depth=8, width=20, examples=20, runs=2)
    if figure == "th1":
        phases = setting.also["phases"].but(networks=3, blocks=(2, 3))
        return setting.but(depth=6, width=20, examples=10, runs=2, also={"phases": phases})
    if figure == "lemma1":
        return setting.but(blocks=4, networks=2, width=8, runs=3)
    if figure in ("fig2", "fig4"):
        return setting.but(depth=14, examples=8, runs=2)
    if figure == "prop1":
        return setting.but(depth=6, width=20, examples=20, runs=2, sparsities=(0.5, 0.9))
    if figure == "prop3":
        return setting.but(blocks=12, width=20, examples=10, pairs=4, runs=2)
    if figure in ("th2", "prop2"):
        return setting.but(width=8, inputs=(5,), networks=4, blocks=(2, 3, 5))
    if figure in ("tab7", "th4"):
        return setting.but(depth=5, width=20, runs=3)
    small = rescaled.sweep(2, 40, 6, 2, 2, data="digits", steps=5, tested=30).but(factor=(1.5, 2.0))
    trained = small.also["trained"]
    ticket = trained.spec.ticket.but(depth=2, width=16)
    return small.but(also={"trained": trained.but(ticket=ticket)})


def results_of(figure, setting):
    return [resolve(trial.function)(trial.spec, trial.seed) for trial in artifact_of(figure).trials(setting)]


# ---- every figure, small


def test_the_figures_are_there_in_their_order() -> None:
    assert catalogue.expand("hayou") == [f"hayou/{figure}" for figure in ORDER]


@pytest.mark.sample(1)
@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_runs_small_through_the_same_code(figure: str) -> None:
    artifact, setting = artifact_of(figure), tiny(figure)
    results = results_of(figure, setting)
    rows, claims, *_ = artifact.decided(setting, results)
    assert rows and all(row.keys() == rows[0].keys() for row in rows) and claims
    for claim in claims:
        assert claim.verdict in VERDICTS and any(letter.isdigit() for letter in claim.evidence)
    picture = whole_picture(artifact, setting, results)
    measured = [axes for axes in picture.axes if axes.get_xlabel()]
    assert measured and any(axes.get_ylabel() for axes in measured)
    assert any(axes.containers for axes in picture.axes), "no error bars"
    assert picture.legends or any(axes.get_legend() for axes in picture.axes)
    assert artifact.caption(setting)


@pytest.mark.slow
def test_networks_that_nothing_gets_through_are_left_out_and_counted() -> None:
    axes = {"masks": ("SNIP",), "activation": ("relu",)}
    setting = setting_of("prop1").but(depth=15, width=15, examples=50, runs=4, sparsities=(0.5, 0.95), **axes)
    artifact, results = artifact_of("prop1"), results_of("prop1", setting)
    dead = np.isnan([one["log_gain"] for one in results]).any(2)
    assert dead.tolist() == [[False, False], [False, True], [False, False], [False, True]]
    rows, claims, *_ = artifact.decided(setting, results)
    assert [row["runs"] for row in rows if row["method"] == "row"] == [4, 2]
    alive = [one["log_gain"][1, 1] for one, gone in zip(results, dead, strict=True) if not gone[1]]
    assert rows[5]["log_gain"] == pytest.approx(np.mean(alive)) and np.isfinite(rows[5]["beside_unpruned_error"])
    assert all("95% removed: 2 left out that nothing gets through" in claim.evidence for claim in claims)


def test_the_paper_preset_is_the_papers_setting() -> None:
    for figure in ("fig1a", "fig1b"):
        spec = setting_of(figure, "paper").spec
        assert (spec.data, spec.depth, spec.width, spec.sparsity) == ("mnist", 100, 100, 0.7)
    one = setting_of("th1", "paper")
    assert (one["depth"], one["width"]) == (100, 100) and one["runs"] >= 10
    for figure in ("fig2", "fig4"):
        spec = setting_of(figure, "paper").spec
        assert (spec.data, spec.depth, spec.width) == ("cifar10", 32, 2)
    two = setting_of("tab7", "paper")
    assert (two["gamma"], two["depth"], two["width"]) == ((2.0, 5.0, 10.0, 15.0), 100, 100) and two["runs"] >= 10
    needed = {figure: setting_of(figure, "paper").data for figure in FIGURES}
    assert needed == {
        "fig1a": "mnist", "fig1b": "mnist", "lemma1": None, "th1": None, "th2": None, "prop2": None, "fig2": "cifar10",
        "th4": None,
        "prop1": "mnist", "prop3": "mnist",
        "tab7": None, "fig4": "cifar10", "wlth": "mnist",
    }  # fmt: skip
    assert {setting_of(figure).data for figure in FIGURES} == {"digits", None}


def test_order_statistics_come_near_to_the_law_with_the_root() -> None:
    """End to end; and the distance of the exact law by 20,000 draws of 100 sizes."""
    artifact, whole = artifact_of("lemma3"), setting_of("lemma3")
    for setting, words in ((whole, "hfh"), (whole.but(n=(2, 200)), "ffh")):  # of two sizes the law is not yet near
        results = results_of("lemma3", setting)
        claims = artifact.decided(setting, results)[1]
        assert "".join(claim.verdict[0] for claim in claims) == words
    assert whole_picture(artifact, setting, results).axes[0].get_legend()
    draws = np.sort(abs(np.random.default_rng(0).standard_normal((20_000, 100))))
    for p, row in zip((0.5, 0.9, 0.99), artifact.read(whole, results_of("lemma3", whole)).table, strict=False):
        quantile = NormalDist().inv_cdf((1 + p) / 2)
        scaled = np.sort(10 * 2 * NormalDist().pdf(quantile) * (draws[:, round(100 * p) - 1] - quantile))
        for name, deviation in (("root", (p - p * p) ** 0.5), ("printed", p - p * p)):
            law, own = (np.array([NormalDist().cdf(z) for z in scaled / deviation]), np.arange(20_001) / 20_000)
            apart = max(abs(law - own[1:]).max(), abs(law - own[:-1]).max())
            assert row[name] == pytest.approx(apart, abs=0.0125), (p, name)


def test_further_quantiles_are_less_beyond_the_last_place_found() -> None:
    """Appendix Lemma 4 in mpmath, on both sides of 1 - x."""
    import mpmath  # comes with torch

    setting = setting_of("lemma3")
    told = artifact_of("lemma3").decided(setting, results_of("lemma3", setting))[1][-1].evidence
    ends = [float(end) for end in told.split(" is ")[1].split(" for ")[0].split(", ")]
    for (gamma, eps), end in zip(itertools.product((1.1, 2, 5), (0.1, 0.5, 0.9)), ends, strict=True):
        for factor, less in ((0.8, True), (1.25, False)):
            if end * factor < 0.95:
                z = -NormalDist().inv_cdf(end * factor / 2)
                further = mpmath.erfc(gamma * z / mpmath.sqrt(2))
                assert bool(further < mpmath.mpf(end * factor) ** (gamma ** (2 - eps))) is less, (gamma, eps, factor)


def test_figures_2_and_4_share_their_trials() -> None:
    for preset in ("quick", "paper"):
        two, four = ({trial.key for trial in artifact_of(f).trials(setting_of(f, preset))} for f in ("fig2", "fig4"))
        assert len(two & four) == len(two) / 2 == len(four) / 2


@pytest.mark.parametrize("figure", ["lemma1", "th1", "tab7", "th4", "wlth"])
def test_no_two_networks_share_their_random_numbers(figure: str) -> None:
    trials = artifact_of(figure).trials(setting_of(figure, "paper"))
    named = [(trial.function, trial.seed) for trial in trials]
    assert len(set(named)) == len(named)


# ---- the trials, each against plain code


def plain_scores(net, inputs, labels):
    """abs(W dL/dW) of every weight, by autograd on the module itself."""
    weights = [m.weight for m in net.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    gradients = torch.autograd.grad(nn.functional.cross_entropy(net(inputs), labels), weights)
    return [(weight * gradient).detach().abs() for weight, gradient in zip(weights, gradients, strict=True)]


def test_what_is_kept_is_the_top_of_plain_scores() -> None:
    spec = Spec(
        data="digits", depth=6, width=15, activation="tanh", weight_std=1.3, bias_std=0.2, sparsity=0.7, examples=30
    )
    found = kept.kept(spec, seed=4)
    inputs, labels = images("digits", 30, 4, flatten=True, dtype=torch.float64)
    net = mlp([64, *[15] * 5, 10], "tanh", weights=e0.Gaussian(1.3), biases=e0.Gaussian(0.2), seed=4,
              dtype=torch.float64)  # fmt: skip
    scores = plain_scores(net, inputs, labels)
    every = torch.cat([score.flatten() for score in scores])
    limit = every.sort().values[round(0.7 * len(every))]
    expected = [(score >= limit).double().mean(1).numpy() for score in scores]
    assert found["rows"] == pytest.approx(np.array(expected[:-1]), abs=1e-6)
    assert found["density"] == pytest.approx(np.array([rows.mean() for rows in expected]))
    assert found["dead"] == 0
    x = inputs.numpy()
    pairs = [x[i] @ x[j] / 64 for i in range(30) for j in range(30) if i != j]
    assert found["correlation"] == pytest.approx(np.mean(pairs) / np.mean(x**2))


def test_the_critical_sparsity_is_where_a_layer_dies() -> None:
    spec = Spec(depth=5, width=12, activation="tanh", weight_std=0.6, bias_std=0.3, examples=8)
    found = ordered.critical(spec, seed=3)
    inputs = torch.randn(8, 12, generator=generator(3, 0), dtype=torch.float64)
    labels = torch.randint(12, (8,), generator=generator(3, 1))
    net = mlp([12] * 6, "tanh", weights=e0.Gaussian(0.6), biases=e0.Gaussian(0.3), seed=3, dtype=torch.float64)
    scores = plain_scores(net, inputs, labels)
    every = torch.cat([score.flatten() for score in scores]).sort().values
    for removed in range(1, len(every) + 1):
        dead = [place for place, score in enumerate(scores) if bool((score <= every[removed - 1]).all())]
        if dead:
            break
    assert found == {"critical": pytest.approx(removed / len(every))}


def test_densities_of_residual_networks() -> None:
    spec = Spec(
        data="digits",
        depth=14,
        width=1,
        stable=True,
        activation="tanh",
        batch_norm="eval",
        examples=20,
        sparsities=(0.5, 0.9),
    )
    found = kept.densities(spec, seed=2)
    inputs, labels = images("digits", 20, 2, flatten=False, dtype=torch.float32)
    net = resnet(14, 1, True, 10, "tanh", inputs=(1, 8, 8), seed=2).eval()
    scores = plain_scores(net, inputs, labels)
    assert [score.numel() for score in scores] == found["weights"]
    every = torch.cat([score.flatten() for score in scores]).sort().values
    for place, sparsity in enumerate(spec.sparsities):
        expected = [float((score >= every[round(sparsity * len(every))]).double().mean()) for score in scores]
        assert found["density"][place] == pytest.approx(np.array(expected), abs=2e-3)
    total = np.dot(found["density"], found["weights"]) / sum(found["weights"])
    assert total == pytest.approx(np.array([0.5, 0.1]), abs=1e-4)


def test_correlations_along_a_chain() -> None:
    """Twin: the same chain by hand with its masks multiplied in, and cosines."""
    spec = Spec(blocks=4, width=9, data="digits", examples=6, pairs=3, sparsities=(0.0, 0.6))
    found = chains.correlations(spec, seed=1)
    assert found["snip"].shape == found["random"].shape == (2, 5)
    assert found["snip"][0] == pytest.approx(found["random"][0])
    inputs, labels = images("digits", 6, 1, flatten=True, dtype=torch.float64)
    net = e0.networks.residual_chain(4, 9, inputs=(64,), seed=1, dtype=torch.float64)
    scores = plain_scores(net, inputs, labels)
    every = torch.cat([score.flatten() for score in scores]).sort().values
    weights = [m.weight for m in net.modules() if isinstance(m, nn.Linear)]
    masked = [(w * (s >= every[round(0.6 * len(every))])).detach() for w, s in zip(weights, scores, strict=True)]
    for place, used in enumerate(([w.detach() for w in weights], masked)):
        y, rows = inputs @ used[0].T, []
        for w in used[1:-1]:  # the last one leads to the classes
            rows.append(float((1 - nn.functional.cosine_similarity(y[0:6:2], y[1:6:2], dim=1)).mean()))
            y = y + y.relu() @ w.T
        rows.append(float((1 - nn.functional.cosine_similarity(y[0:6:2], y[1:6:2], dim=1)).mean()))
        assert found["snip"][place] == pytest.approx(np.array(rows), rel=1e-9)


@pytest.mark.parametrize("stable", [False, True])
def test_second_moments_of_scores_are_those_of_the_chain_rule(stable: bool) -> None:
    """Two blocks by hand: y + s W relu(y), and a gradient g at the end."""
    spec = Spec(blocks=2, width=6, inputs=(4,), variance=3.0, stable=stable, networks=2)
    found, scale = chains.moments(spec, 5)["moments"], 2**-0.5 if stable else 1.0
    for row, source in zip(found, numpy_generator(5, 2).spawn(2), strict=True):
        x, g = (source.standard_normal((1, size))[0] for size in (4, 6))
        weights, seed = Gaussian(3.0**0.5), int(source.integers(2**31))
        net = residual_chain(2, 6, (4,), stable, None, weights=weights, seed=seed, dtype=torch.float64)
        first, second, third = (p.detach().numpy() for name, p in net.named_parameters() if name.endswith("weight"))
        y = first @ x
        after = y + scale * second @ np.maximum(y, 0)
        back = g + (after > 0) * (scale * third.T @ g)
        last = (third * scale * np.outer(g, np.maximum(after, 0))) ** 2
        before = (second * scale * np.outer(back, np.maximum(y, 0))) ** 2
        assert row == pytest.approx([before.mean(), last.mean()], rel=1e-10)


def test_second_moments_without_shortcuts_are_those_of_the_chain_rule() -> None:
    """Two tanh layers by hand, with an input whose variance is at its fixed point."""
    spec = Spec(blocks=2, width=6, inputs=(4,), variance=2.0, bias_std=0.4, networks=1)
    (row,), (source,) = chains.moments(spec, 5)["moments"], numpy_generator(5, 2).spawn(1)
    x, g = (source.standard_normal((1, size))[0] for size in (4, 6))
    laws = Gaussian(2.0**0.5), Gaussian(0.4)
    net = mlp([4, 6, 6], "tanh", *laws, seed=int(source.integers(2**31)), dtype=torch.float64)
    first, bias, second, _ = (p.detach().numpy() for p in net.parameters())
    x = x * ((q_star("tanh", 2.0**0.5, 0.4) - 0.16) / 2) ** 0.5
    h = np.tanh(first @ x + bias)
    back = (1 - h**2) * (second.T @ g)
    wanted = [((first * np.outer(back, x)) ** 2).mean(), ((second * np.outer(g, h)) ** 2).mean()]
    assert row == pytest.approx(wanted, rel=1e-10)


@pytest.mark.slow
def test_places_become_alike_at_the_rates_of_the_theory() -> None:
    """The second eigenvalue of the average over neighbours; the slope of the correlation map at its fixed point."""
    cells = {at["kind"]: spec.but(blocks=90) for at, spec, _ in setting_of("lemma1").cells()}
    for kind, spec in cells.items():
        last = chains.expected_difference(spec)[-20:]
        if kind == "residual networks":
            rate = (1 + (1 + 2 * math.cos(2 * math.pi / 8)) / 3) / 2
        else:
            std = spec.variance**0.5
            rate = math.exp(-1 / depth_scale("tanh", std, spec.bias_std).xi_c)
        assert last[1] / last[0] == pytest.approx(rate, rel=1e-3), kind
    narrow = cells["ordered phase"].but(blocks=2, width=5, networks=1)
    products = chains.places(narrow, 3)["products"]
    net = chains.network(narrow, int(numpy_generator(3, 2).spawn(1)[0].integers(2**31)))
    with torch.no_grad():
        y = net[0](torch.from_numpy(chains.two_inputs(narrow))).numpy()
    assert products.shape == (2, 16, 16)
    assert products[0, 2, 8 + 5] == pytest.approx((y[0, :, 2] * y[1, :, 5]).mean())


def test_magnitudes_of_unequal_layers() -> None:
    found = ordered.unequal_critical(Spec(depth=4, width=10, gamma=5.0), seed=7)["critical"]
    source = generator(7)
    layers = [torch.randn(100, generator=source, dtype=torch.float64).abs() for _ in range(4)]
    layers[0] = layers[0] / math.sqrt(5)
    every = torch.cat(layers).sort().values
    weakest = min(float(layer.max()) for layer in layers)
    assert found == pytest.approx((int((every < weakest).sum()) + 1) / 400)


def test_tickets_are_measured_and_masked_at_the_right_density() -> None:
    spec = Spec(kind="dense", activation="relu", depth=6, width=200, bias_std=0.0, factor=1.5)
    found = rescaled.measure(spec, seed=0)
    assert found["before"] == pytest.approx(1.5**2, rel=0.1) and found["after"] == pytest.approx(1, abs=0.1)
    tanh = Spec(kind="dense", activation="tanh", depth=6, width=200, bias_std=0.2, factor=2.0)
    edge, std = rescaled.stds(tanh)
    assert std == pytest.approx(2 * edge)
    assert edge**2 == pytest.approx(1.700796, abs=1e-5)
    assert edge**2 * rescaled.square(tanh) + 0.04 == pytest.approx(0.512078, abs=1e-5)  # q* from the first layer on
    assert rescaled.measure(tanh, seed=0)["after"] == pytest.approx(1, abs=0.1)


def test_layers_have_the_gains_of_their_factors_and_1_with_masks_of_their_own() -> None:
    spec = Spec(activation="relu", bias_std=0.0, depth=4, width=300, factor=1.0, factors=(1.2, 2.2))
    found = rescaled.layers(spec, 0)
    squares = np.array([2.2, 1.2, 2.2]) ** 2
    assert found["gain"][0] == pytest.approx(squares, rel=0.15) and found["gain"][2] == pytest.approx(1, abs=0.15)
    assert found["gain"][1] == pytest.approx(squares * (1.2**-2 + 2.2**-2) / 2, rel=0.15)
    tanh = spec.but(activation="tanh", bias_std=0.2)
    setting = setting_of("th4").but(kind={"tanh": {"activation": "tanh", "bias_std": 0.2}}, runs=1)
    cell = setting.but(depth=4, width=300, factors=(1.2, 2.2)).gather([rescaled.layers(tanh, 0)]).one()
    edge, c = edge_of_chaos("tanh", bias_std=0.2), 0.04 / q_star("tanh", rescaled.stds(tanh)[0], 0.2)
    for expected in rescaled.layer_table.__wrapped__(cell)[1]["correlation_on_edge"]:
        c = float(correlation_map("tanh", float(edge.weight_std), 0.2, np.array(c)))
        assert expected == pytest.approx(c, abs=1e-6)


@pytest.mark.parametrize(("shift", "word"), [(0.0, "holds"), (0.2, "fails")])
def test_theorem_4_can_fail(shift: float, word: str) -> None:
    setting, noise = setting_of("th4").but(runs=5), np.random.default_rng(0).standard_normal((10, 3, 6)) / 1000
    law = [
        rescaled.layer_table.__wrapped__(cell)[1]["correlation_on_edge"] for cell in setting.gather([{"gain": 1}] * 10)
    ]
    made = [{"gain": 1 + shift + each, "correlation": law[i // 5] - shift + each} for i, each in enumerate(noise)]
    claims = artifact_of("th4").decided(setting, made)[1]
    assert [claim.verdict for claim in claims[:2]] == [word] * 2 and (shift or claims[2].verdict == "fails")


# ---- what is computed beside the measurements


@pytest.mark.parametrize("gain", [0.1, 0.5, 0.95])
def test_weight_std_gives_the_gain(gain: float) -> None:
    std = ordered.weight_std(gain, 0.3)
    assert chi("tanh", std, q_star("tanh", std, 0.3)) == pytest.approx(gain, abs=1e-8)
    assert ordered.weight_std(gain, 0.0) == pytest.approx(math.sqrt(gain))


@pytest.mark.parametrize("gain", ordered.WEIGHT_STD)
def test_the_scales_written_down_are_the_solutions(gain: float) -> None:
    assert round(ordered.weight_std(gain, ordered.BIAS_STD), 9) == ordered.WEIGHT_STD[gain]


def test_the_chains_mean_field() -> None:
    """Against the correlation map of ReLU at q = 1, and its limit: 1/sqrt(1 - c) grows by alpha s/(2(1 + alpha))."""
    for density in (1.0, 0.3):
        found = chains.mean_field(density, 0.7, 6)
        c = 0.3
        for value in found[1:]:
            c = (c + density * float(correlation_map("relu", math.sqrt(2), 0.0, c, q=1.0))) / (1 + density)
            assert 1 - value == pytest.approx(c, rel=1e-6)
        far = chains.mean_field(density, 0.7, 1000) ** -0.5  # more, and q overflows
        slope = 2 * math.sqrt(2) / (3 * math.pi)  # of ReLU: f(c) = c + slope (1 - c)^(3/2) + ...
        expected = density * slope / (2 * (1 + density))
        assert far[-1] - far[-2] == pytest.approx(expected, rel=0.01)


def test_exponents_of_exact_powers() -> None:
    blocks = 200
    curves = np.stack([chains.mean_field(0.5, 0.6, blocks) * factor for factor in (1.0, 1.02)])
    assert chains.exponents(curves, 0.5, 40) == pytest.approx(np.array([-2.0, -2.0]), abs=0.1)
    decay = np.exp(-0.2 * np.arange(blocks + 1))[None] * 0.6
    assert chains.exponents(decay, 0.5, 40)[0] < -8


def test_unevenness() -> None:
    names = ["conv1", "layer1.0.conv1", "layer1.0.conv2", "layer1.0.downsample.0", "layer2.0.conv1", "layer2.0.conv2"]
    density = np.array([[0.9, 0.2, 0.2, 0.5, 0.1, 0.3], [0.9, 0.1, 0.3, 0.5, 0.0, 0.0]])
    assert kept.sections(names) == [[1, 2], [4, 5]]
    # a section of which nothing is left is as uneven as one that keeps a single layer
    assert kept.unevenness(density, names) == pytest.approx(np.array([(0 + 0.5) / 2, (0.5 + 1) / 2]))


def made(setting, density, dead):
    row = {"rows": np.full((setting.spec.depth - 1, setting.spec.width), 0.3, dtype=np.float32), "critical": 0.9,
           "correlation": 0.4, "square": 1.0, "dead": dead}  # fmt: skip
    results = [{**row, "density": np.clip(density + 0.001 * network, 0, 1)} for network in range(setting.runs)]
    return artifact_of("fig1a").read(setting, results)


def decided(claims, found):
    return [decide(text) for text, decide in claims(found).items()]


def test_figure_1s_claims_come_out_each_way() -> None:
    setting = tiny("fig1a").but(runs=6)
    depth = setting.spec.depth
    even = decided(kept.edge_claims, made(setting, np.full(depth, 0.3), 0))
    assert [claim.verdict for claim in even[:3]] == ["holds", "holds", "holds"]
    falling = made(setting, np.linspace(0.9, 0.0, depth), 2)
    assert [claim.verdict for claim in decided(kept.edge_claims, falling)[:2]] == ["fails", "fails"]
    assert [claim.verdict for claim in decided(kept.chaotic_claims, falling)[:3]] == ["holds", "holds", "holds"]
    rising = made(setting, np.linspace(0.0, 0.9, depth), 0)
    assert [claim.verdict for claim in decided(kept.chaotic_claims, rising)[:3]] == ["fails", "fails", "fails"]


def test_a_batch_is_drawn_by_seed() -> None:
    one, labels = images("digits", 12, 5, flatten=True, dtype=torch.float64)
    again, _ = images("digits", 12, 5, flatten=False, dtype=torch.float64)
    other, _ = images("digits", 12, 6, flatten=True, dtype=torch.float64)
    assert one.shape == (12, 64) and again.shape == (12, 1, 8, 8) and labels.shape == (12,)
    assert torch.equal(one, again.flatten(1)) and not torch.equal(one, other)
