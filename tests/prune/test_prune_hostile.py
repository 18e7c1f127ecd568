"""Models and calls that break careless pruning: tied tables, autocast, checkpointing, attention, percent."""

import copy
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from epoch0.errors import InputError
from epoch0.prune.effects.rescale import rescale
from epoch0.prune.masks.apply import apply, masks_of
from epoch0.prune.masks.masks import keep
from epoch0.prune.scores.gradients import force, grasp, obd, snip
from epoch0.prune.scores.scores import magnitude, random
from epoch0.prune.scores.synaptic_flow import iterate, synflow
from score_twins import prunable


class Language(nn.Module):
    """A table of words whose weights are also the last layer's, the common language model."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.body, self.head = nn.Embedding(11, 8), nn.Linear(8, 8), nn.Linear(8, 11, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.body(self.words(x)))).mean(1)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inward = nn.Linear(6, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.3)
        self.out = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.layer(self.inward(x)).mean(1))


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.a, self.o, self.reentrant = nn.Linear(6, 8), nn.Linear(8, 4), reentrant

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        return checkpoint(lambda t: self.o(torch.relu(t)), h, use_reentrant=self.reentrant)


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return make()


SOURCE = torch.Generator().manual_seed(5)
WORDS, VECTORS = torch.randint(0, 11, (20, 5), generator=SOURCE), torch.randn(20, 6, generator=SOURCE)
SEQUENCES = torch.randn(20, 5, 6, generator=SOURCE)
CLASSES, NEXT = torch.randint(0, 4, (20,), generator=SOURCE), torch.randint(0, 11, (20,), generator=SOURCE)


def test_a_table_that_is_also_a_layer() -> None:
    model = seeded(Language)
    assert list(prunable(model)) == ["words.weight", "body.weight"]
    scores = snip(model, [(WORDS, NEXT)])
    twin = copy.deepcopy(model)
    F.cross_entropy(twin(WORDS), NEXT).backward()
    for name, parameter in twin.named_parameters():
        assert parameter.grad is not None
        if name in scores:
            assert torch.allclose(scores[name], (parameter * parameter.grad).abs(), rtol=1e-4, atol=1e-9)
    masks = keep(scores, 0.7)
    assert (
        masks_of(apply(model, masks)) == masks and model.words.weight.count_nonzero() == masks.kept_of["words.weight"]
    )
    assert torch.equal(model.head.weight, model.words.weight)
    for again in (snip(model, [(WORDS, NEXT)]), force(model, [(WORDS, NEXT)], 0.9, 3), magnitude(model)):
        assert list(again) == ["words.weight", "body.weight"]
        assert all(torch.equal(again.removed[name], ~masks[name]) for name in again)
        assert keep(again, 0.7) == masks
    by_rounds = iterate(seeded(Language), lambda m: snip(m, [(WORDS, NEXT)]), 0.9, steps=3)
    assert list(by_rounds) == ["words.weight", "body.weight"] and by_rounds.kept == 15


class Listed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.ParameterList([nn.Parameter(torch.randn(6, 6)), nn.Parameter(torch.randn(6))])
        self.ends = nn.ParameterDict({"last": nn.Parameter(torch.randn(6, 4))})

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x @ self.steps[0] + self.steps[1]) @ self.ends["last"]


def test_parameters_in_lists_are_weights_of_ones_own() -> None:
    model = seeded(Listed)
    scores = snip(model, [(VECTORS, CLASSES)])
    assert list(scores) == ["steps.0", "ends.last"]
    twin = copy.deepcopy(model)
    F.cross_entropy(twin(VECTORS), CLASSES).backward()
    for name, weight in (("steps.0", twin.steps[0]), ("ends.last", twin.ends["last"])):
        assert weight.grad is not None and torch.allclose(scores[name], (weight * weight.grad).abs(), atol=1e-9)
    masks = keep(scores, 0.5)
    apply(model, masks)
    assert model.steps[0].count_nonzero() == masks.kept_of["steps.0"] and len(model.steps) == 2
    assert masks_of(copy.deepcopy(model)) == masks and model(VECTORS).shape == (20, 4)


def test_autocast_around_it_changes_no_score() -> None:
    model = seeded(lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4)))
    expected = snip(model, [(VECTORS, CLASSES)])
    with torch.autocast("cpu", torch.bfloat16):
        found = snip(model, [(VECTORS, CLASSES)])
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_inference_tensors() -> None:
    with torch.inference_mode():
        model, x, y = seeded(lambda: nn.Linear(6, 4)), VECTORS.clone(), CLASSES.clone()
        inside = grasp(model, [(x, y)])
    outside = grasp(seeded(lambda: nn.Linear(6, 4)), [(VECTORS, CLASSES)])
    assert torch.equal(inside["weight"], outside["weight"]) and model.weight.is_inference()
    assert torch.equal(grasp(model, [(VECTORS, CLASSES)])["weight"], outside["weight"]) and model.weight.requires_grad


def test_attention_has_a_second_derivative() -> None:
    model, twin = seeded(Attention), seeded(Attention).double().eval()
    scores = grasp(model.double(), [(SEQUENCES.double(), CLASSES)], temperature=1.0)
    weights = {name: p for name, p in twin.named_parameters() if name in scores}
    with sdpa_kernel(SDPBackend.MATH):
        loss = F.cross_entropy(twin(SEQUENCES.double()), CLASSES)
        gradients = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        along = sum((g * g.detach()).sum() for g in gradients)
        products = torch.autograd.grad(along, list(weights.values()))
    for (name, weight), product in zip(weights.items(), products, strict=True):
        assert torch.allclose(scores[name], (weight * product).detach(), rtol=1e-8, atol=1e-14)
    assert "layer.self_attn.in_proj_weight" in weights


@pytest.mark.parametrize("score", [snip, grasp, obd])
def test_checkpointing_is_refused_or_done_without(score: Callable[..., Any]) -> None:
    """It runs modules again in the backward pass, on the model's own weights: scores would be silently wrong.

    With ``use_reentrant=True`` they are run once.
    """
    model = seeded(lambda: Checkpointed(False))
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(InputError, match=r"runs its Linear again in the backward pass .*switch that off"):
        score(model, [(VECTORS, CLASSES)])
    plain = nn.Sequential(OrderedDict(a=model.a, relu=nn.ReLU(), o=model.o))
    expected, scores = (score(one, [(VECTORS, CLASSES)]) for one in (plain, seeded(lambda: Checkpointed(True))))
    assert all(torch.allclose(scores[name], value) for name, value in expected.items())
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    model(VECTORS).sum().backward()  # nothing of ours watches it any more
    assert model.o.weight.grad is not None


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch's tracer, of itself
def test_compiled_parts() -> None:
    """Without a warning of hooks: ours on all modules would bring one."""
    plain = seeded(lambda: nn.Sequential(nn.Linear(6, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 4)))
    expected = snip(plain, [(VECTORS, CLASSES)])
    plain[1] = torch.compile(plain[1], backend="eager")
    found = snip(plain, [(VECTORS, CLASSES)])
    assert all(torch.allclose(a, b, atol=1e-9) for a, b in zip(found.values(), expected.values(), strict=True))


def test_masks_of_a_model_with_compiled_parts_fit_it_uncompiled() -> None:
    plain = seeded(lambda: nn.Sequential(nn.Linear(6, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU()), nn.Linear(8, 4)))
    partly = copy.deepcopy(plain)
    partly[1] = torch.compile(partly[1], backend="eager")
    scores = magnitude(partly)
    assert list(scores) == list(magnitude(plain)) == ["0.weight", "1.0.weight", "2.weight"]
    masks = keep(scores, 0.5)
    assert masks_of(apply(plain, masks)) == masks_of(apply(partly, masks)) == masks
    assert list(prunable(partly)) == list(masks)  # behind the masks, too


@pytest.mark.parametrize("alone", [True, False])
def test_a_pruned_transformer_layer_is_rescaled_by_measuring(alone: bool) -> None:
    """Without gradients torch would take a short cut that reads the weights past their masks."""
    model = seeded(lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) if alone else Attention())
    x = torch.randn(5, 3, 8 if alone else 6, generator=torch.Generator().manual_seed(0))
    apply(model, keep(magnitude(model), 0.5))
    before = torch.backends.mha.get_fastpath_enabled()
    done = rescale(model, "measured", x=x)
    assert torch.backends.mha.get_fastpath_enabled() == before
    first = next(row for row in done.layers if row.name.endswith("linear1.weight"))
    assert first.activation == "relu" and first.factor > 1
    again = rescale(model, "measured", x=x)  # it is where it should be
    assert all(row.factor == pytest.approx(1, rel=1e-4) for row in again.layers)


def test_synflow_of_tokens_is_refused_in_words() -> None:
    model = nn.Sequential(nn.Embedding(10, 8), nn.Flatten(), nn.Linear(24, 4))
    with pytest.raises(InputError, match="its embedding looks tokens up"):
        synflow(model, (3,))


def test_an_embedding_of_places_is_no_token_for_synflow() -> None:
    class Placed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.places, self.out = nn.Embedding(3, 8), nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(x + self.places(torch.arange(3))).mean(1)

    assert list(synflow(seeded(Placed), (3, 8))) == ["out.weight"]


@pytest.mark.parametrize("score", [magnitude, random])
def test_half_precision_is_refused_with_what_helps(score: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match="masks from its scores fit this model too"):
        score(seeded(lambda: nn.Linear(6, 4)).bfloat16())


def test_synflow_of_complex_numbers_is_refused_in_words() -> None:
    class Complex(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.turn, self.out = nn.Parameter(torch.eye(6, dtype=torch.cfloat)), nn.Linear(6, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.out((x.to(torch.cfloat) @ self.turn).abs())

    with pytest.raises(InputError, match="complex"):
        synflow(seeded(Complex), (6,))


def test_what_has_no_values_or_examples_is_refused() -> None:
    model = seeded(lambda: nn.Linear(6, 4))
    masks = keep(magnitude(model), 0.5)
    with pytest.raises(InputError, match="'weight' has no values yet"):
        apply(copy.deepcopy(model).to("meta"), masks)


def test_percent_is_no_sparsity() -> None:
    with pytest.raises(InputError, match=r"In percent\? Then it is 0\.9"):
        force(seeded(lambda: nn.Linear(6, 4)), [(VECTORS, CLASSES)], 90.0, 3)
