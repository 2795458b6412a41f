"""The tutorial GPT in Llama's style, whose code applies no positions."""

from types import SimpleNamespace

from ...engine.aliases import Fields
from ...engine.checkpoints import Checkpoint
from ...engine.format import DECODER, carry
from ...engine.plain import TOKEN_IDS, Needed, PlainFormat, count, head_size
from ...engine.rules import Rule, weights
from ...references.tutorial_gpt import TutorialGPT
from ..shared import LAYER, LLAMA_FIXED

THEIRS = "layers.{i}"
MODULES = {
    "self_attn_norm": "attn_norm",
    **{f"self_attn.{x}_proj": f"attn.{x}_proj" for x in "qkvo"},
    "mlp_norm": "ffn_norm",
    **{f"mlp.{x}_proj": f"ffn.{x}_proj" for x in ("gate", "up", "down")},
}
RULES = (
    Rule("model.embed_tokens.weight", "token_emb.weight"),
    *weights(LAYER, THEIRS, MODULES),
    Rule("model.norm.weight", "norm.weight"),
)
IGNORED = {"causal_mask": "the causal mask", f"{THEIRS}.attn.causal_mask": "the causal mask"}


def sizes(checkpoint: Checkpoint, settings: SimpleNamespace) -> Fields:
    vocab_size, width = checkpoint.shape("token_emb.weight")
    kv_dim = checkpoint.shape("layers.0.attn.k_proj.weight")[0]
    size = head_size(width, settings.n_heads, "n_heads")
    return {
        "vocab_size": vocab_size,
        "d_model": width,
        "kv_dim": kv_dim,
        "n_kv_heads": kv_dim // size,
        "d_ff": checkpoint.shape("layers.0.ffn.gate_proj.weight")[0],
        "n_layers": count(checkpoint, f"{THEIRS}.attn_norm.weight"),
    }


def to_ours(theirs: SimpleNamespace) -> Fields:
    return {
        **LLAMA_FIXED,
        "position_embedding_type": "none",
        "vocab_size": theirs.vocab_size,
        "hidden_size": theirs.d_model,
        "intermediate_size": theirs.d_ff,
        "num_hidden_layers": theirs.n_layers,
        "num_attention_heads": theirs.n_heads,
        "num_key_value_heads": theirs.n_kv_heads,
        "max_position_embeddings": theirs.max_seq_len,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        **carry(theirs, tuple(TOKEN_IDS)),
    }


FORMATS = (
    PlainFormat(
        name="tutorial-gpt",
        remark="the state dict of the tutorial GPT",
        released="the tutorial GPT, which has no positions",
        rules=RULES,
        config_to_ours=to_ours,
        our_classes=DECODER,
        reference=TutorialGPT,
        sizes=sizes,
        settings={"n_heads": Needed(8), "max_seq_len": 2048, **TOKEN_IDS},
        marks=("token_emb.weight", f"{THEIRS}.attn.q_proj.weight", f"{THEIRS}.ffn_norm.weight"),
        ignored=IGNORED,
    ),
)
