"""Two paper presets on one accelerator, each training one CUDA graph: Hayou's Figure 3, and V-CNNs of Table 4.

    python benchmarks/accelerator.py figure3 --out FOLDER    # epoch0 reproduce hayou/fig3a --preset paper --out FOLDER
    python benchmarks/accelerator.py table4 --out FOLDER [--minutes M]
    python benchmarks/accelerator.py check                   # both against the product's own training, on a CPU

Networks, masks, factors, batches and rates are those of the presets; ``train`` would end at the same weights but for
rounding, after 8 hours (Figure 3) and 167 hours (Table 4) on two cores, or on an accelerator after as many launches of
small kernels. Here all 135 tanh networks of a depth are one program, and the six depths run beside each other: 220 s on
an H100 in float32. V-CNNs are trained in bfloat16, as ``train`` does on an accelerator, three runs beside each other.
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from functools import partial
from itertools import pairwise
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from epoch0.experiments.store import Store
from epoch0.papers.hayou import protocol, tables, trainable
from epoch0.papers.trials import tensors
from epoch0.seeds import generator
from epoch0.train.data import image_sources

CUDA = torch.cuda.is_available()
PLACE = torch.device("cuda" if CUDA else "cpu")
aten = torch.ops.aten


class Graphed:
    """A training whose step reads nothing from the CPU: number ``at`` of ``order`` (steps, ...) says its examples."""

    def __init__(self, order: Tensor, networks: int) -> None:
        self.order, self.at = order.to(PLACE), torch.zeros(1, dtype=torch.long, device=PLACE)
        self.lost = torch.zeros(networks, dtype=torch.bool, device=PLACE)
        self.stream, self.graph = torch.cuda.Stream() if CUDA else None, None

    def capture(self) -> None:
        """Record one step, and come back to the state before it."""
        if not CUDA:
            return
        state = [value for value in vars(self).values() if isinstance(value, Tensor)]
        state += [part for value in vars(self).values() if isinstance(value, list) for part in value]
        held = [part.clone() for part in state]
        with torch.cuda.stream(self.stream):
            for _ in range(2):  # libraries choose their ways now
                self.step()
        torch.cuda.synchronize()
        for part, before in zip(state, held, strict=True):
            part.copy_(before)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=self.stream):
            self.step()
        torch.cuda.synchronize()

    def go(self) -> None:
        if self.graph is None:
            self.step()
            return
        with torch.cuda.stream(self.stream):
            self.graph.replay()


def error(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Mean cross-entropy of (..., batch, classes), (...), and its gradient in the outputs."""
    logs, count = torch.log_softmax(outputs, -1), outputs.shape[-2]
    losses = -logs.gather(-1, targets[..., None])[..., 0].mean(-1)
    gradient = logs.exp()
    gradient.scatter_add_(-1, targets[..., None], torch.full_like(gradient[..., :1], -1.0))
    return losses, gradient / count


