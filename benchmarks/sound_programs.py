"""Sound programs as people hand them to the checkup, each in another way. PROGRAMS = {name: build}.

build() gives (args, kwargs, train, score): those of epoch0.checkup, and what trains a fresh copy and scores it.
"""

# ruff: noqa - written as people write them, by somebody who knew neither the checks nor the code

import copy
import math
import random
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from epoch0.data import load

PROGRAMS = {}


def program(setup):
    """setup() -> args, kwargs, train, score, all over one fresh model; the checkup gets one, our own training another."""

    def build():
        torch.manual_seed(0)
        np.random.seed(0)
        random.seed(0)
        args, kwargs, _, _ = setup()
        torch.manual_seed(0)
        np.random.seed(0)
        random.seed(0)
        _, _, train, score = setup()
        return args, kwargs, train, score

    PROGRAMS[setup.__name__] = build
    return setup


def digits():
    parts = [load("digits", split) for split in ("train", "test")]
    x = torch.cat([torch.from_numpy(part.images).float().flatten(1) for part in parts]) / 16
    y = torch.cat([torch.from_numpy(part.labels).long() for part in parts])
    p = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
    return x[p], y[p]


def markov(vocab, n, length, peak=6.0):
    g = torch.Generator().manual_seed(5)
    P = torch.softmax(torch.randn(vocab, vocab, generator=g) * peak / 2, 1)
    s = torch.zeros(n, length, dtype=torch.long)
    s[:, 0] = torch.randint(vocab, (n,), generator=g)
    for t in range(1, length):
        s[:, t] = torch.multinomial(P[s[:, t - 1]], 1, generator=g)[:, 0]
    return s


def acc(model, x, y):
    model.eval()
    with torch.no_grad():
        a = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return a


# ---------------------------------------------------------------------- part 1


@program
def word_language_model():
    # pytorch/examples word_language_model: (seq, batch), hidden state passed in and detached
    class RNNModel(nn.Module):
        def __init__(self, ntoken, ninp, nhid, nlayers, dropout=0.2):
            super().__init__()
            self.ntoken, self.nhid, self.nlayers = ntoken, nhid, nlayers
            self.drop = nn.Dropout(dropout)
            self.encoder = nn.Embedding(ntoken, ninp)
            self.rnn = nn.LSTM(ninp, nhid, nlayers, dropout=dropout)
            self.decoder = nn.Linear(nhid, ntoken)
            nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
            nn.init.zeros_(self.decoder.bias)
            nn.init.uniform_(self.decoder.weight, -0.1, 0.1)

        def forward(self, input, hidden):
            emb = self.drop(self.encoder(input))
            output, hidden = self.rnn(emb, hidden)
            decoded = self.decoder(self.drop(output)).view(-1, self.ntoken)
            return F.log_softmax(decoded, dim=1), hidden

        def init_hidden(self, bsz):
            weight = next(self.parameters())
            return (weight.new_zeros(self.nlayers, bsz, self.nhid), weight.new_zeros(self.nlayers, bsz, self.nhid))

    def batchify(data, bsz):
        nbatch = data.size(0) // bsz
        return data.narrow(0, 0, nbatch * bsz).view(bsz, -1).t().contiguous()

    def get_batch(source, i, bptt=16):
        n = min(bptt, len(source) - 1 - i)
        return source[i : i + n], source[i + 1 : i + 1 + n].reshape(-1)

    corpus = batchify(markov(20, 1, 8000)[0], 20)
    model = RNNModel(20, 32, 64, 2)
    criterion = nn.NLLLoss()
    optimizer = optim.Adam(model.parameters(), lr=3e-3)
    data, targets = get_batch(corpus, 0)

    def step(model, optimizer, loss, x, y):
        data, hidden = x
        hidden = tuple(h.detach() for h in hidden)
        optimizer.zero_grad()
        output, hidden = model(data, hidden)
        l = criterion(output, y)
        l.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        optimizer.step()
        return l

    def train():
        hidden = model.init_hidden(20)
        for _ in range(6):
            for i in range(0, corpus.size(0) - 17, 16):
                d, t = get_batch(corpus, i)
                hidden = tuple(h.detach() for h in hidden)
                optimizer.zero_grad()
                out, hidden = model(d, hidden)
                criterion(out, t).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.25)
                optimizer.step()

    def score():
        with torch.no_grad():
            return -criterion(model(corpus[:-1], model.init_hidden(20))[0], corpus[1:].reshape(-1)).item()

    return (
        (model, (data, model.init_hidden(20)), targets),
        dict(loss=lambda out, t: criterion(out[0], t), optimizer=optimizer, step=step),
        train,
        score,
    )


@program
def char_rnn_names_onehot():
    # tutorials/intermediate/char_rnn_classification: (length, batch, letters) one-hot
    class CharRNN(nn.Module):
        def __init__(self, input_size, hidden_size, output_size):
            super().__init__()
            self.rnn = nn.RNN(input_size, hidden_size)
            self.h2o = nn.Linear(hidden_size, output_size)
            self.softmax = nn.LogSoftmax(dim=1)

        def forward(self, line_tensor):
            rnn_out, hidden = self.rnn(line_tensor)
            return self.softmax(self.h2o(hidden[0]))

    g = torch.Generator().manual_seed(2)
    y = torch.randint(4, (256,), generator=g)
    laws = torch.softmax(2 * torch.randn(4, 26, generator=g), 1)
    chars = torch.multinomial(laws[y], 9, replacement=True, generator=g)
    x = F.one_hot(chars, 26).float().transpose(0, 1).contiguous()  # (9, 256, 26)
    rnn = CharRNN(26, 64, 4)
    criterion = nn.NLLLoss()
    optimizer = optim.SGD(rnn.parameters(), lr=0.15)

    def train():
        for _ in range(200):
            i = torch.randint(256, (64,))
            loss = criterion(rnn(x[:, i]), y[i])
            loss.backward()
            nn.utils.clip_grad_norm_(rnn.parameters(), 3)
            optimizer.step()
            optimizer.zero_grad()

    return (rnn, x, y), dict(loss=criterion, optimizer=optimizer), train, lambda: acc(rnn, x, y)


def padded_reviews(n=300):
    g = torch.Generator().manual_seed(3)
    y = torch.randint(2, (n,), generator=g)
    rows = []
    for label in y.tolist():
        length = int(torch.randint(5, 20, (1,), generator=g))
        words = torch.randint(1, 40, (length,), generator=g)
        hot = torch.rand(length, generator=g) < 0.4
        words[hot] = (40 + 5 * label + torch.randint(5, (length,), generator=g))[hot]
        rows.append(words)
    return rows, y


@program
def gru_packed_collate():
    rows, labels = padded_reviews()

    def collate(batch):
        xs, ys = zip(*batch)
        lengths = torch.tensor([len(x) for x in xs])
        return nn.utils.rnn.pad_sequence(xs, batch_first=True), lengths, torch.stack(ys)

    class Sentiment(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(50, 32, padding_idx=0)
            self.gru = nn.GRU(32, 48, batch_first=True, bidirectional=True)
            self.fc = nn.Linear(96, 1)

        def forward(self, text, lengths):
            packed = nn.utils.rnn.pack_padded_sequence(
                self.embedding(text), lengths.cpu(), batch_first=True, enforce_sorted=False
            )
            _, hidden = self.gru(packed)
            return self.fc(torch.cat([hidden[-2], hidden[-1]], 1)).squeeze(1)

    loader = DataLoader(list(zip(rows, labels)), batch_size=50, shuffle=True, collate_fn=collate)
    model = Sentiment()
    criterion = nn.BCEWithLogitsLoss()
    optimizer = optim.Adam(model.parameters(), lr=2e-3)
    text, lengths, y = next(iter(loader))

    def train():
        for _ in range(8):
            for t, n, l in loader:
                optimizer.zero_grad()
                criterion(model(t, n), l.float()).backward()
                optimizer.step()

    def score():
        t, n, l = collate(list(zip(rows, labels)))
        with torch.no_grad():
            return ((model(t, n) > 0) == l).float().mean().item()

    return (
        (model, (text, lengths), y.float()),
        dict(
            loss=criterion,
            optimizer=optimizer,
            data=loader,
            step=lambda model, optimizer, loss, x, y: (
                optimizer.zero_grad(),
                loss(model(*x), y.float()).backward(),
                optimizer.step(),
            ),
        ),
        train,
        score,
    )


@program
def seq2seq_teacher_forcing():
    # bentrevett/pytorch-seq2seq: time first, model(src, trg) with teacher forcing
    class Seq2Seq(nn.Module):
        def __init__(self, v=14, e=24, h=48):
            super().__init__()
            self.src, self.trg = nn.Embedding(v, e), nn.Embedding(v, e)
            self.encoder, self.decoder = nn.GRU(e, h), nn.GRU(e, h)
            self.fc = nn.Linear(h, v)

        def forward(self, src, trg, teacher_forcing_ratio=0.5):
            _, hidden = self.encoder(self.src(src))
            outputs = torch.zeros(trg.shape[0], trg.shape[1], 14)
            input = trg[0]
            for t in range(1, trg.shape[0]):
                out, hidden = self.decoder(self.trg(input)[None], hidden)
                outputs[t] = self.fc(out[0])
                teacher = random.random() < teacher_forcing_ratio
                input = trg[t] if teacher else outputs[t].argmax(1)
            return outputs

    g = torch.Generator().manual_seed(4)
    body = torch.randint(3, 14, (4, 512), generator=g)
    src = body
    trg = torch.cat([torch.ones(1, 512, dtype=torch.long), body.flip(0), torch.full((1, 512), 2)])
    model = Seq2Seq()
    criterion = nn.CrossEntropyLoss(ignore_index=0)
    optimizer = optim.Adam(model.parameters(), lr=5e-3)

    def loss_fn(output, trg):
        return criterion(output[1:].view(-1, 14), trg[1:].reshape(-1))

    def step(model, optimizer, loss, x, y):
        src, trg = x
        optimizer.zero_grad()
        output = model(src, trg)
        l = loss(output, trg)
        l.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()

    def train():
        for _ in range(200):
            i = torch.randint(512, (64,))
            step(model, optimizer, loss_fn, (src[:, i], trg[:, i]), trg[:, i])

    def score():
        with torch.no_grad():
            return (model(src, trg)[1:].argmax(-1) == trg[1:]).float().mean().item()

    return (
        (model, (src[:, :128], trg[:, :128]), trg[:, :128]),
        dict(loss=loss_fn, optimizer=optimizer, step=step),
        train,
        score,
    )


@program
def mingpt():
    # karpathy/minGPT: forward(idx, targets=None) -> logits, loss; param groups for weight decay
    class Block(nn.Module):
        def __init__(self, d=32):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

        def forward(self, x):
            B, T, C = x.shape
            q, k, v = self.qkv(self.ln1(x)).view(B, T, 3, 4, C // 4).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)
            x = x + self.proj(y)
            return x + self.mlp(self.ln2(x))

    class GPT(nn.Module):
        def __init__(self, vocab=20, d=32, block_size=24):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(vocab, d), nn.Embedding(block_size, d)
            self.h = nn.ModuleList([Block(d) for _ in range(2)])
            self.ln_f, self.lm_head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)
            self.apply(self._init_weights)

        def _init_weights(self, m):
            if isinstance(m, (nn.Linear, nn.Embedding)):
                nn.init.normal_(m.weight, std=0.02)
                if getattr(m, "bias", None) is not None:
                    nn.init.zeros_(m.bias)

        def forward(self, idx, targets=None):
            x = self.wte(idx) + self.wpe(torch.arange(idx.size(1)))
            for b in self.h:
                x = b(x)
            logits = self.lm_head(self.ln_f(x))
            loss = None
            if targets is not None:
                loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1), ignore_index=-1)
            return logits, loss

    s = markov(20, 512, 25)
    dataset = TensorDataset(s[:, :-1], s[:, 1:])
    model = GPT()
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() < 2]
    optimizer = optim.AdamW(
        [dict(params=decay, weight_decay=0.1), dict(params=rest, weight_decay=0.0)], lr=3e-3, betas=(0.9, 0.95)
    )
    loader = DataLoader(dataset, batch_size=64, shuffle=True)
    x, y = next(iter(loader))

    def train():
        for _ in range(15):
            for a, b in loader:
                logits, loss = model(a, b)
                model.zero_grad(set_to_none=True)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()

    def score():
        with torch.no_grad():
            return -model(s[:, :-1], s[:, 1:])[1].item()

    return (model, x, y), dict(optimizer=optimizer, data=loader), train, score


@program
def vit_label_smoothing_scheduler():
    # timm style
    class ViT(nn.Module):
        def __init__(self, dim=32, depth=3, heads=4, classes=10):
            super().__init__()
            self.patch_embed = nn.Conv2d(1, dim, 2, 2)
            self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
            self.pos_embed = nn.Parameter(torch.randn(1, 17, dim) * 0.02)
            self.blocks = nn.Sequential(
                *[
                    nn.TransformerEncoderLayer(dim, heads, 64, 0.1, "gelu", batch_first=True, norm_first=True)
                    for _ in range(depth)
                ]
            )
            self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, classes)
            nn.init.trunc_normal_(self.cls_token, std=0.02)

        def forward(self, x):
            x = self.patch_embed(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1) + self.pos_embed
            return self.head(self.norm(self.blocks(x))[:, 0])

    X, Y = digits()
    X = (X.view(-1, 1, 8, 8) - 0.5) / 0.5
    loader = DataLoader(TensorDataset(X[:1024], Y[:1024]), batch_size=64, shuffle=True, drop_last=True)
    model = ViT()
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    scheduler = optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=400)

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        output = model(x)
        l = loss(output, y)
        l.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        return l.item()

    def train():
        for _ in range(12):
            for a, b in loader:
                step(model, optimizer, criterion, a, b)

    x, y = next(iter(loader))
    return (
        (model, x, y),
        dict(loss=criterion, optimizer=optimizer, data=loader, step=step),
        train,
        lambda: acc(model, X[1024:], Y[1024:]),
    )


def text_pairs(n=320, length=12):
    rows, y = padded_reviews(n)
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)[:, :length]
    if ids.shape[1] < length:
        ids = F.pad(ids, (0, length - ids.shape[1]))
    return ids, (ids > 0).long(), y


@dataclass
class SequenceClassifierOutput:
    loss: torch.Tensor = None
    logits: torch.Tensor = None
    hidden_states: tuple = None


class MiniBert(nn.Module):
    def __init__(self, kind="dataclass", d=32):
        super().__init__()
        self.kind = kind
        self.word, self.pos = nn.Embedding(50, d, padding_idx=0), nn.Embedding(16, d)
        self.norm = nn.LayerNorm(d)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(d, 4, 64, 0.1, "gelu", batch_first=True), 2, enable_nested_tensor=False
        )
        self.pooler, self.dropout, self.classifier = nn.Linear(d, d), nn.Dropout(0.1), nn.Linear(d, 2)

    def forward(self, input_ids=None, attention_mask=None, labels=None):
        h = self.norm(self.word(input_ids) + self.pos(torch.arange(input_ids.shape[1])))
        h = self.encoder(h, src_key_padding_mask=attention_mask == 0)
        logits = self.classifier(
            self.dropout(
                torch.tanh(self.pooler((h * attention_mask[..., None]).sum(1) / attention_mask.sum(1, keepdim=True)))
            )
        )
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits.view(-1, 2), labels.view(-1))
        if self.kind == "dict":
            return {"loss": loss, "logits": logits}
        if self.kind == "tuple":
            return (loss, logits) if loss is not None else (logits,)
        return SequenceClassifierOutput(loss=loss, logits=logits)


class DictDataset(Dataset):
    def __init__(self, **columns):
        self.columns = columns

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, i):
        return {k: v[i] for k, v in self.columns.items()}


@program
def bert_dataclass_dict_loader():
    ids, mask, y = text_pairs()
    loader = DataLoader(DictDataset(input_ids=ids, attention_mask=mask, labels=y), batch_size=32, shuffle=True)
    model = MiniBert()
    no_decay = ["bias", "norm"]
    groups = [
        {"params": [p for n, p in model.named_parameters() if not any(k in n for k in no_decay)], "weight_decay": 0.01},
        {"params": [p for n, p in model.named_parameters() if any(k in n for k in no_decay)], "weight_decay": 0.0},
    ]
    optimizer = optim.AdamW(groups, lr=1e-3)
    batch = next(iter(loader))

    def step(model, optimizer, loss, x, y):
        outputs = model(**x)
        outputs.loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    def train():
        model.train()
        for _ in range(10):
            for b in loader:
                step(model, optimizer, None, b, None)

    def score():
        model.eval()
        with torch.no_grad():
            a = (model(ids, mask).logits.argmax(1) == y).float().mean().item()
        model.train()
        return a

    return (model, batch), dict(optimizer=optimizer, data=loader, step=step), train, score


