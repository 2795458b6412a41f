"""Random configurations: every field of all families, and the defaults with little changed."""

from hypothesis import strategies as st
from transformers.activations import ACT2FN
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

import hf_tformer
from hf_tformer.model import configuration_base as base
from hf_tformer.model import configuration_encoder
from hf_tformer.model.configuration_mixture import OWN_CHOICES

LONGEST = 40  # tokens of the longest text, written ones included, with room to spare
ROPE_TYPES = ("default", *ROPE_INIT_FUNCTIONS)
TURNED_BY_LENGTH = ("dynamic", "longrope")  # frequencies depend on the longest text of a batch
FLAGS = (
    "embedding_norm",
    "attention_bias",
    "attention_output_bias",
    "mlp_bias",
    "lm_head_bias",
    "tie_word_embeddings",
    "return_logits_in_training",
    "use_cache",
)
ENCODER_FLAGS = ("first_attention_norm", "classifier_norm", "head_bias")
scales = st.none() | st.sampled_from([1, 0.3, 1.0]) | st.floats(0.05, 2.0)
caps = st.none() | st.sampled_from([30, 1, 0.3])
rates = st.sampled_from([0, 0.0, 0.1, 0.5])

# What may be changed by itself. Sizes, positions, windows and token ids hang together: see below.
INDEPENDENT = {
    **dict.fromkeys(FLAGS, st.booleans()),
    "position_embedding_type": st.sampled_from(base.CHOICES["position_embedding_type"]),
    "sinusoidal_layout": st.sampled_from(base.CHOICES["sinusoidal_layout"]),
    "qk_norm": st.sampled_from(base.CHOICES["qk_norm"]),
    "scale_embedding": st.booleans() | st.sampled_from([3, 0.2, 1.0]),
    "norm_type": st.sampled_from(base.CHOICES["norm_type"]),
    "rms_norm_eps": st.sampled_from([1e-6, 1e-5, 0.1, 1.0]),
    "layer_norm_eps": st.sampled_from([1e-5, 1e-12, 0.1, 1.0]),
    "norm_position": st.sampled_from(base.CHOICES["norm_position"]),
    "final_norm": st.sampled_from([None, False, True]),
    "mlp_type": st.sampled_from(base.CHOICES["mlp_type"]),
    "hidden_act": st.sampled_from(sorted(ACT2FN)),
    "attention_scale": scales,
    "attention_dropout": rates,
    "dropout": rates,
    "label_smoothing": st.sampled_from([0, 0.0, 0.1, 0.6]),
    "z_loss": st.sampled_from([0, 0.0, 1e-4, 0.1, 1]),
    "initializer": st.sampled_from(base.CHOICES["initializer"]),
    "initializer_range": st.sampled_from([0.02, 0.5, 1e-4]),
    "format_version": st.just(base.FORMAT_VERSION),
}
# Drawn together with others, in the functions of this file.
DEPENDENT = {
    "common": {
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "max_position_embeddings",
        "pad_token_id",
        "bos_token_id",
        "eos_token_id",
    },
    "decoder": {
        "num_hidden_layers",
        "sliding_window",
        "no_rope_layers",
        "parallel_residual",
        "residual_multiplier",
        "logit_scale",
        "final_logit_softcapping",
    },
    "encoder": {
        "num_hidden_layers",
        "sliding_window",
        "first_attention_norm",
        "classifier_act",
        "classifier_norm",
        "cls_token_id",
        "sep_token_id",
        "mask_token_id",
    },
    "seq2seq": {
        "encoder_layers",
        "decoder_layers",
        "value_head_dim",
        "source_vocab_size",
        "share_encoder_decoder_embeddings",
        "decoder_start_token_id",
    },
}
DEPENDENT["mixture"] = DEPENDENT["decoder"] | {
    "num_experts",
    "num_experts_per_tok",
    "n_group",
    "topk_group",
    "mlp_only_layers",
    "shared_expert_intermediate_size",
    "shared_expert_gate",
}
DEPTHS = {
    "decoder": ("num_hidden_layers",),
    "mixture": ("num_hidden_layers",),
    "encoder": ("num_hidden_layers",),
    "seq2seq": ("encoder_layers", "decoder_layers"),
}
OF_WRITERS = ("use_cache",)
ONLY = {
    "decoder": {"attn_logit_softcapping": caps},
    "mixture": {
        "attn_logit_softcapping": caps,
        "mlp_type": st.just("gated"),
        "moe_intermediate_size": st.none() | st.integers(1, 40),
        "scoring_func": st.sampled_from(OWN_CHOICES["scoring_func"]),
        "norm_topk_prob": st.booleans(),
        "routed_scaling_factor": st.sampled_from([1.0, 1, 0.5, 2.5]),
        "router_bias": st.booleans(),
        "router_aux_loss_coef": st.just(0.0),  # the loss is the cross entropy
        "output_router_logits": st.booleans(),
    },
    "seq2seq": {"share_encoder_decoder_embeddings": st.booleans(), "logit_scale": scales},
    "encoder": {
        "type_vocab_size": st.integers(0, 3),
        "head_act": st.sampled_from((None, *configuration_encoder.CHOICES["head_act"])),
        "head_bias": st.booleans(),
        "classifier_pooling": st.sampled_from(configuration_encoder.CHOICES["classifier_pooling"]),
    },
}
DECODERS = ("decoder", "mixture")
CONFIGS = {
    "decoder": hf_tformer.TformerDecoderConfig,
    "mixture": hf_tformer.TformerMixtureConfig,
    "seq2seq": hf_tformer.TformerSeq2SeqConfig,
    "encoder": hf_tformer.TformerEncoderConfig,
}


