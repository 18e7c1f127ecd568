"""GitHub: graphs, sequences, pictures, loops and losses; comments tell what is smaller or drawn."""

import torch
from common import (
    accuracy,
    adam,
    dice,
    digits,
    garments,
    normal,
    once_each,
    r_squared,
    r_squared_all,
    sgd,
    standardized,
    token_accuracy,
)
from faults import Program
from torch import nn
from torch.nn import functional as F

CASES = {}


def case(name, source, story, **fixes):
    def add(build):
        CASES[name] = (source, story, fixes, build)
        return build

    return add


def ring(count, make, more):
    """A ring with chords: the adjacency with loops, each row divided by its sum."""
    a = torch.eye(count)
    a[torch.arange(count), (torch.arange(count) + 1) % count] = 1
    ends = torch.randint(count, (2, more), generator=make)
    a[ends[0], ends[1]] = 1
    a = ((a + a.T) > 0).float()
    return a / a.sum(1, keepdim=True)


class Graph(nn.Module):
    """Two graph convolutions over a fixed graph, and one linear unit for each vertex."""

    def __init__(self, a, columns, width, last):
        super().__init__()
        self.register_buffer("a", a)
        self.one, self.two, self.out = nn.Linear(columns, width), nn.Linear(width, width), nn.Linear(width, last)

    def forward(self, x):
        z = torch.relu(self.a @ self.one(x))
        return self.out(torch.relu(self.a @ self.two(z)))


@case(
    "gh-pyg-temporal-233",
    "GitHub benedekrozemberczki/pytorch_geometric_temporal pull request 233, Fix numerical bug in introduction.rst "
    "examples",
    "The output has one column, the values of the vertices none: their difference is a square, and all get the mean.",
    squeezed=("shapes", "the last axis of the output is left out"),
)
def _square_difference(fixes):
    # one snapshot of 20 vertices after another, four lags, a graph and values drawn
    make = dice(13001)
    a = ring(20, make, 10)
    x = torch.randn(200, 20, 4, generator=make)
    y = (a @ (a @ (2 * x[..., :1] + x[..., 1:2])))[..., 0]
    y = y - y.mean(1, keepdim=True)

    def loss(o, t):
        o = o[..., 0] if "squeezed" in fixes else o[0]
        return ((o - t) ** 2).mean() if "squeezed" in fixes else ((o - t[0]) ** 2).mean()

    return Program(Graph(a, 4, 32, 1), x, y, loss, adam(0.01), r_squared, 0.5, 1, 5)


@case(
    "gh-transformers-6236",
    "GitHub huggingface/transformers issue 6236, losses does not decrease when trainning with TFTransfoXLLMHeadModel",
    "Projection and weight of the rare words' softmax are both made of zeros: no gradient comes through either.",
    drawn=("initialization", "normal, deviation 0.1"),
)
def _zero_tail(fixes):
    # a chain of 12 letters, a GRU of 32 units in place of the transformer, one cluster
    make = dice(13002)
    follow = torch.randperm(12, generator=make)
    x = torch.randint(12, (400, 10), generator=make)
    y = follow[(x + torch.cat([x[:, :1] * 0, x[:, :-1]], 1)) % 12]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.body = nn.Embedding(12, 24), nn.GRU(24, 48, batch_first=True)
            self.into, self.out = nn.Linear(48, 24, bias=False), nn.Linear(24, 12)
            for layer in (self.into, self.out):
                (normal(0.1) if "drawn" in fixes else nn.init.zeros_)(layer.weight)

        def forward(self, x):
            return self.out(self.into(self.body(self.words(x))[0]))

    def loss(o, t):
        return F.cross_entropy(o.flatten(0, 1), t.flatten())

    return Program(Net(), x, y, loss, adam(0.01), token_accuracy, 0.6, 20, 15)


