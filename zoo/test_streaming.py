"""Streaming against the ordinary checkup on a GPT-2 of transformers, built from its config."""

import math

import torch
import transformers

import epoch0 as e0


def alike(one: object, other: object) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return all(key == "update" or alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-5)
    return one == other


def test_a_streamed_gpt2_gives_the_rows_of_the_ordinary_checkup() -> None:
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=4, n_embd=64, n_head=4, vocab_size=500, n_positions=64)
    model = transformers.GPT2LMHeadModel(config).eval()
    tokens = torch.randint(500, (4, 32))
    batch = {"input_ids": tokens, "labels": tokens}
    whole = e0.checkup(model, batch, directions=2, trial=False, remedies=False).to_dict()
    streamed = e0.checkup(model, batch, stream=True).to_dict()
    assert len(whole["layers"]) >= 8
    for key in ("layers", "forward", "backward", "input_gradient"):
        assert alike(whole[key], streamed[key]), key


def test_an_empty_llama_gets_weights_of_its_own_initialization() -> None:
    config = transformers.LlamaConfig(
        num_hidden_layers=3, hidden_size=64, intermediate_size=128, num_attention_heads=4, vocab_size=500
    )
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    tokens = torch.randint(500, (2, 16), generator=torch.Generator().manual_seed(0))
    batch = {"input_ids": tokens, "labels": tokens}
    one, same, other = (e0.checkup(model, batch, stream=True, seed=seed).to_dict()["layers"] for seed in (0, 0, 1))
    assert one == same and one != other and all(math.isfinite(layer["gradient"]) for layer in one)
    assert all(p.device.type == "meta" for p in model.parameters())
