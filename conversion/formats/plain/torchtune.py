"""torchtune's own layout: the state dict of its decoders, as FullModelTorchTuneCheckpointer saves.

One layout serves several models, which differ where no tensor shows it: `model` names the builder.
"""

from types import SimpleNamespace

from ...engine.aliases import Fields
from ...engine.checkpoints import Checkpoint
from ...engine.errors import ConversionError
from ...engine.format import DECODER, carry
from ...engine.plain import TOKEN_IDS, Needed, PlainFormat, count, head_size
from ...engine.rotations import rotation_of_llama
from ...engine.rules import Rule, linear, weights
from ...engine.transforms import SAME
from ...references.torchtune import Torchtune
from ..shared import LAYER, LLAMA_FIXED, NEIGHBOURS

THEIRS = "layers.{i}"
NORMS = {
    f"{LAYER}.self_attn_norm": f"{THEIRS}.sa_norm",
    f"{LAYER}.mlp_norm": f"{THEIRS}.mlp_norm",
    "model.norm": "norm",
}
# What each builder fixes: the base of the rotation, what is added in norms, the factor of Llama 3.1
MODELS = {
    "llama2": (1e4, 1e-5, None),
    "code_llama2": (1e6, 1e-5, None),
    "llama3": (5e5, 1e-5, None),
    "llama3_1": (5e5, 1e-5, 8),
    "llama3_2": (5e5, 1e-5, 32),
    "llama3_3": (5e5, 1e-5, 8),
    "mistral": (1e4, 1e-5, None),
    "phi3": (1e4, 1e-5, None),
    "qwen2": (1e6, 1e-6, None),
    "qwen2_5": (1e6, 1e-6, None),
    "gemma": (1e4, 1e-6, None),
}
ROTATES_HALVES = ("phi3", "qwen2", "qwen2_5")
SETTINGS = {
    "model": Needed("llama3_1"),
    "num_heads": Needed(32),
    "rope_base": None,  # these three: what the builder fixes
    "norm_eps": None,
    "scale_factor": None,
    "max_seq_len": 2048,  # a choice: rotary positions have no end
    **TOKEN_IDS,
}


def rules(theirs: SimpleNamespace) -> tuple[Rule, ...]:
    pairs = {} if theirs.rotates_halves else NEIGHBOURS
    return (
        Rule("model.embed_tokens.weight", "tok_embeddings.weight"),
        *(
            rule
            for x in "qkv"
            for rule in linear(
                f"{LAYER}.self_attn.{x}_proj", f"{THEIRS}.attn.{x}_proj", pairs.get(x, SAME)
            )
        ),
        *weights(LAYER, THEIRS, {"self_attn.o_proj": "attn.output_proj"}),
        *weights(
            LAYER,
            THEIRS,
            {"mlp.gate_proj": "mlp.w1", "mlp.down_proj": "mlp.w2", "mlp.up_proj": "mlp.w3"},
        ),
        *(Rule(f"{ours}.weight", f"{name}.scale") for ours, name in NORMS.items()),
        Rule("lm_head.weight", "output.weight"),
    )


def sizes(checkpoint: Checkpoint, settings: SimpleNamespace) -> Fields:
    names = checkpoint.names()
    if "layers.0.sa_scale.scale" in names:
        raise ConversionError(
            "the file holds layers.0.sa_scale.scale, which is Gemma 2, whose last hidden states "
            "torchtune bounds, and not its logits: import what FullModelHFCheckpointer writes"
        )
    if settings.model not in MODELS:
        raise ConversionError(
            f"model is {settings.model!r}, the builder in torchtune.models: choose one of "
            f"{', '.join(MODELS)}, or import what FullModelHFCheckpointer writes"
        )
    vocab_size, width = checkpoint.shape("tok_embeddings.weight")
    rows, _ = checkpoint.shape("layers.0.attn.q_proj.weight")
    size = head_size(rows, settings.num_heads, "num_heads")
    base, eps, factor = MODELS[settings.model]
    has_bias = "layers.0.attn.q_proj.bias" in names
    if has_bias != settings.model.startswith("qwen"):
        raise ConversionError(
            f"model is {settings.model!r}, but the queries of the file have "
            f"{'a' if has_bias else 'no'} bias: name the builder that made it"
        )
    return {
        "vocab_size": vocab_size,
        "embed_dim": width,
        "head_dim": size,
        "num_kv_heads": checkpoint.shape("layers.0.attn.k_proj.weight")[0] // size,
        "intermediate_dim": checkpoint.shape("layers.0.mlp.w1.weight")[0],
        "num_layers": count(checkpoint, f"{THEIRS}.attn.q_proj.weight"),
        "tied": "output.weight" not in names,
        "has_bias": has_bias,
        "is_gemma": settings.model == "gemma",
        "rotates_halves": settings.model in ROTATES_HALVES,
        **{
            name: usual if getattr(settings, name) is None else getattr(settings, name)
            for name, usual in (("rope_base", base), ("norm_eps", eps), ("scale_factor", factor))
        },
    }


# theirs → ours
FIELDS = {
    "vocab_size": "vocab_size",
    "embed_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "max_seq_len": "max_position_embeddings",
    "norm_eps": "rms_norm_eps",
    "has_bias": "attention_bias",
    "is_gemma": "scale_embedding",
    "tied": "tie_word_embeddings",
    **{name: name for name in TOKEN_IDS},
}


def to_ours(theirs: SimpleNamespace) -> Fields:
    return {
        **LLAMA_FIXED,
        **carry(theirs, FIELDS),
        "norm_type": "rmsnorm_offset" if theirs.is_gemma else "rmsnorm",
        "hidden_act": "gelu_pytorch_tanh" if theirs.is_gemma else "silu",
        "rope_parameters": rotation_of_llama(theirs.rope_base, theirs.scale_factor),
    }


FORMATS = (
    PlainFormat(
        name="torchtune",
        remark="a decoder's state dict, as torchtune's FullModelTorchTuneCheckpointer saves it",
        released="torchtune's Llama 2 to 3.3, Mistral, Phi-3, Qwen2, Qwen2.5 and Gemma",
        rules=rules,
        config_to_ours=to_ours,
        our_classes=DECODER,
        reference=Torchtune,
        sizes=sizes,
        settings=SETTINGS,
        marks=("tok_embeddings.weight", f"{THEIRS}.sa_norm.scale", f"{THEIRS}.mlp.w1.weight"),
    ),
)