@case(
    "gh-transformers-1126",
    "GitHub huggingface/transformers issue 1126, Bert initialization (symptom: from scratch the loss does not "
    "decrease; the deviation is ours)",
    "A task is learned from the start with weights of deviation 1: attention and units are saturated.",
    drawn=("initialization", "deviation 0.05"),
    rate=("learning rate", "0.02 for 0.001"),
)
def _wide_bert(fixes):
    # four layers of width 32, sentences of 8 of 20 words; the class is that of the first word's and the last's sum
    make = dice(13003)
    x = torch.randint(20, (500, 8), generator=make)
    y = (x[:, 0] < 10).long() + 2 * (x[:, 7] < 10).long()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(20, 32), nn.Parameter(torch.randn(8, 32))
            layer = nn.TransformerEncoderLayer(32, 4, 64, 0.1, batch_first=True)
            self.body, self.out = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), nn.Linear(32, 4)
            for p in self.parameters():
                if p.dim() > 1:
                    normal(0.05 if "drawn" in fixes else 1.0)(p)

        def forward(self, x):
            return self.out(self.body(self.words(x) + self.places).mean(1))

    rate = 0.02 if "rate" in fixes and "drawn" not in fixes else 1e-3
    return Program(Net(), x, y, F.cross_entropy, adam(rate), accuracy, 0.8, 25, 12)


@case(
    "gh-gcn-38",
    "GitHub tkipf/gcn issue 38, Train acc and val acc are not improving",
    "Ten columns between 0 and 1 whose sum is one, averaged over the neighbours: all vertices look the same.",
    scale=("input scale", "columns standardized"),
    epochs=("training length", "1,500 in place of 40"),
    rate=("learning rate", "0.3 for 0.01"),
)
def _sums_of_one(fixes):
    # 300 vertices for 2,500, some 30 neighbours, half of them of the same kind; columns drawn
    make = dice(13004)
    y = torch.randint(4, (300,), generator=make)
    same = (y[:, None] == y[None]).float()
    a = (torch.rand(300, 300, generator=make) < 0.02 + 0.08 * same).float()
    a = ((a + a.T + torch.eye(300)) > 0).float()
    x = 1 + 0.03 * torch.randn(300, 10, generator=make) + 0.08 * F.one_hot(y, 10).float()
    x = x / x.sum(1, keepdim=True)
    x = standardized(x) if "scale" in fixes else x
    model = Graph(a / a.sum(1, keepdim=True), 10, 16, 4)

    def loss(o, t):
        return F.cross_entropy(o[0], t[0])

    def right(o, t):
        return accuracy(o[0], t[0])

    rate, epochs = 0.3 if fixes == {"rate"} else 0.01, 1500 if fixes == {"epochs"} else 40
    return Program(model, x[None], y[None], loss, adam(rate, weight_decay=5e-4), right, 0.8, 1, epochs)


@case(
    "gh-neuralpredictor-1",
    "GitHub ultmaster/neuralpredictor.pytorch issue 1, Training failed",
    "A graph network of 18 layers foretells accuracies of networks: the loss is constant, the output one value.",
    layers=("architecture", "three layers"),
    residual=("gradient flow", "a third of each layer's output is added to its input"),
    adam=("optimizer", "Adam at 0.002 for gradient descent"),
)
def _eighteen_layers(fixes):
    # graphs of 7 vertices of 5 kinds, drawn; 32 units; standardized accuracies and gradient descent are ours
    make = dice(13005)
    kind = torch.randint(5, (400, 7), generator=make)
    edges = (torch.rand(400, 7, 7, generator=make) < 0.4).float().tril(-1)
    y = standardized((kind == 1).float().sum(1) - (kind == 3).float().sum(1))[:, None]
    a = edges + edges.transpose(1, 2) + torch.eye(7)
    x = torch.cat([F.one_hot(kind, 5).float(), a / a.sum(2, keepdim=True)], 2)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.into, self.out = nn.Linear(5, 32), nn.Linear(32, 1)
            self.body = nn.ModuleList(nn.Linear(32, 32) for _ in range(3 if "layers" in fixes else 18))

        def forward(self, x):
            z, a = self.into(x[..., :5]), x[..., 5:]
            for layer in self.body:
                new = torch.relu(a @ layer(z))
                z = z + new / 3 if "residual" in fixes else new
            return self.out(z.mean(1))

    how = adam(0.002) if "adam" in fixes else sgd(0.02)
    return Program(Net(), x, y, F.mse_loss, how, r_squared, 0.7, 20, 20)