@program
def bert_dict_output_no_step():
    ids, mask, y = text_pairs()
    data = DictDataset(input_ids=ids, attention_mask=mask, labels=y)
    model = MiniBert("dict")
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)
    batch = {"input_ids": ids[:96], "attention_mask": mask[:96], "labels": y[:96]}

    def train():
        for _ in range(10):
            for b in DataLoader(data, 32, shuffle=True):
                optimizer.zero_grad()
                model(**b)["loss"].backward()
                optimizer.step()

    def score():
        model.eval()
        with torch.no_grad():
            a = (model(ids, mask)["logits"].argmax(1) == y).float().mean().item()
        model.train()
        return a

    return (model, batch), dict(optimizer=optimizer, data=data), train, score


class UNet(nn.Module):
    def __init__(self, cin=1, cout=3, c=12):
        super().__init__()

        def block(i, o):
            return nn.Sequential(
                nn.Conv2d(i, o, 3, padding=1, bias=False),
                nn.BatchNorm2d(o),
                nn.ReLU(inplace=True),
                nn.Conv2d(o, o, 3, padding=1, bias=False),
                nn.BatchNorm2d(o),
                nn.ReLU(inplace=True),
            )

        self.inc, self.down, self.bottom = block(cin, c), block(c, 2 * c), nn.MaxPool2d(2)
        self.up, self.conv, self.outc = nn.ConvTranspose2d(2 * c, c, 2, 2), block(2 * c, c), nn.Conv2d(c, cout, 1)

    def forward(self, x):
        a = self.inc(x)
        b = self.down(self.bottom(a))
        return self.outc(self.conv(torch.cat([a, self.up(b)], 1)))


def shapes(n=192, s=16):
    g = torch.Generator().manual_seed(6)
    x, m = torch.randn(n, 1, s, s, generator=g) * 0.3, torch.zeros(n, s, s, dtype=torch.long)
    for i in range(n):
        for k in (1, 2):
            a, b = torch.randint(0, s - 6, (2,), generator=g).tolist()
            x[i, 0, a : a + 6, b : b + 6] += 1.0 if k == 1 else -1.0
            m[i, a : a + 6, b : b + 6] = k
    return x, m


@program
def unet_cross_entropy_ignore_index():
    x, m = shapes()
    m = m.clone()
    m[:, 0], m[:, -1], m[:, :, 0], m[:, :, -1] = 255, 255, 255, 255
    loader = DataLoader(TensorDataset(x, m), batch_size=16, shuffle=True)
    model = UNet()
    criterion = nn.CrossEntropyLoss(ignore_index=255)
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)

    def train():
        for _ in range(4):
            for a, b in loader:
                optimizer.zero_grad()
                criterion(model(a), b).backward()
                optimizer.step()

    def score():
        with torch.no_grad():
            p = model(x[:64]).argmax(1)
        return ((p == m[:64]) & (m[:64] > 0) & (m[:64] < 255)).sum().item() / (
            (m[:64] > 0) & (m[:64] < 255)
        ).sum().item()

    images, masks = next(iter(loader))
    return (model, images, masks), dict(loss=criterion, optimizer=optimizer, data=loader), train, score


@program
def unet_bce_dice():
    # milesial/Pytorch-UNet: BCE + Dice, binary, RMSprop, autocast, GradScaler (disabled)
    x, m = shapes()
    mask = (m == 1).float().unsqueeze(1)

    def dice_loss(input, target, eps=1e-6):
        inter = 2 * (input * target).sum((1, 2, 3))
        sets = input.sum((1, 2, 3)) + target.sum((1, 2, 3))
        return 1 - ((inter + eps) / (sets + eps)).mean()

    bce = nn.BCEWithLogitsLoss()

    def criterion(pred, true):
        return bce(pred, true) + dice_loss(torch.sigmoid(pred), true)

    model = UNet(1, 1)
    model = model.to(memory_format=torch.channels_last)
    optimizer = optim.RMSprop(model.parameters(), lr=1e-3, weight_decay=1e-8, momentum=0.9, foreach=True)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    loader = DataLoader(DictDataset(image=x, mask=mask), batch_size=16, shuffle=True)

    def step(model, optimizer, loss, images, true_masks):
        with torch.autocast("cpu", enabled=False):
            masks_pred = model(images)
            l = loss(masks_pred, true_masks)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(l).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    def train():
        for _ in range(4):
            for b in loader:
                step(model, optimizer, criterion, b["image"], b["mask"])

    def score():
        with torch.no_grad():
            return 1 - dice_loss(torch.sigmoid(model(x[:64])), mask[:64]).item()

    b = next(iter(loader))
    return (model, b["image"], b["mask"]), dict(loss=criterion, optimizer=optimizer, step=step), train, score


class VAE(nn.Module):
    def __init__(self, n=64):
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(n, 100), nn.Linear(100, 8), nn.Linear(100, 8)
        self.fc3, self.fc4 = nn.Linear(8, 100), nn.Linear(100, n)

    def forward(self, x):
        h = F.relu(self.fc1(x.view(len(x), -1)))
        mu, logvar = self.fc21(h), self.fc22(h)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar


def vae_loss(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, 64), reduction="sum")
    return BCE - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())


@program
def vae_pytorch_example():
    X, Y = digits()
    X = X.view(-1, 1, 8, 8)
    loader = DataLoader(TensorDataset(X, Y), batch_size=128, shuffle=True)
    model = VAE()
    optimizer = optim.Adam(model.parameters(), lr=1e-3)

    def step(model, optimizer, loss, data, _):
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(data)
        l = vae_loss(recon_batch, data, mu, logvar)
        l.backward()
        optimizer.step()
        return l

    def train():
        for _ in range(20):
            for a, b in loader:
                step(model, optimizer, None, a, b)

    def score():
        with torch.no_grad():
            r, mu, lv = model(X)
            return -vae_loss(r, X, mu, lv).item() / len(X)

    images, _ = next(iter(loader))
    return (
        (model, images, images),
        dict(loss=lambda out, x: vae_loss(out[0], x, out[1], out[2]), optimizer=optimizer, data=loader, step=step),
        train,
        score,
    )


@program
def vae_outputs_tuple_no_data():
    X, _ = digits()
    model = VAE()
    optimizer = optim.Adam(model.parameters(), lr=1e-3)

    def loss_fn(outputs, target):
        recon, mu, logvar = outputs
        return vae_loss(recon, target, mu, logvar)

    def train():
        for _ in range(300):
            b = X[torch.randint(len(X), (128,))]
            l = loss_fn(model(b), b)
            optimizer.zero_grad()
            l.backward()
            optimizer.step()

    def score():
        with torch.no_grad():
            return -loss_fn(model(X), X).item() / len(X)

    return (model, X[:128], X[:128]), dict(loss=loss_fn, optimizer=optimizer), train, score


@program
def autoencoder_loader_without_targets():
    X, _ = digits()
    loader = DataLoader(TensorDataset(X), batch_size=64, shuffle=True)
    model = nn.Sequential(
        nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64)
    )
    criterion = nn.MSELoss()
    optimizer = optim.Adam(model.parameters(), lr=2e-3)

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        l = loss(model(x), x)
        l.backward()
        optimizer.step()
        return l

    def train():
        for _ in range(12):
            for (x,) in loader:
                step(model, optimizer, criterion, x, None)

    def score():
        with torch.no_grad():
            return -criterion(model(X), X).item()

    (x,) = next(iter(loader))
    return (model, x, x), dict(loss=criterion, optimizer=optimizer, data=loader, step=step), train, score


@program
def dcgan_discriminator_half():
    X, _ = digits()
    X = X.view(-1, 1, 8, 8) * 2 - 1
    netG = nn.Sequential(
        nn.ConvTranspose2d(8, 16, 4, 1, 0),
        nn.BatchNorm2d(16),
        nn.ReLU(True),
        nn.ConvTranspose2d(16, 1, 4, 2, 1),
        nn.Tanh(),
    )
    netD = nn.Sequential(
        nn.Conv2d(1, 16, 4, 2, 1),
        nn.LeakyReLU(0.2, True),
        nn.Conv2d(16, 32, 4, 2, 1),
        nn.LeakyReLU(0.2, True),
        nn.Conv2d(32, 1, 2),
        nn.Flatten(0),
        nn.Sigmoid(),
    )
    criterion = nn.BCELoss()
    optimizerD = optim.Adam(netD.parameters(), lr=1e-3, betas=(0.5, 0.999))

    def step(netD, optimizerD, criterion, real, label):
        netD.zero_grad()
        errD_real = criterion(netD(real), torch.ones(len(real)))
        errD_real.backward()
        fake = netG(torch.randn(len(real), 8, 1, 1))
        errD_fake = criterion(netD(fake.detach()), torch.zeros(len(real)))
        errD_fake.backward()
        optimizerD.step()
        return errD_real + errD_fake

    def train():
        for _ in range(150):
            step(netD, optimizerD, criterion, X[torch.randint(len(X), (64,))], None)

    def score():
        with torch.no_grad():
            return (
                (netD(X[:256]) > 0.5).float().mean() + (netD(netG(torch.randn(256, 8, 1, 1))) < 0.5).float().mean()
            ).item() / 2

    return (netD, X[:64], torch.ones(64)), dict(loss=criterion, optimizer=optimizerD, step=step), train, score


@program
def discriminator_real_and_fake():
    X, _ = digits()
    g = torch.Generator().manual_seed(8)
    fake = torch.rand(900, 64, generator=g) * X.mean(0) * 2
    x, y = torch.cat([X[:900], fake]), torch.cat([torch.ones(900, 1), torch.zeros(900, 1)])
    D = nn.Sequential(
        nn.Linear(64, 128),
        nn.LeakyReLU(0.2),
        nn.Dropout(0.3),
        nn.Linear(128, 64),
        nn.LeakyReLU(0.2),
        nn.Dropout(0.3),
        nn.Linear(64, 1),
        nn.Sigmoid(),
    )
    adversarial_loss = nn.BCELoss()
    opt = optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999))
    loader = DataLoader(TensorDataset(x, y), 64, shuffle=True)

    def train():
        for _ in range(10):
            for a, b in loader:
                opt.zero_grad()
                adversarial_loss(D(a), b).backward()
                opt.step()

    def score():
        with torch.no_grad():
            return ((D(x) > 0.5).float() == y).float().mean().item()

    a, b = next(iter(loader))
    return (D, a, b), dict(loss=adversarial_loss, optimizer=opt, data=loader), train, score


@program
def siamese_two_images():
    # pytorch/examples siamese_network: model(img1, img2), loader of (img1, img2, target)
    class APP_MATCHER(Dataset):
        def __init__(self, n=600):
            X, Y = digits()
            self.X, self.Y = X.view(-1, 1, 8, 8)[:n], Y[:n]
            self.by = {c: (self.Y == c).nonzero()[:, 0].tolist() for c in range(10)}

        def __len__(self):
            return len(self.X)

        def __getitem__(self, i):
            c = int(self.Y[i])
            if i % 2 == 0:
                return self.X[i], self.X[random.choice(self.by[c])], torch.tensor(1.0)
            return self.X[i], self.X[random.choice(self.by[(c + random.randint(1, 9)) % 10])], torch.tensor(0.0)

    class SiameseNetwork(nn.Module):
        def __init__(self):
            super().__init__()
            self.cnn = nn.Sequential(
                nn.Conv2d(1, 16, 3, padding=1),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(16, 32, 3),
                nn.ReLU(),
                nn.Flatten(),
            )
            self.fc = nn.Sequential(nn.Linear(2 * 128, 64), nn.ReLU(inplace=True), nn.Linear(64, 1), nn.Sigmoid())

        def forward(self, input1, input2):
            return self.fc(torch.cat([self.cnn(input1), self.cnn(input2)], 1))

    data = APP_MATCHER()
    loader = DataLoader(data, batch_size=64, shuffle=True)
    model = SiameseNetwork()
    criterion = nn.BCELoss()
    optimizer = optim.Adam(model.parameters(), lr=3e-3)

    def loss_fn(outputs, targets):
        return criterion(outputs.squeeze(), targets)

    def train():
        for _ in range(40):
            for a, b, t in loader:
                optimizer.zero_grad()
                loss_fn(model(a, b), t).backward()
                optimizer.step()

    def score():
        with torch.no_grad():
            r = [((model(a, b).squeeze() > 0.5).float() == t).float().mean().item() for a, b, t in loader]
        return sum(r) / len(r)

    a, b, t = next(iter(loader))
    return (model, (a, b), t), dict(loss=loss_fn, optimizer=optimizer, data=loader), train, score


@program
def triplet_three_calls():
    X, Y = digits()
    X, Y = X[:600], Y[:600]
    g = torch.Generator().manual_seed(9)
    pos = torch.stack(
        [
            random.Random(i).choice([j for j in range(600) if Y[j] == Y[i]]) * torch.ones((), dtype=torch.long)
            for i in range(300)
        ]
    )
    neg = torch.tensor([random.Random(i).choice([j for j in range(600) if Y[j] != Y[i]]) for i in range(300)])
    A, P, N = X[:300], X[pos], X[neg]
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
    criterion = nn.TripletMarginLoss(margin=1.0)
    optimizer = optim.Adam(net.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(A, P, N), 50, shuffle=True)

    def step(model, optimizer, loss, x, y):
        anchor, positive, negative = x
        optimizer.zero_grad()
        l = criterion(model(anchor), model(positive), model(negative))
        l.backward()
        optimizer.step()
        return l

    def train():
        for _ in range(20):
            for b in loader:
                step(net, optimizer, None, b, None)

    def score():
        with torch.no_grad():
            return -criterion(net(A), net(P), net(N)).item()

    return (
        (net, (A[:100], P[:100], N[:100])),
        dict(
            forward=lambda m, b: tuple(m(t) for t in b),
            loss=lambda out, _: criterion(*out),
            optimizer=optimizer,
            step=step,
        ),
        train,
        score,
    )


@program
def simclr_two_views():
    X, _ = digits()

    def augment(x):
        return x + 0.15 * torch.randn_like(x)

    class SimCLR(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64))
            self.projector = nn.Sequential(nn.ReLU(), nn.Linear(64, 32))

        def forward(self, x_i, x_j):
            return self.projector(self.encoder(x_i)), self.projector(self.encoder(x_j))

    def nt_xent(z_i, z_j, temperature=0.5):
        z = F.normalize(torch.cat([z_i, z_j]), dim=1)
        sim = z @ z.T / temperature
        sim = sim.masked_fill(torch.eye(len(z), dtype=torch.bool), -1e9)
        n = len(z_i)
        return F.cross_entropy(sim, torch.cat([torch.arange(n, 2 * n), torch.arange(n)]))

    model = SimCLR()
    optimizer = optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-6)

    def train():
        for _ in range(200):
            b = X[torch.randint(len(X), (128,))]
            l = nt_xent(*model(augment(b), augment(b)))
            optimizer.zero_grad()
            l.backward()
            optimizer.step()

    def score():
        torch.manual_seed(0)
        with torch.no_grad():
            return -nt_xent(*model(augment(X[:256]), augment(X[:256]))).item()

    b = X[:128]
    return (model, (augment(b), augment(b))), dict(loss=lambda out, _: nt_xent(*out), optimizer=optimizer), train, score


def ratings(n=3000, users=60, items=50):
    g = torch.Generator().manual_seed(10)
    u, i = torch.randint(users, (n,), generator=g), torch.randint(items, (n,), generator=g)
    U, V = torch.randn(users, 3, generator=g), torch.randn(items, 3, generator=g)
    r = (U[u] * V[i]).sum(1) * 0.7 + 3 + 0.5 * torch.randn(users, generator=g)[u]
    return u, i, r


@program
def matrix_factorization_d2l():
    u, i, r = ratings()

    class MF(nn.Module):
        def __init__(self, num_factors=8, num_users=60, num_items=50):
            super().__init__()
            self.P, self.Q = nn.Embedding(num_users, num_factors), nn.Embedding(num_items, num_factors)
            self.user_bias, self.item_bias = nn.Embedding(num_users, 1), nn.Embedding(num_items, 1)
            for e in (self.P, self.Q):
                nn.init.normal_(e.weight, std=0.1)
            for e in (self.user_bias, self.item_bias):
                nn.init.normal_(e.weight, std=0.01)

        def forward(self, user_id, item_id):
            P_u, Q_i = self.P(user_id), self.Q(item_id)
            return (P_u * Q_i).sum(1) + self.user_bias(user_id).squeeze() + self.item_bias(item_id).squeeze()

    loader = DataLoader(TensorDataset(u, i, r), batch_size=128, shuffle=True)
    model = MF()
    optimizer = optim.Adam(model.parameters(), lr=0.01, weight_decay=1e-5)
    criterion = nn.MSELoss()

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        l = loss(model(*x), y)
        l.backward()
        optimizer.step()

    def train():
        for _ in range(20):
            for a, b, c in loader:
                step(model, optimizer, criterion, (a, b), c)

    def score():
        with torch.no_grad():
            return -criterion(model(u, i), r).item()

    a, b, c = next(iter(loader))
    return (model, (a, b), c), dict(loss=criterion, optimizer=optimizer, data=loader, step=step), train, score


