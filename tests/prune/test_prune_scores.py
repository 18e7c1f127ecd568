"""Scores as an object, which weights have them, what happens to the model, and what is refused how."""

import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

from epoch0.errors import InputError
from epoch0.prune.masks.apply import apply
from epoch0.prune.masks.masks import Masks, best, keep
from epoch0.prune.masks.places import standing
from epoch0.prune.scores.gradients import force, grasp, obd, snip
from epoch0.prune.scores.scores import Scores, magnitude, random
from epoch0.prune.scores.synaptic_flow import synflow, synflow_rounds
from measured_models import BasicBlock
from photograph import Photograph
from score_twins import prunable

Batch = tuple[Tensor, Tensor]
SCORES: dict[str, Callable[[nn.Module, Batch], Scores]] = {
    "magnitude": lambda net, batch: magnitude(net),
    "random": lambda net, batch: random(net, seed=1),
    "snip": lambda net, batch: snip(net, [batch]),
    "grasp": lambda net, batch: grasp(net, [batch]),
    "synflow": lambda net, batch: synflow(net, batch[0]),
    "force": lambda net, batch: force(net, [batch], 0.5, 3),
    "obd": lambda net, batch: obd(net, [batch], probes=2),
}
WITH_LOSS = [snip, grasp, obd]


@pytest.fixture(autouse=True)
def _same_weights_every_time() -> None:
    torch.manual_seed(11)


def dense_batch(examples: int = 9) -> Batch:
    return torch.randn(examples, 6), torch.randint(3, (examples,))


def dense() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))


def residual() -> tuple[nn.Module, Batch]:
    net = nn.Sequential(BasicBlock(3, 4), BasicBlock(4, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    return net, (torch.randn(6, 3, 5, 5), torch.randint(3, (6,)))


class Functional(nn.Module):
    """Matrices of its own, one of them used twice, and parameters that are no weights."""

    def __init__(self) -> None:
        super().__init__()
        sizes = (6, 5), (5, 5), (5, 3)
        self.embed, self.square, self.out = (nn.Parameter(torch.randn(*size) / 3) for size in sizes)
        self.token, self.bias2d = nn.Parameter(torch.randn(1, 1, 5)), nn.Parameter(torch.randn(5, 5))
        self.table = nn.Embedding(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(x @ self.embed + self.token[0])
        return torch.tanh(torch.tanh(h @ self.square) @ self.square) @ self.out


# ---- the object


def some_scores() -> Scores:
    return Scores({"a": torch.tensor([[1.0, -2.0]]), "b": torch.tensor([[3.0], [0.5]])}, "made up")


def test_scores_are_shown_and_tabulated() -> None:
    table = some_scores().to_pandas()
    assert list(table["name"]) == ["a", "b"] and list(table["mean_square"]) == [2.5, 4.625]
    assert "scores of 4 weights in 2 tensors: made up" in str(some_scores())


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ({}, "no scores"),
        ({"fc": torch.tensor([[1.0, float("nan")]])}, "the scores of 'fc' holds NaN"),
        ({"fc": torch.tensor([[1, 2]])}, "'fc' must be a floating-point tensor with entries, not torch.int64"),
        ({"fc": torch.zeros(0, 3)}, r"'fc' must be .* not torch.float32, shape \(0, 3\)"),
    ],
)
def test_scores_that_are_none(scores: dict[str, Tensor], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Scores(scores)


def test_removed_weights_fit_their_scores() -> None:
    with pytest.raises(InputError, match="removed weights of 'a'"):
        Scores({"a": torch.ones(1, 2)}, "", {"a": torch.tensor([True])})


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=60), st.data())
def test_the_best_are_those_of_a_stable_sort(values: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(values)))
    scores = torch.tensor(values, dtype=torch.float64)
    expected = torch.zeros(len(values), dtype=torch.bool)
    expected[torch.sort(scores, descending=True, stable=True).indices[:count]] = True
    assert torch.equal(best(scores, count), expected)


@pytest.mark.parametrize("dropped", [1, 5_000, 60_000, 150_000])
@pytest.mark.parametrize("kind", ["smooth", "ties", "sorted"])
def test_the_best_of_many(kind: str, dropped: int) -> None:
    scores = torch.rand(200_000, dtype=torch.float64)
    scores = {"smooth": scores, "ties": (scores * 20).floor(), "sorted": scores.sort().values}[kind]
    stay = best(scores, len(scores) - dropped)
    expected = torch.zeros(len(scores), dtype=torch.bool)
    expected[torch.sort(scores, descending=True, stable=True).indices[: len(scores) - dropped]] = True
    assert torch.equal(stay, expected)