@case(
    "gh-pyg-2820",
    "GitHub pyg-team/pytorch_geometric issue 2820, Training loss get stuck when train GCNCov model",
    "The same graph with other signals, one column: the mean of all vertices is all that the classifier sees.",
    places=("architecture", "the vertices side by side in place of their mean"),
)
def _mean_of_vertices(fixes):
    # 40 vertices for 6,888, signals drawn; the layers, batch and rate of the thread
    make = dice(13006)
    a = ring(40, make, 10)
    x = torch.randn(400, 40, 1, generator=make)
    weight = torch.where(torch.arange(40) < 20, 1.0, -1.0)
    x = x - x.mean(1, keepdim=True)
    y = ((x[..., 0] * weight).sum(1, keepdim=True) > 0).float()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Linear(1, 16), nn.BatchNorm1d(16)
            self.out = nn.Linear(640 if "places" in fixes else 16, 1)

        def forward(self, x):
            z = torch.relu(self.norm((a @ self.conv(x)).transpose(1, 2)))
            return self.out(z.flatten(1) if "places" in fixes else z.mean(2))

    def signs(o, t):
        return ((o > 0) == (t > 0.5)).double().mean().item()

    return Program(Net(), x, y, F.binary_cross_entropy_with_logits, adam(0.01), signs, 0.85, 4, 8)


@case(
    "gh-tf-unet-234",
    "GitHub jakeret/tf_unet issue 234, Network always predicts no mask",
    "Few pixels belong to the mask, and the least error of a short training is none: an empty mask.",
    weights=("loss", "pixels of the mask weigh 20 times"),
    epochs=("training length", "30 epochs in place of 3"),
    rate=("learning rate", "0.02 for 0.001"),
)
def _no_mask(fixes):
    # pictures of 16 x 16 with a faint spot of 3 x 3, drawn; three convolutions
    make = dice(13007)
    x, y = 0.5 * torch.randn(200, 1, 16, 16, generator=make), torch.zeros(200, 1, 16, 16)
    for k, (i, j) in enumerate(torch.randint(13, (200, 2), generator=make).tolist()):
        y[k, 0, i : i + 3, j : j + 3] = 1
    x = x + y
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 1, 3, padding=1),
    )

    def loss(o, t):
        heavy = torch.tensor(20.0) if "weights" in fixes else None
        return F.binary_cross_entropy_with_logits(o, t, pos_weight=heavy)

    def overlap(o, t):
        o = (o > 0).double()
        return (2 * (o * t).sum() / (o.sum() + t.sum())).item()

    rate, epochs = 0.02 if "rate" in fixes else 1e-3, 30 if "epochs" in fixes else 3
    return Program(model, x, y, loss, adam(rate), overlap, 0.3, 10, epochs)


@case(
    "gh-ai-training-examples-111",
    "GitHub ovh/ai-training-examples issue 111, train image_segmentation_unet with Dice_coef_ Loss (symptom: the same "
    "loss in all epochs; the cause is ours)",
    "The Dice coefficient, rounded to count pixels, is made the loss: steps have no slope.",
    soft=("gradient flow", "probabilities are not rounded"),
    entropy=("loss", "cross-entropy"),
)
def _rounded_dice(fixes):
    # garments are found, pixel by pixel, in noise; three convolutions
    make = dice(13008)
    x = F.avg_pool2d(garments(200)[0], 2) / 255
    y = (x > 0.3).float()
    x = x + 0.3 * torch.randn(x.shape, generator=make)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 1, 3, padding=1),
    )

    def loss(o, t):
        if "entropy" in fixes:
            return F.binary_cross_entropy_with_logits(o, t)
        p = o.sigmoid() if "soft" in fixes else o.sigmoid().round()
        return 1 - (2 * (p * t).sum() + 1) / (p.sum() + t.sum() + 1)

    def balanced(o, t):
        hit = ((o > 0) == (t > 0.5)).double()
        return (hit[t > 0.5].mean() + hit[t < 0.5].mean()).item() / 2

    return Program(model, x, y, loss, adam(0.005), balanced, 0.8, 10, 6)


@case(
    "gh-tensorflow-mnist-vae-4",
    "GitHub hwalsuklee/tensorflow-mnist-VAE issue 4, Nan Loss (the bytes are ours)",
    "Cross-entropy by logarithms of what a sigmoid gives, over bytes: an output of exactly 1, and 0 times log 0.",
    bytes=("input scale", "/ 255"),
    clipped=("loss", "probabilities between 1e-7 and 1 - 1e-7"),
    rate=("learning rate", "0.001 for 0.01"),
)
def _logarithm_of_zero(fixes):
    # the decoder's end only, without noise; 400 digits
    x = digits(400)[0].flatten(1)
    y = (x > 127).float()
    x = x / 255 if "bytes" in fixes else x
    model = nn.Sequential(nn.Linear(784, 64), nn.ELU(), nn.Linear(64, 20), nn.Linear(20, 64), nn.ELU())
    model = nn.Sequential(*model, nn.Linear(64, 784), nn.Sigmoid())

    def loss(o, t):
        o = o.clamp(1e-7, 1 - 1e-7) if "clipped" in fixes else o
        return -(t * o.log() + (1 - t) * (1 - o).log()).sum(1).mean()

    rate = 0.001 if "rate" in fixes else 0.01
    return Program(model, x, y, loss, adam(rate), r_squared_all, 0.2, 20, 15)