def sbm_graph(n=150, classes=3):
    g = torch.Generator().manual_seed(11)
    y = torch.randint(classes, (n,), generator=g)
    same = y[:, None] == y[None]
    A = (torch.rand(n, n, generator=g) < torch.where(same, 0.12, 0.015)).float()
    A = torch.triu(A, 1)
    A = A + A.T + torch.eye(n)
    d = A.sum(1).pow(-0.5)
    x = torch.randn(n, 16, generator=g)
    x[:, :classes] += F.one_hot(y, classes).float()
    return x, d[:, None] * A * d[None], y


@program
def gcn_pygcn_train_mask():
    x, adj, y = sbm_graph()
    idx_train, idx_test = torch.arange(60), torch.arange(60, 150)

    class GraphConvolution(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.weight, self.bias = nn.Parameter(torch.empty(i, o)), nn.Parameter(torch.empty(o))
            stdv = 1.0 / math.sqrt(o)
            self.weight.data.uniform_(-stdv, stdv)
            self.bias.data.uniform_(-stdv, stdv)

        def forward(self, input, adj):
            return torch.mm(adj, torch.mm(input, self.weight)) + self.bias

    class GCN(nn.Module):
        def __init__(self):
            super().__init__()
            self.gc1, self.gc2 = GraphConvolution(16, 16), GraphConvolution(16, 3)

        def forward(self, x, adj):
            x = F.dropout(F.relu(self.gc1(x, adj)), 0.5, training=self.training)
            return F.log_softmax(self.gc2(x, adj), dim=1)

    model = GCN()
    optimizer = optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)

    def train():
        model.train()
        for _ in range(200):
            optimizer.zero_grad()
            out = model(x, adj)
            F.nll_loss(out[idx_train], y[idx_train]).backward()
            optimizer.step()

    def score():
        model.eval()
        with torch.no_grad():
            return (model(x, adj)[idx_test].argmax(1) == y[idx_test]).float().mean().item()

    return (
        (model, (x, adj), y),
        dict(loss=lambda out, y: F.nll_loss(out[idx_train], y[idx_train]), optimizer=optimizer),
        train,
        score,
    )


@program
def pointnet_keras_port():
    g = torch.Generator().manual_seed(12)
    y = torch.randint(3, (400,), generator=g)
    p = torch.randn(400, 3, 32, generator=g)
    p = torch.where(
        (y == 0)[:, None, None],
        F.normalize(p, dim=1),
        torch.where((y == 1)[:, None, None], p.clamp(-0.7, 0.7), p * torch.tensor([1.5, 0.3, 0.6])[None, :, None]),
    )

    class PointNet(nn.Module):
        def __init__(self):
            super().__init__()

            def conv_bn(i, o):
                return nn.Sequential(nn.Conv1d(i, o, 1), nn.BatchNorm1d(o, momentum=0.1), nn.ReLU())

            self.net = nn.Sequential(conv_bn(3, 32), conv_bn(32, 32), conv_bn(32, 64))
            self.head = nn.Sequential(
                nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 3)
            )

        def forward(self, points):
            return self.head(self.net(points).max(2).values)

    model = PointNet()
    opt = optim.Adam(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(p[:320], y[:320]), 32, shuffle=True)

    def train():
        model.train()
        for _ in range(15):
            for a, b in loader:
                opt.zero_grad()
                F.cross_entropy(model(a), b).backward()
                opt.step()

    a, b = next(iter(loader))
    model.eval()
    return (
        (model, a, b),
        dict(loss=F.cross_entropy, optimizer=opt, data=loader),
        train,
        lambda: acc(model, p[320:], y[320:]),
    )


@program
def mixture_density_network():
    g = torch.Generator().manual_seed(13)
    yy = torch.rand(1000, 1, generator=g) * 20 - 10
    xx = torch.sin(0.75 * yy) * 7 + yy * 0.5 + torch.randn(1000, 1, generator=g) * 0.5

    class MDN(nn.Module):
        def __init__(self, n_hidden=20, n_gaussians=5):
            super().__init__()
            self.z_h = nn.Sequential(nn.Linear(1, n_hidden), nn.Tanh())
            self.z_pi, self.z_sigma, self.z_mu = (nn.Linear(n_hidden, n_gaussians) for _ in range(3))

        def forward(self, x):
            z_h = self.z_h(x)
            return F.softmax(self.z_pi(z_h), -1), torch.exp(self.z_sigma(z_h)), self.z_mu(z_h)

    def mdn_loss_fn(y, mu, sigma, pi):
        m = torch.distributions.Normal(loc=mu, scale=sigma)
        return -torch.log(torch.sum(torch.exp(m.log_prob(y)) * pi, dim=1) + 1e-12).mean()

    network = MDN()
    optimizer = optim.Adam(network.parameters(), lr=1e-2)

    def train():
        for _ in range(500):
            pi, sigma, mu = network(xx)
            loss = mdn_loss_fn(yy, mu, sigma, pi)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def score():
        with torch.no_grad():
            pi, sigma, mu = network(xx)
            return -mdn_loss_fn(yy, mu, sigma, pi).item()

    return (
        (network, xx, yy),
        dict(loss=lambda out, y: mdn_loss_fn(y, out[2], out[1], out[0]), optimizer=optimizer, data=(xx, yy)),
        train,
        score,
    )


@program
def pinn_forward_returns_loss():
    # u' = -u + ..., harmonic oscillator: u'' + u = 0, u(0) = 1, u'(0) = 0
    net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    t = torch.linspace(0, 3, 64).view(-1, 1)
    optimizer = optim.Adam(net.parameters(), lr=5e-3)

    def physics_loss(model, t):
        t = t.clone().requires_grad_(True)
        u = model(t)
        du = torch.autograd.grad(u, t, torch.ones_like(u), create_graph=True)[0]
        d2u = torch.autograd.grad(du, t, torch.ones_like(du), create_graph=True)[0]
        t0 = torch.zeros(1, 1, requires_grad=True)
        u0 = model(t0)
        du0 = torch.autograd.grad(u0, t0, torch.ones_like(u0), create_graph=True)[0]
        return ((d2u + u) ** 2).mean() + ((u0 - 1) ** 2).mean() + (du0**2).mean()

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        l = physics_loss(model, x)
        l.backward()
        optimizer.step()
        return l

    def train():
        for _ in range(600):
            step(net, optimizer, None, t, None)

    def score():
        with torch.no_grad():
            return -(net(t) - torch.cos(t)).pow(2).mean().item()

    return (net, t), dict(forward=physics_loss, optimizer=optimizer, step=step), train, score


@program
def quantile_regression_three():
    g = torch.Generator().manual_seed(14)
    x = torch.rand(1000, 1, generator=g) * 4 - 2
    y = torch.sin(2 * x) + (0.2 + 0.2 * x.abs()) * torch.randn(1000, 1, generator=g)
    quantiles = [0.1, 0.5, 0.9]

    class QuantileLoss(nn.Module):
        def forward(self, preds, target):
            losses = []
            for i, q in enumerate(quantiles):
                e = target[:, 0] - preds[:, i]
                losses.append(torch.max((q - 1) * e, q * e).unsqueeze(1))
            return torch.mean(torch.sum(torch.cat(losses, dim=1), dim=1))

    model = nn.Sequential(nn.Linear(1, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
    opt = optim.Adam(model.parameters(), lr=2e-3)
    data = TensorDataset(x, y)
    loss = QuantileLoss()

    def train():
        for _ in range(15):
            for a, b in DataLoader(data, 64, shuffle=True):
                opt.zero_grad()
                loss(model(a), b).backward()
                opt.step()

    def score():
        with torch.no_grad():
            return -loss(model(x), y).item()

    return (model, x[:128], y[:128]), dict(loss=loss, optimizer=opt, data=data), train, score


@program
def multitask_dict_targets():
    X, Y = digits()
    targets = {"digit": Y, "ink": X.mean(1, keepdim=True) * 10}

    class MultiTask(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk = nn.Sequential(nn.Linear(64, 64), nn.ReLU())
            self.heads = nn.ModuleDict({"digit": nn.Linear(64, 10), "ink": nn.Linear(64, 1)})

        def forward(self, x):
            h = self.trunk(x)
            return {k: head(h) for k, head in self.heads.items()}

    def criterion(out, t):
        return F.cross_entropy(out["digit"], t["digit"]) + 0.5 * F.mse_loss(out["ink"], t["ink"])

    class DS(Dataset):
        def __len__(self):
            return 1000

        def __getitem__(self, i):
            return X[i], {k: v[i] for k, v in targets.items()}

    loader = DataLoader(DS(), 64, shuffle=True)
    model = MultiTask()
    opt = optim.Adam(model.parameters(), lr=1e-3)

    def train():
        for _ in range(10):
            for a, b in loader:
                opt.zero_grad()
                criterion(model(a), b).backward()
                opt.step()

    def score():
        with torch.no_grad():
            return (model(X)["digit"].argmax(1) == Y).float().mean().item()

    a, b = next(iter(loader))
    return (model, a, b), dict(loss=criterion, optimizer=opt, data=loader), train, score


@program
def multilabel_pos_weight():
    g = torch.Generator().manual_seed(15)
    x = torch.randn(800, 20, generator=g)
    y = (x @ torch.randn(20, 6, generator=g) > 4.0).float()
    pos_weight = (y == 0).sum(0) / y.sum(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 6))
    criterion = nn.BCEWithLogitsLoss(pos_weight=pos_weight)
    opt = optim.AdamW(model.parameters(), lr=3e-3)
    loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)

    def train():
        for _ in range(15):
            for a, b in loader:
                opt.zero_grad()
                criterion(model(a), b).backward()
                opt.step()

    def score():
        with torch.no_grad():
            return -criterion(model(x), y).item()

    a, b = next(iter(loader))
    return (model, a, b), dict(loss=criterion, optimizer=opt, data=loader), train, score


# ---------------------------------------------------------------------- end of part 1

# ---------------------------------------------------------------------- part 2


@program
def focal_loss_imbalanced():
    X, Y = digits()
    y = (Y == 8).float()

    class FocalLoss(nn.Module):
        def __init__(self, alpha=0.75, gamma=2.0):
            super().__init__()
            self.alpha, self.gamma = alpha, gamma

        def forward(self, logits, targets):
            bce = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
            pt = torch.exp(-bce)
            a = self.alpha * targets + (1 - self.alpha) * (1 - targets)
            return (a * (1 - pt) ** self.gamma * bce).mean()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))

        def forward(self, x):
            return self.net(x).squeeze(-1)

    model, criterion = Net(), FocalLoss()
    opt = optim.Adam(model.parameters(), lr=2e-3)
    loader = DataLoader(TensorDataset(X, y), 128, shuffle=True)

    def train():
        for _ in range(25):
            for a, b in loader:
                opt.zero_grad()
                criterion(model(a), b).backward()
                opt.step()

    def score():
        with torch.no_grad():
            p = model(X) > 0
            return (2 * (p * y).sum() / (p.sum() + y.sum())).item()

    a, b = next(iter(loader))
    return (model, a, b), dict(loss=criterion, optimizer=opt, data=loader), train, score


@program
def ctc_crnn():
    g = torch.Generator().manual_seed(21)
    n, T = 256, 12
    labels = torch.randint(1, 5, (n, 3), generator=g)
    protos = torch.randn(5, 8, generator=g)
    frames = torch.zeros(n, T, dtype=torch.long)
    for k in range(3):
        frames[:, 1 + 4 * k : 3 + 4 * k] = labels[:, k : k + 1]
    x = protos[frames] + 0.3 * torch.randn(n, T, 8, generator=g)

    class CRNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv1d(8, 32, 3, padding=1)
            self.lstm = nn.LSTM(32, 32, bidirectional=True)
            self.fc = nn.Linear(64, 5)

        def forward(self, x):  # (N, T, 8) -> (T, N, C)
            h = F.relu(self.conv(x.transpose(1, 2))).permute(2, 0, 1)
            return self.fc(self.lstm(h)[0]).log_softmax(2)

    model = CRNN()
    ctc = nn.CTCLoss(blank=0, zero_infinity=True)

    def criterion(log_probs, y):
        N = log_probs.shape[1]
        return ctc(log_probs, y, torch.full((N,), T, dtype=torch.long), torch.full((N,), 3, dtype=torch.long))

    opt = optim.Adam(model.parameters(), lr=5e-3)
    loader = DataLoader(TensorDataset(x, labels), 64, shuffle=True)

    def train():
        for _ in range(30):
            for a, b in loader:
                opt.zero_grad()
                criterion(model(a), b).backward()
                opt.step()

    def score():
        with torch.no_grad():
            return -criterion(model(x), labels).item()

    a, b = next(iter(loader))
    return (model, a, b), dict(loss=criterion, optimizer=opt, data=loader), train, score


@program
def detection_dict_of_losses():
    # torchvision style: model(images, targets) -> dict of losses in train mode, list of dicts in eval mode
    g = torch.Generator().manual_seed(22)
    n = 256
    images, boxes, labels = (
        torch.randn(n, 1, 16, 16, generator=g) * 0.1,
        torch.zeros(n, 4),
        torch.randint(1, 3, (n,), generator=g),
    )
    for i in range(n):
        a, b = torch.randint(0, 10, (2,), generator=g).tolist()
        images[i, 0, a : a + 6, b : b + 6] += 1.0 if labels[i] == 1 else -1.0
        boxes[i] = torch.tensor([b, a, b + 6, a + 6]) / 16

    class Detector(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = nn.Sequential(
                nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten()
            )
            self.cls_score, self.bbox_pred = nn.Linear(512, 3), nn.Linear(512, 4)

        def forward(self, images, targets=None):
            h = self.backbone(torch.stack(list(images)))
            scores, deltas = self.cls_score(h), self.bbox_pred(h)
            if self.training:
                if targets is None:
                    raise ValueError("In training mode, targets should be passed")
                return {
                    "loss_classifier": F.cross_entropy(scores, torch.cat([t["labels"] for t in targets])),
                    "loss_box_reg": F.smooth_l1_loss(deltas, torch.cat([t["boxes"] for t in targets])),
                }
            return [
                {"boxes": d[None], "labels": s.argmax()[None], "scores": s.softmax(0).max()[None]}
                for s, d in zip(scores, deltas)
            ]

    class DS(Dataset):
        def __len__(self):
            return n

        def __getitem__(self, i):
            return images[i], {"boxes": boxes[i : i + 1], "labels": labels[i : i + 1]}

    loader = DataLoader(DS(), 32, shuffle=True, collate_fn=lambda b: tuple(zip(*b)))
    model = Detector()
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)

    def step(model, optimizer, loss, images, targets):
        loss_dict = model(images, targets)
        losses = sum(l for l in loss_dict.values())
        optimizer.zero_grad()
        losses.backward()
        optimizer.step()

    def train():
        for _ in range(15):
            for a, t in loader:
                step(model, optimizer, None, a, t)

    def score():
        with torch.no_grad():
            d = model(list(images), [{"boxes": boxes[i : i + 1], "labels": labels[i : i + 1]} for i in range(n)])
            return -sum(d.values()).item()

    a, t = next(iter(loader))
    return (model, a, t), dict(optimizer=optimizer, data=loader, step=step), train, score


@program
def arcface_head_takes_labels():
    X, Y = digits()

    class ArcMarginProduct(nn.Module):
        def __init__(self, i, o, s=16.0, m=0.2):
            super().__init__()
            self.s, self.m = s, m
            self.weight = nn.Parameter(torch.empty(o, i))
            nn.init.xavier_uniform_(self.weight)

        def forward(self, input, label):
            cosine = F.linear(F.normalize(input), F.normalize(self.weight))
            sine = torch.sqrt((1.0 - cosine.pow(2)).clamp(1e-6, 1))
            phi = cosine * math.cos(self.m) - sine * math.sin(self.m)
            one_hot = torch.zeros_like(cosine).scatter_(1, label.view(-1, 1).long(), 1)
            return (one_hot * phi + (1 - one_hot) * cosine) * self.s

    class FaceNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.PReLU(), nn.Linear(128, 32))
            self.head = ArcMarginProduct(32, 10)

        def forward(self, x, label):
            return self.head(self.backbone(x), label)

    model = FaceNet()
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    loader = DataLoader(TensorDataset(X[:1024], Y[:1024]), 64, shuffle=True, drop_last=True)

    def step(model, optimizer, loss, x, y):
        output = model(x, y)
        l = loss(output, y)
        optimizer.zero_grad()
        l.backward()
        optimizer.step()

    def train():
        for _ in range(10):
            for a, b in loader:
                step(model, optimizer, criterion, a, b)

    def score():
        model.eval()
        with torch.no_grad():
            c = F.linear(F.normalize(model.backbone(X[1024:])), F.normalize(model.head.weight))
        model.train()
        return (c.argmax(1) == Y[1024:]).float().mean().item()

    a, b = next(iter(loader))
    return (model, (a, b), b), dict(loss=criterion, optimizer=optimizer, step=step), train, score