def table(family):
    left_out = OF_WRITERS if family == "encoder" else ()
    biases = st.sampled_from((None, *CONFIGS[family].own_choices["score_bias"]))
    independent = {n: c for n, c in INDEPENDENT.items() if n not in left_out}
    return independent | ONLY[family] | {"score_bias": biases}


@st.composite
def configurations(draw, family, steady=False, dropout=True):
    """Arguments of a configuration of the family; `steady`: no length of a text changes anything.

    Half of them are the defaults with at most three fields changed: what a field does beside
    another's default is lost where everything is drawn.
    """
    fields = draw(sizes(family))
    choices = table(family)
    if draw(st.booleans()):
        names = [name for name in choices if draw(st.booleans())]
    else:
        names = draw(st.lists(st.sampled_from(sorted(choices)), max_size=3, unique=True))
    fields |= {name: draw(choices[name]) for name in names}
    if not dropout:
        fields |= {"dropout": 0.0, "attention_dropout": 0.0}
    if family == "encoder" or (family in DECODERS and not fields.get("score_bias")):
        fields |= draw(windows(family, fields["num_hidden_layers"]))
    if family == "encoder":
        fields |= draw(heads_and_norms(fields))
    if family in DECODERS:
        fields |= draw(residuals_and_logits(fields))
    if family == "mixture":
        fields |= {"router_aux_loss_coef": 0.0} | draw(experts(fields["num_hidden_layers"]))
    fields |= draw(positions(family, fields, steady))
    return fields | draw(token_ids(family, fields))


@st.composite
def sizes(draw, family):
    """Small ones; the defaults' heads, or heads of any number and size.

    Fewer than three hidden values are nearly the same for every token after a norm, and so are the
    scores of many texts.
    """
    fields = {"vocab_size": draw(st.integers(11, 40))}
    if draw(st.booleans()):
        fields["hidden_size"] = 8 * draw(st.sampled_from([2, 4]))  # 8 heads, 4 of them for keys
    else:
        kv_heads, groups = draw(st.integers(1, 3)), draw(st.integers(1, 3))
        head_dim = draw(st.sampled_from([2, 4, 6, 10, 1, 3, 5]))
        fields["num_attention_heads"] = kv_heads * groups
        fields["num_key_value_heads"] = draw(
            st.sampled_from([kv_heads, None] if groups == 1 else [kv_heads])
        )
        whole = kv_heads * groups * head_dim
        if whole > 2 and draw(st.booleans()):
            fields["hidden_size"] = whole
        else:
            fields["hidden_size"] = draw(st.integers(3, 40))
            fields["head_dim"] = head_dim
    fields["intermediate_size"] = draw(st.integers(1, 40))
    for name in DEPTHS[family]:
        fields[name] = draw(st.integers(1, 2))
    if family == "seq2seq" and draw(st.booleans()):
        fields["value_head_dim"] = draw(st.integers(1, 9))
    return fields


