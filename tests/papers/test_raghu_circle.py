"""Raghu Figure 3: lengths against dense chords of the very images, and claims that fail where they are false."""

import numpy as np
import pytest

from epoch0.experiments.claims import VERDICTS
from epoch0.experiments.experiment import resolve
from epoch0.papers.catalogue import find
from epoch0.papers.raghu.plane import block
from epoch0.papers.sweep import Spec, Sweep
from pictures import whole_picture

# the first forward derivative loads a part of torch that uses its own deprecated script compiler
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")

SMALL = find("raghu/fig3").setting("quick").but(width=40, depth=3, runs=6, block=3, tangents=64, shown=400)


def run(setting: Sweep) -> list[dict]:
    return [resolve(trial.function)(trial.spec, trial.seed) for trial in find("raghu/fig3").trials(setting)]


def test_images_are_principal_components_and_lengths_those_of_chords() -> None:
    """With all coordinates shown (width 2) the drawn polygon's own length is the length of the image."""
    found = block(Spec(variance=4.0, width=2, depth=3, tangents=512, shown=20001, first=0, networks=1), 0)
    chords = np.linalg.norm(np.diff(found["images"], axis=1), axis=2).sum(axis=1)
    assert found["shares"] == pytest.approx(1.0)
    assert found["lengths"][0] == pytest.approx(chords, rel=2e-3)
    assert found["lengths"][0, 0] == pytest.approx(2 * np.pi * np.sqrt(2))
    assert np.abs(found["images"].mean(axis=1)).max() < 1e-3 * np.abs(found["images"]).max()


def test_blocks_hold_the_networks_of_one_ensemble() -> None:
    artifact = find("raghu/fig3")
    first, second = (run(SMALL.but(block=size)) for size in (3, 6))
    assert "images" in first[0] and "images" not in first[1]
    assert np.concatenate([one["lengths"] for one in first]) == pytest.approx(second[0]["lengths"], rel=1e-6)
    rows = artifact.read(SMALL, first).table
    assert [row["layer"] for row in rows] == [1, 2, 3] and all(row["runs"] == 6 for row in rows)


@pytest.mark.parametrize(("variance", "verdict"), [(16.0, "holds"), (0.5, "fails")])
def test_claims_hold_in_the_chaotic_phase_and_fail_in_the_ordered_one(variance: float, verdict: str) -> None:
    artifact, setting = find("raghu/fig3"), SMALL.but(variance=variance)
    results = run(setting)
    _, (grows, everywhere, near), *_ = artifact.decided(setting, results)
    assert grows.verdict == everywhere.verdict == verdict
    assert near.verdict in VERDICTS and "sqrt(chi)" in near.text


def test_picture_has_a_pane_a_layer_from_left_to_right() -> None:
    artifact = find("raghu/fig3")
    results = run(SMALL)
    picture = whole_picture(artifact, SMALL, results)
    panes = [axes for axes in picture.axes if axes.get_title()]
    assert [axes.get_title().split(":")[0] for axes in panes] == ["the circle", "layer 1", "layer 2", "layer 3"]
    left = [axes.get_position().x0 for axes in panes]
    assert left == sorted(left)
    drawn = np.stack(panes[-1].collections[0].get_segments())
    assert np.array_equal(np.vstack([drawn[:, 0], drawn[-1:, 1]]), results[0]["images"][-1])