@program
def distillation_frozen_teacher():
    X, Y = digits()
    teacher = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    t_opt = optim.Adam(teacher.parameters(), lr=5e-3)
    for _ in range(80):
        t_opt.zero_grad()
        F.cross_entropy(teacher(X), Y).backward()
        t_opt.step()
    teacher.eval()
    student = nn.Sequential(nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10))
    optimizer = optim.Adam(student.parameters(), lr=1e-3)
    ce_loss = nn.CrossEntropyLoss()
    loader = DataLoader(TensorDataset(X, Y), 64, shuffle=True)

    def step(student, optimizer, loss, inputs, labels, T=2, soft_weight=0.25, ce_weight=0.75):
        optimizer.zero_grad()
        with torch.no_grad():
            teacher_logits = teacher(inputs)
        student_logits = student(inputs)
        soft_targets = F.softmax(teacher_logits / T, dim=-1)
        soft_prob = F.log_softmax(student_logits / T, dim=-1)
        soft_loss = torch.sum(soft_targets * (soft_targets.log() - soft_prob)) / soft_prob.size()[0] * T**2
        l = soft_weight * soft_loss + ce_weight * loss(student_logits, labels)
        l.backward()
        optimizer.step()
        return l.item()

    def train():
        for _ in range(10):
            for a, b in loader:
                step(student, optimizer, ce_loss, a, b)

    a, b = next(iter(loader))
    return (
        (student, a, b),
        dict(loss=ce_loss, optimizer=optimizer, data=loader, step=step),
        train,
        lambda: acc(student, X, Y),
    )


@program
def student_teacher_in_one_module():
    X, Y = digits()

    class Distiller(nn.Module):
        def __init__(self):
            super().__init__()
            self.teacher = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
            self.student = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
            for p in self.teacher.parameters():
                p.requires_grad_(False)

        def forward(self, x):
            with torch.no_grad():
                t = self.teacher(x)
            return self.student(x), t

    model = Distiller()
    opt = optim.Adam(model.student.parameters(), lr=2e-3)
    for _ in range(1):
        sub = copy.deepcopy(model.teacher).requires_grad_(True)
        o = optim.Adam(sub.parameters(), lr=5e-3)
        for _ in range(80):
            o.zero_grad()
            F.cross_entropy(sub(X), Y).backward()
            o.step()
        model.teacher.load_state_dict(sub.state_dict())

    def loss_fn(outputs, labels):
        s, t = outputs
        return F.kl_div(F.log_softmax(s / 3, 1), F.softmax(t / 3, 1), reduction="batchmean") * 9 + F.cross_entropy(
            s, labels
        )

    def train():
        for _ in range(200):
            i = torch.randint(len(X), (64,))
            opt.zero_grad()
            loss_fn(model(X[i]), Y[i]).backward()
            opt.step()

    def score():
        with torch.no_grad():
            return (model(X)[0].argmax(1) == Y).float().mean().item()

    return (model, X[:128], Y[:128]), dict(loss=loss_fn, optimizer=opt, data=(X, Y)), train, score


def pretrained_cnn():
    X, Y = digits()
    X = X.view(-1, 1, 8, 8)
    net = nn.Sequential(
        OrderedDict(
            features=nn.Sequential(
                nn.Conv2d(1, 16, 3, padding=1),
                nn.BatchNorm2d(16),
                nn.ReLU(),
                nn.MaxPool2d(2),
                nn.Conv2d(16, 32, 3, padding=1),
                nn.BatchNorm2d(32),
                nn.ReLU(),
                nn.AdaptiveAvgPool2d(2),
                nn.Flatten(),
            ),
            fc=nn.Linear(128, 10),
        )
    )
    o = optim.Adam(net.parameters(), lr=5e-3)
    even = Y < 5
    for _ in range(60):
        i = torch.randint(int(even.sum()), (64,))
        o.zero_grad()
        F.cross_entropy(net(X[even][i]), Y[even][i]).backward()
        o.step()
    return net, X, Y


@program
def transfer_learning_frozen_backbone():
    # tutorials/beginner/transfer_learning: ConvNet as fixed feature extractor
    net, X, Y = pretrained_cnn()
    for param in net.parameters():
        param.requires_grad = False
    net.fc = nn.Linear(128, 10)
    criterion = nn.CrossEntropyLoss()
    optimizer_conv = optim.SGD(net.fc.parameters(), lr=0.01, momentum=0.9)
    exp_lr_scheduler = optim.lr_scheduler.StepLR(optimizer_conv, step_size=7, gamma=0.1)
    loader = DataLoader(TensorDataset(X[:1200], Y[:1200]), 32, shuffle=True)

    def train():
        for _ in range(8):
            for a, b in loader:
                optimizer_conv.zero_grad()
                with torch.set_grad_enabled(True):
                    outputs = net(a)
                    loss = criterion(outputs, b)
                    loss.backward()
                    optimizer_conv.step()
            exp_lr_scheduler.step()

    a, b = next(iter(loader))
    return (
        (net, a, b),
        dict(loss=criterion, optimizer=optimizer_conv, data=loader),
        train,
        lambda: acc(net, X[1200:], Y[1200:]),
    )


@program
def finetune_discriminative_rates():
    net, X, Y = pretrained_cnn()
    net.fc = nn.Linear(128, 10)
    opt = optim.AdamW(
        [{"params": net.features.parameters(), "lr": 1e-4}, {"params": net.fc.parameters(), "lr": 5e-3}],
        weight_decay=0.01,
    )
    train_set = TensorDataset(X[:1200], Y[:1200])

    def train():
        for _ in range(5):
            for a, b in DataLoader(train_set, 32, shuffle=True):
                opt.zero_grad()
                F.cross_entropy(net(a), b).backward()
                opt.step()

    return (
        (net, X[:100], Y[:100]),
        dict(loss=nn.CrossEntropyLoss(), optimizer=opt, data=train_set),
        train,
        lambda: acc(net, X[1200:], Y[1200:]),
    )


@program
def lora_adapters():
    class LoRALinear(nn.Module):
        def __init__(self, base, r=4, alpha=8):
            super().__init__()
            self.base = base.requires_grad_(False)
            self.lora_A = nn.Parameter(torch.empty(r, base.in_features))
            nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
            self.lora_B = nn.Parameter(torch.zeros(base.out_features, r))
            self.scaling = alpha / r

        def forward(self, x):
            return self.base(x) + (x @ self.lora_A.T @ self.lora_B.T) * self.scaling

    X, Y = digits()
    base = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    o = optim.Adam(base.parameters(), lr=3e-3)
    for _ in range(60):  # pretrained on permuted labels
        o.zero_grad()
        F.cross_entropy(base(X), (Y + 3) % 10).backward()
        o.step()
    model = nn.Sequential(LoRALinear(base[0]), nn.ReLU(), LoRALinear(base[2]), nn.ReLU(), LoRALinear(base[4]))
    optimizer = optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=5e-3)
    loader = DataLoader(TensorDataset(X, Y), 64, shuffle=True)

    def train():
        for _ in range(12):
            for a, b in loader:
                optimizer.zero_grad()
                F.cross_entropy(model(a), b).backward()
                optimizer.step()

    a, b = next(iter(loader))
    return (model, a, b), dict(loss=F.cross_entropy, optimizer=optimizer, data=loader), train, lambda: acc(model, X, Y)


@program
def ema_and_accumulation():
    X, Y = digits()
    X = X.view(-1, 1, 8, 8)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.GroupNorm(4, 16),
        nn.SiLU(),
        nn.Conv2d(16, 32, 3, 2, 1),
        nn.GroupNorm(4, 32),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )
    ema = optim.swa_utils.AveragedModel(model, multi_avg_fn=optim.swa_utils.get_ema_multi_avg_fn(0.95))
    optimizer = optim.AdamW(model.parameters(), lr=3e-3)
    criterion = nn.CrossEntropyLoss()
    accum = 2
    loader = DataLoader(TensorDataset(X[:1024], Y[:1024]), 64, shuffle=True)
    state = {"i": 0}

    def step(model, optimizer, loss, x, y):
        l = loss(model(x), y) / accum
        l.backward()
        state["i"] += 1
        if state["i"] % accum == 0:
            optimizer.step()
            optimizer.zero_grad()
            ema.update_parameters(model)
        return l

    def train():
        for _ in range(16):
            for a, b in loader:
                step(model, optimizer, criterion, a, b)

    a, b = next(iter(loader))
    return (
        (model, a, b),
        dict(loss=criterion, optimizer=optimizer, data=loader, step=step),
        train,
        lambda: acc(ema, X[1024:], Y[1024:]),
    )


@program
def reinforce_contextual_bandit():
    g = torch.Generator().manual_seed(23)
    W = torch.randn(8, 4, generator=g)

    def best(s):
        return (s @ W).argmax(1)

    policy = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 4))
    optimizer = optim.Adam(policy.parameters(), lr=5e-3)

    def step(policy, optimizer, loss, states, _):
        dist = torch.distributions.Categorical(logits=policy(states))
        actions = dist.sample()
        rewards = (actions == best(states)).float()
        policy_loss = -(dist.log_prob(actions) * (rewards - rewards.mean())).mean()
        optimizer.zero_grad()
        policy_loss.backward()
        optimizer.step()
        return policy_loss

    def train():
        for _ in range(500):
            step(policy, optimizer, None, torch.randn(128, 8), None)

    test = torch.randn(500, 8, generator=g)

    def score():
        with torch.no_grad():
            return (policy(test).argmax(1) == best(test)).float().mean().item()

    return (policy, torch.randn(128, 8)), dict(optimizer=optimizer, step=step), train, score


@program
def policy_gradient_logged_actions():
    # spinning-up: loss(log_probs of the actions taken, weights), data of (obs, (act, adv))
    g = torch.Generator().manual_seed(24)
    W = torch.randn(8, 4, generator=g)
    obs = torch.randn(1500, 8, generator=g)
    act = torch.randint(4, (1500,), generator=g)
    adv = (act == (obs @ W).argmax(1)).float() - 0.25
    logits_net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))
    optimizer = optim.Adam(logits_net.parameters(), lr=1e-2)

    def compute_loss(logits, batch):
        act, weights = batch
        logp = torch.distributions.Categorical(logits=logits).log_prob(act)
        return -(logp * weights).mean()

    def train():
        for _ in range(150):
            i = torch.randint(1500, (256,))
            optimizer.zero_grad()
            compute_loss(logits_net(obs[i]), (act[i], adv[i])).backward()
            optimizer.step()

    def score():
        with torch.no_grad():
            return (logits_net(obs).argmax(1) == (obs @ W).argmax(1)).float().mean().item()

    return (logits_net, obs[:256], (act[:256], adv[:256])), dict(loss=compute_loss, optimizer=optimizer), train, score


