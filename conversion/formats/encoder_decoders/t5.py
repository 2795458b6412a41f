"""T5, mT5 and UMT5: relative position biases instead of positions, RMSNorm first, no biases.

T5 v1.1, Flan, ByT5, UL2, MADLAD and CodeT5 have the model_type t5. Their layers clamp what
overflows in float16, ours do not: run a converted model in bfloat16 or float32.
"""

from copy import deepcopy
from dataclasses import dataclass
from functools import partial

import torch
import transformers
from transformers import PreTrainedConfig, PreTrainedModel

from ...engine.aliases import Config, Fields, FilePath
from ...engine.checkpoints import Checkpoint, open_checkpoint
from ...engine.errors import ConversionError
from ...engine.format import (
    BIASES,
    SEQ2SEQ,
    Format,
    carry,
    inverted,
    require,
    require_one_of,
    without,
)
from ...engine.heads import architecture_of, refuse_learned_activations
from ...engine.models import Library
from ...engine.rules import Rule, weights
from ..shared import COMMON_FIELDS, OPTIONAL_IDS, PRE_NORM

HEAD = "lm_head.weight"
EMBEDDINGS = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
OLD_NAMES = ("T5WithLMHeadModel",)  # t5-3b and t5-11b

# our module → theirs, in a layer
SELF_ATTENTION = {
    "self_attn_norm": "0.layer_norm",
    **{f"self_attn.{x}_proj": f"0.SelfAttention.{x}" for x in "qkvo"},
}
CROSS_ATTENTION = {
    "cross_attn_norm": "1.layer_norm",
    **{f"cross_attn.{x}_proj": f"1.EncDecAttention.{x}" for x in "qkvo"},
}
PLAIN = {"up_proj": "wi", "down_proj": "wo"}
GATED = {"gate_proj": "wi_0", "up_proj": "wi_1", "down_proj": "wo"}
BIAS_TABLE = "layer.0.SelfAttention.relative_attention_bias"
ONE_TABLE = {"score_bias.table": f"block.0.{BIAS_TABLE}"}
TABLE_PER_LAYER = {"score_bias.tables.{i}": f"block.{{i}}.{BIAS_TABLE}"}
IGNORED = {
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": (
        "cross-attention has no position bias; old files hold a table all the same"
    )
}


class T5Library(Library):
    """transformers' side of T5, mT5 and UMT5, whose tensors decide whether the head is tied.

    Their models always tie it, unless the file holds another one, and their configurations always
    state that they do. Here tie_word_embeddings is what was found.
    """

    def load_config(self, folder: FilePath, settings: Fields | None = None) -> PreTrainedConfig:
        architecture_of(folder, (self.model_name, *OLD_NAMES))
        config = super().load_config(folder, settings)
        config.tie_word_embeddings = is_head_tied(open_checkpoint(folder))
        return config

    def make_config(self, fields: Fields, dtype: torch.dtype | None) -> PreTrainedConfig:
        config = super().make_config(fields, dtype)
        config.tie_word_embeddings = fields["tie_word_embeddings"]
        return config

    def build(self, config: PreTrainedConfig) -> PreTrainedModel:
        tied = deepcopy(config)
        tied.tie_word_embeddings = True  # their field is about the tables of the stacks, too
        model = super().build(tied)
        model.config = config
        if not config.tie_word_embeddings:  # as after loading a file with another head
            del model.all_tied_weights_keys[HEAD]
        return model


def is_head_tied(checkpoint: Checkpoint) -> bool:
    """Return whether a file lacks a head of its own, or has one that is equal to the table."""
    tables = [name for name in EMBEDDINGS if name in checkpoint.places]
    if not tables or HEAD not in checkpoint.places:
        return True
    return torch.equal(checkpoint.read(tables[0]), checkpoint.read(HEAD))


@dataclass(frozen=True)
class T5Format(Format):
    """A format whose other side is a T5Library."""

    @property
    def theirs(self) -> T5Library:
        return T5Library(transformers, *self.classes)


def rules(theirs: Config, table: dict[str, str]) -> tuple[Rule, ...]:
    mlp = GATED if theirs.is_gated_act else PLAIN
    encoder_layer = {**SELF_ATTENTION, **mlp_modules(1, mlp)}
    decoder_layer = {**SELF_ATTENTION, **CROSS_ATTENTION, **mlp_modules(2, mlp)}
    ends = {"norm": "final_layer_norm", **table}
    return (
        Rule("model.shared.weight", "shared.weight"),
        Rule(HEAD, HEAD),
        *weights("model.encoder.layers.{i}", "encoder.block.{i}.layer", encoder_layer),
        *weights("model.decoder.layers.{i}", "decoder.block.{i}.layer", decoder_layer),
        *weights("model.encoder", "encoder", ends),
        *weights("model.decoder", "decoder", ends),
    )


