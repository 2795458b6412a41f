"""nanoGPT's ckpt.pt: GPT-2's names, but Linear layers, and biases everywhere or nowhere."""

from types import SimpleNamespace

from ...engine.aliases import Fields
from ...engine.checkpoints import Checkpoint
from ...engine.format import BIASES, DECODER, carry, require_one_of
from ...engine.plain import TOKEN_IDS, Needed, PlainFormat, count, head_size
from ...engine.rules import Rule, as_tuple, fused, linear
from ...engine.transforms import Split, Zeros
from ...references.nanogpt import NanoGPT
from ..shared import GPT2_FIXED, GPT2_LAYER, LAYER, QKV, causal_masks

NORMS = {
    f"{LAYER}.self_attn_norm": f"{GPT2_LAYER}.ln_1",
    f"{LAYER}.mlp_norm": f"{GPT2_LAYER}.ln_2",
    "model.norm": "transformer.ln_f",
}
MODULES = {
    f"{LAYER}.self_attn.o_proj": f"{GPT2_LAYER}.attn.c_proj",
    f"{LAYER}.mlp.up_proj": f"{GPT2_LAYER}.mlp.c_fc",
    f"{LAYER}.mlp.down_proj": f"{GPT2_LAYER}.mlp.c_proj",
    **NORMS,
}
WITH_BIASES = (
    *fused((f"{LAYER}.{name}" for name in QKV), f"{GPT2_LAYER}.attn.c_attn", Split(3)),
    *(rule for ours, theirs in MODULES.items() for rule in linear(ours, theirs)),
)
WITHOUT_BIASES = (
    *(rule for rule in WITH_BIASES if as_tuple(rule.theirs)[0].endswith(".weight")),
    *(Rule(f"{ours}.bias", (), Zeros("hidden_size")) for ours in NORMS),
)


def rules(theirs: SimpleNamespace) -> tuple[Rule, ...]:
    return (
        Rule("model.embed_tokens.weight", "transformer.wte.weight"),
        Rule("model.positions.weight", "transformer.wpe.weight"),
        *(WITH_BIASES if theirs.bias else WITHOUT_BIASES),
    )


def sizes(checkpoint: Checkpoint, settings: SimpleNamespace) -> Fields:
    vocab_size, width = checkpoint.shape("transformer.wte.weight")
    head_size(width, settings.n_head, "n_head")
    return {
        "vocab_size": vocab_size,
        "n_embd": width,
        "n_inner": checkpoint.shape("transformer.h.0.mlp.c_fc.weight")[0],
        "n_layer": count(checkpoint, f"{GPT2_LAYER}.ln_1.weight"),
        "block_size": checkpoint.shape("transformer.wpe.weight")[0],
        "bias": "transformer.ln_f.bias" in checkpoint.names(),
    }


def to_ours(theirs: SimpleNamespace) -> Fields:
    require_one_of(theirs, "hf_tformer", activation=("gelu", "gelu_new"))
    return {
        **GPT2_FIXED,
        "vocab_size": theirs.vocab_size,
        "hidden_size": theirs.n_embd,
        "intermediate_size": theirs.n_inner,
        "num_hidden_layers": theirs.n_layer,
        "num_attention_heads": theirs.n_head,
        "num_key_value_heads": theirs.n_head,
        "max_position_embeddings": theirs.block_size,
        "hidden_act": theirs.activation,
        "layer_norm_eps": 1e-5,
        **dict.fromkeys(BIASES, theirs.bias),
        **dict.fromkeys(("dropout", "attention_dropout"), theirs.dropout or 0.0),
        "tie_word_embeddings": True,
        **carry(theirs, tuple(TOKEN_IDS)),
    }


FORMATS = (
    PlainFormat(
        name="nanogpt",
        remark="nanoGPT's ckpt.pt, which holds all settings",
        released="nanoGPT, compiled or not, with biases or without",
        rules=rules,
        config_to_ours=to_ours,
        our_classes=DECODER,
        reference=NanoGPT,
        sizes=sizes,
        # gelu_new is what it had in its first months.
        settings={"n_head": Needed(12), "activation": "gelu", "dropout": None, **TOKEN_IDS},
        marks=("transformer.wte.weight", "transformer.wpe.weight", f"{GPT2_LAYER}.ln_1.weight"),
        ignored=causal_masks(f"{GPT2_LAYER}.attn"),
    ),
)