@program
def dqn_half():
    # tutorials/intermediate/reinforcement_q_learning: policy_net, target_net, replay memory, AdamW amsgrad, clip_grad_value_
    g = torch.Generator().manual_seed(25)
    W = torch.randn(4, 2, generator=g)
    N = 2000
    state, action = torch.randn(N, 4, generator=g), torch.randint(2, (N, 1), generator=g)
    reward = (action[:, 0] == (state @ W).argmax(1)).float()
    next_state = torch.randn(N, 4, generator=g)

    class DQN(nn.Module):
        def __init__(self, n_observations=4, n_actions=2):
            super().__init__()
            self.layer1, self.layer2, self.layer3 = (
                nn.Linear(n_observations, 64),
                nn.Linear(64, 64),
                nn.Linear(64, n_actions),
            )

        def forward(self, x):
            return self.layer3(F.relu(self.layer2(F.relu(self.layer1(x)))))

    policy_net, target_net = DQN(), DQN()
    target_net.load_state_dict(policy_net.state_dict())
    optimizer = optim.AdamW(policy_net.parameters(), lr=1e-3, amsgrad=True)
    criterion = nn.SmoothL1Loss()
    GAMMA, TAU = 0.5, 0.05

    def step(policy_net, optimizer, criterion, batch, _):
        s, a, r, s2 = batch
        q = policy_net(s).gather(1, a)
        with torch.no_grad():
            nxt = target_net(s2).max(1).values
        expected = nxt * GAMMA + r
        loss = criterion(q, expected.unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(policy_net.parameters(), 100)
        optimizer.step()
        for t, p in zip(target_net.parameters(), policy_net.parameters()):
            t.data.mul_(1 - TAU).add_(p.data, alpha=TAU)
        return loss

    def train():
        for _ in range(400):
            i = torch.randint(N, (128,))
            step(policy_net, optimizer, criterion, (state[i], action[i], reward[i], next_state[i]), None)

    def score():
        with torch.no_grad():
            return (policy_net(state).argmax(1) == (state @ W).argmax(1)).float().mean().item()

    batch = (state[:128], action[:128], reward[:128], next_state[:128])
    return (
        (policy_net, batch),
        dict(forward=lambda m, b: m(b[0]).gather(1, b[1]), loss=criterion, optimizer=optimizer, step=step),
        train,
        score,
    )


@program
def tabular_embeddings_and_floats():
    # fastai tabular: model(x_cat, x_cont)
    g = torch.Generator().manual_seed(26)
    n = 1500
    x_cat = torch.stack([torch.randint(k, (n,), generator=g) for k in (7, 12, 4)], 1)
    x_cont = torch.randn(n, 5, generator=g)
    effects = [torch.randn(k, generator=g) for k in (7, 12, 4)]
    y = (
        sum(e[x_cat[:, i]] for i, e in enumerate(effects))
        + x_cont @ torch.randn(5, generator=g) * 0.7
        + 0.1 * torch.randn(n, generator=g)
    )
    y = y.unsqueeze(1)

    class TabularModel(nn.Module):
        def __init__(self):
            super().__init__()
            self.embeds = nn.ModuleList([nn.Embedding(k, min(50, (k + 1) // 2)) for k in (7, 12, 4)])
            self.emb_drop, self.bn_cont = nn.Dropout(0.05), nn.BatchNorm1d(5)
            self.layers = nn.Sequential(
                nn.Linear(4 + 6 + 2 + 5, 64),
                nn.ReLU(),
                nn.BatchNorm1d(64),
                nn.Dropout(0.1),
                nn.Linear(64, 32),
                nn.ReLU(),
                nn.BatchNorm1d(32),
                nn.Linear(32, 1),
            )

        def forward(self, x_cat, x_cont):
            x = torch.cat([e(x_cat[:, i]) for i, e in enumerate(self.embeds)], 1)
            return self.layers(torch.cat([self.emb_drop(x), self.bn_cont(x_cont)], 1))

    class Rows(Dataset):
        def __len__(self):
            return n

        def __getitem__(self, i):
            return (x_cat[i], x_cont[i]), y[i]

    loader = DataLoader(Rows(), 64, shuffle=True, drop_last=True)
    model = TabularModel()
    opt = optim.Adam(model.parameters(), lr=5e-3)
    loss = nn.MSELoss()

    def train():
        for _ in range(10):
            for x, t in loader:
                opt.zero_grad()
                loss(model(*x), t).backward()
                opt.step()

    def score():
        model.eval()
        with torch.no_grad():
            s = -loss(model(x_cat, x_cont), y).item()
        model.train()
        return s

    x, t = next(iter(loader))
    return (model, tuple(x), t), dict(loss=loss, optimizer=opt, data=loader), train, score


@program
def nan_masked_regression():
    g = torch.Generator().manual_seed(27)
    x = torch.randn(800, 10, generator=g)
    y = torch.tanh(x @ torch.randn(10, 4, generator=g))
    y[torch.rand(800, 4, generator=g) < 0.3] = float("nan")

    def masked_mse(pred, target):
        mask = ~torch.isnan(target)
        return F.mse_loss(pred[mask], target[mask])

    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    opt = optim.Adam(model.parameters(), lr=2e-3)
    loader = DataLoader(TensorDataset(x, y), 64, shuffle=True)

    def train():
        for _ in range(15):
            for a, b in loader:
                opt.zero_grad()
                masked_mse(model(a), b).backward()
                opt.step()

    def score():
        with torch.no_grad():
            return -masked_mse(model(x), y).item()

    a, b = next(iter(loader))
    return (model, a, b), dict(loss=masked_mse, optimizer=opt, data=loader), train, score


@program
def weighted_samples_in_loader():
    X, Y = digits()
    w = torch.where(Y < 3, 3.0, 1.0)
    loader = DataLoader(TensorDataset(X, Y, w), batch_size=64, shuffle=True)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    criterion = nn.CrossEntropyLoss(reduction="none")
    optimizer = optim.Adam(model.parameters(), lr=2e-3)

    def weighted(out, target):
        y, w = target
        return (criterion(out, y) * w).mean()

    def step(model, optimizer, loss, x, target):
        optimizer.zero_grad()
        l = loss(model(x), target)
        l.backward()
        optimizer.step()

    def train():
        for _ in range(10):
            for a, b, c in loader:
                step(model, optimizer, weighted, a, (b, c))

    x, y, weight = next(iter(loader))
    return (
        (model, x, (y, weight)),
        dict(loss=weighted, optimizer=optimizer, data=loader),
        train,
        lambda: acc(model, X, Y),
    )


@program
def mixup_step():
    X, Y = digits()
    X = X.view(-1, 1, 8, 8)

    def mixup_data(x, y, alpha=1.0):
        lam = np.random.beta(alpha, alpha)
        index = torch.randperm(len(x))
        return lam * x + (1 - lam) * x[index], y, y[index], lam

    def mixup_criterion(criterion, pred, y_a, y_b, lam):
        return lam * criterion(pred, y_a) + (1 - lam) * criterion(pred, y_b)

    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    trainloader = DataLoader(TensorDataset(X[:1280], Y[:1280]), batch_size=64, shuffle=True)

    def step(net, optimizer, criterion, inputs, targets):
        inputs, targets_a, targets_b, lam = mixup_data(inputs, targets)
        outputs = net(inputs)
        loss = mixup_criterion(criterion, outputs, targets_a, targets_b, lam)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def train():
        for _ in range(8):
            for a, b in trainloader:
                step(net, optimizer, criterion, a, b)

    a, b = next(iter(trainloader))
    return (
        (net, a, b),
        dict(loss=criterion, optimizer=optimizer, data=trainloader, step=step),
        train,
        lambda: acc(net, X[1280:], Y[1280:]),
    )


@program
def soft_labels():
    X, Y = digits()
    soft = 0.8 * F.one_hot(Y, 10).float() + 0.2 * torch.softmax(
        torch.randn(len(Y), 10, generator=torch.Generator().manual_seed(3)), 1
    )
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 10))
    optimizer = optim.Adam(model.parameters(), lr=2e-3)

    def soft_cross_entropy(logits, q):
        return -(q * F.log_softmax(logits, dim=-1)).sum(-1).mean()

    loader = DataLoader(TensorDataset(X, soft), 64, shuffle=True)

    def train():
        for _ in range(8):
            for a, b in loader:
                optimizer.zero_grad()
                soft_cross_entropy(model(a), b).backward()
                optimizer.step()

    a, b = next(iter(loader))
    return (
        (model, a, b),
        dict(loss=soft_cross_entropy, optimizer=optimizer, data=loader),
        train,
        lambda: acc(model, X, Y),
    )


def moons(n=1000):
    g = torch.Generator().manual_seed(28)
    t = torch.rand(n, generator=g) * math.pi
    up = torch.rand(n, generator=g) < 0.5
    x = torch.stack([torch.where(up, t.cos(), 1 - t.cos()), torch.where(up, t.sin(), 0.5 - t.sin())], 1)
    return x + 0.06 * torch.randn(n, 2, generator=g), up.long()


@program
def realnvp_forward_log_prob():
    class RealNVP(nn.Module):
        def __init__(self, layers=6):
            super().__init__()
            self.register_buffer("mask", torch.tensor([[0.0, 1.0], [1.0, 0.0]] * (layers // 2)))

            def net(last):
                return nn.Sequential(
                    nn.Linear(2, 48), nn.LeakyReLU(), nn.Linear(48, 48), nn.LeakyReLU(), nn.Linear(48, 2), *last
                )

            self.s = nn.ModuleList([net([nn.Tanh()]) for _ in range(layers)])
            self.t = nn.ModuleList([net([]) for _ in range(layers)])

        def forward(self, x):  # log-probability of each point
            log_det, z = x.new_zeros(len(x)), x
            for i in reversed(range(len(self.t))):
                z_ = self.mask[i] * z
                s, t = self.s[i](z_) * (1 - self.mask[i]), self.t[i](z_) * (1 - self.mask[i])
                z = (1 - self.mask[i]) * (z - t) * torch.exp(-s) + z_
                log_det = log_det - s.sum(1)
            return -0.5 * (z**2).sum(1) - math.log(2 * math.pi) + log_det

    x, _ = moons()
    flow = RealNVP()
    optimizer = optim.Adam(flow.parameters(), lr=2e-3)
    loader = DataLoader(TensorDataset(x), batch_size=128, shuffle=True)

    def train():
        for _ in range(40):
            for (b,) in loader:
                loss = -flow(b).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    def score():
        with torch.no_grad():
            return flow(x).mean().item()

    return (
        (flow, x[:128]),
        dict(loss=lambda log_prob, _: -log_prob.mean(), optimizer=optimizer, data=loader),
        train,
        score,
    )


@program
def energy_based_contrastive():
    x, _ = moons()

    class Energy(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))

        def forward(self, x):
            return self.net(x).squeeze(-1)

    model = Energy()
    opt = optim.Adam(model.parameters(), lr=2e-3)

    def noise(n):
        return torch.rand(n, 2) * torch.tensor([4.0, 2.5]) - torch.tensor([1.5, 1.0])

    def step(model, optimizer, loss, x_pos, _):
        x_neg = noise(len(x_pos))
        e_pos, e_neg = model(x_pos), model(x_neg)
        l = F.softplus(e_pos).mean() + F.softplus(-e_neg).mean() + 1e-3 * (e_pos**2 + e_neg**2).mean()
        optimizer.zero_grad()
        l.backward()
        optimizer.step()
        return l

    def train():
        for _ in range(300):
            step(model, opt, None, x[torch.randint(len(x), (128,))], None)

    def score():
        with torch.no_grad():
            return (model(noise(500)).mean() - model(x).mean()).item()

    return (
        (model, x[:128]),
        dict(optimizer=opt, step=step, data=DataLoader(TensorDataset(x), 128, shuffle=True)),
        train,
        score,
    )


@program
def spectral_and_weight_norm():
    X, Y = digits()
    sn, wn = nn.utils.parametrizations.spectral_norm, nn.utils.parametrizations.weight_norm
    model = nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        sn(nn.Conv2d(1, 16, 3, padding=1)),
        nn.LeakyReLU(0.1),
        sn(nn.Conv2d(16, 32, 4, 2, 1)),
        nn.LeakyReLU(0.1),
        nn.Flatten(),
        wn(nn.Linear(512, 64)),
        nn.ReLU(),
        wn(nn.Linear(64, 10)),
    )
    opt = optim.Adam(model.parameters(), lr=2e-3)
    loader = DataLoader(TensorDataset(X, Y), 64, shuffle=True)

    def train():
        for _ in range(5):
            for a, b in loader:
                opt.zero_grad()
                F.cross_entropy(model(a), b).backward()
                opt.step()

    a, b = next(iter(loader))
    return (model, a, b), dict(loss=nn.CrossEntropyLoss(), optimizer=opt, data=loader), train, lambda: acc(model, X, Y)


@program
def deep_supervision_list():
    x, m = shapes()

    class NestedNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.unet, self.aux = UNet(1, 8), nn.ModuleList([nn.Conv2d(12, 3, 1)])
            self.final = nn.Conv2d(8, 3, 1)

        def forward(self, x):
            a = self.unet.inc(x)
            return [F.interpolate(self.aux[0](F.avg_pool2d(a, 2)), scale_factor=2), self.final(F.relu(self.unet(x)))]

    criterion = nn.CrossEntropyLoss()

    def loss_fn(outputs, target):
        loss = 0
        for output in outputs:
            loss += criterion(output, target)
        loss /= len(outputs)
        return loss

    model = NestedNet()
    opt = optim.Adam(model.parameters(), lr=3e-3)
    loader = DataLoader(TensorDataset(x, m), 16, shuffle=True)

    def train():
        for _ in range(5):
            for a, b in loader:
                opt.zero_grad()
                loss_fn(model(a), b).backward()
                opt.step()

    def score():
        with torch.no_grad():
            return -criterion(model(x[:64])[-1], m[:64]).item()

    a, b = next(iter(loader))
    return (model, a, b), dict(loss=loss_fn, optimizer=opt, data=loader), train, score


@program
def gradient_checkpointing_bf16_autocast():
    from torch.utils.checkpoint import checkpoint

    X, Y = digits()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Linear(8, 32)
            self.blocks = nn.ModuleList(
                [nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True, norm_first=True) for _ in range(2)]
            )
            self.head = nn.Linear(32, 10)

        def forward(self, x):
            x = self.embed(x)
            for b in self.blocks:
                x = checkpoint(b, x, use_reentrant=False)
            return self.head(x.mean(1))

    rows = X.view(-1, 8, 8)
    model = Net()
    optimizer = optim.AdamW(model.parameters(), lr=3e-3)
    criterion = nn.CrossEntropyLoss()
    loader = DataLoader(TensorDataset(rows, Y), 64, shuffle=True)

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
            l = loss(model(x), y)
        l.backward()
        optimizer.step()
        return l

    def train():
        for _ in range(5):
            for a, b in loader:
                step(model, optimizer, criterion, a, b)

    a, b = next(iter(loader))
    return (
        (model, a, b),
        dict(loss=criterion, optimizer=optimizer, data=loader, step=step),
        train,
        lambda: acc(model, rows, Y),
    )


# ---------------------------------------------------------------------- end of part 2

# ---------------------------------------------------------------------- part 3


class LightningLike(nn.Module):
    """What a LightningModule gives, without the package."""

    def log(self, *args, **kwargs):
        pass

    def log_dict(self, *args, **kwargs):
        pass


@program
def lightning_tuple_batch():
    X, Y = digits()

    class LitClassifier(LightningLike):
        def __init__(self, lr=1e-3):
            super().__init__()
            self.lr = lr
            self.l1, self.l2 = nn.Linear(64, 128), nn.Linear(128, 10)

        def forward(self, x):
            return self.l2(torch.relu(self.l1(x.view(x.size(0), -1))))

        def training_step(self, batch, batch_idx):
            x, y = batch
            loss = F.cross_entropy(self(x), y)
            self.log("train_loss", loss)
            return loss

        def configure_optimizers(self):
            return optim.Adam(self.parameters(), lr=self.lr)

    model = LitClassifier()
    opt = model.configure_optimizers()
    loader = DataLoader(TensorDataset(X.view(-1, 1, 8, 8), Y), batch_size=64, shuffle=True)

    def train():
        for _ in range(10):
            for i, b in enumerate(loader):
                opt.zero_grad()
                model.training_step(b, i).backward()
                opt.step()

    return (model, next(iter(loader))), dict(optimizer=opt, data=loader), train, lambda: acc(model, X, Y)


@program
def lightning_dict_batch_scheduler():
    ids, mask, y = text_pairs()

    class LitText(LightningLike):
        def __init__(self):
            super().__init__()
            self.bert = MiniBert()

        def forward(self, **inputs):
            return self.bert(**inputs)

        def training_step(self, batch, batch_idx):
            out = self(**batch)
            self.log("loss", out.loss)
            return {"loss": out.loss}

        def configure_optimizers(self):
            o = optim.AdamW(self.parameters(), lr=1e-3, eps=1e-8)
            return [o], [{"scheduler": optim.lr_scheduler.LambdaLR(o, lambda s: 1.0), "interval": "step"}]

    model = LitText()
    opt = model.configure_optimizers()[0][0]
    loader = DataLoader(DictDataset(input_ids=ids, attention_mask=mask, labels=y), batch_size=32, shuffle=True)

    def train():
        for _ in range(8):
            for i, b in enumerate(loader):
                opt.zero_grad()
                model.training_step(b, i)["loss"].backward()
                opt.step()

    def score():
        model.eval()
        with torch.no_grad():
            a = (model(input_ids=ids, attention_mask=mask).logits.argmax(1) == y).float().mean().item()
        model.train()
        return a

    return (model, next(iter(loader))), dict(optimizer=opt, data=loader), train, score


@program
def lightning_autoencoder_tutorial():
    X, Y = digits()

    class LitAutoEncoder(LightningLike):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
            self.decoder = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64))

        def training_step(self, batch, batch_idx):
            x, _ = batch
            x = x.view(x.size(0), -1)
            z = self.encoder(x)
            x_hat = self.decoder(z)
            return F.mse_loss(x_hat, x)

        def configure_optimizers(self):
            return optim.Adam(self.parameters(), lr=1e-3)

    model = LitAutoEncoder()
    opt = model.configure_optimizers()
    loader = DataLoader(TensorDataset(X.view(-1, 1, 8, 8), Y), 64, shuffle=True)

    def train():
        for _ in range(12):
            for i, b in enumerate(loader):
                opt.zero_grad()
                model.training_step(b, i).backward()
                opt.step()

    def score():
        with torch.no_grad():
            return -model.training_step((X, Y), 0).item()

    return (model, next(iter(loader))), dict(optimizer=opt, data=loader), train, score


@program
def iterable_dataset_regression():
    W = torch.randn(10, 1, generator=torch.Generator().manual_seed(31))

    class Stream(IterableDataset):
        def __init__(self, n=1000):
            self.n = n

        def __iter__(self):
            g = torch.Generator().manual_seed(0)
            for _ in range(self.n):
                x = torch.randn(10, generator=g)
                yield x, torch.sin(x @ W) + 0.05 * torch.randn(1, generator=g)

    loader = DataLoader(Stream(), batch_size=50)
    model = nn.Sequential(nn.Linear(10, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
    opt = optim.Adam(model.parameters(), lr=3e-3)
    loss = nn.HuberLoss()

    def train():
        for _ in range(10):
            for a, b in loader:
                opt.zero_grad()
                loss(model(a), b).backward()
                opt.step()

    def score():
        with torch.no_grad():
            return -sum(loss(model(a), b).item() for a, b in loader) / 20

    x, y = next(iter(loader))
    return (model, x, y), dict(loss=loss, optimizer=opt, data=loader), train, score


@program
def numpy_dataset_keras_mlp_port():
    d = digits()

    class NumpyDataset(Dataset):
        def __init__(self):
            self.x, self.y = (
                d[0].numpy(),
                np.eye(10, dtype=np.float32)[d[1].numpy()],
            )  # one-hot, keras.utils.to_categorical

        def __len__(self):
            return len(self.x)

        def __getitem__(self, i):
            return self.x[i], self.y[i]

    data = NumpyDataset()
    model = nn.Sequential(
        nn.Linear(64, 128),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(128, 128),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(128, 10),
    )
    for m in model:
        if isinstance(m, nn.Linear):
            nn.init.xavier_uniform_(m.weight)
            nn.init.zeros_(m.bias)
    opt = optim.RMSprop(model.parameters(), lr=1e-3, alpha=0.9, eps=1e-7)
    loss = nn.CrossEntropyLoss()
    loader = DataLoader(data, batch_size=128, shuffle=True)

    def train():
        for _ in range(12):
            for a, b in loader:
                opt.zero_grad()
                loss(model(a), b).backward()
                opt.step()

    X, Y = digits()
    x, y = next(iter(loader))
    return (model, x, y), dict(loss=loss, optimizer=opt, data=data), train, lambda: acc(model, X, Y)


@program
def generator_function_as_data():
    X, Y = digits()

    def data_iter(batch_size, features, labels):  # d2l
        idx = list(range(len(features)))
        random.shuffle(idx)
        for i in range(0, len(idx), batch_size):
            j = torch.tensor(idx[i : i + batch_size])
            yield features[j], labels[j]

    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    net.apply(lambda m: nn.init.normal_(m.weight, std=0.01) if type(m) == nn.Linear else None)
    trainer = optim.SGD(net.parameters(), lr=0.5)
    loss = nn.CrossEntropyLoss(reduction="none")

    def train():
        for _ in range(10):
            for a, b in data_iter(64, X, Y):
                trainer.zero_grad()
                loss(net(a), b).mean().backward()
                trainer.step()

    x, y = next(data_iter(128, X, Y))
    return (
        (net, x, y),
        dict(loss=lambda out, y: loss(out, y).mean(), optimizer=trainer, data=lambda: data_iter(64, X, Y)),
        train,
        lambda: acc(net, X, Y),
    )


@program
def lbfgs_closure_sine():
    # pytorch/examples time_sequence_prediction, smaller; float64, LBFGS
    T = 20
    t = torch.arange(60, dtype=torch.float64)
    shift = torch.randint(-20, 20, (24, 1), generator=torch.Generator().manual_seed(2)).double()
    data = torch.sin((t[None] + shift) / T * 4)
    inp, target = data[:, :-1], data[:, 1:]

    class Sequence(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm1, self.lstm2, self.linear = nn.LSTMCell(1, 16), nn.LSTMCell(16, 16), nn.Linear(16, 1)

        def forward(self, input, future=0):
            outputs = []
            z = lambda: torch.zeros(input.size(0), 16, dtype=torch.double)
            h_t, c_t, h_t2, c_t2 = z(), z(), z(), z()
            for input_t in input.split(1, dim=1):
                h_t, c_t = self.lstm1(input_t, (h_t, c_t))
                h_t2, c_t2 = self.lstm2(h_t, (h_t2, c_t2))
                output = self.linear(h_t2)
                outputs += [output]
            return torch.cat(outputs, dim=1)

    seq = Sequence().double()
    criterion = nn.MSELoss()
    optimizer = optim.LBFGS(seq.parameters(), lr=0.8, max_iter=5)

    def step(model, optimizer, loss, x, y):
        def closure():
            optimizer.zero_grad()
            out = model(x)
            l = loss(out, y)
            l.backward()
            return l

        return optimizer.step(closure)

    def train():
        for _ in range(6):
            step(seq, optimizer, criterion, inp, target)

    def score():
        with torch.no_grad():
            return -criterion(seq(inp), target).item()

    return (seq, inp, target), dict(loss=criterion, optimizer=optimizer, step=step), train, score


@program
def custom_optimizer_lion_float64():
    class Lion(optim.Optimizer):
        def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
            super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

        @torch.no_grad()
        def step(self, closure=None):
            loss = None
            if closure is not None:
                with torch.enable_grad():
                    loss = closure()
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is None:
                        continue
                    p.data.mul_(1 - group["lr"] * group["weight_decay"])
                    state = self.state[p]
                    if len(state) == 0:
                        state["exp_avg"] = torch.zeros_like(p)
                    b1, b2 = group["betas"]
                    update = state["exp_avg"] * b1 + p.grad * (1 - b1)
                    p.add_(update.sign_(), alpha=-group["lr"])
                    state["exp_avg"].mul_(b2).add_(p.grad, alpha=1 - b2)
            return loss

    g = torch.Generator().manual_seed(33)
    x = torch.randn(600, 6, generator=g, dtype=torch.float64)
    y = (x[:, :1] * x[:, 1:2] + x[:, 2:3]).tanh()
    model = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)).double()
    opt = Lion(model.parameters(), lr=1e-3, weight_decay=1e-2)
    loss = nn.MSELoss()

    def train():
        for _ in range(25):
            for a, b in DataLoader(TensorDataset(x, y), 64, shuffle=True):
                opt.zero_grad()
                loss(model(a), b).backward()
                opt.step()

    def score():
        with torch.no_grad():
            return -loss(model(x), y).item()

    return (model, x[:128], y[:128]), dict(loss=loss, optimizer=opt, data=(x, y)), train, score


@program
def adagrad_uncertainty_weighting_loss_module():
    # a loss with parameters of its own (Kendall et al.), in the optimizer too
    X, Y = digits()
    ink = X.mean(1) * 4

    class MultiTaskLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.log_vars = nn.Parameter(torch.zeros(2))

        def forward(self, outputs, targets):
            cls, reg = outputs
            y, r = targets
            p = torch.exp(-self.log_vars)
            return p[0] * F.cross_entropy(cls, y) + self.log_vars[0] + p[1] * F.mse_loss(reg, r) + self.log_vars[1]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.cls, self.reg = (
                nn.Sequential(nn.Linear(64, 64), nn.ReLU()),
                nn.Linear(64, 10),
                nn.Linear(64, 1),
            )

        def forward(self, x):
            h = self.body(x)
            return self.cls(h), self.reg(h).squeeze(1)

    model, criterion = Net(), MultiTaskLoss()
    optimizer = optim.Adagrad(list(model.parameters()) + list(criterion.parameters()), lr=0.02)

    class DS(Dataset):
        def __len__(self):
            return len(X)

        def __getitem__(self, i):
            return X[i], (Y[i], ink[i])

    loader = DataLoader(DS(), 64, shuffle=True)

    def train():
        for _ in range(6):
            for a, b in loader:
                optimizer.zero_grad()
                criterion(model(a), b).backward()
                optimizer.step()

    def score():
        with torch.no_grad():
            return (model(X)[0].argmax(1) == Y).float().mean().item()

    a, b = next(iter(loader))
    return (model, a, b), dict(loss=criterion, optimizer=optimizer, data=loader), train, score


@program
def mnist_example_adadelta_eval_mode():
    # pytorch/examples mnist: Adadelta lr 1, StepLR, log_softmax and nll_loss; handed over in eval mode
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 16, 3, 1), nn.Conv2d(16, 32, 3, 1)
            self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
            self.fc1, self.fc2 = nn.Linear(128, 64), nn.Linear(64, 10)

        def forward(self, x):
            x = F.relu(self.conv2(F.relu(self.conv1(x))))
            x = torch.flatten(self.dropout1(F.max_pool2d(x, 2)), 1)
            return F.log_softmax(self.fc2(self.dropout2(F.relu(self.fc1(x)))), dim=1)

    X, Y = digits()
    X = X.view(-1, 1, 8, 8)
    model = Net()
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    train_loader = DataLoader(TensorDataset(X[:1400], Y[:1400]), batch_size=64, shuffle=True)

    def train():
        model.train()
        for _ in range(10):
            for a, b in train_loader:
                optimizer.zero_grad()
                F.nll_loss(model(a), b).backward()
                optimizer.step()
            scheduler.step()

    a, b = next(iter(train_loader))
    model.eval()
    return (
        (model, a, b),
        dict(loss=F.nll_loss, optimizer=optimizer, data=train_loader),
        train,
        lambda: acc(model, X[1400:], Y[1400:]),
    )


@program
def sparse_adam_word2vec_negative_sampling():
    # skip-gram with negative sampling, sparse embeddings, model(pos_u, pos_v, neg_v) returns the loss
    s = markov(60, 1, 6000, peak=8.0)[0]
    u, v = s[:-1], s[1:]

    class SkipGramModel(nn.Module):
        def __init__(self, emb_size=60, dim=24):
            super().__init__()
            self.u_embeddings = nn.Embedding(emb_size, dim, sparse=True)
            self.v_embeddings = nn.Embedding(emb_size, dim, sparse=True)
            nn.init.uniform_(self.u_embeddings.weight.data, -1.0 / dim, 1.0 / dim)
            nn.init.constant_(self.v_embeddings.weight.data, 0)

        def forward(self, pos_u, pos_v, neg_v):
            emb_u, emb_v, emb_neg_v = self.u_embeddings(pos_u), self.v_embeddings(pos_v), self.v_embeddings(neg_v)
            score = -F.logsigmoid(torch.clamp(torch.sum(emb_u * emb_v, dim=1), -10, 10))
            neg = -torch.sum(
                F.logsigmoid(-torch.clamp(torch.bmm(emb_neg_v, emb_u.unsqueeze(2)).squeeze(2), -10, 10)), dim=1
            )
            return torch.mean(score + neg)

    class Pairs(Dataset):
        def __len__(self):
            return len(u)

        def __getitem__(self, i):
            return u[i], v[i], torch.randint(60, (5,))

    model = SkipGramModel()
    optimizer = optim.SparseAdam(list(model.parameters()), lr=0.01)
    loader = DataLoader(Pairs(), batch_size=128, shuffle=True)

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        l = model(*x)
        l.backward()
        optimizer.step()
        return l

    def train():
        for _ in range(4):
            for b in loader:
                step(model, optimizer, None, b, None)

    def score():
        torch.manual_seed(0)
        with torch.no_grad():
            return -model(u, v, torch.randint(60, (len(u), 5))).item()

    return (model, tuple(next(iter(loader)))), dict(optimizer=optimizer, data=loader, step=step), train, score


@program
def sparse_embedding_bag_textcls():
    # tutorials/beginner/text_sentiment_ngrams: EmbeddingBag with offsets, collate_batch
    rows, labels = padded_reviews()

    def collate_batch(batch):
        text, label = zip(*batch)
        offsets = torch.tensor([0] + [len(t) for t in text[:-1]]).cumsum(0)
        return torch.stack(label), torch.cat(text), offsets

    class TextClassificationModel(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.EmbeddingBag(50, 32, sparse=False)
            self.fc = nn.Linear(32, 2)
            self.embedding.weight.data.uniform_(-0.5, 0.5)
            self.fc.weight.data.uniform_(-0.5, 0.5)
            self.fc.bias.data.zero_()

        def forward(self, text, offsets):
            return self.fc(self.embedding(text, offsets))

    loader = DataLoader(list(zip(rows, labels)), batch_size=32, shuffle=True, collate_fn=collate_batch)
    model = TextClassificationModel()
    criterion = nn.CrossEntropyLoss()
    optimizer = optim.SGD(model.parameters(), lr=5.0)

    def train():
        for _ in range(10):
            for label, text, offsets in loader:
                optimizer.zero_grad()
                loss = criterion(model(text, offsets), label)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 0.1)
                optimizer.step()

    def score():
        label, text, offsets = collate_batch(list(zip(rows, labels)))
        return (model(text, offsets).argmax(1) == label).float().mean().item()

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        loss(model(*x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()

    label, text, offsets = next(iter(loader))
    return (model, (text, offsets), label), dict(loss=criterion, optimizer=optimizer, step=step), train, score


@program
def moe_with_auxiliary_loss():
    X, Y = digits()

    class MoE(nn.Module):
        def __init__(self, d=64, experts=4):
            super().__init__()
            self.gate = nn.Linear(d, experts)
            self.experts = nn.ModuleList(
                [nn.Sequential(nn.Linear(d, 48), nn.ReLU(), nn.Linear(48, 10)) for _ in range(experts)]
            )

        def forward(self, x):
            probs = F.softmax(self.gate(x), -1)
            top, idx = probs.topk(2, -1)
            gates = torch.zeros_like(probs).scatter(1, idx, top / top.sum(-1, keepdim=True))
            out = sum(gates[:, k : k + 1] * e(x) for k, e in enumerate(self.experts))
            load = (gates > 0).float().mean(0)
            return out, 4 * (load * probs.mean(0)).sum()

    model = MoE()
    opt = optim.Adam(model.parameters(), lr=2e-3)
    loss = lambda out, y: F.cross_entropy(out[0], y) + 0.01 * out[1]
    loader = DataLoader(TensorDataset(X, Y), 64, shuffle=True)

    def train():
        for _ in range(8):
            for a, b in loader:
                opt.zero_grad()
                loss(model(a), b).backward()
                opt.step()

    def score():
        with torch.no_grad():
            return (model(X)[0].argmax(1) == Y).float().mean().item()

    a, b = next(iter(loader))
    return (model, a, b), dict(loss=loss, optimizer=opt, data=loader), train, score


@program
def fake_quant_ste():
    class Round(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.round()

        @staticmethod
        def backward(ctx, g):
            return g

    def fake_quant(x, bits=6):
        scale = x.detach().abs().max().clamp_min(1e-8) / (2 ** (bits - 1) - 1)
        return Round.apply(x / scale) * scale

    class QLinear(nn.Linear):
        def forward(self, x):
            return F.linear(fake_quant(x), fake_quant(self.weight), self.bias)

    X, Y = digits()
    model = nn.Sequential(QLinear(64, 64), nn.ReLU(), QLinear(64, 64), nn.ReLU(), QLinear(64, 10))
    opt = optim.Adam(model.parameters(), lr=2e-3)
    loader = DataLoader(TensorDataset(X, Y), 64, shuffle=True)

    def train():
        for _ in range(8):
            for a, b in loader:
                opt.zero_grad()
                F.cross_entropy(model(a), b).backward()
                opt.step()

    a, b = next(iter(loader))
    return (model, a, b), dict(loss=nn.CrossEntropyLoss(), optimizer=opt, data=loader), train, lambda: acc(model, X, Y)


@program
def spiking_surrogate_gradient():
    # snntorch tutorial 5: returns (spk_rec, mem_rec), time first; loss summed over time
    class ATan(torch.autograd.Function):
        @staticmethod
        def forward(ctx, mem):
            ctx.save_for_backward(mem)
            return (mem > 0).float()

        @staticmethod
        def backward(ctx, grad):
            (mem,) = ctx.saved_tensors
            return grad / (1 + (math.pi * mem).pow(2))

    class Net(nn.Module):
        def __init__(self, beta=0.9, steps=8):
            super().__init__()
            self.fc1, self.fc2, self.beta, self.steps = nn.Linear(64, 100), nn.Linear(100, 10), beta, steps

        def forward(self, x):
            mem1, mem2 = torch.zeros(len(x), 100), torch.zeros(len(x), 10)
            spk_rec, mem_rec = [], []
            for _ in range(self.steps):
                mem1 = self.beta * mem1 + self.fc1(x)
                spk1 = ATan.apply(mem1 - 1)
                mem1 = mem1 - spk1.detach()
                mem2 = self.beta * mem2 + self.fc2(spk1)
                spk2 = ATan.apply(mem2 - 1)
                mem2 = mem2 - spk2.detach()
                spk_rec.append(spk2)
                mem_rec.append(mem2)
            return torch.stack(spk_rec), torch.stack(mem_rec)

    X, Y = digits()
    net = Net()
    loss = nn.CrossEntropyLoss()
    optimizer = optim.Adam(net.parameters(), lr=2e-3, betas=(0.9, 0.999))
    loader = DataLoader(TensorDataset(X, Y), 128, shuffle=True, drop_last=True)

    def loss_fn(output, targets):
        spk_rec, mem_rec = output
        loss_val = torch.zeros(1)
        for t in range(8):
            loss_val += loss(mem_rec[t], targets)
        return loss_val.sum()

    def train():
        for _ in range(8):
            for a, b in loader:
                optimizer.zero_grad()
                loss_fn(net(a), b).backward()
                optimizer.step()

    def score():
        with torch.no_grad():
            return (net(X)[0].sum(0).argmax(1) == Y).float().mean().item()

    a, b = next(iter(loader))
    return (net, a, b), dict(loss=loss_fn, optimizer=optimizer, data=loader), train, score


@program
def complex_valued_signal():
    g = torch.Generator().manual_seed(37)
    y = torch.randint(3, (500,), generator=g)
    f = torch.tensor([0.1, 0.23, 0.37])[y][:, None]
    phase = torch.rand(500, 1, generator=g)
    x = torch.exp(2j * math.pi * (f * torch.arange(32) + phase)) + 0.5 * torch.randn(
        500, 32, dtype=torch.complex64, generator=g
    )

    class CReLU(nn.Module):
        def forward(self, z):
            return torch.complex(F.relu(z.real), F.relu(z.imag))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.l1, self.act = nn.Linear(32, 32, dtype=torch.cfloat), CReLU()
            self.l2, self.out = nn.Linear(32, 32, dtype=torch.cfloat), nn.Linear(32, 3)

        def forward(self, x):
            return self.out(self.l2(self.act(self.l1(x))).abs())

    model = Net()
    opt = optim.Adam(model.parameters(), lr=3e-3)
    loader = DataLoader(TensorDataset(x, y), 50, shuffle=True)

    def train():
        for _ in range(15):
            for a, b in loader:
                opt.zero_grad()
                F.cross_entropy(model(a), b).backward()
                opt.step()

    a, b = next(iter(loader))
    return (model, a, b), dict(loss=F.cross_entropy, optimizer=opt, data=loader), train, lambda: acc(model, x, y)


@program
def neural_ode_rk4():
    # fit the spiral of torchdiffeq's ode_demo
    A = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])

    class ODEFunc(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 50), nn.Tanh(), nn.Linear(50, 2))
            for m in self.net.modules():
                if isinstance(m, nn.Linear):
                    nn.init.normal_(m.weight, mean=0, std=0.1)
                    nn.init.constant_(m.bias, val=0)

        def forward(self, t, y):
            return self.net(y**3)

    def odeint(f, y0, t):
        ys = [y0]
        for a, b in zip(t[:-1], t[1:]):
            h, y = b - a, ys[-1]
            k1 = f(a, y)
            k2 = f(a + h / 2, y + h * k1 / 2)
            k3 = f(a + h / 2, y + h * k2 / 2)
            k4 = f(b, y + h * k3)
            ys.append(y + h * (k1 + 2 * k2 + 2 * k3 + k4) / 6)
        return torch.stack(ys)

    t = torch.linspace(0, 0.5, 6)
    y0 = torch.randn(128, 2, generator=torch.Generator().manual_seed(3)) * 1.2
    with torch.no_grad():
        true_y = odeint(lambda _, y: (y**3) @ A, y0.clamp(-1.5, 1.5), t)
    y0 = true_y[0]
    func = ODEFunc()
    optimizer = optim.RMSprop(func.parameters(), lr=3e-3)

    def train():
        for _ in range(300):
            i = torch.randint(128, (32,))
            pred_y = odeint(func, y0[i], t)
            loss = torch.mean(torch.abs(pred_y - true_y[:, i]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def score():
        with torch.no_grad():
            return -torch.mean(torch.abs(odeint(func, y0, t) - true_y)).item()

    return (
        (func, y0, true_y.transpose(0, 1)),
        dict(
            forward=lambda m, y: odeint(m, y, t).transpose(0, 1),
            loss=lambda pred, true: torch.mean(torch.abs(pred - true)),
            optimizer=optimizer,
        ),
        train,
        score,
    )


@program
def functional_closure_regularized_loss():
    # loss closes over the model: L1 and L2 of the weights, group lasso style; forward with a keyword
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(20, 50), nn.Linear(50, 1)

        def forward(self, features, *, scale):
            return self.fc2(F.softplus(self.fc1(features * scale)))

    g = torch.Generator().manual_seed(39)
    x = torch.randn(600, 20, generator=g) * 3
    y = x[:, :1] * 0.5 - (x[:, 1:2] / 3) ** 2
    model = Net()
    opt = optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True)

    def criterion(out, y):
        return (
            F.mse_loss(out, y)
            + 1e-4 * sum(p.abs().sum() for p in model.parameters())
            + 1e-4 * model.fc1.weight.pow(2).sum()
        )

    loader = DataLoader(TensorDataset(x, y), 64, shuffle=True)

    def train():
        for _ in range(20):
            for a, b in loader:
                opt.zero_grad()
                criterion(model(a, scale=1 / 3), b).backward()
                opt.step()

    def score():
        with torch.no_grad():
            return -F.mse_loss(model(x, scale=1 / 3), y).item()

    a, b = next(iter(loader))
    return (
        (model, a, b),
        dict(forward=lambda model, batch: model(batch, scale=1 / 3), loss=criterion, optimizer=opt, data=loader),
        train,
        score,
    )


@program
def sum_reduction_d2l_linear_regression():
    true_w, true_b = torch.tensor([2.0, -3.4]), 4.2
    g = torch.Generator().manual_seed(40)
    features = torch.randn(1000, 2, generator=g)
    labels = (features @ true_w + true_b + 0.01 * torch.randn(1000, generator=g)).reshape(-1, 1)
    net = nn.Sequential(nn.Linear(2, 1))
    net[0].weight.data.normal_(0, 0.01)
    net[0].bias.data.fill_(0)
    loss = nn.MSELoss(reduction="sum")
    trainer = optim.SGD(net.parameters(), lr=0.003)
    data_iter = DataLoader(TensorDataset(features, labels), 10, shuffle=True)

    def train():
        for _ in range(3):
            for X, y in data_iter:
                l = loss(net(X), y)
                trainer.zero_grad()
                l.backward()
                trainer.step()

    def score():
        with torch.no_grad():
            return -loss(net(features), labels).item() / 1000

    X, y = next(iter(data_iter))
    return (net, X, y), dict(loss=loss, optimizer=trainer, data=data_iter), train, score


@program
def reduction_none_d2l_lenet_step():
    X, Y = digits()
    net = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.Sigmoid(),
        nn.AvgPool2d(2, 2),
        nn.Conv2d(6, 16, 3, padding=1),
        nn.Sigmoid(),
        nn.AvgPool2d(2, 2),
        nn.Flatten(),
        nn.Linear(64, 60),
        nn.Sigmoid(),
        nn.Linear(60, 10),
    )
    net.apply(lambda m: nn.init.xavier_uniform_(m.weight) if type(m) in (nn.Linear, nn.Conv2d) else None)
    X = X.view(-1, 1, 8, 8)
    loss = nn.CrossEntropyLoss(reduction="none")
    trainer = optim.Adam(net.parameters(), lr=0.01)
    train_iter = DataLoader(TensorDataset(X, Y), 128, shuffle=True)

    def step(net, updater, loss, X, y):
        l = loss(net(X), y)
        updater.zero_grad()
        l.mean().backward()
        updater.step()

    def train():
        for _ in range(25):
            for a, b in train_iter:
                step(net, trainer, loss, a, b)

    a, b = next(iter(train_iter))
    return (net, a, b), dict(loss=loss, optimizer=trainer, data=train_iter, step=step), train, lambda: acc(net, X, Y)


@program
def bfloat16_model():
    X, Y = digits()
    model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 10)).to(torch.bfloat16)
    x = X.to(torch.bfloat16)
    opt = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loader = DataLoader(TensorDataset(x, Y), 64, shuffle=True)
    loss = nn.CrossEntropyLoss()

    def train():
        for _ in range(6):
            for a, b in loader:
                opt.zero_grad()
                loss(model(a), b).backward()
                opt.step()

    a, b = next(iter(loader))
    return (model, a, b), dict(loss=loss, optimizer=opt, data=loader), train, lambda: acc(model, x, Y)