# ---- which weights


def test_prunable_are_weights_and_no_biases_norms_or_tables() -> None:
    net, _ = residual()
    names = ["0.conv1.weight", "0.conv2.weight", "0.project.weight", "1.conv1.weight", "1.conv2.weight", "4.weight"]
    assert list(prunable(net)) == names
    assert list(prunable(Functional())) == ["embed", "square", "out"]
    more = nn.ModuleDict({"attention": nn.MultiheadAttention(4, 2), "lstm": nn.LSTM(3, 4), "n": nn.LayerNorm((3, 4))})
    assert list(prunable(more)) == [
        "attention.in_proj_weight", "attention.out_proj.weight", "lstm.weight_ih_l0", "lstm.weight_hh_l0",
    ]  # fmt: skip
    parameters = dict(net.named_parameters())
    assert all(prunable(net)[name] is parameters[name] for name in names)


def test_shared_weights_have_one_score_under_their_first_name() -> None:
    net = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Linear(6, 3))
    net[2].weight = net[0].weight
    x, y = dense_batch()
    scores = snip(net, [(x, y)])
    assert list(scores) == ["0.weight", "3.weight"]
    (gradient,) = torch.autograd.grad(F.cross_entropy(net(x), y), [net[0].weight])  # through both uses
    torch.testing.assert_close(scores["0.weight"], (net[0].weight * gradient).abs().detach())
    assert set(synflow(net, (6,))) == set(synflow_rounds(net, (6,), [20])) == set(scores)


def test_a_module_used_twice_and_functions() -> None:
    net, (x, y) = Functional(), dense_batch()
    gradient = torch.autograd.grad(F.cross_entropy(net(x), y), [net.square])[0]
    torch.testing.assert_close(snip(net, [(x, y)])["square"], (net.square * gradient).abs().detach())


def test_frozen_weights_are_scored_too() -> None:
    net, batch = dense().eval(), dense_batch()
    expected = snip(net, [batch])
    net[0].weight.requires_grad_(False)
    with torch.no_grad():
        found = snip(net, [batch])
    assert torch.equal(found["0.weight"], expected["0.weight"]) and bool((found["0.weight"] > 0).any())


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("how", ["ours", "torch"])
def test_removed_weights_score_nothing_and_do_not_come_back(name: str, how: str) -> None:
    net, batch = dense(), dense_batch()
    plain = list(prunable(net))
    mask = torch.rand(8, 6) < 0.5
    if how == "ours":
        apply(net, Masks({"0.weight": mask, "4.weight": torch.ones(3, 8, dtype=torch.bool)}))
    else:
        prune.custom_from_mask(net[0], "weight", mask)
    net(batch[0])  # what torch's hook leaves on the module is in place
    assert list(prunable(net)) == plain and torch.equal(standing(net)[0].mask, mask)  # type: ignore[arg-type]
    scores = SCORES[name](net, batch)
    assert bool((scores["0.weight"][~mask] == 0).all()) and torch.equal(scores.removed["0.weight"], ~mask)
    kept = keep(scores, 0.6)
    assert not bool((kept["0.weight"] & ~mask).any()) and kept.kept == 72 - round(0.6 * 72)


def test_a_masked_model_scores_as_one_with_zeros() -> None:
    net, batch = dense(), dense_batch()
    mask = torch.rand(8, 6) < 0.5
    zeros = dense()
    zeros.load_state_dict(net.state_dict())
    zeros[0].weight.data.mul_(mask)
    apply(net, Masks({"0.weight": mask, "4.weight": torch.ones(3, 8, dtype=torch.bool)}))
    for name in ("snip", "grasp", "synflow"):
        masked, plain = SCORES[name](net, batch), SCORES[name](zeros, batch)
        torch.testing.assert_close(masked["4.weight"], plain["4.weight"])
        torch.testing.assert_close(masked["0.weight"][mask], plain["0.weight"][mask])


