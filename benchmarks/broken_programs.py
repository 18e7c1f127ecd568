"""Programs of ``sound_programs.py`` with one fault each, as people make them. PROGRAMS = {name: (build, kinds)}.

Each was trained with its own loop over two seeds: it keeps at most a third of what the sound one gains. The kinds are those of
the fault, by any name that would be right; the faults were written by somebody who knew neither the checks nor the code.
"""

# ruff: noqa: E501 - what stands in the place of what is on one line
import ast
from pathlib import Path
from typing import Any

import sound_programs

FAULTS: dict[str, tuple[tuple[str, ...], str, tuple[tuple[str, str], ...]]] = {
    'word_language_model': (
        ('data', 'shapes'),
        'batchify reshapes with view(-1, bsz) instead of view(bsz, -1).t(): consecutive rows are 20 tokens apart',
        (
            ('.view(bsz, -1).t().contiguous()', '.view(-1, bsz).contiguous()'),
            ('model(corpus[:-1], model.init_hidden(20))[0], corpus[1:].reshape(-1)', 'model(true[:-1], model.init_hidden(20))[0], true[1:].reshape(-1)'),
            ('    model = RNNModel(20', '    true = markov(20, 1, 8000)[0].view(20, -1).t()\n    model = RNNModel(20'),
        ),
    ),
    'char_rnn_names_onehot': (
        ('learning rate',),
        'SGD lr 5e-4 (as in the per-name tutorial), 200 steps',
        (
            ('lr=0.15', 'lr=0.0005'),
        ),
    ),
    'gru_packed_collate': (
        ('labels', 'data'),
        'collate sorts the texts by length, not the labels',
        (
            ('xs, ys = zip(*batch)', 'xs, ys = zip(*batch)\n        xs = sorted(xs, key=len, reverse=True)'),
            ('t, n, l = collate(list(zip(rows, labels)))', 't, n, l = nn.utils.rnn.pad_sequence(rows, batch_first=True), torch.tensor([len(r) for r in rows]), labels'),
        ),
    ),
    'seq2seq_teacher_forcing': (
        ('architecture', 'gradient flow'),
        'the decoder is called without the hidden state: neither the encoder nor its own past reaches it',
        (
            ('out, hidden = self.decoder(self.trg(input)[None], hidden)', 'out, hidden = self.decoder(self.trg(input)[None])'),
        ),
    ),
    'mingpt': (
        ('optimizer', 'update'),
        'AdamW gets only the no-decay group (biases and norms); the weights were left out',
        (
            ('[dict(params=decay, weight_decay=0.1), dict(params=rest, weight_decay=0.0)]', '[dict(params=rest, weight_decay=0.0)]'),
        ),
    ),
    'vit_label_smoothing_scheduler': (
        ('learning rate', 'update'),
        'an epoch schedule (ExponentialLR gamma 0.5) stepped after every batch',
        (
            ('optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=400)', 'optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)'),
        ),
    ),
    'bert_dataclass_dict_loader': (
        ('gradient flow', 'update'),
        'loss = torch.tensor(outputs.loss.item(), requires_grad=True) silences the error, and no weight gets a gradient',
        (
            ('outputs.loss.backward()', 'loss = torch.tensor(outputs.loss.item(), requires_grad=True)\n        loss.backward()'),
        ),
    ),
    'bert_dict_output_no_step': (
        ('learning rate',),
        'AdamW lr 0.1 on a transformer',
        (
            ('lr=1e-3', 'lr=0.1'),
        ),
    ),
    'unet_cross_entropy_ignore_index': (
        ('labels', 'data', 'shapes'),
        'masks are transposed to the images (width and height exchanged)',
        (
            ('TensorDataset(x, m), batch_size=16', 'TensorDataset(x, m.transpose(1, 2)), batch_size=16'),
        ),
    ),
    'unet_bce_dice': (
        ('output activation',),
        'UNet ends with a sigmoid, then BCEWithLogits and dice of sigmoid again',
        (
            ('return self.outc(self.conv(torch.cat([a, self.up(b)], 1)))', 'return torch.sigmoid(self.outc(self.conv(torch.cat([a, self.up(b)], 1))))'),
        ),
    ),
    'vae_pytorch_example': (
        ('loss',),
        'sign of the KL term',
        (
            ('return BCE - 0.5', 'return BCE + 0.5'),
            ('return -vae_loss(r', 'return -sound_programs.vae_loss(r'),
        ),
    ),
    'vae_outputs_tuple_no_data': (
        ('learning rate', 'loss'),
        'SGD at 0.1 with a loss summed over the batch: NaN',
        (
            ('optim.Adam(model.parameters(), lr=1e-3)', 'optim.SGD(model.parameters(), lr=0.1)'),
        ),
    ),
    'dcgan_discriminator_half': (
        ('labels', 'loss'),
        'fake images get label one, too',
        (
            ('netD(fake.detach()), torch.zeros(len(real))', 'netD(fake.detach()), torch.ones(len(real))'),
        ),
    ),
    'discriminator_real_and_fake': (
        ('optimizer', 'learning rate'),
        'SGD at 2e-4 instead of Adam',
        (
            ('optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999))', 'optim.SGD(D.parameters(), lr=2e-4)'),
        ),
    ),
    'siamese_two_images': (
        ('initialization',),
        'all weights drawn from N(0, 1): saturated sigmoid',
        (
            ('    data = APP_MATCHER()', '    def weights_init(m):\n        if isinstance(m, (nn.Conv2d, nn.Linear)):\n            nn.init.normal_(m.weight, mean=0.0, std=1.0)\n\n    data = APP_MATCHER()'),
            ('model = SiameseNetwork()', 'model = SiameseNetwork()\n    model.apply(weights_init)'),
        ),
    ),
    'triplet_three_calls': (
        ('update',),
        'zero_grad between backward and step',
        (
            ('        optimizer.zero_grad()\n', ''),
            ('        l.backward()\n', '        l.backward()\n        optimizer.zero_grad()\n'),
        ),
    ),
    'matrix_factorization_d2l': (
        ('regularization',),
        'weight_decay 1.0 in Adam',
        (
            ('weight_decay=1e-5', 'weight_decay=1.0'),
        ),
    ),
    'gcn_pygcn_train_mask': (
        ('initialization',),
        'GraphConvolution weights are torch.zeros and never reset',
        (
            ('nn.Parameter(torch.empty(i, o)), nn.Parameter(torch.empty(o))', 'nn.Parameter(torch.zeros(i, o)), nn.Parameter(torch.zeros(o))'),
            ('            stdv = 1.0 / math.sqrt(o)\n            self.weight.data.uniform_(-stdv, stdv)\n            self.bias.data.uniform_(-stdv, stdv)\n', ''),
        ),
    ),
    'pinn_forward_returns_loss': (
        ('input scale',),
        'time in milliseconds (0..3000) goes raw into a tanh network',
        (
            ('t = torch.linspace(0, 3, 64).view(-1, 1)', 't = torch.linspace(0, 3000, 64).view(-1, 1)  # ms\n    omega = 1e-3'),
            ('((d2u + u) ** 2)', '((d2u + omega**2 * u) ** 2)'),
            ('torch.cos(t)', 'torch.cos(omega * t)'),
        ),
    ),
    'quantile_regression_three': (
        ('loss',),
        'sign of the error in the pinball loss',
        (
            ('e = target[:, 0] - preds[:, i]', 'e = preds[:, i] - target[:, 0]'),
            ('return -loss(model(x), y).item()', 'return -sum(torch.max((q - 1) * e, q * e).mean() for q, e in zip(quantiles, (y - model(x)).T)).item()'),
        ),
    ),
    'multilabel_pos_weight': (
        ('initialization',),
        'all weights constant 0.5: the hidden units stay copies of each other',
        (
            ('    criterion = nn', '    for m in model:\n        if isinstance(m, nn.Linear):\n            nn.init.constant_(m.weight, 0.5)\n            nn.init.zeros_(m.bias)\n    criterion = nn'),
        ),
    ),
    'focal_loss_imbalanced': (
        ('output activation',),
        'ReLU on the output unit of a binary classifier on logits',
        (
            ('nn.Linear(32, 1))', 'nn.Linear(32, 1), nn.ReLU())'),
        ),
    ),
    'detection_dict_of_losses': (
        ('update',),
        'step() comes before backward(), right after zero_grad()',
        (
            ('        losses.backward()\n        optimizer.step()\n', '        optimizer.step()\n        losses.backward()\n'),
        ),
    ),
    'arcface_head_takes_labels': (
        ('update',),
        'optimizer.step() forgotten in the step',
        (
            ('        l.backward()\n        optimizer.step()\n', '        l.backward()\n        return l.item()\n'),
        ),
    ),
    'distillation_frozen_teacher': (
        ('optimizer', 'update'),
        'the optimizer holds the parameters of the teacher',
        (
            ('optim.Adam(student.parameters(), lr=1e-3)', 'optim.Adam(teacher.parameters(), lr=1e-3)'),
        ),
    ),
    'student_teacher_in_one_module': (
        ('learning rate',),
        'Adam at 2',
        (
            ('lr=2e-3', 'lr=2.0'),
        ),
    ),
    'transfer_learning_frozen_backbone': (
        ('optimizer', 'update'),
        'optimizer made before the head was replaced: it holds the old head',
        (
            ('    net.fc = nn.Linear(128, 10)\n    criterion = nn.CrossEntropyLoss()\n    optimizer_conv = optim.SGD(net.fc.parameters(), lr=0.01, momentum=0.9)\n', '    for param in net.fc.parameters():\n        param.requires_grad = True\n    criterion = nn.CrossEntropyLoss()\n    optimizer_conv = optim.SGD(net.fc.parameters(), lr=0.01, momentum=0.9)\n    net.fc = nn.Linear(128, 10)\n'),
        ),
    ),
    'lora_adapters': (
        ('initialization',),
        'lora_A and lora_B both zero',
        (
            ('            nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))\n', '            nn.init.zeros_(self.lora_A)\n'),
        ),
    ),
    'ema_and_accumulation': (
        ('labels', 'data'),
        'labels sliced from the end: X[:1024] with Y[-1024:]',
        (
            ('TensorDataset(X[:1024], Y[:1024])', 'TensorDataset(X[:1024], Y[-1024:])'),
        ),
    ),
    'reinforce_contextual_bandit': (
        ('loss',),
        'sign of the policy loss',
        (
            ('policy_loss = -(', 'policy_loss = ('),
        ),
    ),
    'dqn_half': (
        ('shapes',),
        'expected (B,) against q (B, 1)',
        (
            ('criterion(q, expected.unsqueeze(1))', 'criterion(q, expected)'),
        ),
    ),
    'tabular_embeddings_and_floats': (
        ('target scale',),
        'targets are prices of 50000 +- 1000, not standardized',
        (
            ('y = y.unsqueeze(1)', 'y = y.unsqueeze(1) * 1000 + 50000'),
            ('s = -loss(model(x_cat, x_cont), y).item()', 's = -loss(model(x_cat, x_cont), y).item() / 1e6'),
        ),
    ),
    'nan_masked_regression': (
        ('loss',),
        'the mask multiplies the error: NaN * 0 is NaN',
        (
            ('        mask = ~torch.isnan(target)\n        return F.mse_loss(pred[mask], target[mask])', '        mask = (~torch.isnan(target)).float()\n        return (((pred - target) ** 2) * mask).sum() / mask.sum()'),
            ('return -masked_mse(model(x), y).item()', 'm = ~torch.isnan(y)\n            return -F.mse_loss(model(x)[m], y[m]).item()'),
        ),
    ),
    'weighted_samples_in_loader': (
        ('loss', 'data', 'labels'),
        'class weights by integer division: counts.min() // counts is 0 for all classes but one',
        (
            ('w = torch.where(Y < 3, 3.0, 1.0)', 'counts = torch.bincount(Y)\n    w = (counts.min() // counts)[Y].float()'),
        ),
    ),
    'mixup_step': (
        ('update',),
        'zero_grad forgotten',
        (
            ('        optimizer.zero_grad()\n', ''),
        ),
    ),
    'realnvp_forward_log_prob': (
        ('loss', 'architecture'),
        'sign of the log-determinant',
        (
            ('log_det = log_det - s.sum(1)', 'log_det = log_det + s.sum(1)'),
            ('            return flow(x).mean().item()', '            log_det, z = x.new_zeros(len(x)), x\n            for i in reversed(range(len(flow.t))):\n                z_, m = flow.mask[i] * z, 1 - flow.mask[i]\n                s, t = flow.s[i](z_) * m, flow.t[i](z_) * m\n                z, log_det = m * (z - t) * torch.exp(-s) + z_, log_det - s.sum(1)\n            return (-0.5 * (z**2).sum(1) - math.log(2 * math.pi) + log_det).mean().item()'),
        ),
    ),
    'energy_based_contrastive': (
        ('regularization', 'loss'),
        'the penalty on the energies is 1e3 instead of 1e-3',
        (
            ('1e-3 * (e_pos', '1e3 * (e_pos'),
        ),
    ),
    'spectral_and_weight_norm': (
        ('input scale',),
        'images divided by 255 once more',
        (
            ('X, Y = digits()', 'X, Y = digits()\n    X = X / 255'),
        ),
    ),
    'deep_supervision_list': (
        ('initialization', 'hidden activation'),
        'prior-probability bias -4.6 on a layer that a ReLU follows: dead',
        (
            ('self.final = nn.Conv2d(8, 3, 1)', 'self.final = nn.Conv2d(8, 3, 1)\n            nn.init.constant_(self.unet.outc.bias, -math.log((1 - 0.01) / 0.01))'),
        ),
    ),
    'lightning_dict_batch_scheduler': (
        ('learning rate',),
        'warm-up over 100,000 steps: LambdaLR starts at 0 and never gets anywhere in 80 steps',
        (
            ('lambda s: 1.0', 'lambda s: min(1.0, s / 100000)'),
            ('    opt = model.configure_optimizers()[0][0]', '    (opt,), (sched,) = model.configure_optimizers()'),
            ('                opt.step()\n', '                opt.step()\n                sched["scheduler"].step()\n'),
        ),
    ),
    'iterable_dataset_regression': (
        ('architecture', 'hidden activation'),
        'no activations between the linear layers',
        (
            ('nn.Linear(10, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1)', 'nn.Linear(10, 64), nn.Linear(64, 64), nn.Linear(64, 1)'),
        ),
    ),
    'numpy_dataset_keras_mlp_port': (
        ('output activation', 'learning rate'),
        'softmax layer kept from Keras before CrossEntropyLoss, SGD at 0.01',
        (
            ('nn.Linear(128, 10),\n    )', 'nn.Linear(128, 10),\n        nn.Softmax(dim=1),\n    )'),
            ('optim.RMSprop(model.parameters(), lr=1e-3, alpha=0.9, eps=1e-7)', 'optim.SGD(model.parameters(), lr=0.01)'),
        ),
    ),
    'generator_function_as_data': (
        ('labels', 'data'),
        'features are shuffled, labels are sliced in order',
        (
            ('labels[j]', 'labels[i : i + batch_size]'),
        ),
    ),
    'lbfgs_closure_sine': (
        ('update',),
        'no zero_grad in the closure',
        (
            ('            optimizer.zero_grad()\n', ''),
        ),
    ),
    'custom_optimizer_lion_float64': (
        ('optimizer', 'update'),
        'sign of the update in a hand-written Lion',
        (
            ('alpha=-group["lr"]', 'alpha=group["lr"]'),
        ),
    ),
    'mnist_example_adadelta_eval_mode': (
        ('output activation', 'loss', 'learning rate', 'optimizer'),
        'nll_loss on softmax instead of log_softmax, SGD',
        (
            ('F.log_softmax(', 'F.softmax('),
            ('optim.Adadelta(model.parameters(), lr=1.0)', 'optim.SGD(model.parameters(), lr=0.01)'),
        ),
    ),
    'sparse_adam_word2vec_negative_sampling': (
        ('loss',),
        'negatives without the minus: logsigmoid(+score)',
        (
            ('F.logsigmoid(-torch.clamp(', 'F.logsigmoid(torch.clamp('),
            ('return -model(u, v, torch.randint(60, (len(u), 5))).item()', 'a, b, c = model.u_embeddings(u), model.v_embeddings(v), model.v_embeddings(torch.randint(60, (len(u), 5)))\n            pos = -F.logsigmoid((a * b).sum(1).clamp(-10, 10))\n            return -(pos - F.logsigmoid(-torch.bmm(c, a.unsqueeze(2)).squeeze(2).clamp(-10, 10)).sum(1)).mean().item()'),
        ),
    ),
    'sparse_embedding_bag_textcls': (
        ('update', 'gradient flow'),
        'gradients clipped to norm 1e-6',
        (
            ('0.1)', '1e-6)'),
        ),
    ),
    'fake_quant_ste': (
        ('gradient flow',),
        'round() without a straight-through estimator',
        (
            ('Round.apply(x / scale)', 'torch.round(x / scale)'),
        ),
    ),
    'functional_closure_regularized_loss': (
        ('output activation',),
        'sigmoid at the end of a regression on values from -10 to 5',
        (
            ('return self.fc2(F.softplus(self.fc1(features * scale)))', 'return torch.sigmoid(self.fc2(F.softplus(self.fc1(features * scale))))'),
        ),
    ),
    'sum_reduction_d2l_linear_regression': (
        ('learning rate', 'loss'),
        'SGD 0.3 with the loss summed over the batch',
        (
            ('lr=0.003', 'lr=0.3'),
        ),
    ),
    'reduction_none_d2l_lenet_step': (
        ('optimizer',),
        'sigmoid LeNet with SGD at 0.01',
        (
            ('optim.Adam(net.parameters(), lr=0.01)', 'optim.SGD(net.parameters(), lr=0.01)'),
        ),
    ),
    'bfloat16_model': (
        ('learning rate', 'update'),
        'SGD 1e-5 in bfloat16: every update rounds away',
        (
            ('lr=0.1, momentum=0.9', 'lr=1e-5, momentum=0.9'),
        ),
    ),
    'hf_tuple_loss_first_token_labels': (
        ('shapes', 'architecture'),
        'batch_first=True forgotten: the LSTM runs over the batch',
        (
            ('batch_first=True, bidirectional', 'bidirectional'),
        ),
    ),
    'cosine_embedding_siamese': (
        ('labels',),
        'targets 1/0 instead of 1/-1: unlike pairs do not count',
        (
            ('target = torch.where(Y[i] == Y[j], 1.0, -1.0)', 'target = (Y[i] == Y[j]).float()'),
            ('criterion(encoder(X[i]), encoder(X[j]), target)', 'criterion(encoder(X[i]), encoder(X[j]), torch.where(Y[i] == Y[j], 1.0, -1.0))'),
        ),
    ),
    'bpr_implicit_feedback': (
        ('loss',),
        'items exchanged in the loss (sign)',
        (
            ('prediction_i - prediction_j)', 'prediction_j - prediction_i)'),
        ),
    ),
    'lstm_forecast_pair_of_tensors': (
        ('architecture', 'shapes'),
        'reads out[:, 0], the first step, instead of the last',
        (
            ('out[:, -1]', 'out[:, 0]'),
        ),
    ),
    'pyg_like_data_object': (
        ('regularization',),
        'dropout 0.999',
        (
            ('F.dropout(h, training=self.training)', 'F.dropout(h, 0.999, training=self.training)'),
        ),
    ),
    'deepsets_masked_dict_batch': (
        ('output activation', 'target scale'),
        'sigmoid at the end of a regression on sums up to 10',
        (
            ('nn.Linear(32, 1))', 'nn.Linear(32, 1), nn.Sigmoid())'),
        ),
    ),
    'lightning_tuple_batch': (
        ('learning rate', 'optimizer'),
        'softmax before cross_entropy, SGD at 1e-3',
        (
            ('return self.l2(torch.relu(self.l1(x.view(x.size(0), -1))))', 'return F.softmax(self.l2(torch.relu(self.l1(x.view(x.size(0), -1)))), dim=1)'),
            ('optim.Adam(self', 'optim.SGD(self'),
        ),
    ),
    'complex_valued_signal': (
        ('labels', 'data'),
        'labels sorted by a groupby, signals not',
        (
            ('loader = DataLoader(TensorDataset(x, y), 50', 'loader = DataLoader(TensorDataset(x, y.sort().values), 50'),
        ),
    ),
    'clip_two_towers_model_returns_loss': (
        ('labels', 'data'),
        'captions are shuffled apart from the images',
        (
            ('TensorDataset(X, captions)', 'TensorDataset(X, captions[torch.randperm(len(captions))])'),
        ),
    ),
    'multitask_dict_targets': (
        ('target scale', 'loss'),
        'ink is a sum of grey levels (about 300): its MSE drowns the classes and blows up SGD at 0.01',
        (
            ('X.mean(1, keepdim=True) * 10', 'X.sum(1, keepdim=True) * 16'),
            ('optim.Adam(model.parameters(), lr=1e-3)', 'optim.SGD(model.parameters(), lr=1e-2)'),
        ),
    ),
}  # fmt: skip
"""Name of the sound program: the kinds of the fault, what it is, and what stands in the place of what."""