def position_type(family, fields):
    default = "sinusoidal" if family == "seq2seq" else "rotary"
    return fields.get("position_embedding_type", default)


@st.composite
def positions(draw, family, fields, steady):
    """How long texts may be, and the rotation where something rotates."""
    chosen = position_type(family, fields)
    lengths = [LONGEST, 64] if steady or chosen == "learned" else [4, 9, 64]
    changes = {}
    if draw(st.booleans()):
        changes["max_position_embeddings"] = draw(st.sampled_from(lengths))
    if chosen == "sinusoidal" and fields.get("sinusoidal_layout") == "fairseq":
        heads = fields.get("num_attention_heads", 8)
        changes["head_dim"] = fields.get("head_dim") or fields["hidden_size"] // heads
        changes["hidden_size"] = fields["hidden_size"] + fields["hidden_size"] % 2  # pairs
    if chosen != "rotary":
        return changes
    heads = fields.get("num_attention_heads", 8)
    head_dim = fields.get("head_dim") or fields["hidden_size"] // heads
    if head_dim % 2:
        head_dim = changes["head_dim"] = head_dim + 1
    if draw(st.booleans()):
        changes["rope_parameters"] = draw(rotations(head_dim, lengths))
        if family != "seq2seq" and draw(st.booleans()):
            kinds = ("full_attention", "sliding_attention")
            changes["rope_parameters"] = {k: draw(rotations(head_dim, lengths)) for k in kinds}
    if family in DECODERS and draw(st.booleans()):
        turns = [draw(st.integers(0, 1)) for _ in range(fields["num_hidden_layers"])]
        changes["no_rope_layers"] = draw(st.sampled_from([turns, None]))
    return changes


@st.composite
def rotations(draw, head_dim, lengths):
    """Valid parameters of every type that transformers knows."""
    kind = draw(st.sampled_from(ROPE_TYPES))
    rope = {"rope_type": kind}
    smallest = 4 if kind == "dynamic" else 2  # its formula divides by the size less two
    if head_dim < smallest:
        return {"rope_type": "default"}
    rotated = draw(st.sampled_from(range(head_dim, smallest - 1, -2)))
    if rotated < head_dim:
        rope["partial_rotary_factor"] = (rotated + 0.5) / head_dim
    if draw(st.booleans()):
        rope["rope_theta"] = draw(st.sampled_from([1e4, 100, 5e5, 2.5]))
    needs_factor = kind in ("linear", "dynamic", "yarn", "llama3")
    if needs_factor or (kind != "default" and draw(st.booleans())):
        rope["factor"] = draw(st.sampled_from([2.0, 1.0, 1, 1.5, 8, 40.0]))
    if kind in ("yarn", "llama3", "longrope") and draw(st.booleans()):
        rope["original_max_position_embeddings"] = draw(st.sampled_from(lengths))
    if kind in ("yarn", "longrope") and draw(st.booleans()):
        rope["attention_factor"] = draw(st.sampled_from([1.0, 0.5, 1.7]))
    if kind == "yarn":
        options = {
            "beta_fast": st.sampled_from([32, 8.0]),
            "beta_slow": st.sampled_from([1, 0.5]),
            "mscale": st.sampled_from([1.0, 0.7]),
            "mscale_all_dim": st.sampled_from([1.0, 0.3]),
            "truncate": st.booleans(),
        }
        rope |= {name: draw(option) for name, option in options.items() if draw(st.booleans())}
    if kind == "llama3":
        rope |= {"low_freq_factor": draw(st.sampled_from([1.0, 0.5])), "high_freq_factor": 4.0}
    if kind == "longrope":
        factors = st.lists(
            st.sampled_from([1.0, 1.3, 4]), min_size=rotated // 2, max_size=rotated // 2
        )
        rope |= {"short_factor": draw(factors), "long_factor": draw(factors)}
    return rope


