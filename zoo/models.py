"""The zoo: a name, and a function that builds the model with random weights and what it is given.

Everything is made from configurations; nothing is downloaded. Sizes of inputs, not of models, are small, except where
a model is a family's small member on purpose. ``ZOO[name]()`` is a :class:`cases.Case`; the library it comes from is
imported only then.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any

import cases
import torch
import torch.nn.functional as F
from cases import CHOICE, NEXT, Case
from torch import Tensor, nn

Builder = Callable[[], Case]

ZOO: dict[str, Builder] = {}
"""Every model by its name, the stock ones first."""

BROKEN: dict[str, Builder] = {}
"""The twins that were broken on purpose."""

REFUSED = ("scripted MLP", "exported MLP")
"""What the checkup may refuse, in one line."""


def entry(name: str, table: dict[str, Builder] = ZOO) -> Callable[[Builder], Builder]:
    """Put a builder on the table."""

    def put(build: Builder) -> Builder:
        assert name not in table, name
        table[name] = build
        return build

    return put


def build(name: str) -> Case:
    """The model of that name; always the same weights, and in training mode, as a training program has it."""
    torch.manual_seed(0)
    case = {**ZOO, **BROKEN}[name]()
    if not isinstance(case.model, torch.fx.GraphModule):  # an exported one has no modes
        case.model.train()
    return case


# ------------------------------------------------------------------------------------------------- torchvision and timm

TORCHVISION: dict[str, tuple[int, int, dict[str, Any]]] = {
    "resnet18": (64, 16, {}),
    "resnet50": (64, 16, {}),
    "vgg11": (32, 16, {}),
    "vgg16": (32, 16, {}),
    "densenet121": (64, 16, {}),
    "mobilenet_v3_large": (64, 16, {}),
    "efficientnet_b0": (64, 16, {}),
    "convnext_tiny": (64, 16, {}),
    "swin_t": (64, 16, {}),
    "vit_b_16": (64, 8, {"image_size": 64}),
    "regnet_y_400mf": (64, 16, {}),
    "shufflenet_v2_x1_0": (64, 16, {}),
    "inception_v3": (299, 4, {"init_weights": True}),  # its second output needs all of that size
}
"""Size of the images, how many, and settings."""

TIMM: dict[str, tuple[int, int, dict[str, Any]]] = {
    "resnet18": (64, 16, {}),
    "resnet50": (64, 16, {}),
    "densenet121": (64, 16, {}),
    "mobilenetv3_large_100": (64, 16, {}),
    "efficientnet_b0": (64, 16, {}),
    "convnext_tiny": (64, 16, {}),
    "swin_tiny_patch4_window7_224": (64, 16, {"img_size": 64}),
    "vit_base_patch16_224": (64, 8, {"img_size": 64}),
    "vit_small_patch16_224": (64, 16, {"img_size": 64}),
    "regnety_004": (64, 16, {}),
    "inception_v3": (96, 16, {}),  # it takes no less than 75
    "mixer_s16_224": (64, 16, {"img_size": 64}),
    "gmlp_s16_224": (64, 16, {"img_size": 64}),
    "resmlp_12_224": (64, 16, {"img_size": 64}),
    "convmixer_768_32": (42, 8, {}),
    "nfnet_l0": (64, 16, {}),
    "nf_resnet50": (64, 16, {}),
    "maxvit_tiny_tf_224": (64, 8, {"img_size": 64}),
    "beit_base_patch16_224": (64, 8, {"img_size": 64}),
    "cait_xxs24_224": (64, 16, {"img_size": 64}),
    "xcit_nano_12_p16_224": (64, 16, {}),
    "repvgg_a0": (64, 16, {}),
}
"""The same."""


def _torchvision(name: str) -> Builder:
    def make() -> Case:
        from torchvision import models

        size, count, settings = TORCHVISION[name]
        model = models.get_model(name, weights=None, num_classes=10, **settings)
        if name == "vgg11":  # its own head has 120 of its 129 million weights: here it is the one used for CIFAR
            model.avgpool = nn.AdaptiveAvgPool2d(1)
            model.classifier = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Dropout(), nn.Linear(512, 10))
        return Case(model, cases.images(size, count), CHOICE)

    return make


def _timm(name: str) -> Builder:
    def make() -> Case:
        import timm

        size, count, settings = TIMM[name]
        model = timm.create_model(name, pretrained=False, num_classes=10, **settings)
        return Case(model, cases.images(size, count), CHOICE)

    return make


for _name in TORCHVISION:
    entry(f"torchvision:{_name}")(_torchvision(_name))
for _name in TIMM:
    entry(f"timm:{_name}")(_timm(_name))


@entry("torchvision:deeplabv3_mobilenet_v3_large")
def _deeplab() -> Case:
    from torchvision.models import segmentation

    model = segmentation.deeplabv3_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=2)
    return Case(model, _masks(96, 8), math.log(2), loss=_of_each_pixel)


def _masks(size: int, count: int) -> cases.Draw:
    """Pictures of a bright disc on noise, and where it is."""
    line = torch.arange(size)

    def draw(number: int) -> tuple[Tensor, Tensor]:
        source = torch.Generator().manual_seed(1000 + number)
        centre = torch.rand(count, 2, generator=source) * size
        distance = (line[None, :, None] - centre[:, 0, None, None]) ** 2
        distance = distance + (line[None, None, :] - centre[:, 1, None, None]) ** 2
        inside = (distance < (0.4 * size) ** 2).long()  # about half of a picture
        x = torch.randn(count, 3, size, size, generator=source) * 0.5 + (2.0 * inside[:, None] - 1)
        return x, inside

    return draw


def _of_each_pixel(outputs: Any, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs["out"], targets)


# --------------------------------------------------------------------------------------------------------- transformers

SMALL = {"hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 8, "vocab_size": 1000}
DECODER = {**SMALL, "intermediate_size": 688, "num_key_value_heads": 4, "max_position_embeddings": 128}


def _causal(config: Any, length: int = 64, count: int = 4) -> Case:
    from transformers import AutoModelForCausalLM

    return Case(AutoModelForCausalLM.from_config(config), cases.language(length, count), NEXT)


@entry("hf:gpt2 small")
def _gpt2_small() -> Case:
    import transformers

    return _causal(transformers.GPT2Config(vocab_size=1000, n_positions=128, n_embd=192, n_layer=6, n_head=6))


@entry("hf:gpt2")
def _gpt2() -> Case:
    import transformers

    return _causal(transformers.GPT2Config(), 64, 2)


@entry("hf:llama small")
def _llama() -> Case:
    import transformers

    return _causal(transformers.LlamaConfig(**DECODER))


@entry("hf:qwen3 small")
def _qwen3() -> Case:
    import transformers

    return _causal(transformers.Qwen3Config(**DECODER, head_dim=32))


@entry("hf:mistral small")
def _mistral() -> Case:
    import transformers

    return _causal(transformers.MistralConfig(**DECODER, head_dim=32, sliding_window=None))


@entry("hf:mamba small")
def _mamba() -> Case:
    import transformers

    config = transformers.MambaConfig(vocab_size=1000, hidden_size=128, num_hidden_layers=4, state_size=8)
    return _causal(config, 32, 4)


@entry("hf:bert small")
def _bert() -> Case:
    import transformers

    config = transformers.BertConfig(**SMALL, intermediate_size=1024, max_position_embeddings=128)
    return Case(transformers.AutoModelForMaskedLM.from_config(config), cases.masked_language(), NEXT)


@entry("hf:bert small, classifier")
def _bert_classifier() -> Case:
    import transformers

    config = transformers.BertConfig(**SMALL, intermediate_size=1024, max_position_embeddings=128, num_labels=4)
    ids = torch.randint(10, 1000, (cases.CLASSES, 8), generator=torch.Generator().manual_seed(7))

    def draw(number: int) -> tuple[dict[str, Tensor], Tensor]:
        """A sentence is made of the eight words of its class and of others."""
        source = torch.Generator().manual_seed(1000 + number)
        labels = (torch.arange(16) % cases.CLASSES)[torch.randperm(16, generator=source)]
        own = ids[labels].gather(1, torch.randint(8, (16, 32), generator=source))
        other = torch.randint(10, 1000, (16, 32), generator=source)
        tokens = torch.where(torch.rand(16, 32, generator=source) < 0.5, own, other)
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}, labels

    model = transformers.AutoModelForSequenceClassification.from_config(config)
    return Case(model, draw, CHOICE)


@entry("hf:t5 small")
def _t5() -> Case:
    import transformers

    config = transformers.T5Config(vocab_size=1000, d_model=256, d_kv=32, d_ff=512, num_layers=4, num_heads=8,
                                   decoder_start_token_id=0)  # fmt: skip
    ids = cases.text(32, 8)

    def draw(number: int) -> tuple[dict[str, Tensor], None]:
        tokens = ids(number)
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens + 20}, None

    return Case(transformers.AutoModelForSeq2SeqLM.from_config(config), draw, NEXT)


@entry("hf:whisper small")
def _whisper() -> Case:
    import transformers

    config = transformers.WhisperConfig(
        vocab_size=1000, d_model=192, encoder_layers=4, decoder_layers=4, encoder_attention_heads=6,
        decoder_attention_heads=6, encoder_ffn_dim=512, decoder_ffn_dim=512, max_source_positions=50,
        max_target_positions=64, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        suppress_tokens=None, begin_suppress_tokens=None,
    )  # fmt: skip
    ids = cases.text(32, 4)
    tones = torch.randn(cases.TOKENS + 10, 80, generator=torch.Generator().manual_seed(7))

    def draw(number: int) -> tuple[dict[str, Tensor], None]:
        """The spectrum says which token is spoken."""
        tokens = ids(number)
        spoken = tones[tokens].transpose(1, 2).repeat_interleave(3, 2)  # 96 frames of 100
        noise = torch.randn(4, 80, 100, generator=torch.Generator().manual_seed(1000 + number))
        return {"input_features": F.pad(spoken, (2, 2)) + 0.3 * noise, "labels": tokens}, None

    return Case(transformers.WhisperForConditionalGeneration(config), draw, NEXT)


@entry("hf:clip small")
def _clip() -> Case:
    import transformers

    text = {"vocab_size": 1000, "hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 4,
            "num_attention_heads": 6, "max_position_embeddings": 16, "bos_token_id": 0,
            "eos_token_id": 999}  # fmt: skip
    vision = {"hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 6,
              "image_size": 64, "patch_size": 16}  # fmt: skip
    config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=128)
    coarse = torch.randn(16, 3, 6, 6, generator=torch.Generator().manual_seed(7))
    patterns = F.interpolate(coarse, (64, 64), mode="bilinear")
    captions = torch.randint(10, 900, (16, 16), generator=torch.Generator().manual_seed(8))
    captions[:, -1] = 999

    def draw(number: int) -> tuple[dict[str, Any], None]:
        """Sixteen things, each with its caption."""
        source = torch.Generator().manual_seed(1000 + number)
        order = torch.randperm(16, generator=source)
        pixels = patterns[order] + 0.5 * torch.randn(16, 3, 64, 64, generator=source)
        tokens = captions[order]
        return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "pixel_values": pixels,
                "return_loss": True}, None  # fmt: skip

    return Case(transformers.CLIPModel(config), draw, math.log(16))


@entry("hf:wav2vec2 small")
def _wav2vec2() -> Case:
    import transformers

    config = transformers.Wav2Vec2Config(
        hidden_size=192, num_hidden_layers=4, num_attention_heads=6, intermediate_size=512, conv_dim=(128,) * 7,
        num_conv_pos_embeddings=32, num_conv_pos_embedding_groups=8, num_labels=4, vocab_size=32,
    )  # fmt: skip
    return Case(transformers.Wav2Vec2ForSequenceClassification(config), cases.waves(8000), CHOICE)


@entry("hf:vit small")
def _hf_vit() -> Case:
    import transformers

    config = transformers.ViTConfig(hidden_size=192, num_hidden_layers=8, num_attention_heads=6, intermediate_size=768,
                                    image_size=64, num_labels=10)  # fmt: skip
    images = cases.images(64)

    def draw(number: int) -> tuple[dict[str, Tensor], None]:
        x, labels = images(number)
        return {"pixel_values": x, "labels": labels}, None

    return Case(transformers.AutoModelForImageClassification.from_config(config), draw, CHOICE)


@entry("hf:gpt2 small with LoRA")
def _lora() -> Case:
    import peft

    case = _gpt2_small()
    settings = peft.LoraConfig(task_type="CAUSAL_LM", r=8, target_modules=["c_attn", "c_proj", "c_fc"],
                               fan_in_fan_out=True)  # fmt: skip
    case.model = peft.get_peft_model(case.model, settings)
    return case


@entry("timm:vit_tiny with LoRA")
def _vit_lora() -> Case:
    import peft
    import timm

    model = timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=10, img_size=64)
    settings = peft.LoraConfig(r=8, target_modules=["qkv", "fc1", "fc2"], modules_to_save=["head"])
    return Case(peft.get_peft_model(model, settings), cases.images(64), CHOICE)


# ------------------------------------------------------------------------------------------------------------ diffusers


def _denoising(shape: tuple[int, ...], count: int, **others: Callable[[torch.Generator], Any]) -> cases.Draw:
    """Smooth pictures under noise of a random strength; the noise is asked for."""
    patterns = F.interpolate(torch.randn(8, shape[0], 4, 4, generator=torch.Generator().manual_seed(7)), shape[1:])
    kept = torch.cos(torch.linspace(0, math.pi / 2, 1000)) ** 2

    def draw(number: int) -> tuple[dict[str, Any], Tensor]:
        source = torch.Generator().manual_seed(1000 + number)
        clean = patterns[torch.randint(8, (count,), generator=source)]
        noise = torch.randn(count, *shape, generator=source)
        step = torch.randint(100, 1000, (count,), generator=source)
        share = kept[step][:, None, None, None]
        batch = {"sample": share.sqrt() * clean + (1 - share).sqrt() * noise, "timestep": step}
        return {**batch, **{name: make(source) for name, make in others.items()}}, noise

    return draw


@entry("diffusers:UNet2DModel")
def _unet2d() -> Case:
    import diffusers

    model = diffusers.UNet2DModel(
        sample_size=32, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(32, 64, 64),
        down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D"), norm_num_groups=8,
    )  # fmt: skip
    return Case(model, _denoising((3, 32, 32), 8), 1.0)


@entry("diffusers:UNet2DConditionModel")
def _unet2d_condition() -> Case:
    import diffusers

    model = diffusers.UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(32, 64),
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"), up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=32, attention_head_dim=8, norm_num_groups=8,
    )  # fmt: skip
    words = {"encoder_hidden_states": lambda source: torch.randn(8, 12, 32, generator=source)}
    return Case(model, _denoising((4, 16, 16), 8, **words), 1.0)


@entry("diffusers:AutoencoderKL")
def _autoencoder() -> Case:
    import diffusers

    model = diffusers.AutoencoderKL(
        block_out_channels=(32, 64), down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=4, norm_num_groups=8, sample_size=32,
    )  # fmt: skip
    images = cases.images(32, 8)

    def draw(number: int) -> tuple[Tensor, Tensor]:
        x, _ = images(number)
        x = F.avg_pool2d(x, 5, 1, 2)  # little noise is left
        return x, x

    return Case(model, draw, float(draw(0)[0].var()))


@entry("diffusers:DiTTransformer2DModel")
def _dit() -> Case:
    import diffusers

    model = diffusers.DiTTransformer2DModel(
        num_attention_heads=6, attention_head_dim=32, in_channels=4, out_channels=4, num_layers=6, sample_size=16,
        patch_size=2, num_embeds_ada_norm=1000, norm_num_groups=1,
    )  # fmt: skip
    inner = _denoising((4, 16, 16), 8, class_labels=lambda source: torch.randint(1000, (8,), generator=source))

    def draw(number: int) -> tuple[dict[str, Any], Tensor]:
        batch, noise = inner(number)
        return {"hidden_states": batch.pop("sample"), **batch}, noise

    return Case(model, draw, 1.0)


# --------------------------------------------------------------------------------------------------------------- graphs


class _Graph(nn.Module):
    """Two or more layers of message passing with ReLU between them, as in the tutorials of torch-geometric."""

    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = F.dropout(layer(x, edge_index).relu(), 0.2, self.training)
        return self.layers[-1](x, edge_index)


def _of_nodes() -> cases.Draw:
    graph = cases.communities()

    def draw(number: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
        x, edges, labels = graph(number)
        return (x, edges), labels

    return draw


@entry("pyg:GCN")
def _gcn() -> Case:
    from torch_geometric.nn import GCNConv

    return Case(_Graph([GCNConv(32, 32), GCNConv(32, 10)]), _of_nodes(), CHOICE)


@entry("pyg:GAT")
def _gat() -> Case:
    from torch_geometric.nn import GATConv

    return Case(_Graph([GATConv(32, 8, heads=4), GATConv(32, 10, heads=1)]), _of_nodes(), CHOICE)


@entry("pyg:SAGE")
def _sage() -> Case:
    from torch_geometric.nn import GraphSAGE

    return Case(GraphSAGE(32, 64, num_layers=3, out_channels=10), _of_nodes(), CHOICE)


@entry("pyg:GIN")
def _gin() -> Case:
    """A class for each graph; a batch of graphs is a ``Data``, as torch-geometric's loader gives it."""
    from torch_geometric.data import Batch, Data
    from torch_geometric.nn import GIN, global_add_pool

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = GIN(16, 32, num_layers=3)
            self.head = nn.Linear(32, 10)

        def forward(self, data: Any) -> Tensor:
            return self.head(global_add_pool(self.body(data.x, data.edge_index), data.batch))

    centres = torch.randn(cases.CLASSES, 16, generator=torch.Generator().manual_seed(7))

    def draw(number: int) -> tuple[Any, Tensor]:
        source = torch.Generator().manual_seed(1000 + number)
        labels = (torch.arange(16) % cases.CLASSES)[torch.randperm(16, generator=source)]
        graphs = []
        for label in labels.tolist():
            linked = torch.rand(12, 12, generator=source) < 0.2
            edges = (linked | linked.T).fill_diagonal_(False).nonzero().T.contiguous()
            x = centres[label] * 0.5 + torch.randn(12, 16, generator=source)
            graphs.append(Data(x=x, edge_index=edges))
        return Batch.from_data_list(graphs), labels

    return Case(Classifier(), draw, CHOICE)