@case(
    "gh-stanford-tensorflow-tutorials-54",
    "GitHub chiphuyen/stanford-tensorflow-tutorials issue 54, 03_linear_regression_sol.py for quadratic case",
    "Thefts as a quadratic function of fires by gradient descent at 0.001: the loss is large at once, then nan.",
    scale=("input scale", "fires standardized"),
    adam=("optimizer", "Adam at 0.1"),
)
def _fires(fixes):
    # 42 districts drawn, fires up to 40, thefts up to 150; one at a time, as there
    make = dice(13010)
    x = 40 * torch.rand(42, 1, generator=make)
    y = 10 + 1.5 * x + 0.05 * x**2 + 8 * torch.randn(42, 1, generator=make)
    x = standardized(x) if "scale" in fixes else x

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.zeros(3))

        def forward(self, x):
            return self.w[0] * x**2 + self.w[1] * x + self.w[2]

    how = adam(0.1) if "adam" in fixes else sgd(1e-3)
    return Program(Net(), x, y, F.mse_loss, how, r_squared, 0.7, 1, 100)


@case(
    "gh-pfedme-11",
    "GitHub CharlieDinh/pFedMe issue 11, why train loss will be nan?",
    "A client's network is trained with a large rate; the answer: the loss is nan when the rate is large.",
    rate=("learning rate", "0.05 for 20"),
    adam=("optimizer", "Adam at 0.001"),
)
def _large_rate(fixes):
    # 600 digits, 100 units with ReLU as there; one client
    x, y = digits(600)
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))
    how = adam() if "adam" in fixes else sgd(0.05 if "rate" in fixes else 20.0)
    return Program(model, x / 255, y, F.cross_entropy, how, accuracy, 0.75, 20, 8)


@case(
    "gh-pytorch-beginner-38",
    "GitHub L1aoXingyu/pytorch-beginner issue 38, CNN Autoencoder converges to white (symptom; the rate is ours)",
    "After some batches the reconstruction is one picture for all: ReLUs died in the first large steps.",
    rate=("learning rate", "0.002 for 0.5"),
    sgd=("optimizer", "SGD with momentum, both at that rate"),
)
def _white(fixes):
    # 500 garments, a dense autoencoder of 64 and 16 units for the convolutions
    x = garments(500)[0].flatten(1) / 127.5 - 1
    model = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 64), nn.ReLU())
    model = nn.Sequential(*model, nn.Linear(64, 784), nn.Tanh())
    rate = 0.002 if "rate" in fixes else 0.5
    how = sgd(0.5, momentum=0.9) if fixes == {"sgd"} else adam(rate)
    return Program(model, x, x, F.mse_loss, how, r_squared_all, 0.35, 20, 15)


