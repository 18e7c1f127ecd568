"""The table of operations: torch knows every name, roles are torch's arguments, an activation is one entry."""

import inspect
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from epoch0 import activations
from epoch0.tracing.operations import MEANINGS, function_name, meaning

OTHERS = {
    "lstm", "gru", "iadd", "isub", "imul", "idiv", "itruediv", "identity", "alias", "pos", "requires_grad",
}  # fmt: skip
"""Names from Python's operators, from code that torch traced, and of what only its modules call."""


def test_every_name_is_one_of_torch() -> None:
    places = (F, torch, torch.special, Tensor, torch._C._nn, torch.ops.aten)
    forms = ("{}", "{}_", "__{}__")
    unknown = {n for n in MEANINGS if not any(hasattr(p, form.format(n)) for p in places for form in forms)}
    assert unknown <= OTHERS


def test_roles_are_torchs_arguments_in_order() -> None:
    """Where torch's function is written in Python its signature is the truth; the others are called below."""
    seen = 0
    for name, known in MEANINGS.items():
        try:
            names = list(inspect.signature(getattr(F, name)).parameters)
        except (AttributeError, TypeError, ValueError):
            continue
        if "args" not in names:
            assert [torchs for _, torchs in known.arguments] == names[: len(known.arguments)], name
            seen += 1
    assert seen > 40


@pytest.mark.parametrize("by_name", [False, True])
@pytest.mark.parametrize(
    ("function", "given"),
    [
        (F.conv2d, {"input": torch.ones(1, 2, 5, 5), "weight": torch.ones(4, 1, 3, 3), "bias": torch.zeros(4),
                    "stride": 2, "padding": 1, "dilation": 1, "groups": 2}),
        (F.conv_transpose1d, {"input": torch.ones(1, 2, 5), "weight": torch.ones(2, 1, 3), "bias": torch.zeros(2),
                              "stride": 2, "padding": 1, "output_padding": 0, "groups": 2, "dilation": 1}),
        (torch.addmm, {"bias": torch.ones(3), "input": torch.ones(2, 4), "weight": torch.ones(4, 3)}),
        (torch.baddbmm, {"bias": torch.ones(3), "input": torch.ones(1, 2, 4), "weight": torch.ones(1, 4, 3)}),
        (torch.addmv, {"bias": torch.ones(3), "weight": torch.ones(3, 4), "input": torch.ones(4)}),
        (torch.mv, {"weight": torch.ones(3, 4), "input": torch.ones(4)}),
        (torch.matmul, {"input": torch.ones(2, 4), "weight": torch.ones(4, 3)}),
        (F.avg_pool2d, {"input": torch.ones(1, 1, 4, 4), "kernel_size": 2, "stride": 1, "padding": 1,
                        "ceil_mode": True, "count_include_pad": False, "divisor_override": 3}),
        (F.leaky_relu, {"input": torch.ones(2), "negative_slope": 0.3}),
    ],
)  # fmt: skip
def test_arguments_by_their_roles(function, given: dict[str, object], by_name: bool) -> None:
    known = meaning(function_name(function))
    kwargs = {torchs: given[role] for role, torchs in known.arguments} if by_name else {}
    args = () if by_name else tuple(given.values())
    assert known.given(args, kwargs) == given
    function(*args, **kwargs)  # torch takes them so
    other = known.replaced(args, kwargs, input="x", bias=None)
    assert known.given(*other) == {**given, "input": "x", **({"bias": None} if "bias" in given else {})}


def test_clipping_is_an_activation_wherever_it_is() -> None:
    h = torch.linspace(-4, 9, 53, dtype=torch.float64)
    for low, high in ((0, None), (0, 6), (-1, 1), (-2.0, 0.5), (1, 3), (-3, -1), (None, 2.0), (None, -1), (-0.5, None)):
        found = meaning("clamp").activation((h, low, high), {})
        assert torch.equal(torch.from_numpy(found.function(h.numpy())), h.clamp(low, high))
    assert meaning("clamp").activation((h, 0), {}) == activations.get("relu")
    assert meaning("hardtanh").activation((h,), {}) == activations.get("hardtanh")
    assert meaning("maximum").activation((h, 0 * h), {}) == activations.get("relu")
    assert meaning("minimum").activation((h, 0 * h), {}) is None
    assert meaning("clamp").activation((h, h, 1), {}) is None and meaning("clamp").activation((h, 2, 1), {}) is None


NEW = """
import numpy as np
from epoch0.activations import _named
from epoch0.activations import Activation

@_named._known("Tanhshrink")
def tanhshrink() -> Activation:
    return Activation("tanhshrink", lambda h: h - np.tanh(h), lambda h: np.tanh(np.asarray(h)) ** 2)

import torch
import epoch0 as e0
from epoch0.errors import InputError
from epoch0.tracing.tape import tape

net, x = e0.networks.mlp([40, 64, 64, 5], "tanhshrink", seed=0), torch.randn(16, 40)
with tape(net, x) as record:
    assert [op.activation for op in record.ops if op.elementwise] == [e0.activations.get("tanhshrink")] * 2
assert all(layer.predicted is not None for layer in e0.gain(net, x, directions=2).layers)
assert {layer.activation for layer in e0.initialize(net, x=x, weights="gaussian").layers} == {"tanhshrink", "none"}
assert e0.theory.mean_field.chi(net[1], 2.0, 1.0) > 0
masks = e0.prune.keep(e0.prune.synflow(net, (40,)), .5)
assert masks.summary(net, x=(40,)).layers
try:
    e0.regions.on_line(net, *x[:2])
except InputError as error:
    assert "tanhshrink is no piecewise linear function" in str(error)
print("one entry")
"""


def test_a_new_activation_is_one_entry() -> None:
    """Networks, records, laws, initialization, pruning and regions know it by its entry alone."""
    done = subprocess.run([sys.executable, "-c", NEW], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == "one entry", done.stderr