# -------------------------------------------------------------------------------------------------------- plain modules


class _Recurrent(nn.Module):
    def __init__(self, cell: nn.Module, hidden: int, tokens: int | None = None) -> None:
        super().__init__()
        self.embedding = None if tokens is None else nn.Embedding(tokens, cell.input_size)
        self.cell = cell
        self.head = nn.Linear(hidden, 10)

    def forward(self, x: Tensor) -> Tensor:
        if self.embedding is not None:
            x = self.embedding(x)
        outputs, _ = self.cell(x)
        return self.head(outputs[:, -1])


@entry("LSTM classifier")
def _lstm() -> Case:
    return Case(_Recurrent(nn.LSTM(16, 64, num_layers=2, batch_first=True), 64), cases.sequences(30, 16), CHOICE)


@entry("GRU classifier of tokens")
def _gru() -> Case:
    words = torch.randint(100, (cases.CLASSES, 8), generator=torch.Generator().manual_seed(7))

    def draw(number: int) -> tuple[Tensor, Tensor]:
        source = torch.Generator().manual_seed(1000 + number)
        labels = (torch.arange(32) % cases.CLASSES)[torch.randperm(32, generator=source)]
        own = words[labels].gather(1, torch.randint(8, (32, 30), generator=source))
        other = torch.randint(100, (32, 30), generator=source)
        return torch.where(torch.rand(32, 30, generator=source) < 0.5, own, other), labels

    return Case(_Recurrent(nn.GRU(32, 64, batch_first=True), 64, 100), draw, CHOICE)


