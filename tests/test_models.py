"""Models and inputs named on the command line: every way in, and every way to fail with one clear error."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from epoch0.errors import InputError
from epoch0.models import inputs_for, load_model
from epoch0.networks import mlp

SOURCE = '''
"""A user's model file."""
from dataclasses import dataclass
import torch
from torch import nn
import neighbour_of_the_model as neighbour

@dataclass
class Settings:
    width: int = neighbour.WIDTH

class Net(nn.Sequential):
    def __init__(self, width: int = Settings().width):
        super().__init__(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))

class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.b = nn.Linear(3, 3)
        self.b.weight = self.a.weight

def build():
    return Net()

def sized(width, depth=2):
    return Net(width)

def number():
    return 3

def broken():
    return nn.Linear(4, "wide")

ready = Net()
constant = 7
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "neighbour_of_the_model.py").write_text("WIDTH = 5\n")
    (tmp_path / "nets.py").write_text(SOURCE)
    (tmp_path / "wrong_import.py").write_text("x = 1\nimport a_package_that_is_not_there\n")
    (tmp_path / "wrong_syntax.py").write_text("x = 1\n\ndef f(:\n")
    (tmp_path / "leaves.py").write_text("raise SystemExit(4)\n")
    (tmp_path / "talks.py").write_text("from torch import nn\nprint('hello')\nnet = nn.Linear(2, 2)\n")
    return tmp_path


@pytest.mark.parametrize("name", ["build", "Net", "ready"])
def test_function_class_and_instance(folder: Path, name: str) -> None:
    model = load_model(f"{folder}/nets.py:{name}")
    assert [tuple(p.shape) for p in model.parameters()] == [(5, 4), (5,), (2, 5), (2,)]


def test_package_and_working_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(load_model("torch.nn:Identity"), nn.Identity)
    (folder / "my_small_package").mkdir()
    source = "from torch import nn\nclass A:\n    net = nn.Linear(3, 1)\n"
    (folder / "my_small_package" / "__init__.py").write_text(source)
    monkeypatch.chdir(folder)
    before = list(sys.path)
    assert isinstance(load_model("my_small_package:A.net"), nn.Linear)
    assert isinstance(load_model("nets.py:build"), nn.Sequential)
    assert sys.path == before


def test_same_seed_same_weights_and_global_generator_untouched(folder: Path) -> None:
    before = torch.random.get_rng_state()
    first, second = (load_model(f"{folder}/nets.py:build", seed=3) for _ in range(2))
    other = load_model(f"{folder}/nets.py:build", seed=4)
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(first[0].weight, second[0].weight)  # type: ignore[index,arg-type]
    assert not torch.equal(first[0].weight, other[0].weight)  # type: ignore[index,arg-type]


def test_what_the_users_file_prints_stays_off_stdout(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load_model(f"{folder}/talks.py:net")
    out, err = capsys.readouterr()
    assert out == "" and err == "hello\n"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("{}/net.py:build", ["does not exist", "Did you mean 'nets.py'"]),
        ("{}/nets.py:bild", ["has no 'bild'", "Did you mean 'build'"]),
        ("{}/nets.py:qqqqqq", ["has no 'qqqqqq'", "It defines", "Net"]),
        ("{}/nets.py:sized", ["needs the argument width"]),
        ("{}/nets.py:number", ["returned a int"]),
        ("{}/nets.py:constant", ["is a int"]),
        ("{}/nets.py:broken", ["nets.py, line 33", "TypeError"]),
        ("{}/wrong_import.py:f", ["wrong_import.py, line 2", "a_package_that_is_not_there"]),
        ("{}/wrong_syntax.py:f", ["wrong_syntax.py, line 3", "SyntaxError"]),
        ("{}/leaves.py:f", ["leaves.py, line 1", "SystemExit"]),
        ("{}/nets.py", ["names no callable", "path/file.py:callable"]),
        ("{}/model.pt", ["pickled", "safetensors"]),
        ("no_such_package_here:f", ["no module 'no_such_package_here'"]),
        ("torch.nm:f", ["no module 'torch.nm'"]),
        ("torch.nn:Bilinaer", ["Did you mean 'Bilinear'"]),
        ("torch.nn:Linear", ["needs the arguments in_features, out_features"]),
    ],
)
def test_bad_names(folder: Path, spec: str, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        load_model(spec.format(folder))
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_weights_are_loaded(folder: Path) -> None:
    model = load_model(f"{folder}/nets.py:build")
    state = {name: torch.full_like(value, 0.5) for name, value in model.state_dict().items()}
    save_file(state, folder / "w.safetensors")
    loaded = load_model(f"{folder}/nets.py:build", folder / "w.safetensors")
    assert all(bool((p == 0.5).all()) for p in loaded.parameters())


def test_tied_weights_may_be_stored_once(folder: Path) -> None:
    stored = {"a.weight": torch.ones(3, 3), "a.bias": torch.ones(3), "b.bias": torch.ones(3)}
    save_file(stored, folder / "w.safetensors")
    loaded = load_model(f"{folder}/nets.py:Tied", folder / "w.safetensors")
    assert all(bool((p == 1).all()) for p in loaded.parameters())


def test_bad_weights(folder: Path) -> None:
    spec = f"{folder}/nets.py:build"
    state = load_model(spec).state_dict()
    save_file(dict(state), folder / "good.safetensors")
    data = (folder / "good.safetensors").read_bytes()
    (folder / "cut.safetensors").write_bytes(data[:-20])
    (folder / "junk.safetensors").write_bytes(b"no")
    wrong = {"0.weight": (2, 4), "0.bias": (5,), "2.weight": (2, 5), "head": (1,)}
    save_file({name: torch.zeros(shape) for name, shape in wrong.items()}, folder / "wrong.safetensors")
    (folder / "good.pt").write_bytes(b"pickle")
    for name, words in {
        "god.safetensors": ["does not exist", "Did you mean 'good.safetensors'"],
        "cut.safetensors": ["cannot be read as safetensors"],
        "junk.safetensors": ["cannot be read as safetensors"],
        "wrong.safetensors": ["1 missing: 2.bias", "1 unexpected: head", "0.weight is (2, 4), the model's (5, 4)"],
        "good.pt": ["pickled", "weights_only=True"],
    }.items():
        with pytest.raises(InputError) as caught:
            load_model(spec, folder / name)
        for word in words:
            assert word in str(caught.value)


def convolutional(outputs: int = 10) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(108, outputs))