def test_weights_made_of_other_parameters_are_refused_by_name() -> None:
    net = nn.Sequential(nn.Linear(6, 4), parametrizations.weight_norm(nn.Linear(4, 3)))
    with pytest.raises(InputError, match=r"'1.weight' is computed from other parameters \(_WeightNorm\)"):
        magnitude(net)


def test_wrapped_models_keep_their_names() -> None:
    net = dense()
    compiled = torch.compile(net, backend="eager")
    assert list(magnitude(compiled)) == ["0.weight", "4.weight"]  # type: ignore[arg-type]
    assert list(magnitude(nn.DataParallel(net))) == ["0.weight", "4.weight"]


# ---- the model is left as it was


@pytest.mark.parametrize("name", SCORES)
def test_the_model_comes_back_as_it_was(name: str) -> None:
    net, batch = residual()
    net.train()
    net[0].eval()  # modes differ between submodules
    first = next(net.parameters())
    first.grad, first.requires_grad = torch.ones_like(first), False
    net[1].register_forward_hook(lambda *_: None)
    before = batch[0].clone()
    photograph = Photograph(net)
    SCORES[name](net, batch)
    synflow_rounds(net, batch[0], [50, 20])
    photograph.check()
    assert torch.equal(batch[0], before)


@pytest.mark.parametrize("name", ["snip", "grasp", "synflow", "force", "obd"])
def test_the_model_comes_back_after_a_failure(name: str) -> None:
    net, batch = residual()
    net.append(nn.Linear(5, 2))  # 3 features come
    photograph = Photograph(net)
    with pytest.raises(InputError, match="the model fails on inputs of shape"):
        SCORES[name](net, batch)
    photograph.check()


def test_scores_are_functions_of_their_arguments() -> None:
    net, batch = dense(), dense_batch()
    for name, score in SCORES.items():
        a, b = score(net, batch), score(net.eval(), batch)  # dropout is off and the mode does not matter
        assert all(torch.equal(a[key], b[key]) for key in a), name
    assert not torch.equal(random(net, 1)["0.weight"], random(net, 2)["0.weight"])
    assert not torch.equal(obd(net, [batch], seed=1)["0.weight"], obd(net, [batch], seed=2)["0.weight"])


def test_magnitude_is_the_absolute_value_and_random_uniform() -> None:
    net = nn.Linear(100, 200)
    assert torch.equal(magnitude(net)["weight"], net.weight.abs().detach())
    chance = random(net)["weight"]
    assert chance.dtype == torch.float64 and len(chance.unique()) == 20_000
    # 20,000 uniform numbers: five standard errors, a false alarm in a million seeds
    assert abs(float(chance.mean()) - 0.5) < 5 / (12 * 20_000) ** 0.5


def test_tokens_and_outputs_in_a_tuple() -> None:
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.lstm, self.out = nn.Embedding(7, 4), nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 3)

        def forward(self, tokens: Tensor) -> tuple[Tensor, None]:
            return self.out(self.lstm(self.table(tokens))[0][:, -1]), None

    scores = snip(Tagger(), [(torch.randint(7, (9, 5)), torch.randint(3, (9,)))])
    assert set(scores) == {"lstm.weight_ih_l0", "lstm.weight_hh_l0", "out.weight"}


# ---- bad input


def test_weights_without_influence_are_named() -> None:
    class Spare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.spare = nn.Linear(6, 3), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    for score in WITH_LOSS:
        with pytest.warns(UserWarning, match=r"does not depend on 'spare.weight': those weights score 0"):
            scores = score(Spare(), [dense_batch()])
        assert not bool(scores["spare.weight"].any()) and bool(scores["used.weight"].any())
    with pytest.warns(UserWarning, match=r"'spare.weight'"):
        synflow(Spare(), (6,))


class Detached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.scale = nn.Linear(6, 3), nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).detach() * self.scale


def lazy() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.Sequential(nn.LazyLinear(3))


def with_nan() -> nn.Module:
    net = dense()
    net[0].weight.data[0, 0] = float("nan")
    return net


