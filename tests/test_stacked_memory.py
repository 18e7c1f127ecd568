"""Stacks that do not fit into memory are trained in parts, with the same results, and say so."""

import warnings

import pytest
import torch
from torch import nn

from epoch0.distributions import Gaussian
from epoch0.errors import InputError
from epoch0.networks import ensemble, mlp
from epoch0.prune import apply, keep, random
from epoch0.seeds import generator
from epoch0.train import loop
from epoch0.train._chain_descent import is_plain
from epoch0.train.loop import train
from epoch0.train.many import memory_of, train_many
from epoch0.train.optimizers import SGD, Adam
from epoch0.train.record import Accuracy
from epoch0.train.stacked import Stacked

X = torch.randn(60, 6, generator=generator(1))
Y = X[:, :3].argmax(1)
OPTIONS = {"steps": 30, "batch_size": 16, "learning_rate": 0.05, "evaluate": Accuracy(X, Y)}


def largest_difference(one: nn.Module, other: nn.Module) -> float:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return max(float((a - b).abs().max()) for a, b in pairs)


def test_parts_give_what_one_stack_gives(tmp_path) -> None:
    nets = ensemble(5, [6, 8, 8, 3], weights=Gaussian(1.2), seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole = train_many(nets, (X, Y), **OPTIONS)
    each = memory_of(nets[0], X[:16])
    with pytest.warns(UserWarning, match=r"5 networks needs about .* trained in parts of at most 2 networks"):
        parts = train_many(nets, (X, Y), memory=2.5 * each, checkpoint=tmp_path / "c", **OPTIONS)
    assert [len(part.model) for part in parts.parts] == [2, 2, 1] and len(parts) == len(whole) == 5
    assert {path.name for path in tmp_path.iterdir()} == {"c.0-2", "c.2-4", "c.4-5"}
    assert parts.metric("accuracy").tolist() == whole.metric("accuracy").tolist()
    assert not parts.diverged.any()
    for index in range(5):
        alone = train(nets[index], (X, Y), **OPTIONS).model
        assert largest_difference(parts.unstack(index), alone) < 1e-6
        assert largest_difference(whole.unstack(index), alone) < 1e-6
    with pytest.warns(UserWarning, match="trained in parts"):
        again = train_many(nets, (X, Y), memory=2.5 * each, checkpoint=tmp_path / "c", **OPTIONS)
    assert all(largest_difference(again.unstack(i), parts.unstack(i)) == 0 for i in range(5))
    with pytest.raises(InputError, match="there are 5 networks"):
        parts.unstack(5)
    with pytest.raises(InputError, match="no row holds 'loss' with one number a network"):
        parts.metric("loss")


def test_masks_are_split_with_their_networks() -> None:
    nets = [mlp([6, 8, 3], seed=seed) for seed in range(3)]
    masks = [keep(random(net, seed=seed), 0.2 * (1 + seed)) for seed, net in enumerate(nets)]
    each = memory_of(apply(mlp([6, 8, 3]), masks[0]), X[:16])
    with pytest.warns(UserWarning, match="at most 1 network"):
        done = train_many(nets, (X, Y), masks=masks, memory=1.2 * each, **OPTIONS)
    for index in range(3):
        kept = sum(int(layer.weight.count_nonzero()) for layer in done.unstack(index) if isinstance(layer, nn.Linear))
        assert kept == masks[index].kept


def test_running_out_of_memory_halves_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that can hold two networks, though it said that it could hold all."""
    nets = ensemble(5, [6, 8, 3], seed=0)
    tried: list[int] = []
    forward = Stacked.forward

    def small(self: Stacked, inputs: torch.Tensor) -> torch.Tensor:
        tried.append(len(self))
        if len(self) > 2:
            raise torch.OutOfMemoryError("out of memory")
        return forward(self, inputs)

    whole = train_many(nets, (X, Y), **OPTIONS)
    monkeypatch.setattr(Stacked, "forward", small)
    with pytest.warns(UserWarning, match="trained in parts"):
        done = train_many(nets, (X, Y), **OPTIONS)
    assert list(dict.fromkeys(tried)) == [5, 3, 2, 1] and [len(part.model) for part in done.parts] == [2, 2, 1]
    assert done.metric("accuracy").tolist() == whole.metric("accuracy").tolist()


def test_what_does_not_fit_at_all_is_refused() -> None:
    with pytest.raises(InputError, match=r"one network needs about .* kB and 1.0 kB are free on cpu"):
        train_many(ensemble(2, [6, 80, 3]), (X, Y), memory=1000, **OPTIONS)


@pytest.mark.parametrize(
    ("how", "clip"), [(SGD(), None), (SGD(), 10.0), (SGD(momentum=0.9), None), (Adam(), None)]
)
def test_the_estimate_is_what_a_stack_holds(
    how: SGD | Adam, clip: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted independently: every tensor of the stack, its optimizer, its gradients and its program; within a tenth.

    At the end of a step, with a batch as large as the network so that both count.
    """
    nets = [apply(mlp([30] * 12, "tanh", seed=i), keep(random(mlp([30] * 12, seed=i)), 0.5)) for i in range(4)]
    x, y = torch.randn(60, 30, generator=generator(0)), torch.arange(60) % 30
    stack = Stacked.of(nets)
    found: dict[str, int] = {}
    descends = is_plain(how, clip)
    build = stack.descent if descends else loop.build

    def watched(*arguments) -> torch.optim.Optimizer:
        optimizer = build(*arguments)
        step = optimizer.step

        def counted(*a, **k):
            step(*a, **k)
            assert stack._chain is not None
            tensors = [*stack.parameters(), *stack.buffers()]
            tensors += [p.grad for p in stack.parameters() if p.grad is not None]
            tensors += [t for state in optimizer.state.values() for t in state.values() if torch.is_tensor(t)]
            held = stack._chain.gradients()
            tensors += [t for t in [*held._multipliers, *held._memory] if t is not None]
            tensors += [t for workspace in stack._chain._free for t in workspace._memory.values()]
            seen = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
            found["bytes"] = sum(seen.values())

        optimizer.step = counted  # type: ignore[method-assign]
        return optimizer

    monkeypatch.setattr(*((stack, "descent") if descends else (loop, "build")), watched)
    total = stack.loss(nn.functional.cross_entropy)
    train(stack, (x, y), steps=2, batch_size=60, optimizer=how, learning_rate=1e-3, clip=clip, loss=total)
    assert memory_of(nets[0], x, how, descends) * 4 == pytest.approx(found["bytes"], rel=0.1)
