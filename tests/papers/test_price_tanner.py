"""Price-Tanner's figures: measured as plain code measures, and every claim comes out each way on made-up results."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch

from epoch0.data import load
from epoch0.errors import InputError
from epoch0.experiments.claims import VERDICTS
from epoch0.experiments.experiment import resolve
from epoch0.papers import catalogue, tables
from epoch0.papers.price_tanner import growth, statements
from epoch0.papers.reproduce import planned
from epoch0.papers.sweep import Spec
from epoch0.papers.trials import CurveSpec
from epoch0.seeds import numpy_generator
from epoch0.theory import growth as theory
from pictures import whole_picture

SWEEPS = ("fig2", "fig3a", "fig3b", "fig5a", "fig5b", "fig5c", "fig5d")


def setting_of(figure, preset="quick"):
    return catalogue.find(f"price-tanner/{figure}").setting(preset)


def tiny(figure):
    """The figure's own quick setting with few and shallow networks."""
    setting = setting_of(figure)
    if figure == "fig1":
        few = growth.circles(12, 5, 2).but(depth=3, tangents=8)
        drawn = few["drawing"].but(network=few.spec.but(first=0, networks=1), shown=(1, 3), points=200)
        return few.but(also={"drawing": drawn})
    if figure in ("fig4a", "fig4b"):
        return setting.but(size=(3, 12, 40), vectors=6, draws=60)
    if figure == "th2":
        return setting.but(networks=3)
    if figure == "lemma1":
        return setting.but(laws=6)
    if figure == "lemma10":
        return setting.but(blocks=3, draws=20)
    return setting.but(depth=3, runs=5, block=2)


def results_of(artifact, setting):
    return [resolve(trial.function)(trial.spec, trial.seed) for trial in artifact.trials(setting)]


# ---- every figure, small


@pytest.mark.sample(1)
@pytest.mark.parametrize("figure", ["fig1", *SWEEPS, "fig4a", "fig4b", "lemma1", "lemma10", "th2"])
def test_a_figure_runs_small_through_the_same_code(figure: str) -> None:
    artifact, setting = catalogue.find(f"price-tanner/{figure}"), tiny(figure)
    results = results_of(artifact, setting)
    rows, claims, *_ = artifact.decided(setting, results)
    assert rows and all(row.keys() == rows[0].keys() for row in rows)
    for claim in claims:
        assert claim.verdict in VERDICTS and any(letter.isdigit() for letter in claim.evidence)
    picture = whole_picture(artifact, setting, results)
    measured = [axes for axes in picture.axes if axes.get_xlabel()]
    assert measured and all(axes.get_ylabel() for axes in measured)
    assert any(axes.containers for axes in measured), "no error bars"
    assert picture.legends or any(axes.get_legend() for axes in picture.axes)
    counted = {"fig4a": "vectors", "fig4b": "vectors", "th2": "networks", "lemma1": "laws", "lemma10": "blocks"}.get(
        figure, "runs"
    )
    assert f"{setting[counted]} " in artifact.caption(setting)


def test_the_paper_preset_is_the_papers_setting() -> None:
    three_b, three_a, two = (setting_of(figure, "paper") for figure in ("fig3b", "fig3a", "fig2"))
    for setting in (three_b, three_a, two):
        assert (setting["width"], setting["depth"], setting.runs) == (784, 10, 100)
        (curve,) = setting.axes["curve"].values()
        assert (curve.ends, curve.first, curve.second, curve.shape) == ("mnist", 100, 1000, "line")
    assert three_b["std"] == (2.0,) and three_b["density"] == tuple(i / 10 for i in range(1, 11))
    assert three_a["density"] == (0.5,) and len(three_a["law"]) == len(three_b["law"]) == 3
    assert two["law"] == ("gaussian",) and two["std"] == (6.0,)
    assert two["density"] == tuple(i / 10 for i in range(1, 10))
    curved = setting_of("fig5c", "paper").axes["curve"]["curved"]
    assert (curved.size, curved.shape, curved.planes) == (500, "arcs", 100)
    assert setting_of("fig1", "paper")["std"] == 2.0


