"""``epoch0 prune`` as a user calls it: on a model in a file, on real digits, with what it writes read back."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import epoch0 as e0
from command_line import epoch0

DENSE = """
import epoch0 as e0

def build():
    return e0.networks.mlp([64, 40, 40, 10], "tanh", weights=e0.Gaussian(1.3), biases=e0.Gaussian(0.2), seed=0)

def deep():
    return e0.networks.mlp([64, *[40] * 20, 10], "tanh", weights=e0.Gaussian(0.7), biases=e0.Gaussian(0.2), seed=0)

def unbounded():
    return e0.networks.mlp([64, 40, 10], "silu", seed=0)

def images():
    return e0.networks.vanilla_cnn(3, 8, inputs=(1, 8, 8), seed=0)
"""
WEIGHTS = 64 * 40 + 40 * 40 + 40 * 10


@pytest.fixture
def models(tmp_path: Path) -> str:
    (tmp_path / "nets.py").write_text(DENSE)
    return f"{tmp_path}/nets.py"


def test_masks_and_weights_are_what_was_asked_for(models: str, tmp_path: Path) -> None:
    masks, weights = tmp_path / "masks.safetensors", tmp_path / "weights.safetensors"
    code, out, _ = epoch0(
        "prune", f"{models}:build", "--sparsity", ".9", "--rescale", "layer", "--out", masks, "--out-weights", weights
    )
    assert code == 0
    found = e0.prune.Masks.load(masks)
    assert found.total - found.kept == round(0.9 * WEIGHTS)
    values = load_file(str(weights))
    for name, mask in found.items():
        assert torch.equal(values[name] != 0, mask)
    for word in ("critical sparsity", "before:", "pruned:", "rescaled:", str(masks), str(weights)):
        assert word in out
    # the weights fit the model again, and a checkup reads them
    code, out, _ = epoch0("checkup", f"{models}:build", "--weights", weights, "--json")
    assert code == 0 and json.loads(out)["outcome"] == "trains"


def test_snip_is_the_library_s(models: str, tmp_path: Path) -> None:
    masks = tmp_path / "masks.safetensors"
    code, _, _ = epoch0("prune", f"{models}:build", "--sparsity", ".95", "--batch", "64", "--out", masks)
    net = e0.networks.mlp([64, 40, 40, 10], "tanh", weights=e0.Gaussian(1.3), biases=e0.Gaussian(0.2), seed=0)
    from epoch0.models import inputs_for

    given = inputs_for(net, data="digits", batch=64)
    assert given.targets is not None
    scores = e0.prune.snip(net, [(given.x, given.targets)])
    assert code == 0 and e0.prune.Masks.load(masks) == e0.prune.keep(scores, 0.95)


@pytest.mark.sample(2)
@pytest.mark.parametrize("score", ["snip", "grasp", "synflow", "force", "obd", "magnitude", "random"])
def test_every_score_removes_exactly_as_many(models: str, score: str) -> None:
    code, out, _ = epoch0(
        "prune", f"{models}:images", "--sparsity", ".8", "--score", score, "--batch", "32", "--steps", "3", "--json"
    )
    found = json.loads(out)
    total = found["summary"]["total"]
    assert code == 0 and found["summary"]["kept"] == total - round(0.8 * total)
    assert 0 < found["critical_sparsity"] <= 1
    assert found["first_layer_to_vanish"] in [row["name"] for row in found["summary"]["layers"]]


ONE_FILE = """
from torch import nn
from epoch0.prune.masks.places import standing
from epoch0.prune.scores.scores import Scores, score, scores_of

@score(rounds=2)
def squared(model: nn.Module, seed: int = 0) -> Scores:
    weights = standing(model)
    return scores_of(weights, [w.parameter.detach().square() for w in weights], f"squared, seed {seed}")