@program
def swa_tutorial():
    X, Y = digits()
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))
    swa_model = optim.swa_utils.AveragedModel(model)
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    swa_scheduler = optim.swa_utils.SWALR(optimizer, swa_lr=0.05, anneal_epochs=1)
    loader = DataLoader(TensorDataset(X, Y), 64, shuffle=True)

    def step(model, optimizer, loss_fn, input, target):
        optimizer.zero_grad()
        loss_fn(model(input), target).backward()
        optimizer.step()
        swa_model.update_parameters(model)

    def train():
        for _ in range(6):
            for a, b in loader:
                step(model, optimizer, F.cross_entropy, a, b)
            swa_scheduler.step()
        optim.swa_utils.update_bn(loader, swa_model)

    a, b = next(iter(loader))
    return (
        (model, a, b),
        dict(loss=F.cross_entropy, optimizer=optimizer, data=loader, step=step),
        train,
        lambda: acc(swa_model, X, Y),
    )


@program
def deepsets_masked_dict_batch():
    g = torch.Generator().manual_seed(43)
    n = 600
    lengths = torch.randint(3, 15, (n,), generator=g)
    mask = torch.arange(15)[None] < lengths[:, None]
    sets = torch.randint(1, 10, (n, 15), generator=g) * mask
    y = sets.sum(1).float() / 10

    class DeepSets(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(10, 32, padding_idx=0)
            self.phi, self.rho = (
                nn.Sequential(nn.Linear(32, 32), nn.ReLU()),
                nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1)),
            )

        def forward(self, digits, mask):
            h = self.phi(self.embed(digits)) * mask.unsqueeze(-1)
            return self.rho(h.sum(1)).squeeze(-1)

    model = DeepSets()
    opt = optim.Adam(model.parameters(), lr=3e-3)
    crit = nn.L1Loss()
    loader = DataLoader(DictDataset(digits=sets, mask=mask, target=y), 64, shuffle=True)

    def step(model, optimizer, loss, batch, target):
        optimizer.zero_grad()
        loss(model(batch["digits"], batch["mask"]), target).backward()
        optimizer.step()

    def train():
        for _ in range(20):
            for b in loader:
                step(model, opt, crit, b, b["target"])

    def score():
        with torch.no_grad():
            return -crit(model(sets, mask), y).item()

    b = next(iter(loader))
    y0 = b.pop("target")
    return (model, b, y0), dict(loss=crit, optimizer=opt, step=step), train, score


