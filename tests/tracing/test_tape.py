"""The record of a run: what it sees, where it cuts, and that replaying it under any transform is the model itself."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import jvp, vmap
from torch.utils.checkpoint import checkpoint

import epoch0 as e0
from epoch0 import activations
from epoch0.errors import InputError
from epoch0.tracing.graph import Tap
from epoch0.tracing.layers import layers, require_nonlinearity, segments
from epoch0.tracing.tape import Tape, tape
from measured_models import CASES, BasicBlock, Case, Functional, Quantized, Skip


@pytest.fixture(autouse=True)
def _same_weights_every_time() -> None:
    torch.manual_seed(7)


class Calls(nn.Module):
    """A model that computes one given function, after a linear layer."""

    def __init__(self, function: Callable[[Tensor], Any], width: int = 6) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(4, width), function

    def forward(self, x: Tensor) -> Any:
        return self.function(self.linear(x))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_nonlinearities_and_stations_are_found_and_named(case: Case) -> None:
    with tape(case.model, case.x) as t:
        assert [tap.name for tap in t.nonlinearities] == case.nonlinearities
        found = layers(t)
        assert [layer.name for layer in found] == [name for name, _ in case.segments]
        assert found[0].input == 0 and found[-1].output == t.output
        assert all(a.output == b.input for a, b in itertools.pairwise(found))
        with torch.no_grad():
            values, h = t.values(t.x, [layer.output for layer in found]), case.x
            for value, (_, segment) in zip(values, case.segments, strict=True):
                h = segment(h)
                torch.testing.assert_close(value, h)
            torch.testing.assert_close(t.run(t.x), h)


@pytest.mark.parametrize("case", [c for c in CASES if c.name != "straight through"], ids=lambda case: case.name)
def test_values_and_tangents_under_every_transform(case: Case) -> None:
    """One replay three ways: jvp, dual numbers, vmap over inputs."""
    v = torch.randn_like(case.x)
    with tape(case.model, case.x, batch_norm="eval") as t:
        nodes = [0, *(tap.node for tap in t.taps()), t.output]

        def values(x: Tensor) -> list[Tensor]:
            return t.values(x, nodes)

        plain, tangents = jvp(values, (t.x,), (v,))
        torch.testing.assert_close(tangents[0], v)
        with forward_ad.dual_level():
            dual = t.values(forward_ad.make_dual(t.x, v), nodes)
            for place, tangent in enumerate(tangents):
                torch.testing.assert_close(forward_ad.unpack_dual(dual[place]).tangent, tangent)
        small = 1e-6
        x64 = t.x.double()
        if t.x.dtype == torch.float64:
            ahead, behind = values(x64 + small * v), values(x64 - small * v)
            for a, b, tangent in zip(ahead, behind, tangents, strict=True):
                torch.testing.assert_close((a - b) / (2 * small), tangent, rtol=1e-4, atol=1e-6)
        many = vmap(values)(torch.stack([t.x, 2 * t.x]))
        for both, one, two in zip(many, plain, values(2 * t.x), strict=True):
            torch.testing.assert_close(both, torch.stack([one, two]))
        more = values(torch.cat([t.x, t.x]))
        assert all(len(a) == 2 * len(b) for a, b in zip(more, plain, strict=True) if b.shape[0] == len(t.x))


RELU, TANH = activations.get("relu"), activations.get("tanh")


def activation_at(record: Tape, tap: Tap) -> activations.Activation | None:
    """The activation whose output a tap is."""
    return next(op.activation for op in record.ops if tap.node in op.outputs)


@pytest.mark.parametrize(
    ("function", "name", "activation"),
    [
        (torch.relu, "relu()", RELU),
        (F.relu, "relu()", RELU),
        (lambda h: F.relu(h, inplace=True), "relu()", RELU),
        (lambda h: h.relu(), "relu()", RELU),
        (torch.relu_, "relu()", RELU),
        (lambda h: h.clamp(min=0), "clamp()", RELU),
        (lambda h: torch.clamp_min(h, 0), "clamp_min()", RELU),
        (lambda h: torch.maximum(h, torch.zeros(1)), "maximum()", RELU),
        (lambda h: F.threshold(h, 0, 0), "threshold()", RELU),
        (lambda h: h.clamp(-1, 1), "clamp()", activations.get("hardtanh")),
        (lambda h: F.hardtanh(h, -2.0, 2.0), "hardtanh()", activations.hardtanh(-2.0, 2.0)),
        (F.leaky_relu, "leaky_relu()", activations.leaky_relu(0.01)),
        (lambda h: F.leaky_relu(h, 0.3), "leaky_relu()", activations.leaky_relu(0.3)),
        (lambda h: F.prelu(h, torch.tensor([0.25])), "prelu()", activations.leaky_relu(0.25)),
        (lambda h: F.rrelu(h, 0.1, 0.3), "rrelu()", activations.leaky_relu(0.2)),
        (F.elu, "elu()", activations.elu(1.0)),
        (lambda h: F.elu(h, alpha=2.0), "elu()", activations.elu(2.0)),
        (F.gelu, "gelu()", activations.get("gelu")),
        (F.silu, "silu()", activations.get("silu")),
        (torch.erf, "erf()", activations.get("erf")),
        (lambda h: h.tanh_(), "tanh()", TANH),
        (nn.Tanh(), "function", TANH),
        (nn.Hardtanh(-1.0, 0.5), "function", activations.hardtanh(-1.0, 0.5)),
        (nn.PReLU(), "function", activations.leaky_relu(0.25)),
        *((nonlinearity(), "function", activations.get(nonlinearity())) for nonlinearity in (
            nn.ReLU6, nn.Sigmoid, nn.SELU, nn.CELU, nn.Mish, nn.Softplus, nn.Softsign, nn.Hardswish, nn.Hardsigmoid,
        )),
        (nn.CELU(2.0), "function", activations.celu(2.0)),
        (nn.GELU("tanh"), "function", activations.get("gelu_tanh")),
        (lambda h: F.softplus(h, 2.0), "softplus()", activations.softplus(2.0)),
        (torch.sin, "sin()", activations.get("sin")),
        (torch.abs, "abs()", activations.get("abs")),
        (lambda h: h.clamp(0, 6), "clamp()", activations.get("relu6")),
        (nn.PReLU(6), "function", activations.leaky_relu(0.25)),
    ],
)  # fmt: skip
def test_every_spelling_of_a_nonlinearity(function: Any, name: str, activation: Any) -> None:
    with tape(Calls(function), torch.randn(5, 4)) as t:
        assert [(tap.name, activation_at(t, tap)) for tap in t.nonlinearities] == [(name, activation)]
        require_nonlinearity(t)
        if activation is not None:
            h = t.values(t.x, [0, t.nonlinearities[0].node])[1]
            before = t.model.linear(t.x).detach().numpy()
            torch.testing.assert_close(h.detach(), torch.from_numpy(activation.function(before)).float())


@pytest.mark.parametrize(
    "function",
    [
        nn.LogSigmoid(), nn.Softshrink(), nn.Tanhshrink(), nn.Hardshrink(0.3), torch.atan, torch.cos,
        lambda h: h.clamp(0, 1), lambda h: F.hardtanh(h, 0.5, 2.0), lambda h: F.softplus(h, 1.0, 2.0),
        lambda h: h.clamp(max=0.5), lambda h: torch.minimum(h, torch.tensor(0.5)), lambda h: F.threshold_(h, 0.1, 0.0),
        lambda h: h.clamp_(-1, 3),
    ],
)  # fmt: skip
def test_a_nonlinearity_without_a_rule_gets_its_activation_from_the_call(function: Any) -> None:
    with tape(Calls(function), torch.randn(5, 4)) as t:
        (tap,) = t.nonlinearities
        found = activation_at(t, tap)
        assert found is not None and found is activation_at(t, tap)  # looked at once
        before = t.model.linear(t.x).detach()
        points = before.double().requires_grad_()
        after = function(points.clone())
        torch.testing.assert_close(torch.from_numpy(found.function(before.double().numpy())), after.detach())
        slopes = torch.autograd.grad(after.sum(), points)[0]
        torch.testing.assert_close(torch.from_numpy(found.derivative(before.double().numpy())), slopes)


@pytest.mark.parametrize(
    "function", [lambda h: torch.minimum(h, torch.arange(6.0)), lambda h: F.prelu(h, torch.arange(6.0) / 6)]
)
def test_functions_that_differ_from_place_to_place_are_no_activation(function: Any) -> None:
    with tape(Calls(lambda h: function(h) + h), torch.randn(5, 4)) as t:
        assert activation_at(t, t.nonlinearities[-1]) is None


def test_a_module_that_is_only_a_nonlinearity_is_tapped_at_its_output() -> None:
    class Swish(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * torch.sigmoid(x)

    model = nn.Sequential(nn.Linear(4, 4), Swish(), nn.Linear(4, 2))
    with tape(model, torch.randn(3, 4)) as t:
        assert [tap.name for tap in t.nonlinearities] == ["1"]
        torch.testing.assert_close(t.values(t.x, [t.taps()[0].node])[0], F.silu(model[0](t.x)))


@pytest.mark.parametrize(
    "function",
    [F.softmax, lambda h: F.max_pool1d(h[:, None], 2), lambda h: h * h, lambda h: h / (1 + h.abs()), lambda h: h**3],
)
def test_other_nonlinear_models_pass_the_test_for_one(function: Any) -> None:
    call = (lambda h: F.softmax(h, dim=1)) if function is F.softmax else function
    with tape(Calls(call), torch.randn(5, 4)) as t:
        assert require_nonlinearity(t) is None  # and raises nothing


@pytest.mark.parametrize("function", [lambda h: h, lambda h: 2 * h + 1, lambda h: F.dropout(h.flip(1)), torch.neg])
def test_a_model_without_nonlinearity_is_refused(function: Any) -> None:
    with tape(Calls(function), torch.randn(5, 4)) as t, pytest.raises(InputError, match="Calls has no nonlinearity"):
        require_nonlinearity(t)


def test_names_of_taps() -> None:
    model = nn.Sequential(nn.Linear(4, 4), BlockTwice(), nn.ReLU())
    with tape(model, torch.randn(3, 4)) as t:
        assert [tap.name for tap in t.taps()] == ["1.tanh()", "1.tanh() (2nd use)", "2"]
        assert [tap.name for tap in t.taps(["1.lin"])] == ["1.lin", "1.lin (2nd use)"]
        assert [tap.name for tap in t.taps(["1.lin (2nd use)", "0"])] == ["1.lin (2nd use)", "0"]
        message = r"no layer is named '1.linn'. Did you mean '1.lin'\? The layers are 0, 1.lin,"
        with pytest.raises(InputError, match=message):
            t.taps(["1.linn"])


class BlockTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.lin(torch.tanh(self.lin(x))))


def test_a_tap_keeps_its_value_when_the_tensor_is_changed_in_place_later() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))
    with tape(model, torch.randn(5, 4)) as t:
        before, after = t.values(t.x, [tap.node for tap in t.taps(["0", "1"])])
        torch.testing.assert_close(before, model[0](t.x))
        torch.testing.assert_close(after, before.relu())
        assert (before < 0).any()


def test_replacing_a_tensor_that_was_changed_in_place_by_a_statement() -> None:
    with tape(Functional(), torch.randn(5, 6)) as t:
        first, last = t.taps(["relu()"])[0].node, layers(t)[-1]
        out = t.run(t.x, {first: lambda h: torch.zeros_like(h)})
        zero = torch.relu(t.model.again(torch.tanh(t.model.again(torch.zeros(5, 8))))) * 1.5
        zero[:, 0] = 0.0
        torch.testing.assert_close(out, t.model.last(zero))
        (end,) = t.values(t.x, [last.input])
        assert (end[:, 0] == 0).all()


def test_a_change_through_a_view_makes_the_whole_tensor_new() -> None:
    def halves(h: Tensor) -> Tensor:
        h[:, :3].relu_()
        return h

    with tape(Calls(halves), torch.randn(5, 4)) as t:
        (end,) = t.values(t.x, [layers(t)[0].output])
        torch.testing.assert_close(end, t.run(t.x))
        (start,) = t.values(t.x, [t.taps(["linear"])[0].node])
        torch.testing.assert_close(start, t.model.linear(t.x))
        torch.testing.assert_close(t.run(t.x, {t.output: lambda h: h * 0}), torch.zeros(5, 6))


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=14))
def test_stations_are_the_tensors_that_all_paths_share(program: list[tuple[int, int]]) -> None:
    """Against brute force on random graphs: without the tensor, the output cannot be reached from the input."""
    edges: list[tuple[int, int]] = []

    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(()))

        def forward(self, x: Tensor) -> Tensor:
            made = [x]
            edges.clear()
            for first, second in program:
                a, b = max(0, len(made) - 1 - first % 4), second % len(made)
                edges.extend([(a, len(made)), (b, len(made))])
                made.append(torch.add(made[a], made[b]) if a != b else torch.sin(made[a]))
            return made[-1]

    with tape(Graph(), torch.randn(2, 3)) as t:
        found = [0, *(end for _, end, _ in segments(t))]

    def reached(without: int) -> bool:
        seen = {0} - {without}
        for a, b in edges:  # in order of making
            if a in seen and b != without:
                seen.add(b)
        return len(program) in seen

    assert found == [node for node in range(len(program) + 1) if not reached(node)]


def test_a_resnet_is_cut_into_stem_blocks_and_head() -> None:
    model = nn.Module()
    model.stem, model.stage1 = nn.Conv2d(1, 4, 3), nn.Sequential(BasicBlock(4, 4), BasicBlock(4, 6))
    model.head = nn.Linear(6, 2)
    model.forward = lambda x: model.head(model.stage1(F.relu(model.stem(x))).mean((2, 3)))  # type: ignore[method-assign]
    with tape(model, torch.randn(3, 1, 8, 8)) as t:
        found = layers(t)
        assert [(layer.name, layer.kind) for layer in found] == [
            ("stem", "convolution"), ("stage1.0", "residual block"), ("stage1.1", "residual block"), ("head", "linear"),
        ]  # fmt: skip
        assert [layer.weighted for layer in found] == [1, 2, 3, 1]
        assert found[0].activation == RELU
        assert found[1].has_norm and t.has_batch_norm and not t.has_dropout


def test_a_skip_around_everything_is_one_layer() -> None:
    with tape(Skip(), torch.randn(3, 8)) as t:
        found = [(layer.name, layer.kind, layer.weighted) for layer in layers(t)]
    assert found == [("down … up", "block", 2), ("head", "linear", 1)]


def test_batch_norm_in_both_modes_is_torchs_own() -> None:
    block, x = BasicBlock(2, 3), torch.randn(4, 2, 5, 5)
    with torch.no_grad():
        block.bn1.running_mean.normal_()
        block.bn2.running_var.uniform_(0.5, 2)
    with tape(block, x, batch_norm="train") as t:
        seen = t.run(x)
    with tape(block, x, batch_norm="eval") as t:
        kept = t.run(x)
    kept_buffers = [b.clone() for b in block.buffers()]
    torch.testing.assert_close(kept, block.eval()(x))
    torch.testing.assert_close(seen, block.train()(x))
    assert any(not torch.equal(a, b) for a, b in zip(kept_buffers, block.buffers(), strict=True))  # ours touched none


@pytest.mark.parametrize(
    "norm", [nn.InstanceNorm1d(6, track_running_stats=True), nn.BatchNorm1d(6, track_running_stats=False)]
)
def test_norms_with_other_settings(norm: nn.Module) -> None:
    model, x = nn.Sequential(nn.Linear(4, 6), nn.Unflatten(1, (6, 1)), nn.Upsample(3), norm), torch.randn(5, 4)
    with tape(model, x) as t:
        torch.testing.assert_close(t.run(x), model.train()(x))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_is_followed_or_refused(reentrant: bool) -> None:
    """Code that is run again in the backward pass sees no rules for batch norm: then torch notices, and we say why.

    With ``use_reentrant=True`` torch could give no gradients of chosen tensors: it is run once.
    """
    tanh = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
    norm = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Tanh())
    for inner in (tanh, norm):
        model, x = Calls(lambda h, f=inner: checkpoint(f, h, use_reentrant=reentrant).sin()), torch.randn(5, 4)
        model.inner = inner
        with tape(model, x) as t:
            start = t.x.clone().requires_grad_()
            out = t.run(start).sum()
            if inner is norm and not reentrant:
                with pytest.raises(InputError, match="turn gradient checkpointing off"), t.backward():
                    torch.autograd.grad(out, start)
            else:
                with t.backward():
                    (gradient,) = torch.autograd.grad(out, start)
                model.function = lambda h, f=inner: f(h).sin()
                with tape(model, x) as plain:
                    (expected,) = torch.autograd.grad(plain.run(start).sum(), start)
                torch.testing.assert_close(gradient, expected)


def test_control_flow_that_depends_on_the_data_is_refused() -> None:
    class Branch(nn.Module):
        def __init__(self, other: Callable[[Tensor], Tensor]) -> None:
            super().__init__()
            self.linear, self.other = nn.Linear(3, 3), other

        def forward(self, x: Tensor) -> Tensor:
            h = self.linear(x)
            return torch.tanh(h) if float(x.detach().sum()) > 0 else self.other(h)

    for other, said in (
        (lambda h: torch.sin(h).cos(), r"operation \d was tanh in module '', now sin"),
        (lambda h: torch.tanh(h).relu(), "computes something else each time"),
        (lambda h: h, r"operation \d was tanh in module '', now nothing more"),
    ):
        with tape(Branch(other), torch.ones(2, 3)) as t:
            t.run(t.x)
            with pytest.raises(InputError, match=said):
                t.run(-t.x)


def test_noise_is_the_same_in_every_run() -> None:
    with tape(Calls(lambda h: torch.tanh(h + torch.randn_like(h))), torch.randn(5, 4)) as t:
        assert torch.equal(t.run(t.x), t.run(t.x))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda h: h.argmax(1), "returns a Tensor without a floating point tensor; give forward="),
        (lambda h: None, "returns a NoneType without"),
        (lambda h: (h.argmax(1), "words"), "returns a tuple without"),
        (lambda h: h.detach(), r"no derivative of the model's output reaches its input of shape \(5, 4\)"),
        (lambda h: torch.zeros(3), "constant or detached"),
    ],
)
def test_outputs_that_cannot_be_measured(function: Any, message: str) -> None:
    with pytest.raises(InputError, match=message), tape(Calls(function), torch.randn(5, 4)):
        raise AssertionError("no record can be made")


def test_one_tensor_among_others_is_taken() -> None:
    for function in (
        lambda h: (h, None, h.argmax(1)), lambda h: {"logits": torch.tanh(h)}, lambda h: [h], lambda h: (h, h * 2),
        lambda h: {"loss": h.sum(), "logits": h},
    ):  # fmt: skip
        with tape(Calls(function), torch.randn(5, 4)) as t:
            assert t.nodes[t.output].shape == (5, 6) and t.run(t.x).shape == (5, 6)


def test_an_operation_without_forward_derivative_is_named() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Quantized(), nn.Linear(4, 2))
    with tape(model, torch.randn(3, 4)) as t:
        no_rule = r"autograd function Sign in module '2' has no forward derivative"
        with forward_ad.dual_level(), pytest.raises(InputError, match=no_rule):
            t.run(forward_ad.make_dual(t.x, t.x))
        with pytest.raises(InputError, match="Sign"):
            jvp(lambda x: t.values(x, [t.output]), (t.x,), (t.x,))


def test_no_hook_and_no_mode_is_left_behind() -> None:
    model = Functional()
    with tape(model, torch.randn(5, 6)) as t:
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
        assert not any(p.requires_grad for p in model.parameters())
        calls: list[int] = []
        t.run(t.x, {0: lambda h: calls.append(0)})
        assert calls == [0]
    assert all(p.requires_grad for p in model.parameters())
    assert not torch.overrides._get_current_function_mode_stack()


def test_a_transformer_layer_runs_the_same_operations_in_each_run() -> None:
    """Torch has a short cut for one that needs no gradients; a pruned one took it in some runs and not in others."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Flatten(), nn.Linear(192, 4))
    x, y = torch.randn(20, 6, 32), torch.arange(20) % 4
    e0.prune.apply(model, e0.prune.keep(e0.prune.snip(model, [(x, y)]), sparsity=0.5))
    kept = torch.backends.mha.get_fastpath_enabled()
    with tape(model, x) as record, torch.no_grad():
        plain = model.eval()(x)
        assert torch.allclose(record.run(record.x), plain, atol=1e-5)
    assert e0.gain(model, x, y).depth == 5 and torch.backends.mha.get_fastpath_enabled() == kept