def _broken(name: str, text: str, changes: tuple[tuple[str, str], ...]) -> Any:
    for old, new in changes:
        if old not in text:
            raise ValueError(f"{name}: {old!r} is not in the sound program")
        text = text.replace(old, new)
    space = {**vars(sound_programs), "sound_programs": sound_programs, "program": lambda setup: setup}
    exec(compile(text, f"<{name}>", "exec"), space)
    sound = sound_programs.PROGRAMS[name]
    sound_programs.program(space[name])  # puts it in the place of the sound one
    build, sound_programs.PROGRAMS[name] = sound_programs.PROGRAMS[name], sound
    return build


WITH = {"unet_bce_dice": "UNet", "vae_pytorch_example": "vae_loss"}
"""Where the fault is in what a program uses."""
_SOURCE = Path(sound_programs.__file__).read_text()
_TEXTS = {
    node.name: "\n".join(_SOURCE.split("\n")[(node.decorator_list or [node])[0].lineno - 1 : node.end_lineno])
    for node in ast.parse(_SOURCE).body
    if isinstance(node, ast.FunctionDef | ast.ClassDef) and (node.name in FAULTS or node.name in WITH.values())
} | {"": ""}
PROGRAMS = {
    name: (_broken(name, _TEXTS[WITH.get(name, "")] + "\n\n" + _TEXTS[name], changes), kinds)
    for name, (kinds, _, changes) in FAULTS.items()
}