@st.composite
def heads_and_norms(draw, fields):
    """Of an encoder: which norms there are depends on where they stand, and on what they follow."""
    changes = {}
    if fields.get("norm_position", "pre") == "pre" and draw(st.booleans()):
        changes["first_attention_norm"] = False
    if draw(st.booleans()):
        changes["classifier_act"] = draw(st.sampled_from([None, "tanh", "relu"]))
        changes["classifier_norm"] = changes["classifier_act"] is not None and draw(st.booleans())
    return changes


@st.composite
def residuals_and_logits(draw, fields):
    """Of a decoder: what a branch adds depends on where norms stand; a scale and a cap of the
    logits exclude each other."""
    changes = {}
    order = fields.get("norm_position", "pre")
    if order == "pre" and draw(st.booleans()):
        changes["parallel_residual"] = draw(st.sampled_from(base.CHOICES["parallel_residual"]))
    if order in ("pre", "post") and draw(st.booleans()):
        changes["residual_multiplier"] = draw(st.sampled_from([1, 0.22, 3.0]))
    if draw(st.booleans()):
        changes |= draw(
            st.fixed_dictionaries({"logit_scale": scales})
            | st.fixed_dictionaries({"final_logit_softcapping": caps})
        )
    return changes


@st.composite
def experts(draw, depth):
    """How many there are, in which layers, and how many a token takes."""
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    each = draw(st.integers(1 if groups == 1 else 2, 4))
    kept = draw(st.integers(1, groups))
    fields = {"num_experts": groups * each, "n_group": groups, "topk_group": kept}
    fields["num_experts_per_tok"] = draw(st.integers(1, kept * each))
    if draw(st.booleans()):
        layers = st.lists(st.integers(0, depth - 1), max_size=depth, unique=True)
        fields["mlp_only_layers"] = draw(st.none() | layers)
    if draw(st.booleans()):
        fields["shared_expert_intermediate_size"] = draw(st.integers(1, 20))
        fields["shared_expert_gate"] = draw(st.booleans())
    return fields


@st.composite
def windows(draw, family, depth):
    if not draw(st.booleans()):
        return {}
    smallest = 1 if family == "encoder" else 2
    fields = {"sliding_window": draw(st.none() | st.integers(smallest, 8))}
    kinds = ["full_attention"]
    if fields["sliding_window"]:
        kinds.append("sliding_attention")
    if draw(st.booleans()):
        fields["layer_types"] = [draw(st.sampled_from(kinds)) for _ in range(depth)]
    return fields


@st.composite
def token_ids(draw, family, fields):
    """Ids within the vocabularies; sources with a vocabulary of their own."""
    changes, limit = {}, fields["vocab_size"]
    shares = fields.get("share_encoder_decoder_embeddings", True)
    if family == "seq2seq" and draw(st.booleans()):
        changes["source_vocab_size"] = draw(st.none() | st.just(limit) | st.integers(11, 40))
        if shares and changes["source_vocab_size"] not in (None, limit):
            changes["share_encoder_decoder_embeddings"] = False
    ids = st.integers(0, 10) | st.just(limit - 1)
    if draw(st.booleans()):
        choices = st.integers(0, 10) if family == "seq2seq" else st.none() | ids
        changes["pad_token_id"] = draw(choices)
    if fields.get("sinusoidal_layout") == "fairseq" and family != "seq2seq":
        changes["pad_token_id"] = draw(ids)  # which is counted from
    if draw(st.booleans()):
        changes["bos_token_id"] = draw(st.none() | ids)
    if draw(st.booleans()):
        several = st.lists(ids, min_size=1, max_size=4, unique=True)
        changes["eos_token_id"] = draw(st.none() | ids | several)
    if family == "seq2seq" and draw(st.booleans()):
        changes["decoder_start_token_id"] = draw(ids)
    if family == "encoder" and draw(st.booleans()):
        changes |= {f"{name}_token_id": draw(ids) for name in ("cls", "sep", "mask")}
    return changes