class _Sine(nn.Module):
    """A layer of SIREN (Sitzmann et al. 2020): sin(30 (W x + b)), with the weights of section 3.2."""

    def __init__(self, fan_in: int, fan_out: int, first: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(fan_in, fan_out)
        bound = 1 / fan_in if first else (6 / fan_in) ** 0.5 / 30
        nn.init.uniform_(self.linear.weight, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(30 * self.linear(x))


def _picture(number: int, count: int = 512) -> tuple[Tensor, Tensor]:
    """Points of a square and the grey there."""
    x = torch.rand(count, 2, generator=torch.Generator().manual_seed(1000 + number)) * 2 - 1
    return x, (torch.sin(5 * x[:, :1]) * torch.cos(4 * x[:, 1:]) + 0.5 * torch.sin(9 * x.sum(1, keepdim=True))) * 1.2


@entry("SIREN")
def _siren() -> Case:
    body = nn.Linear(128, 1)
    nn.init.uniform_(body.weight, -((6 / 128) ** 0.5) / 30, (6 / 128) ** 0.5 / 30)
    model = nn.Sequential(_Sine(2, 128, first=True), _Sine(128, 128), _Sine(128, 128), _Sine(128, 128), body)
    return Case(model, _picture, float(_picture(0)[1].var()))


class _NeRF(nn.Module):
    """The network of NeRF (Mildenhall et al. 2020): eight layers, the encoded point again in the fifth."""

    def __init__(self, width: int = 128, bands: int = 6) -> None:
        super().__init__()
        self.bands, encoded = bands, 3 + 6 * bands
        sizes = [encoded, *[width] * 7]
        self.layers = nn.ModuleList(nn.Linear(size + (encoded if i == 5 else 0), width) for i, size in enumerate(sizes))
        self.density = nn.Linear(width, 1)
        self.colour = nn.Sequential(nn.Linear(width + 3, width // 2), nn.ReLU(), nn.Linear(width // 2, 3))

    def forward(self, point: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
        waves = [f(2.0**k * point) for k in range(self.bands) for f in (torch.sin, torch.cos)]
        encoded = torch.cat([point, *waves], -1)
        h = encoded
        for i, layer in enumerate(self.layers):
            h = layer(torch.cat([h, encoded], -1) if i == 5 else h).relu()
        return self.colour(torch.cat([h, direction], -1)).sigmoid(), self.density(h).relu()


@entry("NeRF")
def _nerf() -> Case:
    def draw(number: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
        source = torch.Generator().manual_seed(1000 + number)
        point = torch.rand(512, 3, generator=source) * 2 - 1
        direction = F.normalize(torch.randn(512, 3, generator=source), dim=1)
        colour = (point * 6).sin().sign() * 0.4 + 0.5
        return (point, direction), colour

    def loss(outputs: tuple[Tensor, Tensor], targets: Tensor) -> Tensor:
        return F.mse_loss(outputs[0], targets)

    return Case(_NeRF(), draw, float(draw(0)[1].var()), loss=loss)


class _VAE(nn.Module):
    """A variational autoencoder as in torch's own examples: picture, mean and log variance come out."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(400, 200), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(200, 20), nn.Linear(200, 20)
        self.decoder = nn.Sequential(nn.Linear(20, 200), nn.ReLU(), nn.Linear(200, 400), nn.Sigmoid())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = self.encoder(x)
        mean, log_variance = self.mean(h), self.log_variance(h)
        z = mean + torch.randn_like(mean) * (log_variance / 2).exp()
        return self.decoder(z), mean, log_variance


@entry("VAE")
def _vae() -> Case:
    patterns = torch.rand(cases.CLASSES, 400, generator=torch.Generator().manual_seed(7)).round() * 0.9 + 0.05

    def draw(number: int) -> tuple[Tensor, Tensor]:
        source = torch.Generator().manual_seed(1000 + number)
        x = patterns[torch.randint(cases.CLASSES, (64,), generator=source)]
        x = x + 0.02 * torch.randn(64, 400, generator=source).clamp(-2, 2)
        return x, x

    def loss(outputs: tuple[Tensor, Tensor, Tensor], targets: Tensor) -> Tensor:
        made, mean, log_variance = outputs
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(1).mean() / 400
        return F.binary_cross_entropy(made, targets) + divergence

    constant = F.binary_cross_entropy(draw(0)[0].mean(0).expand(64, 400), draw(0)[0])
    # a code of two bits leaves the entropy of the greys themselves, so the loss is counted from there
    least = F.binary_cross_entropy(draw(0)[0], draw(0)[0])
    return Case(_VAE(), draw, float(constant - least), loss=lambda out, t: loss(out, t) - least)


class _Unet(nn.Module):
    """Two halvings, two doublings and the skips between them (Ronneberger et al. 2015)."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()

        def pair(before: int, after: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.Conv2d(after, after, 3, padding=1), nn.ReLU()
            )

        self.down1, self.down2, self.bottom = pair(3, width), pair(width, 2 * width), pair(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.up1 = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.join2, self.join1 = pair(4 * width, 2 * width), pair(2 * width, width)
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.down1(x)
        second = self.down2(F.max_pool2d(first, 2))
        h = self.up2(self.bottom(F.max_pool2d(second, 2)))
        h = self.up1(self.join2(torch.cat([second, h], 1)))
        return self.head(self.join1(torch.cat([first, h], 1)))


@entry("Unet")
def _unet() -> Case:
    return Case(_Unet(), _masks(32, 8), math.log(2))


def _convnet() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def _dense(*sizes: int, norm: bool = False) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), *([nn.LayerNorm(after)] if norm else []), nn.ReLU()]
    return nn.Sequential(*layers[: -2 if norm else -1])


@entry("MLP")
def _mlp() -> Case:
    return Case(_dense(64, 128, 128, 128, 10), cases.vectors(64), CHOICE)


@entry("convnet")
def _plain_convnet() -> Case:
    return Case(_convnet(), cases.images(32), CHOICE)


@entry("LightningModule")
def _lightning() -> Case:
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = _convnet()

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x)

        def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
            x, labels = batch
            loss = F.cross_entropy(self(x), labels)
            self.log("train_loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), 1e-3)

    images = cases.images(32)
    return Case(Module(), lambda number: (images(number), None), CHOICE)


@entry("bfloat16 MLP")
def _bfloat16() -> Case:
    model = _dense(64, 128, 128, 128, 10, norm=True).bfloat16()
    return Case(model, cases.vectors(64, dtype=torch.bfloat16), CHOICE)


@entry("bfloat16 convnet")
def _bfloat16_convnet() -> Case:
    return Case(_convnet().bfloat16(), cases.images(32, dtype=torch.bfloat16), CHOICE)


@entry("compiled MLP")
def _compiled() -> Case:
    case = _mlp()
    case.model = torch.compile(case.model)
    return case


@entry("scripted MLP")
def _scripted() -> Case:
    import warnings

    case = _mlp()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case.model = torch.jit.script(case.model)
    return case


@entry("exported MLP")
def _exported() -> Case:
    case = _mlp()
    case.model = torch.export.export(case.model, (case.batch,)).module()
    return case


def _wrapped(wrap: Callable[[nn.Module], nn.Module]) -> nn.Module:
    model = _convnet()
    for i, layer in enumerate(model):
        if isinstance(layer, nn.Linear | nn.Conv2d):
            model[i] = wrap(layer)
    return model


@entry("weight_norm convnet")
def _weight_norm() -> Case:
    return Case(_wrapped(torch.nn.utils.parametrizations.weight_norm), cases.images(32), CHOICE)


@entry("spectral_norm convnet")
def _spectral_norm() -> Case:
    return Case(_wrapped(torch.nn.utils.parametrizations.spectral_norm), cases.images(32), CHOICE)


@entry("tied autoencoder")
def _tied() -> Case:
    class Tied(nn.Module):
        """The weights of the way back are those of the way there, transposed."""

        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(64, 32), nn.Linear(32, 16)
            self.back, self.out = nn.Parameter(torch.zeros(32)), nn.Parameter(torch.zeros(64))

        def forward(self, x: Tensor) -> Tensor:
            h = self.second(self.first(x).relu()).relu()
            h = F.linear(h, self.second.weight.T, self.back).relu()
            return F.linear(h, self.first.weight.T, self.out)

    patterns = torch.randn(cases.CLASSES, 64, generator=torch.Generator().manual_seed(7))

    def draw(number: int) -> tuple[Tensor, Tensor]:
        source = torch.Generator().manual_seed(1000 + number)
        x = patterns[torch.randint(cases.CLASSES, (64,), generator=source)]
        x = x + 0.2 * torch.randn(64, 64, generator=source)
        return x, x

    return Case(Tied(), draw, float(draw(0)[0].var(0).mean()))


@entry("tied transformer")
def _tied_transformer() -> Case:
    class Language(nn.Module):
        """torch's own encoder layers, the readout being the embedding."""

        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(200, 64)
            nn.init.normal_(self.embedding.weight, std=0.02)
            layer = nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True, norm_first=True)
            self.body = nn.TransformerEncoder(layer, 4, nn.LayerNorm(64), enable_nested_tensor=False)
            self.head = nn.Linear(64, 200, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, ids: Tensor) -> Tensor:
            mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
            return self.head(self.body(self.embedding(ids), mask, is_causal=True))

    ids = cases.text(33, 8)

    def draw(number: int) -> tuple[Tensor, Tensor]:
        tokens = ids(number)
        return tokens[:, :-1], tokens[:, 1:]

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())

    return Case(Language(), draw, NEXT, loss=loss)


# ---------------------------------------------------------------------------------------------------- broken on purpose


def _scaled(name: str, factor: float) -> Builder:
    """All weights but biases and the parameters of norms times a number."""

    def make() -> Case:
        case = ZOO[name]()
        with torch.no_grad():
            for parameter in {id(p): p for p in case.model.parameters() if p.dim() > 1}.values():
                parameter.mul_(factor)
        return case

    return make


def _dead(name: str, layer: str, how: str) -> Builder:
    """A layer in the middle is silent: its weights are zero, or its bias is so low that its ReLU never opens."""

    def make() -> Case:
        case = ZOO[name]()
        module = case.model.get_submodule(layer)
        with torch.no_grad():
            if how == "zero":
                for parameter in module.parameters():
                    parameter.zero_()
            else:
                module.bias.fill_(-10.0)
        return case

    return make


SCALED = (
    "MLP", "convnet", "Unet", "LSTM classifier", "SIREN", "torchvision:resnet18", "torchvision:vgg11",
    "torchvision:mobilenet_v3_large", "timm:vit_small_patch16_224", "timm:mixer_s16_224", "hf:gpt2 small",
    "hf:llama small", "hf:bert small", "pyg:GCN", "diffusers:UNet2DModel",
)  # fmt: skip
"""Models whose twins have ten times or a tenth of their weights."""

DEAD = (
    ("MLP", "4", "zero"), ("MLP", "4", "closed"), ("convnet", "3", "zero"), ("convnet", "6", "closed"),
    ("torchvision:vgg11", "features.11", "closed"),
    ("torchvision:resnet18", "layer2.0.bn2", "zero"),
    ("torchvision:mobilenet_v3_large", "features.8.block.0.0", "zero"),
    ("LSTM classifier", "cell", "zero"), ("hf:gpt2 small", "transformer.ln_f", "zero"),
    ("pyg:SAGE", "convs.1", "zero"), ("timm:resnet18", "bn1", "zero"),
)  # fmt: skip
"""Models with a dead layer; where a way around it is left, they may train."""

for _name in SCALED:
    entry(f"{_name}, weights x 10", BROKEN)(_scaled(_name, 10.0))
    entry(f"{_name}, weights / 10", BROKEN)(_scaled(_name, 0.1))
for _name, _layer, _how in DEAD:
    entry(f"{_name}, {_layer} {'zero' if _how == 'zero' else 'bias -10'}", BROKEN)(_dead(_name, _layer, _how))


@entry("40 dense layers, ReLU, default weights", BROKEN)
def _deep_mlp() -> Case:
    return Case(_dense(64, *[64] * 40, 10), cases.vectors(64), CHOICE)


@entry("40 dense layers, sigmoid", BROKEN)
def _deep_sigmoid() -> Case:
    model = _dense(64, *[64] * 40, 10)
    for i, layer in enumerate(model):
        if isinstance(layer, nn.ReLU):
            model[i] = nn.Sigmoid()
    return Case(model, cases.vectors(64), CHOICE)


@entry("40 convolutions without norm", BROKEN)
def _deep_convnet() -> Case:
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU()]
    for i in range(39):
        layers += [nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), *([nn.MaxPool2d(2)] if i in (10, 20) else [])]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 10))
    return Case(model, cases.images(32), CHOICE)


@entry("40 dense layers, tanh, weights x 10", BROKEN)
def _deep_tanh() -> Case:
    model = _dense(64, *[64] * 40, 10)
    for i, layer in enumerate(model):
        if isinstance(layer, nn.ReLU):
            model[i] = nn.Tanh()
        else:
            nn.init.normal_(layer.weight, std=10 / 8)
    return Case(model, cases.vectors(64), CHOICE)