MODELS: dict[str, tuple[Callable[[], object], str]] = {
    "float16": (lambda: dense().half(), r"'0.weight' is torch.float16.*float\(\)"),
    "lazy": (lazy, "lazy"),
    "meta": (lambda: dense().to("meta"), "meta"),
    "NaN": (with_nan, "'0.weight' holds NaN"),
    "nothing to prune": (lambda: nn.Sequential(nn.BatchNorm1d(6)), "no weight that can be pruned"),
    "a class": (lambda: nn.Linear, "the class Linear"),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_that_cannot_be_scored(name: str) -> None:
    make, message = MODELS[name]
    for score in (lambda net: snip(net, [dense_batch()]), lambda net: synflow(net, (6,))):
        with pytest.raises(Exception, match=message if name != "a class" else "Linear"):
            score(make())


def test_a_model_whose_weights_have_no_influence() -> None:
    for score in WITH_LOSS:
        with pytest.raises(InputError, match="the output does not depend on any weight"):
            score(Detached(), [dense_batch()])


X, Y = torch.ones(4, 6), torch.tensor([0, 1, 2, 0])
BATCHES = {
    "none": ([], "there are no batches"),
    "used up": (iter([]), "there are no batches"),
    "a tensor": (X, "pairs"),
    "no pair": ([X], "batch 0 is a Tensor"),
    "three": ([(X, Y, Y)], r"batch 0 is a tuple of \(Tensor, Tensor, Tensor\)"),
    "no targets": ([(X, None)], "there is no loss: give targets"),
    "empty": ([(X, Y), (X[:0], Y[:0])], "batch 1: .* an empty batch"),
    "NaN": ([(X * float("nan"), Y)], "batch 0: the input .* holds NaN: 24 of"),
    "too few targets": ([(X, Y[:3])], "3 targets for 4 examples"),
    "label too large": ([(X, Y + 2)], "target 3 is out of range: the model has 3 outputs"),
    "negative label": ([(X, Y - 1)], "target -1 is out of range"),
    "a batch of one": ([(X[:1], Y[:1])], "a batch of one"),
    "another size": ([(X[:, :5], Y)], r"the model fails on inputs of shape \(4, 5\)"),
    "float targets of another shape": ([(X, X)], r"float targets .* need shape \(4, 3\)"),
}


@pytest.mark.parametrize("name", BATCHES)
@pytest.mark.parametrize("score", WITH_LOSS)
def test_batches_that_cannot_be_used(name: str, score: Callable[..., Scores]) -> None:
    batches, message = BATCHES[name]
    with pytest.raises(InputError, match=message):
        score(dense(), batches)


def test_a_batch_of_one_will_do_in_eval_mode() -> None:
    for score in WITH_LOSS:
        assert score(dense(), [(X[:1], Y[:1])], batch_norm="eval").weights == 72


def test_losses_that_cannot_be_used() -> None:
    net, batch = dense(), dense_batch()
    with pytest.raises(InputError, match=r"the loss must return one number .* not a tensor of shape \(9,\)"):
        snip(net, [batch], loss=lambda outputs, targets: F.cross_entropy(outputs, targets, reduction="none"))
    with pytest.raises(InputError, match="the loss fails on outputs"):
        snip(net, [batch], loss=lambda outputs, targets: outputs @ outputs)
    with pytest.raises(InputError, match=r"loss of this batch is -?inf"):
        snip(net, [batch], loss=lambda outputs, targets: outputs.sum() / 0)


ARGUMENTS: dict[str, tuple[Callable[[nn.Module, Batch], object], str]] = {
    "batch_norm": (lambda net, b: snip(net, [b], batch_norm="test"), "batch_norm='test' is not known; use 'train'"),
    "temperature 0": (lambda net, b: grasp(net, [b], temperature=0.0), "temperature=0.0"),
    "temperature -1": (lambda net, b: grasp(net, [b], temperature=-1.0), "temperature=-1.0"),
    "sparsity": (lambda net, b: force(net, [b], 1.0), r"sparsity=1.0.* \[0, 1\)"),
    "steps": (lambda net, b: force(net, [b], 0.5, 0), "steps=0"),
    "probes": (lambda net, b: obd(net, [b], probes=0), "probes=0"),
    "seed": (lambda net, b: random(net, -1), "seed=-1"),
    "no shape": (lambda net, b: synflow(net, ()), r"x=\(\): give the shape"),
    "shape 0": (lambda net, b: synflow(net, (3, 0)), r"x=\(3, 0\): give the shape"),
    "another shape": (lambda net, b: synflow(net, (7,)), r"the model fails on inputs of shape \(1, 7\)"),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_that_cannot_be_used(name: str) -> None:
    call, message = ARGUMENTS[name]
    with pytest.raises(InputError, match=message):
        call(dense(), dense_batch())
