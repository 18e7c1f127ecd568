"""Raghu's figures without training: small settings from trial to picture, against what is known in advance."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from epoch0.activity import transitions
from epoch0.curves import Arc
from epoch0.distributions import Gaussian
from epoch0.experiments.claims import VERDICTS
from epoch0.experiments.experiment import resolve
from epoch0.networks import ensemble
from epoch0.papers.catalogue import find
from epoch0.papers.raghu import statements
from epoch0.papers.raghu.transitions import saturated_growth, wide_limit
from epoch0.papers.sweep import Spec
from epoch0.seeds import generator
from epoch0.theory.mean_field import chi, q_star
from pictures import whole_picture

# the first forward derivative loads a part of torch that uses its own deprecated script compiler
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")

CURVES = ("fig2", "fig5", "fig12", "fig13a", "fig13b", "fig13c", "fig13d", "th3")
STATEMENTS = ("lemma1", "th1", "th4", "sec31")
SWEEPS = ("fig14a", "fig14b", "fig15", "fig16")


def small(name: str):
    """An artifact and a setting that runs in a second."""
    artifact = find(f"raghu/{name}")
    setting = artifact.setting("quick")
    if name in SWEEPS:
        cases = {"depth layer": ((2, 1), (3, 1), (3, 2))} if name == "fig15" else {"width": (4, 8), "depth": (1, 2, 4)}
        return artifact, setting.but(**cases, runs=2, block=1, inputs=5, size=10)
    if name == "lemma1":
        return artifact, setting.but(blocks=3, entries=2000, k=(5, 12))
    if name == "th1":
        return artifact, setting.but(neurons=6, networks=3, layers=(1, 2, 3))
    if name == "sec31":
        circles = setting.also["dual"].but(networks=2, steps=100, width=6, depth=(1, 2))
        return artifact, setting.but(width=6, depth=3, networks=2, runs=2, also={"dual": circles})
    if name == "th4":
        pairs = {"biased variance": ((0.0, 1e4), (0.0, 1e8), (1.0, 1e8))}
        return artifact, setting.but(width=(8, 16, 24), runs=5, block=5, **pairs)
    widths = (16,) if name == "fig13b" else (8, 16)
    return artifact, setting.but(width=widths, depth=5, runs=3, block=2)


def run(artifact, setting) -> list[dict]:
    return [resolve(trial.function)(trial.spec, trial.seed) for trial in artifact.trials(setting)]


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", CURVES + SWEEPS + STATEMENTS)
def test_from_trial_to_picture(name: str) -> None:
    artifact, setting = small(name)
    results = run(artifact, setting)
    rows, claims, *_ = artifact.decided(setting, results)
    assert rows and all(np.isfinite(v) for row in rows for v in row.values() if isinstance(v, float))
    assert claims and {claim.verdict for claim in claims} <= set(VERDICTS)
    whole_picture(artifact, setting, results)


def test_trials_count_what_the_library_counts() -> None:
    artifact, setting = small("fig2")
    trial = artifact.trials(setting)[0]
    spec = trial.spec
    result = resolve(trial.function)(spec, trial.seed)
    start, end = (8.0 * point for point in spec.ends.points())
    law = Gaussian(spec.variance**0.5)
    nets = ensemble(2, [64] + [8] * 5, "hardtanh", law, linear_output=False, seed=trial.seed)
    assert (result["transitions"] == transitions(nets, Arc(start, end)).per_layer).all()
    assert result["lengths"].shape == (2, 6)


def test_figures_2_and_5_share_their_trials() -> None:
    two, five = find("raghu/fig2"), find("raghu/fig5")
    trials = two.trials(two.setting("quick"))
    assert [t.key for t in trials] == [t.key for t in five.trials(five.setting("quick"))]
    assert [t.spec.first for t in trials] == [0, 10, 20, 30] * 9 and {t.spec.networks for t in trials} == {10}


def test_sweeps_stay_below_all_labellings() -> None:
    artifact, setting = small("fig14a")
    results = run(artifact, setting)
    assert all((r["counts"] <= 2**5).all() and (r["counts"] <= r["flips"]).all() for r in results)
    assert all((r["flips"] % 2 == 0).all() for r in results)


def test_wide_limit() -> None:
    """It tends to sqrt(chi(q*)), and for ReLU it is sqrt(sigma_w^2 / 2) at once."""
    assert wide_limit("relu", 3.0, 4) == pytest.approx([1.5**0.5] * 4)
    settled = chi("hardtanh", 2.0, q_star("hardtanh", 2.0, 0.0))
    assert wide_limit("hardtanh", 4.0, 60)[-1] == pytest.approx(settled**0.5)
    slow = wide_limit("hardtanh", 1.0, 9)
    assert all(a < b < 1 for a, b in pairwise(slow))


def test_networks_of_signs_flip_as_often_as_the_law_says() -> None:
    """One of k signs flips: how many of k random half-spaces with biases turn round, over 20,000 draws."""
    source = np.random.default_rng(0)
    for width, biased in ((4, 0.0), (9, 1.0), (25, 4.0)):
        weights = source.standard_normal((20_000, width))
        whole = weights.sum(1) + np.sqrt(biased * width) * source.standard_normal(20_000)
        flips = np.sign(whole) != np.sign(whole - 2 * weights[:, 0])
        error = width * flips.std() / 20_000**0.5
        assert abs(width * flips.mean() - saturated_growth(width, biased)) < 4.5 * error


def test_a_change_of_weights_is_that_of_a_difference() -> None:
    spec = Spec(variance=4.0, width=12, depth=3, networks=1)
    ((net, x, other),) = list(statements._nets(spec, 1))
    found = statements.shaken(spec, 1)["change"][0]
    with torch.no_grad():
        value = net(x)
        for layer, size in enumerate(found):
            before = net[2 * layer].weight.clone()
            net[2 * layer].weight += 1e-7 * other[2 * layer].weight
            assert float(((net(x) - value) / 1e-7).norm() / value.norm()) ** 2 == pytest.approx(size, rel=1e-4)
            net[2 * layer].weight.copy_(before)


def test_parts_of_a_matrix_are_those_of_rotations() -> None:
    """As the proof of Lemma 1 has them: first entries behind rotations of x and y to the first axis."""
    k, law = 5, Gaussian(1.0)
    found, source = statements.halves(Spec(k=k, law=law, blocks=1, entries=4 * k**2), 3), generator(3)
    y = torch.randn(k, generator=source, dtype=torch.float64).numpy()
    w = law.sample((4, k, k), source, torch.float64).numpy()
    noise = np.random.default_rng(0).standard_normal((2, k, k - 1))
    v, u = (np.linalg.qr(np.c_[one, more])[0] for one, more in zip((np.ones(k), y), noise, strict=True))
    turned, z = u.T @ w @ v, v.T @ np.r_[1, -1, np.zeros(k - 2)] / 2**0.5
    assert np.linalg.norm(turned[:, 1:, 1:] @ z[1:], axis=1).mean() == pytest.approx(found["across"][0])
    back = u[:, 1:] @ (turned[:, 1:, 1:] @ z[1:])[..., None]
    assert np.linalg.norm(back[:, :3, 0], axis=1).mean() == pytest.approx(found["some"][0])
    rows = [(w @ v)[:, :, :1], (w @ v)[:, :, 1:]]
    assert np.corrcoef(*((part**2).sum(2).ravel() for part in rows))[0, 1] == pytest.approx(found["squares"][0])
    assert found["norm"][0] == pytest.approx(np.mean([math.sqrt(sum(row**2)) for row in w.reshape(-1, k)]))


def test_the_inequality_of_gammas_to_forty_digits() -> None:
    """Where least is left, at the largest x, and at the place where it fails."""
    import mpmath  # comes with torch

    artifact, setting = small("lemma1")
    told = {claim.text: claim for claim in artifact.decided(setting, run(artifact, setting))[1]}

    def left(x, s):
        ratio = mpmath.gamma(x + 1) / mpmath.gamma(x + s)
        low, high = (x + s / 2) ** (1 - s), (x - 0.5 + mpmath.sqrt(s + 0.25)) ** (1 - s)
        return 1 - low / ratio, high / ratio - 1

    with mpmath.workdps(40):
        least = min(min(left(mpmath.mpf(1000), mpmath.mpf(i) / 20)) for i in range(1, 20))
        off = left(mpmath.mpf("-0.36"), mpmath.mpf("0.75"))[1]
    assert told["Theorem 6 for x > 0"].evidence == f"{float(least):.1e} is left at the least" and least > 0
    assert told["Theorem 6 as printed, for all x"].evidence.startswith(f"{float(off):.1%}") and off < 0


def test_the_expected_change_is_that_of_a_wide_network() -> None:
    """Width 600, a linear range so wide that only some units saturate; five networks."""
    spec = Spec(variance=4.0, width=600, depth=3, networks=5)
    found, law = statements.shaken(spec, 2)["change"].mean(0), statements.expected_change(spec)
    assert found == pytest.approx(law, rel=0.1)
    assert law[0] > law[1] > law[2] > 1


def test_patterns_are_counted_and_the_construction_has_as_many_as_it_should() -> None:
    found = statements.chain(Spec(layers=2, neurons=6, networks=4), 0)
    assert found["folded"] == 3**2 + 1 and found["repeated"] == 0  # nine pieces, and x < 0
    assert (found["random"] <= 16).all() and ((found["back"] >= 0) & (found["back"] < 1)).all()