"""


def test_a_score_is_one_file(models: str, tmp_path: Path) -> None:
    """Dropped into the folder of a copy of the package, it is exported and the command line knows it."""
    package = Path(shutil.copytree(Path(e0.__file__).parent, tmp_path / "copy" / "epoch0"))
    (package / "prune" / "scores" / "squares.py").write_text(ONE_FILE)
    code = "from epoch0 import cli, prune; assert 'squared' in prune.__all__ and prune.squared; cli.main()"
    command = [sys.executable, "-c", code, "prune", f"{models}:build", "--sparsity", ".5", "--score", "squared"]
    environment = os.environ | {"PYTHONPATH": str(package.parent)}
    done = subprocess.run([*command, "--seed", "7", "--json"], capture_output=True, text=True, env=environment)
    found = json.loads(done.stdout or "{}")
    assert found.get("method") == "squared, seed 7" and found["summary"]["kept"] == WEIGHTS // 2, done.stderr


def test_dead_layers_are_named_with_what_helps(models: str) -> None:
    code, out, _ = epoch0("prune", f"{models}:deep", "--sparsity", ".9")
    assert code == 0
    assert "dead" in out and "what helps" in out and "ill not train: nothing passes through" in out
    code, out, _ = epoch0("prune", f"{models}:deep", "--sparsity", ".9", "--floor", "1", "--json")
    assert code == 0 and json.loads(out)["summary"]["dead"] == []


def test_a_layer_s_own_density(models: str) -> None:
    code, out, _ = epoch0(
        "prune", f"{models}:build", "--sparsity", ".5", "--score", "magnitude", "--scope", "layer", "--json"
    )
    assert code == 0
    assert [row["density"] for row in json.loads(out)["summary"]["layers"]] == [0.5, 0.5, 0.5]


def test_what_fails_at_the_end_has_written_nothing(models: str, tmp_path: Path) -> None:
    masks = tmp_path / "masks.safetensors"
    code, _, err = epoch0("prune", f"{models}:unbounded", "--sparsity", ".5", "--rescale", "layer", "--out", masks)
    assert code == 2 and "no edge of chaos" in err and not masks.exists()


def test_verdicts_say_what_they_were_judged_on(models: str) -> None:
    code, out, _ = epoch0("prune", f"{models}:build", "--sparsity", ".5", "--batch", "40")
    assert code == 0 and "verdicts (from the first step, without training):" in out


def test_paths_that_cannot_be_followed_are_a_note(tmp_path: Path) -> None:
    (tmp_path / "root.py").write_text(
        "import torch\nfrom torch import nn\n\nclass Root(nn.Module):\n    def forward(self, x):\n"
        "        x = x.unflatten(1, (8, 8))\n"
        "        return torch.linalg.cholesky(x @ x.mT + torch.eye(8)).flatten(1)\n\n"
        "def build():\n    return nn.Sequential(nn.Linear(64, 64), Root(), nn.Linear(64, 10))\n"
    )
    code, out, _ = epoch0("prune", f"{tmp_path}/root.py:build", "--sparsity", ".5", "--data", "digits")
    assert code == 0 and "note: the operation 'linalg_cholesky' has no rule" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--sparsity", "1"), "sparsity=1.0"),
        (("--sparsity", "-0.1"), "sparsity=-0.1"),
        (("--sparsity", "95"), "0.95"),
        (("--sparsity", ".9", "--out", "masks.txt"), "masks.txt"),
        (("--sparsity", ".9", "--out", "/nowhere/masks.safetensors"), "/nowhere"),
        (("--sparsity", ".9", "--out", "a.safetensors", "--out-weights", "./a.safetensors"), "own files"),
        (("--sparsity", ".9", "--input-shape", "64"), "needs classes"),
        (("--sparsity", ".9", "--score", "force", "--floor", "2"), "--score force"),
        (("--sparsity", ".9", "--steps", "0"), "steps=0"),
        (("--sparsity", ".9", "--score", "force", "--steps", "0"), "steps=0"),
        (("--sparsity", ".9", "--floor", "10000"), "10000"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    models: str, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    out = () if "--out" in arguments else ("--out", tmp_path / "masks.safetensors")
    code, _, err = epoch0("prune", f"{models}:build", *arguments, *out)
    assert code == 2 and err.startswith("error:") and err.count("\n") == 1 and said in err
    assert list(tmp_path.glob("*.safetensors")) == []


def test_a_model_of_two_inputs_is_pruned_with_a_batch_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "two.py").write_text(
        "import torch\nfrom torch import nn\n\nclass Two(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.a, self.b = nn.Linear(8, 16), nn.Linear(4, 16)\n"
        "        self.out = nn.Linear(16, 3)\n\n"
        "    def forward(self, left, right):\n        return self.out(torch.relu(self.a(left) + self.b(right)))\n"
    )
    draw = np.random.default_rng(0)
    arrays = {
        "left": draw.standard_normal((64, 8)),
        "right": draw.standard_normal((64, 4)),
        "y": draw.integers(0, 3, 64),
    }
    np.savez(tmp_path / "batch.npz", **arrays)
    model, batch = f"{tmp_path}/two.py:Two", f"{tmp_path}/batch.npz"
    code, out, _ = epoch0("prune", model, "--sparsity", ".5", "--batch", batch)
    assert code == 0 and "120 of 240 weights kept" in out
    code, _, said = epoch0("regions", model, "--line", "0", "1", "--data", batch)
    assert code == 2 and len(said.strip().splitlines()) == 1
