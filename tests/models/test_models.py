"""Models and inputs named on the command line: every way in, and every way to fail with one clear error."""

import json
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from epoch0.errors import InputError
from epoch0.models import inputs_for, load_model, load_program
from epoch0.networks import mlp

SOURCE = '''
"""A user's model file."""
from dataclasses import dataclass
import torch
from torch import Tensor, nn
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
        ("{}/nets.py:number", ["returned 'int'"]),
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
        "cut.safetensors": ["cannot be read: the file is cut short"],
        "junk.safetensors": ["damaged or in another format"],
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
        ({"data": "digits"}, ["in no layout", "(64, 1, 8, 8)", "(64, 64)", "--input-shape"]),
        ({"data": "digitz"}, ["digits"]),
        ({"data": str(tmp_path / "no.npz")}, ["no.npz"]),
        ({"data": "digits", "input_shape": "65"}, ["choose one"]),
        ({"input_shape": "6,x"}, ["'6,x'", "3,32,32"]),
        ({"input_shape": "0"}, ["'0'"]),
        ({"input_shape": "64"}, ["in no layout", "(64, 64)"]),
        ({"batch": 0}, ["at least 1"]),
    ]:
        with pytest.raises(InputError) as caught:
            inputs_for(net, **settings)  # type: ignore[arg-type]
        for word in words:
            assert word in str(caught.value)


@pytest.mark.parametrize(("first", "shape"), [
    (nn.Linear(5, 8), (5,)), (nn.Conv2d(4, 8, 3), (4, 32, 32)), (nn.Conv1d(3, 8, 3), (3, 32)), (nn.GRU(7, 8), (16, 7)),
    (nn.Bilinear(5, 5, 3), None),
])  # fmt: skip
def test_noise_as_the_first_layer_takes_it(first: nn.Module, shape: tuple[int, ...] | None) -> None:
    """Where the digits do not fit, and the model has no embedding."""
    net = nn.Sequential(first)
    if shape is None:
        with pytest.raises(InputError, match="in no layout"):
            inputs_for(net)
        return
    given = inputs_for(net, batch=12)
    assert given.x.shape == (12, *shape) and "Gaussian noise" in given.description and given.targets is None


class TimmLike(nn.Module):
    """What epoch0 reads of a model of timm."""

    def __init__(self, size: int = 12, channels: int = 3, classes: int = 10) -> None:
        super().__init__()
        self.default_cfg = {"input_size": (channels, size, size), "num_classes": classes}
        self.net = nn.Sequential(nn.Conv2d(channels, 4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(classes))
        self.net(torch.zeros(1, channels, size, size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stand-ins for timm, torchvision and transformers; what they were asked for is noted."""
    asked: dict[str, Any] = {}
    known = ["resnet18", "resnet50", "vit_tiny"]

    def create_model(name: str, **settings: Any) -> nn.Module:
        asked.update(name=name, **settings)
        if name == "vit_tiny":
            raise RuntimeError("no such\nsetting")
        return TimmLike()

    _module(monkeypatch, "timm", is_model=known.__contains__, list_models=lambda: known, create_model=create_model)

    Vision = type("Vision", (TimmLike,), {"__module__": "torchvision.models.fake"})

    def builder(*, weights: Any = 1, weights_backbone: Any = 1) -> nn.Module:
        asked.update(weights=weights, backbone=weights_backbone)
        model = Vision(size=20)
        del model.default_cfg
        return model

    crop = SimpleNamespace(DEFAULT=SimpleNamespace(transforms=lambda: SimpleNamespace(crop_size=[20])))
    _module(monkeypatch, "torchvision")
    _module(
        monkeypatch, "torchvision.models", list_models=lambda: ["vit_b_16"], get_model_builder=lambda name: builder,
        get_model=lambda name, **given: builder(**given), get_model_weights=lambda name: crop,
    )  # fmt: skip

    class Config:
        model_type = "tiny"

        def __init__(self, **settings: Any) -> None:
            self.__dict__.update(settings)

        @classmethod
        def from_dict(cls, settings: dict[str, Any]) -> Any:
            return cls(**settings)

    def of_config(kind: type[nn.Module]) -> Any:
        mapping = {Config: kind}
        return type("Auto", (), {"_model_mapping": mapping, "from_config": staticmethod(kind)})

    _module(
        monkeypatch, "transformers", CONFIG_MAPPING={"tiny": Config}, TinyLMHeadModel=TinyLMHeadModel,
        TinyForImageClassification=TinyForImageClassification, TinyForMaskedLM=TinyForMaskedLM,
        AutoModelForCausalLM=of_config(TinyLMHeadModel), AutoModel=of_config(TinyLMHeadModel),
    )  # fmt: skip
    return asked


def _module(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> None:
    module = ModuleType(name)
    for key, value in content.items():
        setattr(module, key, value)
    monkeypatch.setitem(sys.modules, name, module)


class TinyLMHeadModel(nn.Module):
    main_input_name = "input_ids"

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, 8)

    def forward(self, input_ids: Any, attention_mask: Any = None, labels: Any = None) -> Any:
        return self.embedding(input_ids)


class TinyForMaskedLM(TinyLMHeadModel):
    pass


class TinyForImageClassification(nn.Module):
    main_input_name = "pixel_values"

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.net = nn.Linear(config.image_size, config.num_labels)

    def forward(self, pixel_values: Any, labels: Any = None) -> Any:
        return self.net(pixel_values)


def test_timm_by_name(libraries: dict[str, Any]) -> None:
    before = torch.random.get_rng_state()
    first, again, other = (load_model("timm:resnet50", seed=seed) for seed in (0, 0, 1))
    assert libraries == {"name": "resnet50", "pretrained": False}
    weights = [model.net[0].weight for model in (first, again, other)]  # type: ignore[union-attr,index]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])  # type: ignore[arg-type]
    given = inputs_for(first, spec="timm:resnet50")
    assert given.x.shape == (16, 3, 12, 12) and given.targets is not None
    assert given.targets.bincount().tolist() == [4] * 4
    assert given.description == "16 examples of made-up images of 4 classes, 3×12×12"
    assert torch.equal(before, torch.random.get_rng_state())
    assert inputs_for(first, batch="5").x.shape == (5, 3, 12, 12)
    assert inputs_for(first, input_shape="3,12,12", batch=7).targets is None
    # variance 1: half of it the pattern, half noise; 16 * 432 values, of which those of a pattern are smooth
    assert abs(float(given.x.var()) - 1) < 0.15


def test_images_can_be_told_apart(libraries: dict[str, Any]) -> None:
    given = inputs_for(load_model("timm:resnet18"), batch=64)
    flat, targets = given.x.flatten(1), given.targets
    assert targets is not None
    means = torch.stack([flat[:32][targets[:32] == c].mean(0) for c in range(4)])
    assert torch.equal(torch.cdist(flat[32:], means).argmin(1), targets[32:])


def test_torchvision_by_name(libraries: dict[str, Any]) -> None:
    model = load_model("torchvision:vit_b_16")
    assert libraries == {"weights": None, "backbone": None}  # nothing would be downloaded
    assert inputs_for(model, spec="torchvision:vit_b_16").x.shape == (16, 3, 20, 20)


def test_dense_outputs_get_a_label_at_each_point() -> None:
    class Dense(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.default_cfg = {"input_size": (3, 8, 8)}
            self.net = nn.Conv2d(3, 5, 1)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"out": self.net(x)}

    given = inputs_for(Dense(), batch=3)
    assert given.targets is not None and given.targets.shape == (3, 8, 8)
    assert all(len(picture.unique()) == 1 for picture in given.targets)


def test_half_precision_is_left_to_who_measures(libraries: dict[str, Any]) -> None:
    given = inputs_for(load_model("timm:resnet50").bfloat16(), batch=4)
    assert given.x.dtype == torch.bfloat16 and given.targets is not None


def test_transformers_by_configuration(libraries: dict[str, Any], tmp_path: Path) -> None:
    settings = {"model_type": "tiny", "vocab_size": 50, "n_positions": 24, "eos_token_id": 49, "auto_map": {"a": "b"}}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(settings))
    for spec in (f"hf:{path}", f"hf:{tmp_path}"):
        model = load_model(spec)
        assert isinstance(model, TinyLMHeadModel) and not hasattr(model.config, "auto_map")
    given = inputs_for(model)
    assert set(given.x) == {"input_ids", "attention_mask", "labels"} and given.targets is None
    assert given.x["input_ids"].shape == (4, 24) and torch.equal(given.x["input_ids"], given.x["labels"])
    assert int(given.x["input_ids"].max()) < 49  # special tokens do not occur
    row = inputs_for(model, batch=1).x["input_ids"][0].tolist()
    assert len(set(pairwise(row))) == 16  # each token decides the next
    assert given.description == "4 made-up texts of 24 of the model's 50 tokens"

    path.write_text(json.dumps({**settings, "architectures": ["TinyForMaskedLM"]}))
    masked = inputs_for(load_model(f"hf:{path}")).x
    assert bool((masked["labels"] == -100).any()) and not torch.equal(masked["input_ids"], masked["labels"])
    hidden = masked["labels"] != -100
    assert len(masked["input_ids"][hidden].unique()) == 1

    vision = {"image_size": 16, "num_channels": 1, "num_labels": 3, "architectures": ["TinyForImageClassification"]}
    path.write_text(json.dumps({"model_type": "tiny", **vision}))
    images = inputs_for(load_model(f"hf:{path}")).x
    assert images["pixel_values"].shape == (16, 1, 16, 16) and int(images["labels"].max()) == 2


def test_bad_library_models(libraries: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in {
        "unknown": '{"model_type": "tinny"}', "custom": '{"model_type": "my_own", "auto_map": {}}', "none": "{}",
        "list": "[1]", "broken": "{", "architecture": '{"model_type": "tiny", "architectures": ["Gone"]}',
    }.items():  # fmt: skip
        (tmp_path / f"{name}.json").write_text(content)
    for spec, words in {
        "timm:resnt50": ["no model 'resnt50'", "Did you mean 'resnet50'"],
        "timm:hf-hub:timm/resnet50": ["no model"],
        "timm:vit_tiny": ["failed while building", "RuntimeError"],
        "torchvision:vit_b_61": ["Did you mean 'vit_b_16'"],
        f"hf:{tmp_path}/conf.json": ["does not exist", "nothing is downloaded"],
        f"hf:{tmp_path}/unknown.json": ["no model type 'tinny'", "Did you mean 'tiny'"],
        f"hf:{tmp_path}/custom.json": ["its own code, which is not run"],
        f"hf:{tmp_path}/none.json": ["model_type"],
        f"hf:{tmp_path}/list.json": ["holds a list"],
        f"hf:{tmp_path}/broken.json": ["as JSON"],
        f"hf:{tmp_path}/architecture.json": ["no architecture 'Gone'"],
    }.items():
        with pytest.raises(InputError) as caught:
            load_model(spec)
        for word in words:
            assert word in str(caught.value)
        assert "\n" not in str(caught.value)
    for name, package in {"timm": "timm", "torchvision": "torchvision", "hf": "transformers"}.items():
        monkeypatch.setitem(sys.modules, package, None)  # how the import system marks what cannot be imported
        with pytest.raises(InputError, match=f"pip install {package}"):
            load_model(f"{name}:anything")


class TwoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(4, 3)

    def forward(self, sample: torch.Tensor, step: torch.Tensor, labels: Any = None) -> torch.Tensor:
        return self.net(sample) * step


def test_batch_from_a_file(tmp_path: Path) -> None:
    net, two = mlp([4, 8, 3]), TwoInputs()
    x, y = np.ones((6, 4)), np.arange(6, dtype=np.int32) % 3
    np.savez(tmp_path / "a.npz", inputs=x, labels=y)
    save_file({"x": torch.ones(6, 4), "y": torch.zeros(6, 3)}, tmp_path / "a.safetensors")
    for name, target in (("a.npz", torch.int64), ("a.safetensors", torch.float32)):
        given = inputs_for(net, batch=tmp_path / name)
        assert given.x.shape == (6, 4) and given.x.dtype == torch.float32 and given.targets is not None
        assert given.targets.dtype == target and f"6 examples of {name}" in given.description
    np.savez(tmp_path / "two.npz", sample=x, step=np.ones((6, 1)), labels=y)
    named = inputs_for(two, batch=str(tmp_path / "two.npz"))
    assert set(named.x) == {"sample", "step", "labels"} and named.targets is None
    np.savez(tmp_path / "more.npz", sample=x, step=np.ones((6, 1)), targets=x[:, :3])
    named = inputs_for(two, batch=tmp_path / "more.npz")
    assert set(named.x) == {"sample", "step"} and named.targets is not None and named.targets.shape == (6, 3)


def test_bad_batch_files(tmp_path: Path) -> None:
    net = mlp([4, 8, 3])
    x = np.ones((6, 4))
    np.savez(tmp_path / "good.npz", x=x)
    (tmp_path / "cut.npz").write_bytes((tmp_path / "good.npz").read_bytes()[:-40])
    (tmp_path / "junk.safetensors").write_bytes(b"no")
    np.savez(tmp_path / "pickled.npz", x=np.array([{}], dtype=object))
    np.savez(tmp_path / "text.npz", x=np.array(["a"]))
    np.savez(tmp_path / "nan.npz", x=np.full((2, 4), np.nan))
    np.savez(tmp_path / "empty.npz")
    np.savez(tmp_path / "scalar.npz", x=np.float64(1))
    np.savez(tmp_path / "only.npz", y=x)
    np.savez(tmp_path / "both.npz", x=x, y=x, targets=x)
    np.savez(tmp_path / "other.npz", sampel=x, step=x)
    for name, words in {
        "god.npz": ["does not exist", "Did you mean 'good.npz'"],
        "batch.pt": ["does not exist"],
        "cut.npz": ["cannot be read"],
        "junk.safetensors": ["damaged or in another format"],
        "pickled.npz": ["cannot be read"],
        "text.npz": ["real numbers"],
        "nan.npz": ["NaN"],
        "empty.npz": ["no arrays"],
        "scalar.npz": ["at least one example"],
        "only.npz": ["only y"],
        "both.npz": ["only one of them"],
    }.items():
        with pytest.raises(InputError) as caught:
            inputs_for(net, batch=tmp_path / name)
        for word in words:
            assert word in str(caught.value), name
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=r"sampel, which .* does not take.*Did you mean 'sample'"):
        inputs_for(TwoInputs(), batch=tmp_path / "other.npz")
    (tmp_path / "batch.pt").write_bytes(b"pickle")
    with pytest.raises(InputError, match="never opened"):
        inputs_for(net, batch=tmp_path / "batch.pt")
    with pytest.raises(InputError, match="leave out --data"):
        inputs_for(net, batch=tmp_path / "good.npz", data="digits")


PROGRAM = """
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

x, t, y = torch.arange(900.0).reshape(300, 3), torch.arange(300), torch.arange(300) % 2

def several():
    return {"model": nn.Bilinear(3, 1, 2), "data": DataLoader(TensorDataset(x, t, y), 40)}

def mappings():
    rows = [{"input": one, "labels": label} for one, label in zip(x, y)]
    return {"model": nn.Linear(3, 2), "data": DataLoader(rows, 40)}

def ragged():
    return {"model": nn.Linear(3, 2), "data": [(torch.ones(4, n), torch.ones(4)) for n in (2, 3)]}
"""


def test_the_first_examples_of_a_program_s_data(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(PROGRAM)
    several = load_program(f"{tmp_path}/made.py:several")
    assert [len(part) for part in several["batch"]] == [100, 100] and several["targets"].tolist() == [0, 1] * 50
    mappings = load_program(f"{tmp_path}/made.py:mappings")
    assert mappings["batch"]["input"].shape == (100, 3) and "targets" not in mappings
    with pytest.raises(InputError, match="do not give pairs"):
        load_program(f"{tmp_path}/made.py:ragged")


class Spoken(nn.Module):
    """A language model, or one that tells texts apart; places up to 20 in a parameter."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.words, self.out, self.kind = nn.Embedding(50, 16), nn.Linear(16, 50), kind
        self.places = nn.Parameter(torch.zeros(20, 16))

    def forward(self, x: Tensor, targets: Tensor | None = None) -> Any:
        h = self.words(x) + self.places[: x.shape[1]] if self.kind == "short" else self.words(x)
        logits = self.out(h if targets is not None or self.kind != "asks" else h[:, -1:])
        return (logits, h) if self.kind == "several" else logits


class Told(Spoken):
    def forward(self, x: Tensor) -> Any:  # type: ignore[override]
        return self.out(self.words(x).mean(1))


@pytest.mark.parametrize("kind", ["places", "several", "asks", "short", "texts"])
def test_a_model_that_begins_with_an_embedding_gets_texts(kind: str) -> None:
    model = Told(kind) if kind == "texts" else Spoken(kind)
    batch = inputs_for(model, batch=12)
    assert batch.x.dtype == torch.int64 and int(batch.x.max()) < 50 and len(batch.x) == 12
    if kind == "texts":
        assert batch.targets.shape == (12,) and "texts of" in batch.description
    else:
        assert batch.x.shape == batch.targets.shape == ((12, 16) if kind == "short" else (12, 63))
        assert torch.equal(batch.x[:, 1:], batch.targets[:, :-1]) and "the next is to be predicted" in batch.description
    with pytest.raises(InputError, match="in no layout"):
        inputs_for(model, data="digits")


def test_data_that_end_once_they_are_read_or_are_empty(tmp_path: Path) -> None:
    """A generator was a raw error; a loader without a batch was told to give pairs."""
    (tmp_path / "train.py").write_text(
        "import torch\nfrom torch.utils.data import DataLoader, TensorDataset\n"
        "x, y = torch.randn(20, 4), torch.arange(20) % 2\n"
        "def made(data):\n    model = torch.nn.Linear(4, 2)\n"
        "    return {'model': model, 'optimizer': torch.optim.Adam(model.parameters()), 'data': data}\n"
        "def once(): return made((x[i:i + 5], y[i:i + 5]) for i in (0, 5))\n"
        "def anew(): return made(lambda: ((x[i:i + 5], y[i:i + 5]) for i in (0, 5)))\n"
        "def empty(): return made(DataLoader(TensorDataset(x, y), 32, drop_last=True))\n"
    )
    for name, words in (("once", "are a generator, which ends once read"), ("empty", "are empty: not one batch")):
        with pytest.raises(InputError, match=words):
            load_program(f"{tmp_path}/train.py:{name}")
    assert load_program(f"{tmp_path}/train.py:anew")["batch"].shape == (10, 4)
