"""GPT, Llama, Qwen3 and Gemma 3 of LLMs-from-scratch: state dicts that lack heads and rotation.

The norm of queries of Qwen3 and Gemma 3 has the size of a head, which gives the number of heads.
"""

from functools import partial
from types import SimpleNamespace

from ...engine.aliases import Fields
from ...engine.checkpoints import Checkpoint
from ...engine.errors import ConversionError
from ...engine.format import DECODER, carry
from ...engine.plain import TOKEN_IDS, Needed, PlainFormat, count, head_size, is_same
from ...engine.rules import Rule, linears, weights
from ...references.llms_from_scratch import GPT, Llama
from ...references.llms_from_scratch_bonus import Gemma3, Qwen3
from ..shared import GPT2_FIXED, LAYER, LLAMA_FIXED, QWEN3_FIXED

BLOCK, GEMMA3_BLOCK = "trf_blocks.{i}", "blocks.{i}"
# our module → theirs, in a layer
PROJECTIONS = {
    "self_attn.q_proj": "att.W_query",
    "self_attn.k_proj": "att.W_key",
    "self_attn.v_proj": "att.W_value",
    "self_attn.o_proj": "att.out_proj",
}
NORMS = {"self_attn_norm": "norm1", "mlp_norm": "norm2"}
GATED = {"mlp.gate_proj": "ff.fc1", "mlp.up_proj": "ff.fc2", "mlp.down_proj": "ff.fc3"}
NORMS_OF_HEADS = {"self_attn.q_norm": "att.q_norm", "self_attn.k_norm": "att.k_norm"}
QWEN3_NORMS = {**NORMS_OF_HEADS, **NORMS}
GEMMA3_NORMS = {
    **NORMS_OF_HEADS,
    "self_attn_norm": "input_layernorm",
    "self_attn_output": "post_attention_layernorm",
    "mlp_norm": "pre_feedforward_layernorm",
    "mlp_output": "post_feedforward_layernorm",
}
FULL_EVERY = 6  # of the layers of every released Gemma 3

ENDS = (
    Rule("model.embed_tokens.weight", "tok_emb.weight"),
    Rule("lm_head.weight", "out_head.weight"),
)
GPT_RULES = (
    *ENDS,
    Rule("model.positions.weight", "pos_emb.weight"),
    *linears(LAYER, BLOCK, PROJECTIONS),
    *(
        Rule(f"{ours}.{kind}", f"{theirs}.{name}")
        for ours, theirs in {
            **{f"{LAYER}.{norm}": f"{BLOCK}.{name}" for norm, name in NORMS.items()},
            "model.norm": "final_norm",
        }.items()
        for kind, name in (("weight", "scale"), ("bias", "shift"))
    ),
    *linears(LAYER, BLOCK, {"mlp.up_proj": "ff.layers.0", "mlp.down_proj": "ff.layers.2"}),
)
LLAMA_RULES = (
    *ENDS,
    Rule("model.norm.weight", "final_norm.weight"),
    *linears(LAYER, BLOCK, PROJECTIONS),
    *weights(LAYER, BLOCK, {**NORMS, **GATED}),
)


def rules_with_norms_of_heads(block: str, norms: dict[str, str]) -> tuple[Rule, ...]:
    return (
        *ENDS,
        Rule("model.norm.weight", "final_norm.scale"),
        *weights(LAYER, block, {**PROJECTIONS, **GATED}),
        *(Rule(f"{LAYER}.{norm}.weight", f"{block}.{name}.scale") for norm, name in norms.items()),
    )


IGNORED = {
    f"{BLOCK}.att.mask": "the causal mask",
    f"{BLOCK}.att.cos": "computed from rope_base",
    f"{BLOCK}.att.sin": "computed from rope_base",
    "cos": "computed from rope_base",
    "sin": "computed from rope_base",
}
# An example, which is that of Llama 3.2.
ROPE_FREQ = {
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_context_length": 8192,
}


def shared_sizes(checkpoint: Checkpoint, block: str = BLOCK) -> Fields:
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
        "n_kv_groups": settings.n_heads,
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


def qwen3_sizes(checkpoint: Checkpoint, settings: SimpleNamespace, block: str = BLOCK) -> Fields:
    def rows(name: str) -> int:
        return checkpoint.shape(f"{block.replace('{i}', '0')}.{name}")[0]

    head_dim = rows("att.q_norm.scale")
    return {
        **shared_sizes(checkpoint, block),
        "hidden_dim": rows("ff.fc1.weight"),
        "head_dim": head_dim,
        "n_heads": rows("att.W_query.weight") // head_dim,
        "n_kv_groups": rows("att.W_key.weight") // head_dim,
    }


def gemma3_sizes(checkpoint: Checkpoint, settings: SimpleNamespace) -> Fields:
    found = qwen3_sizes(checkpoint, settings, GEMMA3_BLOCK)
    scalar = settings.query_pre_attn_scalar
    if scalar is None:
        found["query_pre_attn_scalar"] = found["head_dim"]
    elif not (isinstance(scalar, (int, float)) and scalar > 0):
        raise ConversionError(
            f"query_pre_attn_scalar is {scalar!r}: give a number above zero, or none where it is "
            "the size of a head"
        )
    if settings.layer_types is None:
        kinds = ["sliding_attention"] * (FULL_EVERY - 1) + ["full_attention"]
        found["layer_types"] = [kinds[i % FULL_EVERY] for i in range(found["n_layers"])]
        assumed = f"every {FULL_EVERY}th full_attention"
        found["assumed"] = {**settings.assumed, "layer_types": assumed}
    return found


