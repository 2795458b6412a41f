"""200 steps from the same weights on the same data: the curve of transformers' own models."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, MarianConfig, MarianMTModel

import hf_tformer
from conversion import import_checkpoint
from support.families import random_rows

STEPS = 200
SIZES = {"hidden_size": 36, "intermediate_size": 70, "num_hidden_layers": 2}
LLAMA = LlamaConfig(
    vocab_size=101,
    num_attention_heads=6,
    num_key_value_heads=3,
    head_dim=10,
    max_position_embeddings=64,
    initializer_range=0.2,
    **SIZES,
)
MARIAN = MarianConfig(
    vocab_size=101,
    d_model=36,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=3,
    decoder_attention_heads=3,
    encoder_ffn_dim=70,
    decoder_ffn_dim=70,
    max_position_embeddings=64,
    dropout=0.0,
    init_std=0.2,
    pad_token_id=100,  # whose row no gradient reaches there, and which no decoder input holds here
    decoder_start_token_id=1,
    eos_token_id=2,
)


def decoder_batch(step):
    ids = torch.tensor(random_rows([12] * 4, seed=step, vocab_size=13))
    ids[:, 6:] = ids[:, :6]  # something to learn
    return {"input_ids": ids, "labels": ids}


def seq2seq_batch(step):
    rows = torch.tensor(random_rows([7] * 4, seed=step, vocab_size=13))
    return {"input_ids": rows, "labels": rows.flip(1)}


def curve(model, batch_of):
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses = []
    for step in range(STEPS):
        loss = model(**batch_of(step)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    ("config", "their_class", "our_class", "batch_of"),
    [
        (LLAMA, LlamaForCausalLM, hf_tformer.TformerDecoderForCausalLM, decoder_batch),
        pytest.param(
            *(MARIAN, MarianMTModel, hf_tformer.TformerSeq2SeqForConditionalGeneration),
            seq2seq_batch,
            marks=pytest.mark.slow,
        ),
    ],
    ids=["llama", "marian"],
)
def test_training_follows_the_curve_of(config, their_class, our_class, batch_of, tmp_path):
    torch.manual_seed(0)
    theirs = their_class(config)
    theirs.save_pretrained(tmp_path / "theirs")
    import_checkpoint(tmp_path / "theirs", tmp_path / "ours")
    ours = our_class.from_pretrained(tmp_path / "ours")
    if ours.lm_head.bias is not None:
        ours.lm_head.bias.requires_grad_(False)  # a constant there
    expected, actual = curve(theirs, batch_of), curve(ours, batch_of)
    assert expected[-1] < 0.6 * expected[0]  # it learned
    assert max(abs(a - b) for a, b in zip(actual, expected, strict=True)) < 1e-4
