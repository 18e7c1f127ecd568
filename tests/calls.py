"""A call that works of every public function and class; those that are missing fail test_fuzz.py.

Each value is a function that makes the arguments anew, by name; names of ``*args`` are left out. ``NEVER_CALLED`` are
results, which the library makes, and what starts processes, fetches, or is no part of a computation.
"""

import functools
import importlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import epoch0 as e0
from epoch0.experiments import store
from made_sets import write_idx

ROOMS = [
    "epoch0", "activations", "activity", "curves", "data", "diagnosis", "distributions", "errors",
    "experiments.claims", "experiments.experiment", "experiments.run", "experiments.store", "initialization",
    "measure", "models", "networks", "papers.catalogue", "papers.reproduce", "prune", "regions", "seeds",
    "theory.growth", "theory.mean_field", "theory.norms", "theory.pruning", "theory.regions", "train",
]  # fmt: skip


def public() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every public function and class once, by its shortest name."""
    seen = set()
    for room in ROOMS:
        module = importlib.import_module("epoch0" if room == "epoch0" else f"epoch0.{room}")
        names = getattr(module, "__all__", [n for n in vars(module) if not n.startswith("_")])
        for name in names:
            value = getattr(module, name)
            home = str(getattr(value, "__module__", ""))
            own = home.startswith("epoch0") if hasattr(module, "__all__") else home == module.__name__
            if callable(value) and own and id(value) not in seen:
                seen.add(id(value))
                yield name if room == "epoch0" else f"{room}.{name}", value


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def net() -> nn.Module:
    return e0.networks.mlp([6, 8, 8, 3], weights=e0.Gaussian(1.4), biases=e0.Gaussian(0.1), seed=0)


def x(rows: int = 12) -> torch.Tensor:
    return torch.randn(rows, 6, generator=_generator())


def y() -> torch.Tensor:
    return torch.arange(12) % 3


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(x(), y())]


def loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, targets)


def forward(model: nn.Module, batch: Any) -> Any:
    return model(batch)


def nothing(*args: Any, **named: Any) -> None:
    return None


def scores() -> Any:
    return e0.prune.magnitude(net())


def masks() -> Any:
    return e0.prune.keep(scores(), 0.5)


def pruned() -> nn.Module:
    return e0.prune.apply(net(), masks())


def line() -> Any:
    return e0.Line(x()[0], x()[1])


@functools.cache
def folder() -> Path:
    made = Path(tempfile.mkdtemp(prefix="epoch0-calls-"))
    np.savez(made / "set.npz", x=np.zeros((4, 3), np.float32), y=np.arange(4))
    write_idx(made / "images-idx3-ubyte", np.zeros((4, 3, 3), np.uint8))
    for kind in "ab":
        (made / "tree" / "train" / kind).mkdir(parents=True)
        (made / "tree" / "train" / kind / "0.png").write_bytes(b"")
    with store.Store(made / "one.sqlite"):
        pass
    (made / "model.py").write_text("import torch\ndef build(): return torch.nn.Linear(6, 3)\nact = torch.tanh\n")
    return made


def _measured() -> dict[str, Any]:
    return {"text": "t", "measured": [1.0, 2.0, 3.0], "errors": [0.1, 0.1, 0.1], "samples": 10}


_SCALES = {"activation": "tanh", "weight_std": 1.5, "bias_std": 0.2}
_LAW = {"law": e0.Gaussian(1.0), "width": 20, "activation": "relu"}
_NORM = {"eps": 0.2, "delta": 0.1, "samples": 2, "layers": 2, "direction": "forward"}
_NET = {"activation": "relu", "weights": e0.Gaussian(1.0), "biases": e0.Gaussian(0.1), "seed": 1}

CALLS: dict[str, Callable[[], dict[str, Any]]] = {
    "Gaussian": lambda: {"std": 1.0},
    "Uniform": lambda: {"bound": 1.0},
    "Discrete": lambda: {"values": (1.0, -1.0)},
    "Sparse": lambda: {"law": e0.Gaussian(1.0), "density": 0.5},
    "Line": lambda: {"x0": x()[0], "x1": x()[1]},
    "Arc": lambda: {"x0": x()[0], "x1": x()[1]},
    "GreatCircle": lambda: {"x0": x()[0], "x1": x()[1]},
    "SemicircularArcs": lambda: {"x0": x()[0], "x1": x()[1], "planes": 4, "seed": 1},
    "Polyline": lambda: {"points": x()},
    "trajectory_length": lambda: {
        "model": net(), "curve": line(), "forward": forward, "layers": ["1", "3"], "points": 4,
        "seed": 1, "batch_norm": "eval",
    },
    "gain": lambda: {
        "model": net(), "x": x(), "targets": y(), "loss": loss, "forward": forward, "batch_norm": "train",
        "directions": 2, "seed": 1,
    },
    "transitions": lambda: {
        "model": net(), "curve": line(), "threshold": 0.5, "method": "refined", "caution": 2.5, "points": 50, "seed": 1
    },
    "activation_patterns": lambda: {"model": net(), "x": x(), "threshold": 0.0},
    "dichotomies": lambda: {
        "model": net(), "inputs": x(5), "layer": 0, "output": 1, "method": "refined", "caution": 2.5, "points": 50,
        "seed": 1,
    },
    "robustness": lambda: {
        "model": net(), "data": (x(), y()), "noise": [0.1], "forward": forward, "layers": [0], "draws": 2,
        "relative": True, "batch_size": 6, "seed": 1,
    },
    "initialize": lambda: {
        "model": net(), "at": "edge_of_chaos", "chi": 1.0, "method": "measured", "x": x(), "forward": forward,
        "weights": "mirrored", "seed": 1,
    },
    "train_one_layer": lambda: {"model": net(), "layer": 0, "data": (x(), y()), "steps": 2, "learning_rate": 0.1},
    "TrajectoryRegularization": lambda: {"scale": 0.01},
    "replace_batch_norm": lambda: {
        "model": nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)), "scale": 0.1
    },
    "checkup": lambda: {
        "model": net(), "batch": x(), "targets": y(), "loss": loss, "forward": forward, "trial": False, "seconds": 1.0,
        "batch_norm": "train", "directions": 2, "sparsity": 0.5, "remedies": False,
        "seed": 1, "name": "net", "inputs": "noise", "tell": nothing,
    },
    "reproduce": lambda: {"id": "price-tanner/fig4b", "preset": "quick", "workers": 1, "out": str(folder() / "out")},
    "activations.Activation": lambda: {
        "name": "mine", "function": np.tanh, "derivative": np.cos, "breaks": (0.0,), "slopes": (0.0, 1.0),
        "continuous": True,
    },
    "activations.custom": lambda: {"function": torch.tanh, "breaks": [], "name": "mine"},
    "activations.get": lambda: {"activation": "relu"},
    "activations.piecewise": lambda: {"name": "mine", "breaks": (0.0,), "slopes": (0.0, 1.0), "at_zero": 0.0},
    "activations.known_call": lambda: {"function": "leaky_relu", "args": (0.1,), "kwargs": {}},
    "activations.known_function": lambda: {"function": torch.tanh},
    "activations.known_module": lambda: {"module": nn.ReLU()},
    "activations.leaky_relu": lambda: {"negative_slope": 0.1},
    "activations.hardtanh": lambda: {"minimum": -1.0, "maximum": 1.0},
    "activations.elu": lambda: {"alpha": 1.0},
    "activations.celu": lambda: {"alpha": 1.0},
    "activations.softplus": lambda: {"beta": 1.0},
    "activity.random_walk": lambda: {"inputs": 5, "flips": [1, 2, 3], "walks": 4, "seed": 1},
    "data.DataSet": lambda: {
        "name": "mine", "split": "train", "images": np.zeros((4, 1, 3, 3), np.uint8), "labels": np.arange(4) % 2,
        "classes": ("a", "b"), "peak": 255, "verified": False,
    },
    "data.available": lambda: {"data_dir": str(folder())},
    "data.image_files": lambda: {"name": f"folder:{folder() / 'tree'}", "split": "train"},
    "data.load": lambda: {"name": "digits", "split": "train", "data_dir": str(folder())},
    "data.load_npz": lambda: {"path": folder() / "set.npz"},
    "data.path": lambda: {"name": "digits", "data_dir": str(folder())},
    "data.read_idx": lambda: {"path": folder() / "images-idx3-ubyte"},
    "data.read_npz": lambda: {"path": folder() / "set.npz", "names": ["x"]},
    "distributions.integers": lambda: {"largest": 3, "scale": 1.0},
    "experiments.claims.exact": lambda: {"text": "t", "holds": True, "evidence": "e", "numbers": {"a": 1.0}},
    "experiments.claims.check": lambda: {"text": "t", "holds": True, "evidence": "e", "numbers": {"a": 1.0}},
    "experiments.claims.at_most": lambda: {**_measured(), "bounds": 9.0, "settings": ["a", "b", "c"]},
    "experiments.claims.at_least": lambda: {**_measured(), "bounds": 0.1, "settings": ["a", "b", "c"]},
    "experiments.claims.between": lambda: {**_measured(), "lower": 0.1, "upper": 9.0},
    "experiments.claims.increasing": lambda: {**_measured(), "settings": None},
    "experiments.claims.equal_within_error": lambda: {
        **_measured(), "measured": [[1.0, 1.1], [2.0, 2.1]], "errors": [[0.1, 0.1], [0.1, 0.1]], "resolution": 0.5,
        "settings": ["a", "b"], "groups": ["c", "d"],
    },
    "experiments.claims.better_fit": lambda: {
        **_measured(), "better": [1.0, 2.0, 3.0], "worse": [1.0, 4.0, 9.0], "names": ("a", "b")
    },
    "experiments.claims.linear": lambda: {**_measured(), "x": [1.0, 2.0, 3.0], "least_r2": 0.9},
    "experiments.claims.fitted_exponent": lambda: {"x": [1.0, 2, 3], "measured": [1.0, 4, 9], "errors": [0.1] * 3},
    "experiments.experiment.Spec": dict,
    "experiments.experiment.Trial": lambda: {"function": "math:sqrt", "spec": {"a": 1}, "seed": 1},
    "experiments.experiment.canonical_json": lambda: {"value": {"a": [1, 2.0, None]}},
    "experiments.experiment.read_canonical": lambda: {"text": '{"a":1}'},
    "experiments.experiment.resolve": lambda: {"function": "epoch0.papers.price_tanner.growth:block"},
    "experiments.run.run": lambda: {
        "trials": [], "workers": 1, "shard": None,
    },
    "experiments.store.Store": lambda: {"path": folder() / "results.sqlite", "read_only": False},
    "experiments.store.merge": lambda: {"sources": [folder() / "one.sqlite"], "into": folder() / "all.sqlite"},
    "experiments.store.on_network": lambda: {"folder": folder(), "mounts": "/proc/mounts"},
    "initialization.check_path": lambda: {"path": "net.safetensors", "what": "weights"},
    "initialization.save": lambda: {"model": net(), "path": folder() / "net.safetensors"},
    "models.inputs_for": lambda: {
        "model": net(), "input_shape": "6", "batch": 4, "spec": "net",
        "seed": 1,
    },
    "models.load_activation": lambda: {"spec": f"{folder() / 'model.py'}:act"},
    "models.load_model": lambda: {"spec": f"{folder() / 'model.py'}:build", "weights": None, "seed": 1},
    "models.load_program": lambda: {"spec": f"{folder() / 'model.py'}:build", "weights": None, "seed": 1},
    "networks.mlp": lambda: {
        "sizes": [6, 8, 3], "scaling": "fan_in", "linear_output": True, "dtype": torch.float32, **_NET
    },
    "networks.ensemble": lambda: {
        "networks": 3, "sizes": [6, 8, 3], "scaling": "fan_in", "linear_output": True, "dtype": torch.float32, **_NET
    },
    "networks.folding": lambda: {"inputs": 2, "folds": [2, 2], "dtype": torch.float32},
    "networks.residual_chain": lambda: {
        "blocks": 2, "width": 6, "inputs": (6,), "stable": True, "classes": 3, "kernel": 3, **_NET
    },
    "networks.resnet": lambda: {
        "depth": 8, "width": 0.25, "stable": False, "classes": 3, "variant": "cifar", "inputs": (1, 8, 8),
        "stem": "3x3", "norm": "batch", "padding": "zeros", **_NET,
    },
    "networks.sawtooth": lambda: {"depth": 3, "dtype": torch.float32},
    "networks.vanilla_cnn": lambda: {
        "depth": 3, "channels": [2, 3, 4], "kernel": 3, "inputs": (1, 8, 8), "classes": 3, **_NET
    },
    "networks.vgg": lambda: {
        "depth": 11, "width": 0.0625, "repeat": 1, "classes": 3, "inputs": (1, 16, 16), "norm": None,
        "padding": "zeros", **_NET,
    },
    "papers.catalogue.find": lambda: {"name": "price-tanner/fig4b"},
    "papers.catalogue.expand": lambda: {"name": "arpit-bengio"},
    "papers.catalogue.statements": dict,
    "papers.reproduce.planned": lambda: {"ids": ["price-tanner/fig4b"], "preset": "quick", "data_dir": None},
    "prune.Masks": lambda: {"masks": {"0.weight": torch.ones(8, 6, dtype=torch.bool)}},
    "prune.Scores": lambda: {"scores": {"0.weight": torch.ones(8, 6)}, "method": "mine"},
    "prune.apply": lambda: {"model": net(), "masks": masks()},
    "prune.bake": lambda: {"model": pruned()},
    "prune.critical_sparsity": lambda: {"scores": scores()},
    "prune.force": lambda: {
        "model": net(), "batches": batches(), "sparsity": 0.5, "steps": 2, "loss": loss,
        "batch_norm": "train", "forward": forward, "progress": nothing,
    },
    "prune.grasp": lambda: {
        "model": net(), "batches": batches(), "loss": loss, "temperature": 1.0, "batch_norm": "train",
        "forward": forward,
    },
    "prune.iterate": lambda: {
        "model": net(), "score": e0.prune.magnitude, "sparsity": 0.5, "steps": 2,
        "scope": "global", "floor": 1, "layers": "uniform", "progress": nothing,
    },
    "prune.keep": lambda: {"scores": scores(), "sparsity": 0.5, "scope": "global", "floor": 1, "layers": "uniform"},
    "prune.magnitude": lambda: {"model": net()},
    "prune.masks_of": lambda: {"model": pruned()},
    "prune.obd": lambda: {
        "model": net(), "batches": batches(), "probes": 2, "seed": 1, "batch_norm": "train", "forward": forward,
    },
    "prune.on_paths": lambda: {"model": net(), "masks": masks(), "x": (6,)},
    "prune.predicted_density": lambda: {"scores": scores(), "sparsity": 0.5},
    "prune.random": lambda: {"model": net(), "seed": 1},
    "prune.rescale": lambda: {
        "model": pruned(), "method": "measured", "x": x(), "forward": forward, "seed": 1
    },
    "prune.snip": lambda: {
        "model": net(), "batches": batches(), "loss": loss, "batch_norm": "train", "forward": forward,
    },
    "prune.synflow": lambda: {"model": net(), "x": (6,)},
    "regions.boundary_density": lambda: {
        "law": e0.networks.ensemble(3, [6, 8, 3], biases=e0.Gaussian(0.1), seed=0), "where": line(), "k": 1,
        "points": 4, "seed": 1, "kind": "linear",
    },
    "regions.count": lambda: {"model": net(), "where": line(), "memory": 1e9, "progress": nothing},
    "regions.distance": lambda: {"model": net(), "x": x(3)},
    "regions.on_curve": lambda: {
        "model": net(), "curve": e0.Arc(x()[0], x()[1]), "pieces": 5, "memory": 1e9, "progress": nothing
    },
    "regions.on_line": lambda: {
        "model": net(), "x0": x()[0], "x1": x()[1], "kind": "segment", "memory": 1e9,
        "progress": nothing,
    },
    "regions.on_plane": lambda: {"model": net(), "window": x()[:3], "memory": 1e9, "progress": nothing},
    "regions.pattern_colours": lambda: {"patterns": np.zeros((3, 5), np.uint8)},
    "regions.square": lambda: {"centre": x()[0], "u": x()[1], "v": x()[2], "half": 1.0},
    "regions.through": lambda: {"a": x()[0], "b": x()[1], "c": x()[2], "margin": 1.0},
    "seeds.generator": lambda: {"seed": 1},
    "seeds.numpy_generator": lambda: {"seed": 1},
    "theory.growth.absolute_moment_constant": lambda: {"law": e0.Gaussian(1.0)},
    "theory.growth.best_lower_bound": lambda: dict(_LAW),
    "theory.growth.bounds": lambda: {"law": e0.Gaussian(1.0), "widths": [4, 5], "activation": "relu", "fan_in": 3},
    "theory.growth.exact": lambda: dict(_LAW),
    "theory.growth.expected_subvector_norm": lambda: {"direction": "flat", "density": 0.5, "size": 10},
    "theory.growth.fourth_moment_lower_bound": lambda: {**_LAW, "fourth_power_sum": 0.5},
    "theory.growth.lower_bound": lambda: dict(_LAW),
    "theory.growth.raghu_lower_bound": lambda: {"weight_std": 2.0, "bias_std": 0.1, "width": 9, "activation": "relu"},
    "theory.growth.raghu_upper_bound": lambda: {"weight_std": 2.0, "width": 9},
    "theory.growth.sparse_maximum": lambda: {**_LAW, "fan_in": 7},
    "theory.growth.sparse_minimum": lambda: dict(_LAW),
    "theory.growth.upper_bound": lambda: dict(_LAW),
    "theory.growth.GrowthLaw": lambda: {"widths": (4, 5), "stds": (0.5, 0.4)},
    "theory.mean_field.c_star": lambda: {**_SCALES, "density": 0.9},
    "theory.mean_field.chi": lambda: {"activation": "tanh", "weight_std": 1.5, "q": 1.0, "density": 0.9},
    "theory.mean_field.correlation_map": lambda: {**_SCALES, "c": 0.5, "q": 1.0, "density": 0.9},
    "theory.mean_field.depth_scale": lambda: {**_SCALES, "density": 0.9},
    "theory.mean_field.edge_of_chaos": lambda: {"activation": "tanh", "bias_std": 0.2, "density": 0.9},
    "theory.mean_field.gaussian_mean": lambda: {"f": np.tanh, "q": 1.0, "breaks": (0.0,)},
    "theory.mean_field.kernel": lambda: {
        "x1": np.eye(3), "x2": np.ones((2, 3)), "activation": "relu", "weight_std": 1.4, "bias_std": 0.1, "depth": 3,
        "density": 0.9, "architecture": "dense",
    },
    "theory.mean_field.pair_mean": lambda: {"activation": "relu", "q1": 1.0, "q2": 1.0, "c": 0.5},
    "theory.mean_field.phase": lambda: {**_SCALES, "density": 0.9},
    "theory.mean_field.phase_diagram": lambda: {
        "activation": "relu", "weight_stds": [1.0, 1.5], "bias_stds": [0.0, 0.1], "density": 0.9
    },
    "theory.mean_field.propagate": lambda: {
        **_SCALES, "depth": 3, "q": 1.0, "c": 0.5, "density": 0.9, "architecture": "dense"
    },
    "theory.mean_field.q_star": lambda: {**_SCALES, "density": 0.9},
    "theory.mean_field.variance_map": lambda: {**_SCALES, "q": 1.0, "density": 0.9},
    "theory.norms.NormRatio": lambda: {"widths": (4, 5), "scales": (1.0, 1.0)},
    "theory.norms.chernoff_rate": lambda: {"eps": 0.1, "tail": "upper"},
    "theory.norms.failure_probability": lambda: {
        "eps": 0.2, "widths": [20, 30], "samples": 2, "method": "exact", "direction": "forward", "layers": 2
    },
    "theory.norms.paper_rate": lambda: {"eps": 0.1},
    "theory.norms.required_width": lambda: {**_NORM, "method": "paper"},
    "theory.norms.required_width_subspace": lambda: {"eps": 0.2, "delta": 0.1, "dimension": 2, "layers": 1},
    "theory.norms.summary": lambda: dict(_NORM),
    "theory.norms.tolerance": lambda: {
        "width": 900, "delta": 0.1, "samples": 1, "layers": 1, "method": "paper", "direction": "forward"
    },
    "theory.pruning.magnitude_bound": lambda: {"gamma": 1.5, "weights": 100, "paper": False},
    "theory.pruning.magnitude_density": lambda: {"weight_std": [1.0, 2.0], "weights": [100, 200], "sparsity": 0.5},
    "theory.pruning.magnitude_limit": lambda: {"gamma": 1.5, "weights": 100},
    "theory.pruning.ordered_bound": lambda: {"chi": 0.9, "depth": 10, "width": 20, "paper": False},
    "theory.pruning.predicted_density": lambda: {
        "activation": "tanh", "weight_std": 0.8, "bias_std": 0.3, "widths": [10, 10, 10], "sparsity": 0.3,
        "input_square": 1.0, "input_correlation": 0.0,
    },
    "theory.regions.arrangement_regions": lambda: {"planes": 5, "dimension": 2},
    "theory.regions.upper_bound": lambda: {"widths": [4, 4], "inputs": 2, "faces": 1},
    "train.Accuracy": lambda: {"inputs": x(), "targets": y(), "name": "accuracy", "batch_size": 5},
    "train.CentreCrop": lambda: {"size": 8, "shorter": 9},
    "train.CropResizeFlip": lambda: {"size": 8, "area": (0.1, 1.0), "ratio": (0.75, 1.3)},
    "train.PadCropFlip": lambda: {"pad": 4, "flip": True},
    "train.Evaluation": lambda: {
        "data": (x(), y()), "batch_size": 5, "name": "test", "loss": loss, "precision": "float32"
    },
    "train.Every": lambda: {"steps": 2, "callback": nothing},
    "train.FreezeAt": lambda: {"metric": "accuracy", "target": 0.9},
    "train.TrajectoryLengths": lambda: {
        "curve": line(), "points": 4, "seed": 1, "batch_norm": "eval", "activations": "joined", "name": "lengths"
    },
    "train.image_sources": lambda: {"name": "digits", "augment": False, "flatten": True, "data_dir": str(folder())},
    "train.penalty": lambda: {"model": nn.Sequential(nn.Linear(2, 2), e0.TrajectoryRegularization())},
    "train.train": lambda: {
        "model": net(), "data": (x(), y()), "steps": 2, "batch_size": 4, "optimizer": "sgd", "learning_rate": 0.1,
        "clip": 1.0, "loss": loss, "seed": 1, "device": "cpu", "precision": "float32", "channels_last": False,
        "evaluate": None, "evaluate_every": 1, "callbacks": (), "checkpoint_every": 1, "checkpoint_minutes": 1.0,
    },
}  # fmt: skip

#: methods of results and of what is made, with working arguments: how the object is made, the method, what it is given
METHODS: dict[str, tuple[Callable[[], Any], Callable[[], dict[str, Any]]]] = {
    "Line.point": (line, lambda: {"t": [0.5]}),
    "Line.tangent": (line, lambda: {"t": [0.5]}),
    "Line.to": (line, lambda: {"dtype": torch.float64}),
    "Gaussian.sample": (lambda: e0.Gaussian(1.0), lambda: {"shape": [2, 3], "dtype": torch.float32}),
    "Gaussian.scaled": (lambda: e0.Gaussian(1.0), lambda: {"factor": 2.0}),
    "Masks.save": (masks, lambda: {"path": folder() / "m.safetensors"}),
    "Masks.load": (masks, lambda: {"path": masks().save(folder() / "read.safetensors")}),
    "Masks.summary": (masks, lambda: {"model": net(), "x": (6,)}),
    "CriticalSparsity.dead": (lambda: e0.prune.critical_sparsity(scores()), lambda: {"sparsity": 0.5}),
    "GrowthLaw.cdf": (lambda: e0.theory.growth.GrowthLaw((3,), (1.0,)), lambda: {"x": 0.5}),
    "GrowthLaw.quantile": (lambda: e0.theory.growth.GrowthLaw((3,), (1.0,)), lambda: {"p": 0.5}),
    "NormRatio.interval": (lambda: e0.theory.norms.NormRatio((30,)), lambda: {"level": 0.9}),
    "NormRatio.quantile": (lambda: e0.theory.norms.NormRatio((30,)), lambda: {"p": 0.5}),
    "Checkup.to_html": (lambda: report(), lambda: {"path": folder() / "page.html"}),
    "Checkup.compare": (lambda: report(), lambda: {"after": report()}),
    "Checkup.print": (lambda: report(), lambda: {"width": 80, "depth": 1}),
    "DataSet.inputs": (lambda: digits(), lambda: {"normalize": "unit", "flatten": True, "like": None}),
    "DataSet.scaling": (lambda: digits(), lambda: {"normalize": "standard", "like": digits()}),
    "Images.of": (lambda: images(), lambda: {"dataset": digits(), "normalize": "unit", "flatten": True}),
    "Images.first": (lambda: images(), lambda: {"count": 3}),
    "Images.to": (lambda: images(), lambda: {"device": "cpu"}),
    "Images.batch": (lambda: images(), lambda: {"chosen": torch.arange(3), "seed": 1}),
    "Images.augmented": (lambda: images(), lambda: {"augment": nothing}),
    "Training.best": (lambda: trained(), lambda: {"metric": "loss", "largest": True}),
    "Artifact.setting": (lambda: e0.papers.catalogue.find("price-tanner/fig4b"), lambda: {"preset": "quick"}),
    "LinePartition.point": (lambda: e0.regions.on_line(net(), x()[0], x()[1]), lambda: {"t": [0.5]}),
    "PlanePartition.cell": (lambda: plane(), lambda: {"index": 0}),
    "ActivationPatterns.states": (lambda: e0.activation_patterns(net(), x()), lambda: {"layer": "1"}),
    "Stacked.of": (lambda: stack(), lambda: {"networks": [net(), net()]}),
    "Stacked.unstack": (lambda: stack(), lambda: {"index": 0}),
    "Stacked.freeze": (lambda: stack(), lambda: {"which": torch.tensor([True, False]), "step": 1}),
    "Stacked.loss": (lambda: stack(), lambda: {"function": nothing}),
    "Evaluation.__call__": (lambda: e0.train.Evaluation((x(), y())), lambda: {"model": net()}),
    "Accuracy.__call__": (lambda: e0.train.Accuracy(x(), y()), lambda: {"model": net()}),
}  # fmt: skip


@functools.cache
def report() -> Any:
    return e0.checkup(net(), x(), y(), trial=False, remedies=False, directions=2)


@functools.cache
def plane() -> Any:
    return e0.regions.on_plane(net(), x()[:3])


@functools.cache
def digits() -> Any:
    return e0.data.load("digits")


@functools.cache
def images() -> Any:
    return e0.train.Images.of(digits())


@functools.cache
def trained() -> Any:
    return e0.train.train(net(), (x(), y()), steps=2)


def stack() -> Any:
    return e0.train.Stacked.of([net(), net()])


# results, and what stands beside the computations: no arguments, plain helpers, bases, what fetches or joins processes
NEVER_CALLED = {
    "InputError", "Law", "activations.Known", "activity.ActivationPatterns", "activity.Dichotomies",
    "activity.Robustness", "activity.Transitions", "curves.Curve", "data.Availability", "data.ImageFiles", "data.fetch",
    "diagnosis.Checkup", "diagnosis.Comparison", "diagnosis.LayerCheckup", 
    "errors.check_dense", "errors.check_finite", "errors.first_line", "errors.reworded", "errors.suggest",
    "experiments.claims.Claim", "experiments.run.Progress", "experiments.run.TrialError",
    "experiments.run.TrialInputError", "initialization.Initialization", "initialization.LayerInit", "models.Inputs",
    "networks.Ensemble", "papers.catalogue.Statement", "papers.catalogue.catalogue",
    "papers.reproduce.Part",
    "papers.reproduce.ArtifactPlan", "papers.reproduce.Reproduction",
    "papers.reproduce.decided", "papers.reproduce.environment", "papers.reproduce.reproduce_all",
    "prune.CriticalSparsity", "prune.MaskSummary", "prune.Rescaling",
    "regions.BoundaryDensity", "regions.Certificate", "regions.Distances", "regions.LinePartition",
    "regions.LinePartitions", "regions.PlanePartition", "regions.Window", "theory.growth.GrowthBounds",
    "theory.growth.LayerGrowth", "theory.mean_field.DepthScale", "theory.mean_field.EdgeCurve",
    "theory.mean_field.EdgeOfChaos", "theory.mean_field.Kernel", "theory.mean_field.Phase",
    "theory.mean_field.PhaseDiagram", "theory.mean_field.Propagation", "theory.norms.NormSummary",
    "theory.pruning.LayerDensity", "theory.pruning.PredictedDensity", "train.Folder", 
    "train.Images",
    "train.Stacked", "train.Training", "train.chosen_device", "train.joined",
}  # fmt: skip