# theirs → ours
FIELDS = {
    "vocab_size": "vocab_size",
    "emb_dim": "hidden_size",
    "hidden_dim": "intermediate_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "n_kv_groups": "num_key_value_heads",
    "context_length": "max_position_embeddings",
    "tied": "tie_word_embeddings",
    **{name: name for name in TOKEN_IDS},
}


def gpt_to_ours(theirs: SimpleNamespace) -> Fields:
    return {
        **GPT2_FIXED,
        **carry(theirs, FIELDS),
        "attention_bias": theirs.qkv_bias,
        "hidden_act": "gelu_new",
        "layer_norm_eps": 1e-5,
    }


def llama_to_ours(theirs: SimpleNamespace) -> Fields:
    rope = default_rope(theirs.rope_base)
    if theirs.rope_freq:
        if not isinstance(theirs.rope_freq, dict) or theirs.rope_freq.keys() != ROPE_FREQ.keys():
            raise ConversionError(f"rope_freq is {theirs.rope_freq!r}: give none, or {ROPE_FREQ}")
        scaling = dict(theirs.rope_freq)
        original = scaling.pop("original_context_length")
        rope |= {"rope_type": "llama3", "original_max_position_embeddings": original, **scaling}
    return {**LLAMA_FIXED, **carry(theirs, FIELDS), "rms_norm_eps": 1e-5, "rope_parameters": rope}


def qwen3_to_ours(theirs: SimpleNamespace) -> Fields:
    return {
        **QWEN3_FIXED,
        **carry(theirs, FIELDS),
        "head_dim": theirs.head_dim,
        "rms_norm_eps": 1e-6,
        "rope_parameters": default_rope(theirs.rope_base),
    }


def gemma3_to_ours(theirs: SimpleNamespace) -> Fields:
    return {
        **qwen3_to_ours(theirs),
        "norm_type": "rmsnorm_offset",
        "norm_position": "both",
        "hidden_act": "gelu_pytorch_tanh",
        "scale_embedding": True,
        "attention_scale": theirs.query_pre_attn_scalar**-0.5,
        "sliding_window": theirs.sliding_window,
        "layer_types": theirs.layer_types,
        "rope_parameters": {
            "full_attention": default_rope(theirs.rope_base),
            "sliding_attention": default_rope(theirs.rope_local_base),
        },
    }


def default_rope(base: float) -> Fields:
    return {"rope_type": "default", "rope_theta": float(base)}


SETTINGS: dict[str, Fields] = {
    "llama": {
        "n_heads": Needed(32),
        "rope_base": Needed(500000.0),
        "rope_freq": Needed(None),  # or ROPE_FREQ
        "context_length": 2048,  # a choice: rotary positions have no end
        **TOKEN_IDS,
    },
    "gemma3": {
        "sliding_window": Needed(512),
        "rope_base": 1e6,
        "rope_local_base": 1e4,
        "query_pre_attn_scalar": None,  # the size of a head, but in the release of 27B
        "layer_types": None,  # FULL_EVERY
        "context_length": 32768,
        **TOKEN_IDS,
    },
}
llms_from_scratch = partial(PlainFormat, our_classes=DECODER, ignored=IGNORED)
FORMATS = (
    llms_from_scratch(
        name="llms-from-scratch-gpt",
        remark="the state dict of the GPT of LLMs-from-scratch",
        released="LLMs-from-scratch, its GPT",
        rules=GPT_RULES,
        config_to_ours=gpt_to_ours,
        reference=GPT,
        sizes=gpt_sizes,
        settings={"n_heads": Needed(12), **TOKEN_IDS},
        marks=(f"{BLOCK}.att.W_query.weight", f"{BLOCK}.ff.layers.0.weight"),
    ),
    llms_from_scratch(
        name="llms-from-scratch-llama",
        remark="the state dict of the Llama 2 or 3 of LLMs-from-scratch",
        released="LLMs-from-scratch, its Llama 2 and 3",
        rules=LLAMA_RULES,
        config_to_ours=llama_to_ours,
        reference=Llama,
        sizes=llama_sizes,
        settings=SETTINGS["llama"],
        marks=(f"{BLOCK}.norm1.weight", f"{BLOCK}.ff.fc1.weight"),
    ),
    llms_from_scratch(
        name="llms-from-scratch-qwen3",
        remark="the state dict of the Qwen3 of LLMs-from-scratch",
        released="LLMs-from-scratch, its Qwen3",
        rules=rules_with_norms_of_heads(BLOCK, QWEN3_NORMS),
        config_to_ours=qwen3_to_ours,
        reference=Qwen3,
        sizes=qwen3_sizes,
        settings={"rope_base": 1e6, "context_length": 40960, **TOKEN_IDS},
        marks=(f"{BLOCK}.att.q_norm.scale", f"{BLOCK}.ff.fc1.weight"),
    ),
    llms_from_scratch(
        name="llms-from-scratch-gemma3",
        remark="the state dict of the Gemma 3 of LLMs-from-scratch",
        released="LLMs-from-scratch, its Gemma 3",
        rules=rules_with_norms_of_heads(GEMMA3_BLOCK, GEMMA3_NORMS),
        config_to_ours=gemma3_to_ours,
        reference=Gemma3,
        sizes=gemma3_sizes,
        settings=SETTINGS["gemma3"],
        marks=(
            f"{GEMMA3_BLOCK}.att.q_norm.scale",
            f"{GEMMA3_BLOCK}.post_feedforward_layernorm.scale",
        ),
    ),
)
