"""nanoGPT's ckpt.pt: GPT-2's names, but Linear layers, and biases everywhere or nowhere."""

from types import SimpleNamespace

from ...engine.aliases import Fields
from ...engine.checkpoints import Checkpoint
from ...engine.format import DECODER, choose
from ...engine.plain import TOKEN_IDS, Needed, PlainFormat, count, head_size
from ...engine.rules import Rule
from ...engine.transforms import Split, Zeros
from ...references.nanogpt import NanoGPT
from ..decoders.gpt2 import FIXED, IGNORED, OURS, THEIRS

NORMS = {
    f"{OURS}.self_attn_norm": f"{THEIRS}.ln_1",
    f"{OURS}.mlp_norm": f"{THEIRS}.ln_2",
    "model.norm": "transformer.ln_f",
}
LINEARS = {
    f"{OURS}.self_attn.o_proj": f"{THEIRS}.attn.c_proj",
    f"{OURS}.mlp.up_proj": f"{THEIRS}.mlp.c_fc",
    f"{OURS}.mlp.down_proj": f"{THEIRS}.mlp.c_proj",
}


def both(kind: str) -> tuple[Rule, ...]:
    """The rules for all weights, or for all biases, of a layer and the last norm."""
    return (
        Rule(
            tuple(f"{OURS}.self_attn.{x}_proj.{kind}" for x in "qkv"),
            f"{THEIRS}.attn.c_attn.{kind}",
            Split(3),
        ),
        *(
            Rule(f"{ours}.{kind}", f"{theirs}.{kind}")
            for ours, theirs in {**LINEARS, **NORMS}.items()
        ),
    )


WEIGHTS = (
    Rule("model.embed_tokens.weight", "transformer.wte.weight"),
    Rule("model.positions.weight", "transformer.wpe.weight"),
    *both("weight"),
)
NO_BIASES = tuple(Rule(f"{ours}.bias", (), Zeros("hidden_size")) for ours in NORMS)


def rules(theirs: SimpleNamespace) -> tuple[Rule, ...]:
    return (*WEIGHTS, *(both("bias") if theirs.bias else NO_BIASES))


def sizes(checkpoint: Checkpoint, settings: SimpleNamespace) -> Fields:
    vocab_size, width = checkpoint.shape("transformer.wte.weight")
    head_size(width, settings.n_head, "n_head")
    return {
        "vocab_size": vocab_size,
        "n_embd": width,
        "n_inner": checkpoint.shape("transformer.h.0.mlp.c_fc.weight")[0],
        "n_layer": count(checkpoint, f"{THEIRS}.ln_1.weight"),
        "block_size": checkpoint.shape("transformer.wpe.weight")[0],
        "bias": "transformer.ln_f.bias" in checkpoint.names(),
    }


def to_ours(theirs: SimpleNamespace) -> Fields:
    choose(theirs, "hf_tformer", activation=("gelu", "gelu_new"))
    return {
        **FIXED,
        "vocab_size": theirs.vocab_size,
        "hidden_size": theirs.n_embd,
        "intermediate_size": theirs.n_inner,
        "num_hidden_layers": theirs.n_layer,
        "num_attention_heads": theirs.n_head,
        "num_key_value_heads": theirs.n_head,
        "max_position_embeddings": theirs.block_size,
        "hidden_act": theirs.activation,
        "layer_norm_eps": 1e-5,
        "attention_bias": theirs.bias,
        "attention_output_bias": theirs.bias,
        "mlp_bias": theirs.bias,
        "dropout": theirs.dropout or 0.0,
        "attention_dropout": theirs.dropout or 0.0,
        "tie_word_embeddings": True,
        **{name: getattr(theirs, name) for name in TOKEN_IDS},
    }


FORMATS = (
    PlainFormat(
        name="nanogpt",
        remark="nanoGPT's ckpt.pt, which says all of it",
        released="nanoGPT, compiled or not, with biases or without",
        rules=rules,
        config_to_ours=to_ours,
        our_classes=DECODER,
        reference=NanoGPT,
        sizes=sizes,
        # gelu_new is what it had in its first months.
        settings={"n_head": Needed(12), "activation": "gelu", "dropout": None, **TOKEN_IDS},
        marks=("transformer.wte.weight", "transformer.wpe.weight", f"{THEIRS}.ln_1.weight"),
        ignored=IGNORED,
    ),
)