class Dense(Graphed):
    """All networks of a depth, (networks, out, in) a layer; those of one seed, which see the same batches, together."""

    def __init__(self, parts, order, inputs, targets, rate: float, activation: str) -> None:
        super().__init__(order, len(parts[2][0]))
        weights, masks, biases = ([part.to(PLACE) for part in kind] for kind in parts)
        self.seeds, self.networks, self.out = order.shape[1], len(biases[0]), weights[0].shape[1]
        # the first layer as one product a seed: its inputs are the same for all networks of a seed
        joined = (self.seeds, -1, weights[0].shape[2])
        self.weights = [weights[0].reshape(joined).clone(), *(one.clone() for one in weights[1:])]
        self.masks = [masks[0].reshape(joined).float(), *(one.float() for one in masks[1:])]
        self.biases = [one.clone() for one in biases]
        self.inputs, self.targets, self.rate, self.tanh = inputs, targets, rate, activation == "tanh"

    def before(self, inputs: Tensor) -> Tensor:
        """Pre-activations of the first layer, of inputs (seeds, batch, pixels)."""
        flat = torch.bmm(inputs, self.weights[0].transpose(1, 2)).unflatten(2, (-1, self.out)).transpose(1, 2)
        return flat.reshape(self.networks, -1, self.out) + self.biases[0][:, None]

    def after(self, layer: int, h: Tensor) -> Tensor:
        return torch.baddbmm(self.biases[layer][:, None], h, self.weights[layer].transpose(1, 2))

    def bent(self, z: Tensor) -> Tensor:
        return torch.tanh(z) if self.tanh else F.elu(z)

    def step(self) -> None:
        rows = self.order.index_select(0, self.at).flatten()
        self.at += 1
        x = self.inputs.index_select(0, rows).unflatten(0, (self.seeds, -1))
        each = self.targets.index_select(0, rows).view(self.seeds, 1, -1)
        y = each.expand(-1, self.networks // self.seeds, -1).reshape(self.networks, -1)
        z, hidden = self.before(x), []
        for layer in range(1, len(self.weights)):
            hidden.append(self.bent(z))
            z = self.after(layer, hidden[-1])
        losses, g = error(z, y)
        self.lost |= ~losses.isfinite()
        sums = [g.sum(1)]
        for layer in range(len(self.weights) - 1, 0, -1):
            h, back = hidden[layer - 1], torch.bmm(g, self.weights[layer])
            self.weights[layer].baddbmm_(g.transpose(1, 2), h, alpha=-self.rate).mul_(self.masks[layer])
            g = aten.tanh_backward(back, h) if self.tanh else aten.elu_backward(back, 1.0, 1.0, 1.0, True, h)
            sums.insert(0, g.sum(1))
        flat = g.unflatten(0, (self.seeds, -1)).transpose(1, 2).flatten(2)
        self.weights[0].baddbmm_(flat.transpose(1, 2), x, alpha=-self.rate).mul_(self.masks[0])
        torch._foreach_add_(self.biases, sums, alpha=-self.rate)

    def accuracy(self, inputs: Tensor, targets: Tensor) -> list[float]:
        right = torch.zeros(self.networks, dtype=torch.long, device=PLACE)
        for x, y in zip(inputs.split(1000), targets.split(1000), strict=True):
            z = self.before(x.expand(self.seeds, *x.shape))
            for layer in range(1, len(self.weights)):
                z = self.after(layer, self.bent(z))
            right += (z.argmax(-1) == y).sum(-1)
        return [count / len(targets) for count in right.tolist()]


def wrapped(x: Tensor, at: Tensor) -> Tensor:
    """(batch, height, width, channels) with one place more at each side, round the circle."""
    return x.index_select(1, at).index_select(2, at)


def bent(z: Tensor, bias: Tensor, at: Tensor) -> Tensor:
    return wrapped(torch.tanh(z + bias), at)


def unbent(back: Tensor, h: Tensor) -> Tensor:
    inner = h[:, 1:-1, 1:-1]
    return back * (1 - inner * inner)


def summed(g: Tensor) -> Tensor:
    return g.sum((0, 1, 2)).float() if g.dtype == torch.float64 else g.sum((0, 1, 2), dtype=torch.float32)


FUSED = [bent, unbent, wrapped, summed]


class Circular(Graphed):
    """One tanh V-CNN, its channels last; SGD with momentum at the rate of each step."""

    def __init__(self, parts, order, data, rates: Tensor, momentum: float, dtype: torch.dtype) -> None:
        super().__init__(order, 1)
        (x, y, held, labels), side = data, data[0].shape[-1]
        last = [[one.permute(0, 2, 3, 1).contiguous().to(PLACE) for one in kind[:-1]] for kind in parts[:2]]
        ends = [kind[-1].unflatten(1, (-1, side, side)).permute(0, 2, 3, 1).flatten(1).to(PLACE) for kind in parts[:2]]
        biases = [torch.stack(parts[2][:-1]).to(PLACE), parts[2][-1].to(PLACE).clone()]
        self.parameters = [last[0][0], torch.stack(last[0][1:]), ends[0].contiguous(), *biases]
        self.masks = [last[1][0].float(), torch.stack(last[1][1:]).float(), ends[1].float()]
        self.moments = [torch.zeros_like(one) for one in self.parameters]
        self.circle = torch.tensor([side - 1, *range(side), 0], device=PLACE)
        self.inputs, self.held = (wrapped(one[:, 0, :, :, None].to(dtype), self.circle) for one in (x, held))
        self.targets, self.labels, self.dtype = y, labels, dtype
        self.rates, self.momentum, self.loss = rates.to(PLACE), momentum, torch.zeros((), device=PLACE)

    @staticmethod
    def convolved(x: Tensor, weight: Tensor) -> Tensor:
        return F.conv2d(x.permute(0, 3, 1, 2), weight.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)

    @staticmethod
    def gradient(g: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        g, x, weight = (one.permute(0, 3, 1, 2) for one in (g, x, weight))
        how = (None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [False, True, False])
        return aten.convolution_backward(g, x, weight, *how)[1].permute(0, 2, 3, 1).float()

    def outputs(self, x: Tensor) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Parameters as products see them, the inputs of all convolutions and of the last layer, and the outputs."""
        first, middle, end, biases, bias = low = [one.to(self.dtype) for one in self.parameters]
        inputs, z = [x], self.convolved(x, first)
        for own, weight in zip(biases, middle, strict=False):
            inputs.append(FUSED[0](z, own, self.circle))
            z = self.convolved(inputs[-1], weight)
        inputs.append(torch.tanh(z + biases[-1]))
        return low, inputs, torch.addmm(bias, inputs[-1].flatten(1), end.t()).float()

    def step(self) -> None:
        _, unbent, wrapped, summed = FUSED
        rows, rate = (one.index_select(0, self.at).flatten() for one in (self.order, self.rates))
        self.at += 1
        x, y = (one.index_select(0, rows) for one in (self.inputs, self.targets))
        (first, middle, end, *_), inputs, outputs = self.outputs(x)
        loss, g = error(outputs, y)
        self.loss.copy_(loss)
        self.lost |= ~loss.isfinite()
        low, h = g.to(self.dtype), inputs[-1]
        found = [(low.t() @ h.flatten(1)).float() * self.masks[2], None, g.sum(0)]
        g = (low @ end).view_as(h) * (1 - h * h)
        turned, weights, sums = middle.flip(2, 3).transpose(1, 4).contiguous(), [], [summed(g)]
        for layer in range(len(middle) - 1, -1, -1):
            weights.insert(0, self.gradient(g, inputs[layer + 1], middle[layer]))
            g = unbent(self.convolved(wrapped(g, self.circle), turned[layer]), inputs[layer + 1])
            sums.insert(0, summed(g))
        found[1] = torch.stack(sums)
        found = [self.gradient(g, x, first) * self.masks[0], torch.stack(weights) * self.masks[1], *found]
        torch._foreach_mul_(self.moments, self.momentum)
        torch._foreach_add_(self.moments, found)
        for parameter, moment in zip(self.parameters, self.moments, strict=True):
            parameter.sub_(moment * rate)

    def accuracy(self) -> float:
        pairs = zip(self.held.split(500), self.labels.split(500), strict=True)
        return sum(int((self.outputs(x)[2].argmax(-1) == y).sum()) for x, y in pairs) / len(self.labels)


# ---- What is trained, made in processes on the CPU; tensors travel as files


def written(weights, masks, biases, dead) -> str:
    with tempfile.NamedTemporaryFile(suffix=".pt", delete=False) as file:
        torch.save(([w.detach() * m for w, m in zip(weights, masks, strict=True)], masks, biases, dead), file)
    return file.name


def read(path: str):
    found = torch.load(path)
    os.unlink(path)
    return found


class _Made(Exception):
    pass


def dense_parts(trial) -> str:
    """Of the networks that :func:`epoch0.papers.hayou.trainable.trained` would train."""

    def instead(spec, stack, *_, **__):
        raise _Made(stack, sys._getframe(1).f_locals["dead"])

    trainable.fit, own = instead, trainable.fit
    os.environ["EPOCH0_DEVICE"] = "cpu"
    torch.set_num_threads(1)
    try:
        trainable.trained(*trial)
    except _Made as made:
        stack, dead = made.args
    finally:
        trainable.fit = own
    layers = [layer for layer in stack.networks if isinstance(layer, nn.Linear)]
    each = [layer.parametrizations.weight for layer in layers]
    masks, biases = [one[0].mask.bool() for one in each], [layer.bias.detach() for layer in layers]
    return written([one.original for one in each], masks, biases, [int(count) for count in dead])


def circular_parts(trial) -> str:
    recipe, seed = trial
    torch.set_num_threads(1)
    method, sets = protocol.METHODS[recipe.method], protocol.sets_of(recipe)
    net = protocol.build(recipe.network, sets.shape, sets.classes, method.stable, seed)
    batches = protocol.scored_batches(sets, seed, recipe.score_batches, recipe.score_per_class)
    masks = protocol.masks_at_initialization(net, recipe, batches, sets.shape, seed)
    protocol.apply(net, masks)
    if method.rescaled:
        protocol.rescale(net, method.rescaled, x=batches[0][0], seed=seed)
    layers = [layer for layer in net if isinstance(layer, nn.Linear | nn.Conv2d)]
    kept = [layer.parametrizations.weight[0].mask.bool() for layer in layers]
    return written(
        [layer.weight for layer in layers], kept, [layer.bias.detach() for layer in layers], list(masks.dead)
    )


def ordered(seed: int, examples: int, batch: int, steps: int) -> Tensor:
    """The examples of every step as :func:`epoch0.train.train` takes them, (steps, batch)."""
    epochs = range(-(-steps * batch // examples))
    every = [torch.randperm(examples, generator=generator(seed, 0, epoch)) for epoch in epochs]
    return torch.cat(every).unflatten(0, (-1, batch))[:steps]


def wait() -> None:
    """For the streams of all graphs."""
    if CUDA:
        torch.cuda.synchronize()


def said(*words: object) -> None:
    print(f"{time.monotonic() - BEGUN:7.1f} s ", *words, flush=True)


BEGUN = time.monotonic()


# ---- The two presets


def dense(trials, files, data) -> list[tuple[Dense, list]]:
    """One program a depth, the deepest first, and its trials in the order of its networks."""
    made = []
    for depth in sorted({trial.spec.depth for trial in trials}, reverse=True):
        own = sorted((t for t in trials if t.spec.depth == depth), key=lambda t: (t.seed, t.spec.rescaling))
        spec, parts = own[0].spec, [read(files[trial.key]) for trial in own]
        kinds = [[torch.cat(layer) for layer in zip(*kind, strict=True)] for kind in list(zip(*parts, strict=True))[:3]]
        seeds = sorted({trial.seed for trial in own})
        order = torch.stack([ordered(s, len(data[0]), spec.batch_size, spec.steps) for s in seeds], 1)
        one = Dense(kinds, order, *data[:2], spec.learning_rate, spec.activation)
        made.append((one, [(trial, part[3]) for trial, part in zip(own, parts, strict=True)]))
    return made


def results(one: Dense, own, held: Tensor, labels: Tensor):
    """What :func:`epoch0.papers.hayou.trainable.trained` gives back, trial by trial."""
    accuracy, lost = one.accuracy(held, labels), one.lost.tolist()
    ends = np.cumsum([0, *(len(dead) for _, dead in own)])
    chance = float(labels.bincount().max()) / len(labels)
    for (trial, dead), (low, high) in zip(own, pairwise(ends), strict=True):
        found = {"accuracy": accuracy[low:high], "dead": dead, "diverged": lost[low:high]}
        shaped = {name: np.array(values).reshape(-1, len(trial.spec.sparsities)) for name, values in found.items()}
        yield trial, {**shaped, "chance": chance}


def with_specs(sweep):
    """The trials of a sweep, with their specs as they are."""
    from types import SimpleNamespace

    for one in (sweep, *sweep.also.values()):
        for _, spec, runs in one.cells():
            for trial in one.trials_of(spec, runs):
                yield SimpleNamespace(spec=spec, seed=trial.seed, key=trial.key, trial=trial)


def figure3(out: Path, activation: str, workers: int) -> None:
    trials = list(with_specs(trainable.presets(activation)["paper"]))
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        paths = pool.map(dense_parts, [(trial.spec, trial.seed) for trial in trials], chunksize=1)
    (x, y), (held, labels) = (tensors("mnist", split) for split in ("train", "test"))
    data = [part.to(PLACE) for part in (x, y, held, labels)]
    made, steps = dense(trials, dict(zip([t.key for t in trials], paths, strict=True)), data), trials[0].spec.steps
    for one, _ in made:
        one.capture()
    for step in range(steps):
        for one, _ in made:
            one.go()
        if step % 500 == 0:
            wait()
            said(f"step {step} of {steps}")
    wait()
    with Store(out / "results.sqlite") as store:
        for one, own in made:
            for trial, found in results(one, own, *data[2:]):
                store.put(trial.trial, found)
    said(f"{len(trials)} trials are in {out / 'results.sqlite'}")


def circular(recipe, seed: int, path: str, data, dtype: torch.dtype) -> tuple[Circular, list]:
    *parts, dead = read(path)
    steps = recipe.epochs * -(-len(data[0]) // recipe.batch_size)
    rates = torch.full((steps,), recipe.learning_rate)
    for place in recipe.drops:
        rates[round(place * steps) :] *= recipe.drop_factor
    order = ordered(seed, len(data[0]), recipe.batch_size, steps)
    return Circular(parts, order, data, rates, recipe.momentum, dtype), dead


def table4(out: Path, minutes: float, workers: int) -> None:
    """The printed starts, EOC + rescaling first, then from the least depth; what is written is not trained again."""
    path = out / "table4.json"
    done = json.loads(path.read_text()) if path.exists() else {}
    printed = {start.label: place for place, start in enumerate(reversed(tables.PRINTED))}
    cells = [(at["start"], at["depth"], spec, runs) for at, spec, runs in tables.presets_4()["paper"].cells()]
    cells = [cell for cell in cells if cell[0] in printed and f"{cell[0]}, depth {cell[1]}" not in done]
    cells.sort(key=lambda cell: (cell[0] != "EOC + rescaling", cell[1], printed[cell[0]]))
    data = [part.to(PLACE) for one in image_sources("mnist") for part in one.batch(torch.arange(len(one)), 0)]
    if CUDA:
        FUSED[:] = [torch.compile(one, dynamic=False) for one in FUSED]
        torch.backends.cudnn.benchmark = True
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        made = [[pool.apply_async(circular_parts, ((cell[2], seed),)) for seed in range(cell[3])] for cell in cells]
        pace = 0.0
        for (start, depth, recipe, runs), files in zip(cells, made, strict=True):
            if time.monotonic() - BEGUN + pace * depth * runs > 60 * minutes:
                said(f"no time is left for {start}, depth {depth}")
                continue
            own = [circular(recipe, s, file.get(), data, torch.bfloat16) for s, file in enumerate(files)]
            for one, _ in own:
                one.capture()
            began = time.monotonic()
            for _ in range(len(own[0][0].rates)):
                for one, _ in own:
                    one.go()
            wait()
            found = [{"accuracy": one.accuracy(), "dead": len(dead), "lost": bool(one.lost)} for one, dead in own]
            pace = (time.monotonic() - began) / depth / runs
            done[f"{start}, depth {depth}"] = found
            path.write_text(json.dumps(done, indent=1))
            said(start, depth, [one["accuracy"] for one in found])
        pool.terminate()


def check() -> None:
    """Few steps of small networks, against ``trained`` and against autograd with ``torch.optim.SGD`` in float64."""
    for activation in ("tanh", "elu"):
        sweep = trainable.presets(activation)["paper"].but(depth=(5,), steps=30, learning_rate=0.05)
        sweep = sweep.but(
            also={name: one.but(depth=(5,), steps=30, learning_rate=0.05) for name, one in sweep.also.items()}
        )
        trials = list(with_specs(sweep))
        files = {trial.key: dense_parts((trial.spec, trial.seed)) for trial in trials}
        data = [part.to(PLACE) for split in ("train", "test") for part in tensors("mnist", split)]
        ((one, own),) = dense(trials, files, data)
        for _ in range(30):
            one.go()
        for trial, found in list(results(one, own, *data[2:]))[::4]:
            same = trainable.trained(trial.spec, trial.seed)
            away = np.abs(found["accuracy"] - same["accuracy"]).max()
            assert away < 2e-3 and (found["dead"] == same["dead"]).all(), away
            said(activation, trial.spec.rescaling, trial.seed, f"accuracies differ by {away:g}")
    from epoch0.networks import vanilla_cnn
    from epoch0.prune import apply, keep, random

    source = torch.Generator().manual_seed(0)
    net = apply(
        model := vanilla_cnn(4, 8, inputs=(1, 6, 6), activation="tanh", dtype=torch.float64), keep(random(model), 0.5)
    )
    x, y = torch.randn(60, 1, 6, 6, generator=source, dtype=torch.float64), torch.arange(60) % 10
    layers = [layer for layer in net if isinstance(layer, nn.Linear | nn.Conv2d)]
    masks = [layer.parametrizations.weight[0].mask.bool() for layer in layers]
    parts = (
        [layer.weight.detach().clone() for layer in layers],
        masks,
        [layer.bias.detach().clone() for layer in layers],
    )
    order, data = ordered(0, 60, 20, 9), [part.to(PLACE) for part in (x, y, x, y)]
    one = Circular(parts, order, data, torch.full((9,), 0.1, dtype=torch.float64), 0.9, torch.float64)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for rows in order:
        sgd.zero_grad()
        F.cross_entropy(net(x[rows]), y[rows]).backward()
        sgd.step()
        one.go()
    away = float((one.parameters[1][-1].permute(0, 3, 1, 2).cpu() - layers[3].weight).detach().abs().max())
    assert away < 1e-6, away
    said(f"V-CNN: weights differ by {away:.1g}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("figure3", "table4", "check"))
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--activation", choices=("tanh", "elu"), default="tanh")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin nothing that would end later")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    told = parser.parse_args()
    if told.what != "check" and not CUDA:
        sys.exit("there is no CUDA device here; `check` runs on a CPU, and `epoch0 reproduce` anywhere.")
    told.out.mkdir(parents=True, exist_ok=True)
    runs = {
        "figure3": partial(figure3, told.out, told.activation, told.workers),
        "table4": partial(table4, told.out, told.minutes, told.workers),
        "check": check,
    }
    runs[told.what]()