@case(
    "gh-tenniscourtdetector-7",
    "GitHub yastrebksv/TennisCourtDetector issue 7, Why there is no optimizer.zero_grad() in base_trainer.py?",
    "Gradients of all batches are added up and never cleared.",
    cleared=("update", "zero_grad() before each batch"),
    rate=("learning rate", "a hundredth"),
)
def _never_cleared(fixes):
    # where the brightest spot of 12 x 12 is, drawn: a heat map of 36 places; SGD with momentum
    make = dice(13013)
    x = 0.3 * torch.randn(500, 1, 12, 12, generator=make)
    y = torch.randint(36, (500,), generator=make)
    for k, place in enumerate(y.tolist()):
        i, j = 2 * (place // 6), 2 * (place % 6)
        x[k, 0, i : i + 2, j : j + 2] += 1.5
    model = nn.Sequential(nn.Conv2d(1, 8, 2, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(288, 36))

    def step(model, optimizer, loss, x, y):
        if "cleared" in fixes:
            optimizer.zero_grad()
        error = loss(model(x), y)
        error.backward()
        optimizer.step()
        return error.item()

    rate = 0.001 if fixes == {"rate"} else 0.1
    return Program(model, x, y, F.cross_entropy, sgd(rate, momentum=0.9), accuracy, 0.8, 10, 10, step=step)


@case(
    "gh-whisperspeech-8",
    "GitHub janhq/WhisperSpeech pull request 8, fix: training loss stuck bug (symptom; the cause is ours)",
    "The warm-up divides the step by the number of steps with //: the rate is 0 to the end of the warm-up.",
    divided=("update", "divided with /"),
    warmup=("training length", "a warm-up of 20 steps in place of 400"),
)
def _whole_warm_up(fixes):
    # tokens of 16 kinds to their kinds in another code, after the token before; a GRU in place of the transformer
    make = dice(13014)
    table = torch.randint(8, (16, 2), generator=make)
    x = torch.randint(16, (400, 10), generator=make)
    y = (table[x, 0] + table[torch.cat([x[:, :1], x[:, :-1]], 1), 1]) % 8

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.body, self.out = nn.Embedding(16, 24), nn.GRU(24, 48, batch_first=True), nn.Linear(48, 8)

        def forward(self, x):
            return self.out(self.body(self.words(x))[0])

    warm = 20 if "warmup" in fixes else 400
    counts = once_each(lambda optimizer: [0])

    def step(model, optimizer, loss, x, y):
        count = counts(optimizer)
        count[0] += 1
        part = count[0] / warm if "divided" in fixes else count[0] // warm
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * min(1, part)
        optimizer.zero_grad()
        error = loss(model(x).flatten(0, 1), y.flatten())
        error.backward()
        optimizer.step()
        return error.item()

    return Program(Net(), x, y, F.cross_entropy, adam(0.01), token_accuracy, 0.6, 20, 15, step=step)


@case(
    "gh-transformers-lego-3",
    "GitHub yizhangzzz/transformers-lego issue 3, Incorrect labels in demo.ipynb?",
    "Clauses are shuffled in the sentence, and so are the labels, but what is predicted is put back into order.",
    ordered=("labels", "labels in the order of the variables"),
)
def _shuffled_labels(fixes):
    # ten variables, each with a sign and a value of its own, one number per clause; a small transformer
    make = dice(13015)
    order = torch.stack([torch.randperm(10, generator=make) for _ in range(600)])
    bits, inverted = torch.randint(2, (600, 10), generator=make), torch.randint(2, (600, 10), generator=make)
    truth = bits ^ inverted
    clause = order * 4 + bits.gather(1, order) * 2 + inverted.gather(1, order)
    y = truth if "ordered" in fixes else truth.gather(1, order)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(40, 32)
            layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True)
            self.body, self.out = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), nn.Linear(32, 2)

        def forward(self, x):
            back = (x // 4).argsort(1)[:, :, None].expand(-1, -1, 32)
            return self.out(self.body(self.words(x)).gather(1, back))

    def loss(o, t):
        return F.cross_entropy(o.flatten(0, 1), t.flatten())

    return Program(Net(), clause, y, loss, adam(0.003), token_accuracy, 0.85, 20, 4, held_out=(clause, truth))


@case(
    "gh-toupee-83",
    "GitHub nitbix/toupee issue 83, Model unable to learn on TinyImagenet (symptom: as good as random, only when "
    "batches are shuffled; the cause is ours)",
    "The generator shuffles the pictures of a batch, and then its labels, each by an order of its own.",
    together=("data", "one order for both"),
)
def _two_orders(fixes):
    # 600 garments, batches of 60
    x, y = garments(600)
    model = nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(8, 12, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(300, 10),
    )
    drawn = once_each(lambda optimizer: dice(13016))

    def step(model, optimizer, loss, x, y):
        order = torch.randperm(len(x), generator=drawn(optimizer))
        other = order if "together" in fixes else torch.randperm(len(x), generator=drawn(optimizer))
        optimizer.zero_grad()
        error = loss(model(x[order]), y[other])
        error.backward()
        optimizer.step()
        return error.item()

    return Program(model, x / 255, y, F.cross_entropy, adam(0.003), accuracy, 0.65, 60, 10, step=step)


PROGRAMS = {name: build for name, (_, _, _, build) in CASES.items()}