def mlp_modules(place: int, names: dict[str, str]) -> dict[str, str]:
    modules = {f"mlp.{ours}": f"{place}.DenseReluDense.{name}" for ours, name in names.items()}
    return {"mlp_norm": f"{place}.layer_norm", **modules}


# theirs → ours
FIELDS = {
    **without(COMMON_FIELDS, "bos_token_id"),
    "d_model": "hidden_size",
    "d_kv": "head_dim",
    "d_ff": "intermediate_size",
    "num_layers": "encoder_layers",
    "num_decoder_layers": "decoder_layers",
    "num_heads": "num_attention_heads",
    "layer_norm_epsilon": "rms_norm_eps",
    "dropout_rate": "dropout",
}
FIXED = {
    "position_embedding_type": "none",
    "norm_type": "rmsnorm",
    **without(PRE_NORM, "logit_scale"),
    "qk_norm": False,
    **dict.fromkeys(BIASES, False),
    "attention_scale": 1.0,
    "share_encoder_decoder_embeddings": True,
}
RANGES = {"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128}
# Whether hidden states are scaled by d_model**-0.5 before the head. None: read
# scale_decoder_outputs. The others follow transformers 5, which ignores UMT5's own field.
IS_SCALED = {"t5": None, "mt5": False, "umt5": True}
SCORE_BIASES = {"t5": "relative", "mt5": "relative", "umt5": "relative_per_layer"}
TABLES = {"relative": ONE_TABLE, "relative_per_layer": TABLE_PER_LAYER}
CLASSES = {"t5": "T5", "mt5": "MT5", "umt5": "UMT5"}
RELEASED = {
    "t5": "T5, T5 v1.1, Flan-T5, ByT5, UL2, Flan-UL2, MADLAD-400, CodeT5",
    "mt5": "mT5, mT0",
    "umt5": "UMT5",
}


def to_ours(theirs: Config, name: str) -> Fields:
    require(theirs, "hf_tformer", **RANGES)
    always = IS_SCALED[name]
    is_scaled = theirs.scale_decoder_outputs if always is None else always
    fields = {
        **carry(theirs, FIELDS),
        **{id_name: getattr(theirs, id_name, None) for id_name in OPTIONAL_IDS},
        **FIXED,
        "score_bias": SCORE_BIASES[name],
        "mlp_type": "gated" if theirs.is_gated_act else "plain",
        "hidden_act": theirs.dense_act_fn,
        "attention_dropout": theirs.dropout_rate,
        "logit_scale": theirs.d_model**-0.5 if is_scaled else 1.0,
        "initializer": "normal",
    }
    refuse_learned_activations(fields)
    return fields


def to_theirs(ours: Config, name: str) -> Fields:
    format_name = CLASSES[name]
    require(ours, format_name, **FIXED, score_bias=SCORE_BIASES[name])
    require(ours, format_name, num_key_value_heads=ours.num_attention_heads)
    require(ours, format_name, value_head_dim=ours.head_dim)
    scales, always = {True: ours.hidden_size**-0.5, False: 1.0}, IS_SCALED[name]
    if always is None:
        require_one_of(ours, format_name, logit_scale=scales.values())
    else:
        require(ours, format_name, logit_scale=scales[always])
    return {
        **carry(ours, inverted(FIELDS)),
        **carry(ours, OPTIONAL_IDS),
        "feed_forward_proj": feed_forward(ours, format_name),
        "scale_decoder_outputs": ours.logit_scale != 1.0,  # read by T5Config alone
    }


def feed_forward(ours: Config, format_name: str) -> str:
    """Return their name of the activation, where the gate that is called gelu is gelu_new."""
    if ours.mlp_type != "gated":
        return ours.hidden_act
    if ours.hidden_act == "gelu":
        raise ConversionError(
            f"hidden_act is 'gelu' beside mlp_type 'gated', which {format_name} reads as "
            "'gelu_new': only another activation converts"
        )
    return f"gated-{'gelu' if ours.hidden_act == 'gelu_new' else ours.hidden_act}"


FORMATS = tuple(
    T5Format(
        name,
        partial(rules, table=TABLES[SCORE_BIASES[name]]),
        partial(to_ours, name=name),
        partial(to_theirs, name=name),
        (f"{prefix}Config", f"{prefix}ForConditionalGeneration"),
        SEQ2SEQ,
        IGNORED,
        released=RELEASED[name],
    )
    for name, prefix in CLASSES.items()
)