def test_the_paper_preset_without_mnist_is_a_clear_error(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("EPOCH0_DATA", str(tmp_path))
    with pytest.raises(InputError, match=r"mnist was not found.*epoch0 data fetch mnist"):
        planned(["price-tanner/fig3b"], "paper", None)
    trial = setting_of("fig3b", "paper").trials()[0]
    with pytest.raises(InputError, match=r"mnist \(test\) was not found.*epoch0 data fetch mnist"):
        growth.block(trial.spec, trial.seed)


def test_straight_and_curved_figures_share_their_trials() -> None:
    for pair in (("fig5a", "fig5c"), ("fig5b", "fig5d")):
        artifacts = [catalogue.find(f"price-tanner/{figure}") for figure in pair]
        one, other = ({trial.key for trial in a.trials(a.setting("quick"))} for a in artifacts)
        assert one == other


# ---- the trial


def test_laws_have_equal_variance_and_the_papers_sets() -> None:
    for largest, std in zip(growth.LARGEST, growth.STDS, strict=True):
        laws = [growth.weight_law(law, std) for law in growth.BIASES]
        np.testing.assert_allclose([law.variance for law in laws], std**2, rtol=1e-12)
        np.testing.assert_allclose(laws[2].law.values, range(-largest, largest + 1), atol=1e-12)
    assert growth.weight_law("gaussian", 2.0, 0.3).variance == pytest.approx(1.2)
    assert growth.BIASES["discrete"].values == (-0.01, 0.01) and growth.BIASES["uniform"].bound == 0.01


def spec_of(**changes):
    fields = {"law": "gaussian", "std": 2.0, "density": 0.5, "width": 20, "depth": 3, "tangents": 2000}
    return Spec(**{"curve": CurveSpec("random", size=20), **fields, "first": 0, "networks": 4, **changes})


@pytest.mark.parametrize("shape", ["line", "arcs", "circle"])
def test_a_block_measures_what_many_chords_do(shape: str) -> None:
    spec = spec_of(curve=CurveSpec("random", shape, size=20, planes=3))
    found = growth.block(spec, seed=5)
    curve = spec.curve.curve()
    for index, net in enumerate(growth.networks(spec, 5)):
        value = curve.point(torch.linspace(0, 1, 20_001, dtype=torch.float64)).double()
        lengths = [value.diff(dim=0).norm(dim=1).sum().item()]
        for layer in net.double():
            value = layer(value)
            if isinstance(layer, torch.nn.ReLU):
                lengths.append(value.diff(dim=0).norm(dim=1).sum().item())
        # kinks of the ReLUs fall between the 2,000 tangents: the offset grid is exact up to a few pieces in 2,000
        np.testing.assert_allclose(found["lengths"][index], lengths, rtol=3e-3)
        if shape != "line":
            continue
        # a straight line's pieces are all alike, so that the first layer's growth is the ratio of the lengths
        ratio = found["growth"][index][0] * lengths[0] / lengths[1]
        assert ratio == pytest.approx(1, rel=3e-3)


def test_a_network_is_the_same_in_whatever_block() -> None:
    spec = spec_of(networks=5, tangents=16)
    whole = growth.block(spec, seed=2)
    for first, count in ((0, 2), (2, 2), (4, 1)):
        part = growth.block(spec.but(first=first, networks=count), seed=2)
        for name in ("lengths", "growth"):
            np.testing.assert_array_equal(part[name], whole[name][first : first + count])


def test_points_are_images_of_norm_1() -> None:
    spec = CurveSpec("digits", size=64, first=3, second=8)
    images = load("digits", "test").inputs("norm", dtype=np.float64)
    start, end = spec.points()
    np.testing.assert_allclose(torch.stack([start, end]).numpy(), images[[3, 8]], atol=1e-7)


def test_the_circle_is_a_unit_circle_about_the_origin() -> None:
    points = CurveSpec("random", "circle", size=30).curve().point(np.linspace(0, 1, 50)).double()
    np.testing.assert_allclose(points.norm(dim=1).numpy(), 1, atol=1e-6)
    np.testing.assert_allclose(points[0].numpy(), points[-1].numpy(), atol=1e-6)


# ---- means


def test_mean_growth_is_the_plain_mean_and_its_error_is_over_networks() -> None:
    values = np.random.default_rng(0).normal(1.0, 0.1, (50, 10))
    mean, error, networks = tables.mean_growth(values)
    assert (mean, networks) == (pytest.approx(values.mean()), 50)
    assert error == pytest.approx(values.mean(1).std(ddof=1) / math.sqrt(50))
    assert math.isnan(tables.mean_growth(values[:1])[1])


def test_a_dead_network_does_not_pull_the_mean_down() -> None:
    # growth 2 for ever, or 2 until a layer that kills (a coin in four): given that something arrives, 1.5 on average
    source = np.random.default_rng(1)
    kills = source.random((4000, 10)) < 0.25
    values = np.where(kills, 0.0, 2.0)
    values[np.cumsum(np.cumsum(kills, 1), 1) > 1] = np.nan
    mean, error, _ = tables.mean_growth(values)
    assert abs(mean - 1.5) < 4 * error  # a fair coin fails this once in 16,000
    assert 0.0 < error < 0.02 and np.nanmean(values, axis=1).mean() < 1.4


def test_mean_and_error() -> None:
    assert tables.mean_and_error(np.array([1.0, 2.0, 3.0])) == (2.0, pytest.approx(3**-0.5))
    mean, error = tables.mean_and_error(np.ones((1, 4)))
    assert mean.shape == error.shape == (4,) and np.isnan(error).all()


# ---- claims of the sweeps, on made-up growth factors


def made_up(setting, growth_of, noise=0.003, seed=0):
    """Results whose growth factors are growth_of(point) in the mean, over every layer and network."""
    source, results = np.random.default_rng(seed), []
    for spec in [trial.spec for trial in setting.trials()]:
        shape = (spec.networks, spec.depth)
        factors = growth_of(spec) * (1 + noise * source.standard_normal(shape))
        lengths = np.cumprod(np.concatenate([np.ones((shape[0], 1)), factors], 1), 1)
        results.append({"growth": factors, "lengths": lengths})
    return results


def true_growth(point):
    """The middle of the exact range of Gaussian weights at the quick presets' width of 64; exact for dense ones."""
    entry = growth.weight_law("gaussian", point.std, point.density).scaled(1 / 8)
    return (theory.sparse_minimum(entry, 64) + theory.sparse_maximum(entry, 64)) / 2


def claims_of(figure, setting, results):
    return catalogue.find(f"price-tanner/{figure}").decided(setting, results)[1]


def verdicts(claims):
    return {claim.text: claim.verdict for claim in claims}


def verdict(claims, part):
    (found,) = {value for text, value in verdicts(claims).items() if part in text}
    return found


def test_all_claims_of_the_sweeps_hold_where_the_theory_does() -> None:
    for figure in ("fig3a", "fig5b"):
        setting = setting_of(figure).but(runs=40)
        told = verdicts(claims_of(figure, setting, made_up(setting, true_growth)))
        assert set(told.values()) == {"holds"}, told


DENSITY_CASES = [
    ("lower bound (Corollaries", lambda p: 0.3 * p.density, "fails"),
    ("fourth-moment lower", lambda p: 0.8 * true_growth(p), "fails"),
    ("second-moment upper", lambda p: 1.1 * true_growth(p), "fails"),
    ("exact range", lambda p: 0.95 * true_growth(p), "fails"),
    ("shape sqrt(density), not density (gaussian)", lambda p: 1.4 * p.density, "fails"),
    ("growth is 1 at density 0.5", lambda p: 1.2 * true_growth(p), "fails"),
    ("growth is 1 at density 0.5", true_growth, "holds"),
    ("approximately 1.5", true_growth, "fails"),
    ("approximately 1.5", lambda p: 1.07 * true_growth(p), "holds"),
    ("dense Gaussian growth", lambda p: 1.07 * true_growth(p), "fails"),
    ("dense Gaussian growth", true_growth, "holds"),
    ("three laws", lambda p: true_growth(p) * (1.03 if p.law == "uniform" else 1.0), "fails"),
]


@pytest.mark.parametrize(("part", "growth_of", "expected"), DENSITY_CASES)
def test_claims_about_the_density_come_out_each_way(part, growth_of, expected) -> None:
    setting = setting_of("fig3b").but(runs=40)
    assert verdict(claims_of("fig3b", setting, made_up(setting, growth_of)), part) == expected


def test_noise_leaves_claims_undecided_and_says_what_would_decide() -> None:
    setting = setting_of("fig3b").but(runs=6)
    claims = claims_of("fig3b", setting, made_up(setting, true_growth, noise=1.5))
    agree = next(claim for claim in claims if "three laws" in claim.text)
    assert agree.verdict == "undecided" and agree.needed is not None and agree.needed > 6


def test_growth_that_depends_on_the_trajectory_is_found() -> None:
    setting = setting_of("fig5c").but(runs=40)
    bent = made_up(setting, lambda p: true_growth(p) * (1.05 if p.curve.shape == "arcs" else 1.0))
    assert verdict(claims_of("fig5c", setting, bent), "straight and curved") == "fails"


def test_growth_that_is_not_linear_in_the_std_is_found() -> None:
    setting = setting_of("fig3a").but(runs=40)
    claims = claims_of("fig3a", setting, made_up(setting, lambda p: 0.1 * p.std**2 + 0.2 / p.std))
    assert all(claim.verdict == "fails" for claim in claims if "linear" in claim.text)


def test_claims_about_the_depth_come_out_each_way() -> None:
    setting = setting_of("fig2").but(runs=40)
    good = claims_of("fig2", setting, made_up(setting, true_growth))
    assert {claim.verdict for claim in good} == {"holds"} and len(good) == 12
    level = claims_of("fig2", setting, made_up(setting, lambda p: 1.6 - p.density))
    assert verdict(level, "slope of log length") == "fails"
    assert verdict(claims_of("fig2", setting, made_up(setting, lambda p: 0.1)), "Corollary 1") == "fails"
    assert verdict(claims_of("fig2", setting, made_up(setting, lambda p: 7.0)), "second-moment") == "fails"
    early = np.r_[np.full(3, 4.0), np.full(7, 1.02)]  # grows in the first layers only: not exponential
    bent = made_up(setting, lambda p: early * (1 + 0.01 * p.density))
    assert verdict(claims_of("fig2", setting, bent), "linear in depth (density 0.5)") == "fails"


# ---- sub-vectors


def test_norms_of_subvectors_match_the_mean_over_all_subsets() -> None:
    spec = Spec(direction="sphere", size=6, densities=(0.3, 0.7, 1.0), vectors=3, draws=40_000)
    found = statements.norms(spec, seed=4)["norms"]
    for vector in range(3):
        u = numpy_generator(4, vector).standard_normal(6)
        u /= np.linalg.norm(u)
        for place, density in enumerate(spec.densities):
            mean = sum(
                math.prod(density if kept else 1 - density for kept in subset) * np.linalg.norm(u * subset)
                for subset in itertools.product((0, 1), repeat=6)
            )
            # the norm is in [0, 1], so that its standard error is below 0.5 / 200; 4 of them: 1 in 16,000 a comparison
            assert abs(found[vector, place] - mean) < 0.01
        assert found[vector, 2] == pytest.approx(1, abs=1e-12)


def test_one_entry_is_kept_as_often_as_the_density_says() -> None:
    spec = Spec(direction="one-hot", size=9, densities=(0.2, 1.0), vectors=2, draws=20_000)
    found = statements.norms(spec, seed=0)["norms"]
    assert np.abs(found[:, 0] - 0.2).max() < 0.0142  # five standard errors
    np.testing.assert_array_equal(found[:, 1], 1)


def test_large_vectors_are_drawn_in_pieces_with_the_same_numbers(monkeypatch) -> None:
    spec = Spec(direction="sphere", size=10, densities=(0.5,), vectors=2, draws=1000)
    whole = statements.norms(spec, seed=0)["norms"]
    monkeypatch.setattr(statements, "_AT_ONCE", 70)
    np.testing.assert_allclose(statements.norms(spec, seed=0)["norms"], whole, rtol=1e-12)


SHAPES = [
    ("fig4a", lambda k, a: theory.expected_subvector_norm("sphere", a, k), {"shape": "holds", "tight": "holds"}),
    ("fig4a", lambda k, a: a, {"shape": "fails", "exact": "fails", "tight": "fails"}),
    ("fig4a", lambda k, a: 1.2 * a**0.5, {"at most": "fails"}),
    ("fig4a", lambda k, a: 0.9 * a, {"Lemma 7": "fails"}),
    ("fig4a", lambda k, a: a**0.5 * (1 - 0.0001 * k), {"approaches": "fails"}),
    ("fig4b", lambda k, a: a, {"attained": "holds", "shape": "holds", "depend on k": "holds"}),
    ("fig4b", lambda k, a: a**0.5 * 0.99, {"attained": "fails", "shape": "fails"}),
    ("fig4b", lambda k, a: a * (1 - 0.0002 * k), {"depend on k": "fails"}),
]


@pytest.mark.parametrize(("figure", "norm_of", "expected"), SHAPES)
def test_claims_about_subvectors_come_out_each_way(figure, norm_of, expected) -> None:
    setting, source = setting_of(figure).but(vectors=30), np.random.default_rng(0)
    results = []
    for size in setting["size"]:
        mean = np.array([norm_of(size, density) for density in setting["densities"]])
        noise = 1 + 0.004 * source.standard_normal((30, len(mean))) * (np.array(setting["densities"]) < 1)
        results.append({"norms": mean * noise})
    claims = claims_of(figure, setting, results)
    assert {part: verdict(claims, part) for part in expected} == expected


# ---- the circle


def test_the_projection_is_onto_the_two_directions_of_largest_variance() -> None:
    points = np.random.default_rng(0).standard_normal((400, 7)) * np.arange(7, 0, -1)
    path, share = growth.projected(points)
    values = np.sort(np.linalg.eigvalsh(np.cov(points.T)))[::-1]
    np.testing.assert_allclose(path.var(axis=0, ddof=1), values[:2], rtol=1e-10)
    assert share == pytest.approx(values[:2].sum() / values.sum())


def test_the_first_layer_is_drawn_whole_as_an_ellipse_of_the_length_that_is_told() -> None:
    setting = tiny("fig1")
    drawn = results_of(catalogue.find("price-tanner/fig1"), setting)[-1]
    assert drawn["shares"][0] == pytest.approx(1, abs=1e-9) and drawn["shares"][1] < 1
    chords = np.linalg.norm(np.diff(drawn["paths"][0], axis=0), axis=1)
    assert chords.sum() == pytest.approx(drawn["lengths"][0], rel=1e-3)  # 199 chords of a circle: 2e-4 too short


@pytest.mark.parametrize(
    ("factor", "expected"),
    [
        (1.0, ("holds", "holds", "holds", "holds")),
        (0.6, ("holds", "fails", "holds", "fails")),  # the proof of Theorem 1 has 0.71 of the exact growth
        (0.3, ("fails", "fails", "holds", "fails")),
        (1.05, ("holds", "holds", "fails", "fails")),
    ],
)
def test_claims_about_the_circle_come_out_each_way(factor: float, expected: tuple[str, ...]) -> None:
    setting = setting_of("fig1").but(runs=40, block=40)
    exact = theory.exact(growth.weight_law("gaussian", 2.0).law.scaled(setting["width"] ** -0.5), setting["width"])
    factors = factor * exact * (1 + 0.003 * np.random.default_rng(0).standard_normal((40, 10)))
    lengths = 2 * math.pi * np.cumprod(np.concatenate([np.ones((40, 1)), factors], 1), 1)
    shown = len(setting.also["drawing"]["shown"])
    drawn = {"paths": np.zeros((shown, 5, 2)), "shares": np.ones(shown), "lengths": np.ones(shown)}
    claims = claims_of("fig1", setting, [{"lengths": lengths, "growth": factors}, drawn])
    assert tuple(claim.verdict for claim in claims) == expected


def test_lemma_9_is_false_of_skewed_variables() -> None:
    """All four outcomes of two of them, one by one; the claim has the same ratio."""
    chances = {0.01: 1 / 1.01, -1.0: 0.01 / 1.01}
    assert sum(value * chance for value, chance in chances.items()) == pytest.approx(0)
    above = sum(p * q * abs(x - y) for x, p in chances.items() for y, q in chances.items())
    below = sum(p * q * math.hypot(x, y) for x, p in chances.items() for y, q in chances.items())
    artifact, setting = catalogue.find("price-tanner/lemma10"), tiny("lemma10")
    claim = artifact.decided(setting, results_of(artifact, setting))[1][-1]
    assert claim.verdict == "fails" and claim.evidence.startswith(f"{above / below:.4f} ") and above / below < 0.59


def test_even_laws_against_draws_and_sums_by_hand() -> None:
    """The first random law that is not even: Lemma 5 by a million draws, Lemmas 2, 4 and 6 point by point."""
    found = statements.even(Spec(laws=1), 5)
    source = numpy_generator(5)
    masses = source.exponential(size=64) ** 3
    grid = list(itertools.product((-2, -1, 1, 2), repeat=3))
    p = dict(zip(grid, masses / masses.sum(), strict=True))
    mirror = {point: p[tuple(-value for value in point)] for point in grid}
    assert found["dropped"][0, 1] == pytest.approx(sum(abs(p[one] - mirror[one]) for one in grid) / 2)
    pair = dict.fromkeys(itertools.product((-2, -1, 1, 2), repeat=2), 0.0)
    for (x, y, _), mass in p.items():
        pair[x, y] += mass
    assert found["dropped"][0, 3] == pytest.approx(sum(abs(pair[x, y] - pair[-x, -y]) for x, y in pair) / 2)
    above = sum((p[one] + mirror[one]) * abs(one[0]) for one in grid if one[1] == 2)
    above /= sum(p[one] + mirror[one] for one in grid if one[1] == 2)
    whole = sum((p[one] + mirror[one]) * abs(one[0]) for one in grid) / 2
    assert found["dropped"][0, 5] == pytest.approx(abs(above / whole - 1))
    draws = np.array(grid)[source.choice(64, 10**6, p=list(p.values()))] + source.standard_normal((10**6, 3))
    ratio = abs(draws[draws[:, 1] > 0, 0]).mean() / abs(draws[:, 0]).mean()
    assert found["dropped"][0, 4] == pytest.approx(abs(ratio - 1), abs=0.006)  # five standard errors
    sums = Counter(map(sum, grid)).values()
    assert found["dropped"][0, 6] == pytest.approx(1 - min(sums) / max(sums)) and (found["kept"] < 1e-12).all()


@pytest.mark.parametrize(("kept", "dropped", "words"), [(0.0, 0.2, "hh"), (0.2, 0.0, "ff")])
def test_claims_on_even_laws_can_fail(kept: float, dropped: float, words: str) -> None:
    artifact, setting = catalogue.find("price-tanner/lemma1"), tiny("lemma1")
    noise = 1 + numpy_generator(0).standard_normal((6, 7)) / 100
    claims = artifact.decided(setting, [{"kept": kept * noise, "dropped": dropped * noise}])[1]
    assert "".join(claim.verdict[0] for claim in claims) == words


# ---- whole presets


@pytest.mark.slow
def test_theorem_2_multiplies_what_each_layer_has_and_is_refused_where_it_is_not_so() -> None:
    """Three layers by hand: alpha M sqrt(k) / 2 with M = std sqrt(2/pi), E abs(w) / sqrt 2, the same."""
    artifact, setting = catalogue.find("price-tanner/th2"), setting_of("th2").but(networks=4)
    results = results_of(artifact, setting)
    row = artifact.read(setting, results).table.where(
        shape="narrowing", weights="densities 1, .5, .2, .8", biases="with biases", layer=3
    )[0]
    one = 2 / 200**0.5 * (2 / np.pi) ** 0.5 * 200**0.5 / 2
    two = 0.5 * 2 * 3**0.5 / 2 / 200**0.5 / 2**0.5 * 100**0.5 / 2  # E abs(w) of a uniform law is half of its end
    three = 0.2 * 2 * (12 / 7) / 4**0.5 / 100**0.5 / 2**0.5 * 50**0.5 / 2  # -3 to 3: E abs(w) is 12/7, the variance 4
    assert np.isclose(row["lower"] / row["start"], one * two * three)
    for factor in (1.0, 1e-4):
        scaled = [{"lengths": one["lengths"] * np.array([1.0, *[factor] * 4])} for one in results]
        claims = artifact.decided(setting, scaled)[1]
        assert (claims[0].verdict == "fails") is (factor < 1)