@program
def modern_hopfield_denoiser():
    X, _ = digits()

    class Hopfield(nn.Module):
        def __init__(self, n=64, memories=64, beta=4.0):
            super().__init__()
            self.patterns, self.beta = nn.Parameter(torch.randn(memories, n) * 0.1 + 0.3), beta

        def forward(self, state):
            for _ in range(2):
                state = F.softmax(self.beta * state @ self.patterns.T, dim=-1) @ self.patterns
            return state

    class Noisy(Dataset):
        def __len__(self):
            return len(X)

        def __getitem__(self, i):
            return X[i] + 0.3 * torch.randn(64), X[i]

    loader = DataLoader(Noisy(), 64, shuffle=True)
    model = Hopfield()
    opt = optim.Adam(model.parameters(), lr=1e-2)
    crit = nn.MSELoss()

    def train():
        for _ in range(10):
            for a, b in loader:
                opt.zero_grad()
                crit(model(a), b).backward()
                opt.step()

    def score():
        torch.manual_seed(0)
        with torch.no_grad():
            return -crit(model(X + 0.3 * torch.randn_like(X)), X).item()

    a, b = next(iter(loader))
    return (model, a, b), dict(loss=crit, optimizer=opt, data=loader), train, score


# ---------------------------------------------------------------------- end of part 3

# ---------------------------------------------------------------------- part 4


@program
def clip_two_towers_model_returns_loss():
    X, Y = digits()

    class CLIP(nn.Module):
        def __init__(self):
            super().__init__()
            self.visual = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 32))
            self.text = nn.Sequential(nn.EmbeddingBag(30, 32), nn.Linear(32, 32))
            self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.2)))

        def forward(self, image, text):
            i, t = F.normalize(self.visual(image), dim=-1), F.normalize(self.text(text), dim=-1)
            logits = self.logit_scale.exp() * i @ t.T
            return logits, logits.T

    g = torch.Generator().manual_seed(51)
    captions = torch.stack(
        [Y + 10, torch.randint(10, (len(Y),), generator=g), torch.randint(20, 30, (len(Y),), generator=g)], 1
    )

    def clip_loss(outputs, _=None):
        labels = torch.arange(len(outputs[0]))
        return (F.cross_entropy(outputs[0], labels) + F.cross_entropy(outputs[1], labels)) / 2

    model = CLIP()
    opt = optim.AdamW(model.parameters(), lr=3e-3)
    loader = DataLoader(TensorDataset(X, captions), 32, shuffle=True, drop_last=True)

    def step(model, optimizer, loss, x, y):
        optimizer.zero_grad()
        l = clip_loss(model(x, y))
        l.backward()
        optimizer.step()

    def train():
        for _ in range(10):
            for a, b in loader:
                step(model, opt, None, a, b)

    def score():
        with torch.no_grad():
            return -clip_loss(model(X[:32], captions[:32])).item()

    a, b = next(iter(loader))
    return (
        (model, (a, b), torch.arange(len(a))),
        dict(loss=clip_loss, optimizer=opt, data=loader, step=step),
        train,
        score,
    )


@program
def ddpm_noise_prediction():
    x, _ = moons(2000)
    betas = torch.linspace(1e-3, 0.2, 40)
    alpha_bar = torch.cumprod(1 - betas, 0)

    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.t_embed = nn.Embedding(40, 32)
            self.net = nn.Sequential(nn.Linear(34, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 2))

        def forward(self, x, t):
            return self.net(torch.cat([x, self.t_embed(t)], 1))

    model = Denoiser()
    opt = optim.Adam(model.parameters(), lr=2e-3)
    loader = DataLoader(TensorDataset(x), batch_size=128, shuffle=True)

    def step(model, optimizer, loss, x0, _):
        if isinstance(x0, (tuple, list)):
            x0 = x0[0]
        t = torch.randint(40, (len(x0),))
        eps = torch.randn_like(x0)
        xt = alpha_bar[t].sqrt()[:, None] * x0 + (1 - alpha_bar[t]).sqrt()[:, None] * eps
        l = F.mse_loss(model(xt, t), eps)
        optimizer.zero_grad()
        l.backward()
        optimizer.step()
        return l

    def train():
        for _ in range(20):
            for (b,) in loader:
                step(model, opt, None, b, None)

    def score():
        torch.manual_seed(0)
        t, eps = torch.randint(40, (len(x),)), torch.randn_like(x)
        with torch.no_grad():
            return -F.mse_loss(
                model(alpha_bar[t].sqrt()[:, None] * x + (1 - alpha_bar[t]).sqrt()[:, None] * eps, t), eps
            ).item()

    t = torch.randint(40, (128,))
    return (model, (x[:128], t)), dict(optimizer=opt, data=loader, step=step), train, score


@program
def diffusion_wrapper_returns_loss():
    # lucidrains style: GaussianDiffusion(model)(img) -> loss
    X, _ = digits()

    class GaussianDiffusion(nn.Module):
        def __init__(self, model, T=50):
            super().__init__()
            self.model = model
            self.register_buffer("alpha_bar", torch.cumprod(1 - torch.linspace(1e-3, 0.1, T), 0))

        def forward(self, img):
            t = torch.randint(len(self.alpha_bar), (len(img),), device=img.device)
            noise = torch.randn_like(img)
            a = self.alpha_bar[t][:, None]
            x = a.sqrt() * img + (1 - a).sqrt() * noise
            return F.mse_loss(self.model(torch.cat([x, a], 1)), noise)

    diffusion = GaussianDiffusion(
        nn.Sequential(nn.Linear(65, 256), nn.SiLU(), nn.Linear(256, 256), nn.SiLU(), nn.Linear(256, 64))
    )
    opt = optim.Adam(diffusion.parameters(), lr=1e-3)
    images = X * 2 - 1

    class Images(Dataset):
        def __len__(self):
            return len(images)

        def __getitem__(self, i):
            return images[i]

    dl = DataLoader(Images(), batch_size=64, shuffle=True)

    def train():
        for _ in range(15):
            for b in dl:
                loss = diffusion(b)
                opt.zero_grad()
                loss.backward()
                opt.step()

    def score():
        torch.manual_seed(0)
        with torch.no_grad():
            return -diffusion(images).item()

    return (diffusion, next(iter(dl))), dict(optimizer=opt, data=dl), train, score


@program
def hf_tuple_loss_first_token_labels():
    # labels -100 on padding, model returns (loss, logits)
    s = markov(20, 300, 12)
    tags = (s + torch.roll(s, 1, 1)) % 4
    g = torch.Generator().manual_seed(52)
    mask = (torch.arange(12)[None] < torch.randint(6, 13, (300, 1), generator=g)).long()
    labels = torch.where(mask == 1, tags, -100)
    labels[:, 0] = -100

    class TokenClassifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.lstm, self.out = (
                nn.Embedding(20, 32),
                nn.LSTM(32, 48, batch_first=True, bidirectional=True),
                nn.Linear(96, 4),
            )

        def forward(self, input_ids, attention_mask=None, labels=None):
            logits = self.out(self.lstm(self.embed(input_ids))[0])
            if labels is None:
                return (logits,)
            return nn.CrossEntropyLoss()(logits.view(-1, 4), labels.view(-1)), logits

    model = TokenClassifier()
    opt = optim.AdamW(model.parameters(), lr=5e-3)
    data = DictDataset(input_ids=s, attention_mask=mask, labels=labels)
    loader = DataLoader(data, 32, shuffle=True)

    def train():
        for _ in range(15):
            for b in loader:
                opt.zero_grad()
                model(**b)[0].backward()
                opt.step()

    def score():
        with torch.no_grad():
            return -model(s, mask, labels)[0].item()

    return (model, next(iter(loader))), dict(optimizer=opt, data=loader), train, score


@program
def pyg_like_data_object():
    x, adj, y = sbm_graph()

    @dataclass
    class Data:
        x: torch.Tensor
        edge_index: torch.Tensor
        y: torch.Tensor
        train_mask: torch.Tensor

    mask = torch.zeros(150, dtype=torch.bool)
    mask[:60] = True
    data = Data(x, adj.nonzero().T.contiguous(), y, mask)

    class SAGE(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.lin_l, self.lin_r = nn.Linear(i, o), nn.Linear(i, o, bias=False)

        def forward(self, x, edge_index):
            src, dst = edge_index
            total = torch.zeros_like(x).index_add_(0, dst, x[src])
            count = torch.zeros(len(x)).index_add_(0, dst, torch.ones(len(src))).clamp_min(1)
            return self.lin_l(total / count[:, None]) + self.lin_r(x)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.conv2 = SAGE(16, 32), SAGE(32, 3)

        def forward(self, data):
            h = F.relu(self.conv1(data.x, data.edge_index))
            return self.conv2(F.dropout(h, training=self.training), data.edge_index)

    model = Net()
    optimizer = optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)

    def train():
        for _ in range(150):
            optimizer.zero_grad()
            out = model(data)
            F.cross_entropy(out[mask], y[mask]).backward()
            optimizer.step()

    def score():
        model.eval()
        with torch.no_grad():
            a = (model(data).argmax(1) == y)[~mask].float().mean().item()
        model.train()
        return a

    return (
        (model, data, y),
        dict(loss=lambda out, y: F.cross_entropy(out[data.train_mask], y[data.train_mask]), optimizer=optimizer),
        train,
        score,
    )