def test_layout_is_found_by_trying() -> None:
    flat, image = inputs_for(mlp([64, 8, 10]), batch=20), inputs_for(convolutional(), batch=20)
    assert flat.x.shape == (20, 64) and image.x.shape == (20, 1, 8, 8)
    assert torch.equal(flat.x, image.x.flatten(1)) and flat.targets is not None and flat.targets.shape == (20,)
    assert flat.description == "20 examples of digits (train), flat, 64 numbers each"
    assert image.description == "20 examples of digits (train), as 1×8×8"
    assert inputs_for(mlp([64, 8, 10]).double(), batch=5).x.dtype == torch.float64


def test_same_seed_same_examples() -> None:
    net = mlp([64, 8, 10])
    assert torch.equal(inputs_for(net, seed=3).x, inputs_for(net, seed=3).x)
    assert not torch.equal(inputs_for(net, seed=3).x, inputs_for(net, seed=4).x)
    assert len(inputs_for(net, batch=10**6).x) == 1437


def test_model_is_unchanged_by_the_trial() -> None:
    net = nn.Sequential(nn.Linear(64, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(), nn.Linear(4, 10)).train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    random = torch.get_rng_state()
    inputs_for(net)
    assert net.training and torch.equal(random, torch.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


@pytest.mark.parametrize("shape", ["1,8,8", "1x8x8", (1, 8, 8)])
def test_noise_of_a_shape(shape: str | tuple[int, ...]) -> None:
    given = inputs_for(convolutional(), input_shape=shape, batch=500)
    assert given.x.shape == (500, 1, 8, 8) and given.targets is None
    # mean and variance of 32,000 draws, within 5 standard errors: false alarm 1e-6
    assert abs(float(given.x.mean())) < 5 / 32000**0.5 and abs(float(given.x.var()) - 1) < 5 * (2 / 32000) ** 0.5


def test_labels_that_do_not_fit_are_left_out_and_told() -> None:
    given = inputs_for(convolutional(outputs=4))
    assert given.targets is None and "labels were left out" in given.description and "4 outputs" in given.description


def test_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.ones((6, 64), np.float32), y=np.arange(6))
    given = inputs_for(mlp([64, 8, 10]), data=str(tmp_path / "a.npz"))
    assert given.x.shape == (6, 64) and given.targets is not None and given.targets.tolist() == list(range(6))
    np.savez(tmp_path / "b.npz", x=np.ones((6, 64)), y=np.ones((6, 10)))
    assert "no class labels" in inputs_for(mlp([64, 8, 10]), data=str(tmp_path / "b.npz")).description


def test_bad_inputs(tmp_path: Path) -> None:
    net = mlp([65, 8, 10])
    for settings, words in [
        ({}, ["in no layout", "(128, 1, 8, 8)", "(128, 64)", "--input-shape"]),
        ({"data": "digitz"}, ["digits"]),
        ({"data": str(tmp_path / "no.npz")}, ["no.npz"]),
        ({"data": "digits", "input_shape": "65"}, ["choose one"]),
        ({"input_shape": "6,x"}, ["'6,x'", "3,32,32"]),
        ({"input_shape": "0"}, ["'0'"]),
        ({"input_shape": "64"}, ["in no layout", "(128, 64)"]),
        ({"batch": 0}, ["at least 1"]),
    ]:
        with pytest.raises(InputError) as caught:
            inputs_for(net, **settings)  # type: ignore[arg-type]
        for word in words:
            assert word in str(caught.value)
