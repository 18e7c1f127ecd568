"""epoch0 theory: the edge of chaos, phase diagrams, kernels, widths and norms from the shell."""

import json
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from command_line import epoch0


@pytest.mark.slow
def test_edge_of_chaos_of_all() -> None:
    code, out, _ = epoch0("theory", "eoc", "--json")
    rows = {row["activation"]: row for row in json.loads(out)}
    assert code == 0 and rows["relu"]["weight_std"] == 2**0.5 and rows["relu"]["q"] is None
    assert rows["tanh"]["weight_std"] ** 2 == pytest.approx(1.700796, abs=1e-6)
    assert rows["gelu"]["weight_std"] is None and "repels" in rows["gelu"]["note"]
    code, out, _ = epoch0("theory", "eoc")
    assert code == 0 and "1.304146" in out and "no edge" in out


def test_edge_of_chaos_of_ones_own_function(tmp_path: Path) -> None:
    (tmp_path / "phi.py").write_text("import torch\ndef wobble(h):\n    return torch.tanh(h) + 0.1 * h\nnumber = 3\n")
    code, out, _ = epoch0("theory", "eoc", f"{tmp_path}/phi.py:wobble", "--json")
    assert code == 0 and 0.9 < json.loads(out)[0]["weight_std"] < 1.3
    code, _, err = epoch0("theory", "eoc", f"{tmp_path}/phi.py:number")
    assert code == 2 and "int" in err
    code, _, err = epoch0("theory", "eoc", f"{tmp_path}/phi.py:wooble")
    assert code == 2 and "wobble" in err


def test_density_scales_the_weights() -> None:
    dense, sparse = (json.loads(epoch0("theory", "eoc", "erf", "--density", d, "--json")[1])[0] for d in (1, 0.25))
    assert sparse["weight_std"] == pytest.approx(2 * dense["weight_std"], rel=1e-9)


def test_phase_diagram(tmp_path: Path) -> None:
    picture = tmp_path / "erf.png"
    code, out, _ = epoch0("theory", "phase-diagram", "erf", "--points", 20, "--out", picture)
    assert code == 0 and "chaotic" in out and picture.read_bytes()[:4] == b"\x89PNG"
    code, out, _ = epoch0("theory", "phase-diagram", "erf", "--points", 5, "--out", tmp_path / "e.svg", "--json")
    assert code == 0 and json.loads(out) and (tmp_path / "e.svg").read_text().startswith("<?xml")


def test_kernel(tmp_path: Path) -> None:
    file = tmp_path / "k.safetensors"
    code, out, _ = epoch0("theory", "kernel", "relu", "--depth", 5, "--examples", 30, "--out", file)
    kernels = load_file(file)
    assert code == 0 and kernels["nngp"].shape == kernels["ntk"].shape == (30, 30) and str(file) in out


def test_width() -> None:
    code, out, _ = epoch0("theory", "width", "--eps", 0.1, "--delta", 0.05, "--json")
    assert code == 0 and json.loads(out)["widths"] == {"paper": 4152, "chernoff": 3698, "exact": 1919}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("eoc", "relu", "--bias-std", 0.1), "single point"),
        (("eoc", "tanh", "--bias-std", 0.1, "--weight-std", 1.2), "weight_std"),
        (("eoc", "tahn"), "Did you mean 'tanh'"),
        (("phase-diagram", "tanh", "--weight-std", "3"), "'3' is no range"),
        (("phase-diagram", "tanh", "--bias-std", "1:0"), "'1:0' is no range"),
        (("phase-diagram", "tanh", "--out", "/nowhere/at/all.png"), "no folder"),
        (("phase-diagram", "tanh", "--out", "picture.doc", "--points", 3), ".doc"),
        (("kernel", "relu", "--weight-std", "1e9", "--depth", 100), "overflow"),
        (("width", "--eps", 1.5), "eps=1.5"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[object, ...], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = epoch0("theory", *arguments)
    assert (code, out) == (2, "") and err.startswith("error: ") and err.count("\n") == 1 and words in err, err
    assert not list(tmp_path.iterdir())