@program
def gan_both_optimizers():
    x, _ = moons()

    class GAN(nn.Module):
        def __init__(self):
            super().__init__()
            self.G = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
            self.D = nn.Sequential(
                nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1)
            )

        def forward(self, z):
            return self.G(z)

    gan = GAN()
    opt_g = optim.Adam(gan.G.parameters(), lr=0.0005, betas=(0.5, 0.999))
    opt_d = optim.Adam(gan.D.parameters(), lr=0.002, betas=(0.5, 0.999))
    bce = nn.BCEWithLogitsLoss()

    def step(gan, optimizers, loss, real, _):
        opt_g, opt_d = optimizers
        fake = gan.G(torch.randn(len(real), 8))
        d = bce(gan.D(real), torch.ones(len(real), 1)) + bce(gan.D(fake.detach()), torch.zeros(len(real), 1))
        opt_d.zero_grad()
        d.backward()
        opt_d.step()
        gl = bce(gan.D(fake), torch.ones(len(real), 1))
        opt_g.zero_grad()
        gl.backward()
        opt_g.step()

    def train():
        for _ in range(600):
            step(gan, (opt_g, opt_d), None, x[torch.randint(len(x), (128,))], None)

    def score():
        torch.manual_seed(0)
        with torch.no_grad():
            f = gan.G(torch.randn(500, 8))
            return -torch.cdist(x, f).min(1).values.mean().item()  # coverage of the data

    return (gan, torch.randn(128, 8), x[:128]), dict(optimizer=[opt_g, opt_d], step=step), train, score


@program
def byol_online_and_target():
    X, Y = digits()

    def mlp(i, o):
        return nn.Sequential(nn.Linear(i, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, o))

    class BYOL(nn.Module):
        def __init__(self):
            super().__init__()
            self.online, self.predictor = mlp(64, 32), mlp(32, 32)
            self.target = copy.deepcopy(self.online).requires_grad_(False)

        @torch.no_grad()
        def update_moving_average(self, tau=0.99):
            for a, b in zip(self.online.parameters(), self.target.parameters()):
                b.data = tau * b.data + (1 - tau) * a.data

        def forward(self, x):
            one, two = x + 0.2 * torch.randn_like(x), x + 0.2 * torch.randn_like(x)
            p1, p2 = self.predictor(self.online(one)), self.predictor(self.online(two))
            with torch.no_grad():
                t1, t2 = self.target(one), self.target(two)
            return (2 - 2 * F.cosine_similarity(p1, t2) + 2 - 2 * F.cosine_similarity(p2, t1)).mean()

    learner = BYOL()
    opt = optim.Adam(learner.parameters(), lr=1e-3)

    def step(learner, opt, loss, images, _):
        l = learner(images)
        opt.zero_grad()
        l.backward()
        opt.step()
        learner.update_moving_average()
        return l

    def train():
        for _ in range(200):
            step(learner, opt, None, X[torch.randint(len(X), (128,))], None)

    def score():
        torch.manual_seed(0)
        with torch.no_grad():
            return -learner(X).item()

    return (learner, X[:128]), dict(optimizer=opt, step=step), train, score


@program
def actor_critic_two_heads():
    g = torch.Generator().manual_seed(53)
    W = torch.randn(8, 4, generator=g)
    obs = torch.randn(2000, 8, generator=g)
    act = torch.randint(4, (2000,), generator=g)
    ret = (act == (obs @ W).argmax(1)).float() + 0.5 * obs[:, 0]

    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.affine1, self.action_head, self.value_head = nn.Linear(8, 64), nn.Linear(64, 4), nn.Linear(64, 1)

        def forward(self, x):
            x = F.relu(self.affine1(x))
            return F.softmax(self.action_head(x), dim=-1), self.value_head(x)

    model = Policy()
    optimizer = optim.Adam(model.parameters(), lr=5e-3)

    def loss_fn(outputs, targets):
        probs, value = outputs
        a, r = targets
        m = torch.distributions.Categorical(probs)
        advantage = r - value.squeeze(1).detach()
        return -(m.log_prob(a) * advantage).mean() + F.smooth_l1_loss(value.squeeze(1), r) - 0.01 * m.entropy().mean()

    def train():
        for _ in range(200):
            i = torch.randint(2000, (128,))
            optimizer.zero_grad()
            loss_fn(model(obs[i]), (act[i], ret[i])).backward()
            optimizer.step()

    def score():
        with torch.no_grad():
            return (model(obs)[0].argmax(1) == (obs @ W).argmax(1)).float().mean().item()

    return (
        (model, obs[:200], (act[:200], ret[:200])),
        dict(loss=loss_fn, optimizer=optimizer, data=(obs, (act, ret))),
        train,
        score,
    )


@program
def cosine_embedding_siamese():
    X, Y = digits()
    g = torch.Generator().manual_seed(54)
    i, j = torch.randint(len(X), (1500,), generator=g), torch.randint(len(X), (1500,), generator=g)
    k = torch.stack([(Y == Y[a]).nonzero()[0, 0] for a in i[:750]])
    j[:750] = k
    target = torch.where(Y[i] == Y[j], 1.0, -1.0)
    data = TensorDataset(X[i], X[j], target)
    encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))
    criterion = nn.CosineEmbeddingLoss(margin=0.3)
    opt = optim.Adam(encoder.parameters(), lr=2e-3)
    loader = DataLoader(data, 64, shuffle=True)

    def train():
        for _ in range(12):
            for a, b, t in loader:
                opt.zero_grad()
                criterion(encoder(a), encoder(b), t).backward()
                opt.step()

    def score():
        with torch.no_grad():
            return -criterion(encoder(X[i]), encoder(X[j]), target).item()

    a, b, t = next(iter(loader))
    return (
        (encoder, (a, b), t),
        dict(
            forward=lambda m, batch: (m(batch[0]), m(batch[1])),
            loss=lambda out, t: criterion(out[0], out[1], t),
            optimizer=opt,
            data=loader,
        ),
        train,
        score,
    )


@program
def translation_transformer_nn():
    # tutorials translation_transformer: nn.Transformer, time first, tgt shifted, padding masks
    g = torch.Generator().manual_seed(55)
    body = torch.randint(3, 14, (4, 512), generator=g)
    src, tgt = body, torch.cat([torch.ones(1, 512, dtype=torch.long), (body - 3 + 1) % 11 + 3, torch.full((1, 512), 2)])

    class Seq2SeqTransformer(nn.Module):
        def __init__(self, d=32):
            super().__init__()
            self.transformer = nn.Transformer(d, 4, 1, 1, 64, dropout=0.0)
            self.src_tok, self.tgt_tok, self.pos, self.generator = (
                nn.Embedding(14, d),
                nn.Embedding(14, d),
                nn.Embedding(16, d),
                nn.Linear(d, 14),
            )

        def forward(self, src, trg):
            mask = nn.Transformer.generate_square_subsequent_mask(len(trg))
            p = self.pos.weight
            return self.generator(
                self.transformer(
                    self.src_tok(src) + p[: len(src), None], self.tgt_tok(trg) + p[: len(trg), None], tgt_mask=mask
                )
            )

    model = Seq2SeqTransformer()
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.xavier_uniform_(p)
    loss_fn = nn.CrossEntropyLoss(ignore_index=0)
    optimizer = optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.98), eps=1e-9)

    def train():
        for _ in range(200):
            i = torch.randint(512, (64,))
            logits = model(src[:, i], tgt[:-1, i])
            optimizer.zero_grad()
            loss_fn(logits.reshape(-1, 14), tgt[1:, i].reshape(-1)).backward()
            optimizer.step()

    def score():
        with torch.no_grad():
            return (model(src, tgt[:-1]).argmax(-1) == tgt[1:]).float().mean().item()

    s, t = src[:, :128], tgt[:, :128]
    return (
        (model, (s, t[:-1]), t[1:]),
        dict(loss=lambda logits, y: loss_fn(logits.reshape(-1, logits.shape[-1]), y.reshape(-1)), optimizer=optimizer),
        train,
        score,
    )


@program
def bpr_implicit_feedback():
    u, i, r = ratings(4000)
    keep = r > 3.5
    u, i = u[keep], i[keep]

    class BPR(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed_user, self.embed_item = nn.Embedding(60, 8), nn.Embedding(50, 8)
            nn.init.normal_(self.embed_user.weight, std=0.01)
            nn.init.normal_(self.embed_item.weight, std=0.01)

        def forward(self, user, item_i, item_j):
            user, item_i, item_j = self.embed_user(user), self.embed_item(item_i), self.embed_item(item_j)
            return (user * item_i).sum(-1), (user * item_j).sum(-1)

    class BPRData(Dataset):
        def __len__(self):
            return len(u)

        def __getitem__(self, k):
            return u[k], i[k], torch.randint(50, ())

    model = BPR()
    optimizer = optim.SGD(model.parameters(), lr=0.01, weight_decay=1e-4, momentum=0.9)
    train_loader = DataLoader(BPRData(), batch_size=64, shuffle=True)

    def step(model, optimizer, loss, x, y):
        user, item_i, item_j = x
        model.zero_grad()
        prediction_i, prediction_j = model(user, item_i, item_j)
        l = -F.logsigmoid(prediction_i - prediction_j).sum()
        l.backward()
        optimizer.step()
        return l

    def train():
        for _ in range(20):
            for b in train_loader:
                step(model, optimizer, None, b, None)

    def score():
        torch.manual_seed(0)
        with torch.no_grad():
            a, b = model(u, i, torch.randint(50, (len(u),)))
            return (a > b).float().mean().item()

    return (
        (model, tuple(next(iter(train_loader)))),
        dict(optimizer=optimizer, data=train_loader, step=step),
        train,
        score,
    )


@program
def lstm_forecast_pair_of_tensors():
    t = torch.arange(1200).float()
    series = (torch.sin(t * 0.2) + 0.5 * torch.sin(t * 0.07 + 1))[:, None] + 0.05 * torch.randn(
        1200, 1, generator=torch.Generator().manual_seed(6)
    )
    win = series.unfold(0, 25, 1).transpose(1, 2)
    X, y = win[:, :24].contiguous(), win[:, 24].contiguous()

    class LSTMForecaster(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.linear = nn.LSTM(1, 32, batch_first=True), nn.Linear(32, 1)

        def forward(self, x):
            out, (h, c) = self.lstm(x)
            return self.linear(out[:, -1])

    model = LSTMForecaster()
    opt = optim.Adam(model.parameters(), lr=5e-3)

    def train():
        for _ in range(6):
            for a, b in DataLoader(TensorDataset(X, y), 32, shuffle=True):
                opt.zero_grad()
                F.mse_loss(model(a), b).backward()
                opt.step()

    def score():
        with torch.no_grad():
            return -F.mse_loss(model(X), y).item()

    return (model, X[:100], y[:100]), dict(loss=F.mse_loss, optimizer=opt, data=(X, y)), train, score


@program
def plain_call_model_and_batch_only():
    # nothing but a model and a batch, as in a test: no loss, no optimizer
    X, Y = digits()
    model = nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(256, 10),
    )

    def train():
        o = optim.Adam(model.parameters(), lr=3e-3)
        for _ in range(150):
            i = torch.randint(len(X), (64,))
            o.zero_grad()
            F.cross_entropy(model(X[i]), Y[i]).backward()
            o.step()

    return (model, X[:96]), {}, train, lambda: acc(model, X, Y)


@program
def mae_masked_autoencoder_loss_pred_mask():
    # facebookresearch/mae: model(imgs) -> loss, pred, mask
    X, _ = digits()

    class MAE(nn.Module):
        def __init__(self, d=32):
            super().__init__()
            self.patch = nn.Linear(4, d)
            self.mask_token, self.pos = nn.Parameter(torch.zeros(1, 1, d)), nn.Parameter(torch.randn(1, 16, d) * 0.02)
            layer = lambda: nn.TransformerEncoderLayer(d, 4, 64, 0.0, batch_first=True, norm_first=True)
            self.enc, self.dec, self.out = layer(), layer(), nn.Linear(d, 4)

        def patchify(self, imgs):
            return imgs.view(-1, 4, 2, 4, 2).permute(0, 1, 3, 2, 4).reshape(len(imgs), 16, 4)

        def forward(self, imgs, mask_ratio=0.5):
            p = self.patchify(imgs)
            mask = (torch.rand(len(imgs), 16) < mask_ratio).float()
            h = self.patch(p) * (1 - mask[..., None]) + self.mask_token * mask[..., None] + self.pos
            pred = self.out(self.dec(self.enc(h)))
            loss = ((pred - p) ** 2).mean(-1)
            return (loss * mask).sum() / mask.sum(), pred, mask

    model = MAE()
    opt = optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.05)
    loader = DataLoader(TensorDataset(X.view(-1, 1, 8, 8), torch.zeros(len(X))), 64, shuffle=True)

    def step(model, optimizer, loss, samples, _):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            l, _, _ = model(samples)
        optimizer.zero_grad()
        l.backward()
        optimizer.step()

    def train():
        for _ in range(8):
            for a, b in loader:
                step(model, opt, None, a, b)

    def score():
        torch.manual_seed(0)
        with torch.no_grad():
            return -model(X.view(-1, 1, 8, 8))[0].item()

    imgs, _ = next(iter(loader))
    return (model, imgs), dict(optimizer=opt, data=loader, step=step), train, score


@program
def per_image_variable_size_list_batch():
    # list of images of different sizes, collate_fn keeps lists
    g = torch.Generator().manual_seed(57)
    n = 200
    y = torch.randint(2, (n,), generator=g)
    imgs = []
    for k in range(n):
        h, w = torch.randint(8, 15, (2,), generator=g).tolist()
        grid = torch.arange(w if y[k] else h).float()
        wave = torch.sin(grid * 2)
        imgs.append(
            (wave[None, :].expand(h, w) if y[k] else wave[:, None].expand(h, w))[None]
            + 0.3 * torch.randn(1, h, w, generator=g)
        )

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Sequential(
                nn.Conv2d(1, 16, 3, padding=1),
                nn.ReLU(),
                nn.Conv2d(16, 16, 3, padding=1),
                nn.ReLU(),
                nn.AdaptiveAvgPool2d(1),
                nn.Flatten(),
            )
            self.fc = nn.Linear(16, 2)

        def forward(self, images):
            return self.fc(torch.cat([self.conv(i[None]) for i in images]))

    loader = DataLoader(
        list(zip(imgs, y)),
        batch_size=20,
        shuffle=True,
        collate_fn=lambda b: ([i for i, _ in b], torch.stack([t for _, t in b])),
    )
    model = Net()
    opt = optim.Adam(model.parameters(), lr=5e-3)
    crit = nn.CrossEntropyLoss()

    def train():
        for _ in range(8):
            for a, b in loader:
                opt.zero_grad()
                crit(model(a), b).backward()
                opt.step()

    def score():
        with torch.no_grad():
            return (model(imgs).argmax(1) == y).float().mean().item()

    a, b = next(iter(loader))
    return (model, a, b), dict(loss=crit, optimizer=opt, data=loader), train, score


@program
def semi_supervised_pseudo_labels_two_loaders():
    # FixMatch-like: unlabeled batch taken inside of the step
    X, Y = digits()
    lab, unl = slice(0, 300), X[300:1500]
    model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 10))
    opt = optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    loader = DataLoader(TensorDataset(X[lab], Y[lab]), 50, shuffle=True)

    def step(model, optimizer, loss, x, y):
        u = unl[torch.randint(len(unl), (100,))]
        with torch.no_grad():
            p = F.softmax(model(u + 0.02 * torch.randn_like(u)), 1)
            conf, pseudo = p.max(1)
        lx = loss(model(x), y)
        lu = (F.cross_entropy(model(u + 0.15 * torch.randn_like(u)), pseudo, reduction="none") * (conf > 0.95)).mean()
        optimizer.zero_grad()
        (lx + lu).backward()
        optimizer.step()

    def train():
        for _ in range(20):
            for a, b in loader:
                step(model, opt, F.cross_entropy, a, b)

    a, b = next(iter(loader))
    return (
        (model, a, b),
        dict(loss=F.cross_entropy, optimizer=opt, data=loader, step=step),
        train,
        lambda: acc(model, X[1500:], Y[1500:]),
    )


# ---------------------------------------------------------------------- end of part 4
