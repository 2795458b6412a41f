"""The GPT and the Llama of LLMs-from-scratch: a state dict that says neither heads nor rotation."""

from types import SimpleNamespace

from ...engine.aliases import Fields
from ...engine.checkpoints import Checkpoint
from ...engine.errors import ConversionError
from ...engine.format import DECODER
from ...engine.plain import TOKEN_IDS, Needed, PlainFormat, count, head_size, is_same
from ...engine.rules import Rule, linear
from ...references.llms_from_scratch import GPT, Llama
from ..decoders import gpt2
from ..decoders.llama import ALL_OF_THEM
from ..decoders.llama import FIXED as FIXED_OF_NAMES

OURS, THEIRS = "model.layers.{i}", "trf_blocks.{i}"
PROJECTIONS = {
    "self_attn.q_proj": "att.W_query",
    "self_attn.k_proj": "att.W_key",
    "self_attn.v_proj": "att.W_value",
    "self_attn.o_proj": "att.out_proj",
}
NORMS = {
    f"{OURS}.self_attn_norm": f"{THEIRS}.norm1",
    f"{OURS}.mlp_norm": f"{THEIRS}.norm2",
    "model.norm": "final_norm",
}
BOTH = (
    Rule("model.embed_tokens.weight", "tok_emb.weight"),
    Rule("lm_head.weight", "out_head.weight"),
    *(
        rule
        for ours, theirs in PROJECTIONS.items()
        for rule in linear(f"{OURS}.{ours}", f"{THEIRS}.{theirs}")
    ),
)
GPT_RULES = (
    *BOTH,
    Rule("model.positions.weight", "pos_emb.weight"),
    *(
        Rule(f"{ours}.{kind}", f"{theirs}.{name}")
        for ours, theirs in NORMS.items()
        for kind, name in (("weight", "scale"), ("bias", "shift"))
    ),
    *linear(f"{OURS}.mlp.up_proj", f"{THEIRS}.ff.layers.0"),
    *linear(f"{OURS}.mlp.down_proj", f"{THEIRS}.ff.layers.2"),
)
LLAMA_RULES = (
    *BOTH,
    *(Rule(f"{ours}.weight", f"{theirs}.weight") for ours, theirs in NORMS.items()),
    Rule(f"{OURS}.mlp.gate_proj.weight", f"{THEIRS}.ff.fc1.weight"),
    Rule(f"{OURS}.mlp.up_proj.weight", f"{THEIRS}.ff.fc2.weight"),
    Rule(f"{OURS}.mlp.down_proj.weight", f"{THEIRS}.ff.fc3.weight"),
)
IGNORED = {
    f"{THEIRS}.att.mask": "the causal mask",
    f"{THEIRS}.att.cos": "computed from rope_base",
    f"{THEIRS}.att.sin": "computed from rope_base",
    "cos": "computed from rope_base",
    "sin": "computed from rope_base",
}


def shared_sizes(checkpoint: Checkpoint, block: str = THEIRS) -> Fields:
    vocab_size, width = checkpoint.shape("tok_emb.weight")
    return {
        "vocab_size": vocab_size,
        "emb_dim": width,
        "n_layers": count(checkpoint, f"{block}.att.W_query.weight"),
        "tied": is_same(checkpoint, "tok_emb.weight", "out_head.weight"),
    }


def gpt_sizes(checkpoint: Checkpoint, settings: SimpleNamespace) -> Fields:
    sizes = shared_sizes(checkpoint)
    head_size(sizes["emb_dim"], settings.n_heads, "n_heads")
    return {
        **sizes,
        "hidden_dim": checkpoint.shape("trf_blocks.0.ff.layers.0.weight")[0],
        "context_length": checkpoint.shape("pos_emb.weight")[0],
        "qkv_bias": "trf_blocks.0.att.W_query.bias" in checkpoint.names(),
    }


def llama_sizes(checkpoint: Checkpoint, settings: SimpleNamespace) -> Fields:
    kv_dim, width = checkpoint.shape("trf_blocks.0.att.W_key.weight")
    size = head_size(width, settings.n_heads, "n_heads")
    return {
        **shared_sizes(checkpoint),
        "hidden_dim": checkpoint.shape("trf_blocks.0.ff.fc1.weight")[0],
        "kv_dim": kv_dim,
        "n_kv_groups": kv_dim // size,
    }


def shared_fields(theirs: SimpleNamespace) -> Fields:
    return {
        "vocab_size": theirs.vocab_size,
        "hidden_size": theirs.emb_dim,
        "intermediate_size": theirs.hidden_dim,
        "num_hidden_layers": theirs.n_layers,
        "num_attention_heads": theirs.n_heads,
        "num_key_value_heads": theirs.n_heads,
        "max_position_embeddings": theirs.context_length,
        "tie_word_embeddings": theirs.tied,
        **{name: getattr(theirs, name) for name in TOKEN_IDS},
    }


def gpt_to_ours(theirs: SimpleNamespace) -> Fields:
    return {
        **gpt2.FIXED,
        **shared_fields(theirs),
        "attention_bias": theirs.qkv_bias,
        "hidden_act": "gelu_new",
        "layer_norm_eps": 1e-5,
    }


def llama_to_ours(theirs: SimpleNamespace) -> Fields:
    return {
        **ALL_OF_THEM,
        **FIXED_OF_NAMES["llama"],
        **shared_fields(theirs),
        "num_key_value_heads": theirs.n_kv_groups,
        "rms_norm_eps": 1e-5,
        "rope_parameters": rope_of(theirs),
    }


def rope_of(theirs: SimpleNamespace) -> Fields:
    rope = {"rope_type": "default", "rope_theta": float(theirs.rope_base)}
    if theirs.rope_freq:
        if not isinstance(theirs.rope_freq, dict) or theirs.rope_freq.keys() != ROPE_FREQ.keys():
            raise ConversionError(f"rope_freq is {theirs.rope_freq!r}: give none, or {ROPE_FREQ}")
        scaling = dict(theirs.rope_freq)
        original = scaling.pop("original_context_length")
        rope |= {"rope_type": "llama3", "original_max_position_embeddings": original, **scaling}
    return rope


# An example, which is that of Llama 3.2.
ROPE_FREQ = {
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_context_length": 8192,
}
FORMATS = (
    PlainFormat(
        name="llms-from-scratch-gpt",
        remark="the state dict of the GPT of LLMs-from-scratch",
        released="LLMs-from-scratch, its GPT",
        rules=GPT_RULES,
        config_to_ours=gpt_to_ours,
        our_classes=DECODER,
        reference=GPT,
        sizes=gpt_sizes,
        settings={"n_heads": Needed(12), **TOKEN_IDS},
        marks=(f"{THEIRS}.att.W_query.weight", f"{THEIRS}.ff.layers.0.weight"),
        ignored=IGNORED,
    ),
    PlainFormat(
        name="llms-from-scratch-llama",
        remark="the state dict of the Llama 2 or 3 of LLMs-from-scratch",
        released="LLMs-from-scratch, its Llama 2 and 3",
        rules=LLAMA_RULES,
        config_to_ours=llama_to_ours,
        our_classes=DECODER,
        reference=Llama,
        sizes=llama_sizes,
        settings={
            "n_heads": Needed(32),
            "rope_base": Needed(500000.0),
            "rope_freq": Needed(None),  # or ROPE_FREQ
            "context_length": 2048,  # a choice: rotary positions have no end
            **TOKEN_IDS,
        },
        marks=(f"{THEIRS}.norm1.weight", f"{THEIRS}.ff.fc1.weight"),
        ignored=IGNORED,
    ),
)
