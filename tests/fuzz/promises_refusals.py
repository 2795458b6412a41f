"""Promises about what is refused."""

from dataclasses import dataclass, field

import torch
from huggingface_hub.errors import StrictDataclassError
from hypothesis import strategies as st

from hf_tformer import limits
from hf_tformer.model import configuration_base as base
from hf_tformer.model import configuration_encoder

from .building import PromiseError, by_name
from .cases import FAMILIES
from .configurations import ENCODER_FLAGS, FLAGS, ROPE_TYPES

SMALL = {
    "vocab_size": 17,
    "hidden_size": 16,
    "intermediate_size": 12,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "dropout": 0.0,
}
NAN, INFINITE = float("nan"), float("inf")
SIZES = sorted(set(limits.LARGEST) - {"format_version", "num_labels"})
OPTIONAL = ("num_key_value_heads", "head_dim", "value_head_dim", "source_vocab_size")
OPTIONAL += ("sliding_window", "attention_scale", "logit_scale", "final_norm")
CHOICES = sorted({*base.CHOICES, *configuration_encoder.CHOICES} - {"problem_type", "qk_norm"})
CAPS = ("attn_logit_softcapping", "final_logit_softcapping")
OPTIONAL += ("score_bias", "head_act", "classifier_act", "parallel_residual", "no_rope_layers")
OPTIONAL += CAPS
RATES = ("attention_dropout", "dropout", "label_smoothing")
POSITIVE = ("rms_norm_eps", "layer_norm_eps", "initializer_range", "attention_scale", "logit_scale")
POSITIVE += ("residual_multiplier", "scale_embedding", *CAPS)
OF_ROTATION = ("rope_scaling", "rope_theta", "partial_rotary_factor")  # in their old places
TOKEN_IDS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
TOKEN_IDS += ("cls_token_id", "sep_token_id", "mask_token_id")
NUMBERS = {
    **{name: [-0.1, 1.0, 1, 5, NAN, INFINITE, -INFINITE] for name in RATES},
    **{name: [0, 0.0, -1, -1e-6, NAN, INFINITE, -INFINITE] for name in POSITIVE},
    "z_loss": [-1, -1e-9, NAN, INFINITE],
}
NO_NUMBERS = ["1", "", [1], {}, (1, 2), b"1", 1j]
BOTH_KINDS = {"layer_types": ["full_attention", "sliding_attention"] * 3, "sliding_window": 4}
ONE_ROPE = {"rope_theta": 100.0}
# Fields that are right alone → the one that is named beside them, and what it must not be there.
TOGETHER = {
    "decoder": [
        ({"sliding_window": 3}, "score_bias", ["alibi"]),
        ({"norm_position": "post"}, "parallel_residual", ["own", "shared"]),
        ({"parallel_residual": "own"}, "norm_position", ["post", "inside", "both"]),
        ({"norm_position": "inside"}, "residual_multiplier", [2, 0.5]),
        ({"norm_position": "both"}, "residual_multiplier", [2, 0.5]),
        ({"logit_scale": 0.5}, "final_logit_softcapping", [30, 0.5]),
        ({"final_logit_softcapping": 30}, "logit_scale", [2, 0.5]),
        ({"num_hidden_layers": 3}, "no_rope_layers", [[1, 0], [1] * 4]),
    ],
    "encoder": [
        ({"norm_position": "inside"}, "first_attention_norm", [False]),
        ({"norm_position": "both"}, "first_attention_norm", [False]),
        ({"classifier_act": None}, "classifier_norm", [True]),
    ],
    "seq2seq": [
        ({"position_embedding_type": "rotary"}, "rope_parameters", [{"full_attention": ONE_ROPE}])
    ],
}
TOGETHER["mixture"] = [
    *TOGETHER["decoder"],
    ({"num_experts": 4}, "num_experts_per_tok", [5, 40]),
    ({"num_experts": 4, "n_group": 2}, "topk_group", [3, 0]),
    ({"num_experts": 4}, "n_group", [3, 8]),
    ({"shared_expert_intermediate_size": None}, "shared_expert_gate", [True]),
    ({"num_hidden_layers": 3}, "mlp_only_layers", [[3], [-1]]),
]
KINDS = ("full_attention", "sliding_attention")
OF_KINDS = [dict.fromkeys(kinds, ONE_ROPE) for kinds in (KINDS[:1], KINDS[1:], (*KINDS, "x"))]
for name in ("decoder", "encoder", "mixture"):
    TOGETHER[name].append((BOTH_KINDS, "rope_parameters", OF_KINDS))
FAIRSEQ = {"position_embedding_type": "sinusoidal", "sinusoidal_layout": "fairseq"}
for combinations in TOGETHER.values():
    combinations.append((FAIRSEQ | {"pad_token_id": 1, "head_dim": 4}, "hidden_size", [9, 15]))
    combinations.append((FAIRSEQ, "pad_token_id", [None]))
NO_SIZES = [0, -1, -(10**20), 10**12, 10**30, 2.0, NAN, INFINITE, True, False, *NO_NUMBERS]
NO_IDS = [-1, 17, 10**30, 1.5, NAN, True, "2", {}, b"2", [-1], [17], ["2"], [1.0]]


@dataclass
class Wrong:
    """A field of a small configuration, and what it is given; `inside`: of rope_parameters;
    `beside`: other fields, right for themselves."""

    family: str
    name: str
    value: object
    rope: dict[str, object] | None = None
    must_be_refused: bool = True
    beside: dict[str, object] = field(default_factory=dict)


def wrong_values(family):
    """Field → values that it must not take."""
    fields = by_name[family].config_class.__dataclass_fields__
    values = {
        **dict.fromkeys(SIZES, NO_SIZES),
        **{name: ["", "no such", 1, True, ["none"], b"none"] for name in CHOICES},
        **{name: [*wrong, *NO_NUMBERS, True] for name, wrong in NUMBERS.items()},
        **{name: ["yes", "", 1, 0, 1.0, None, [True]] for name in (*FLAGS, *ENCODER_FLAGS)},
        **dict.fromkeys(TOKEN_IDS, NO_IDS),
        "qk_norm": ["", "no such", 1, 0, 1.0, None, ["all"], b"all"],
        "no_rope_layers": [[], [1], [1] * 7, ["1"] * 6, [True] * 6, [2] * 6, [-1] * 6, 1, "1", {}],
        "format_version": [0, -1, 2, 10**30, "1", 1.0, None, True],
        "final_norm": ["yes", 1, 0, []],
        "rope_scaling": ["linear", 1, [("factor", 2.0)]],
        "rope_theta": [0, -1.0, NAN, INFINITE, "x", [], True],
        "partial_rotary_factor": [0, -1.0, NAN, INFINITE, "x", [], True, 2.0],
        "num_labels": [0, -1, 10**12, 2.0, "3", True],
    }
    for name in values.keys() - set(OPTIONAL) - set(TOKEN_IDS) - {"final_norm", *NOT_FIELDS}:
        values[name] = [*values[name], None]
    values["scale_embedding"].remove(True)  # by the root of the size
    values["type_vocab_size"] = [size for size in NO_SIZES if size is False or size != 0]
    if family != "seq2seq":
        values["layer_types"] = ["full_attention", ["banded"] * 6, [], ["full_attention"], [None]]
        values["layer_types"] += [{}, 1, [1] * 6, [["full_attention"]] * 6, True]
        values["is_encoder_decoder"] = [True, "yes", 1]
    else:
        values["share_encoder_decoder_embeddings"] = values["use_cache"]
        values["is_encoder_decoder"] = [False, "yes", 1, None]
    return {name: wrong for name, wrong in values.items() if name in (*fields, *NOT_FIELDS)}


NOT_FIELDS = ("layer_types", "num_labels", "is_encoder_decoder", *OF_ROTATION)
ROPE_LISTS = ("short_factor", "long_factor")
VALID_ROPE = {
    "default": {},
    "linear": {"factor": 2.0},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 2.0, "original_max_position_embeddings": 8},
    "longrope": {"short_factor": [1.0] * 2, "long_factor": [2.0] * 2, "factor": 2.0},
    "llama3": {"factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "proportional": {},
}
# What may be refused by name or has to work.
ODD_NUMBERS = [1e-300, 1e300, 1, 1.0, 2, 0.5, 10**30, 1e-6, 3, 1000]


@st.composite
def wrong_configurations(draw):
    family = draw(st.sampled_from(FAMILIES))
    if draw(st.integers(0, 2)) == 2:
        return draw(wrong_rotations(family))
    if draw(st.integers(0, 2)) == 2:
        beside, name, values = draw(st.sampled_from(TOGETHER[family]))
        return Wrong(family, name, draw(st.sampled_from(values)), beside=beside)
    values = wrong_values(family)
    name = draw(st.sampled_from(sorted(values)))
    return Wrong(family, name, draw(st.sampled_from(values[name])))


@st.composite
def wrong_rotations(draw, family):
    kind = draw(st.sampled_from(ROPE_TYPES))
    rope = {"rope_type": kind, **VALID_ROPE[kind]}
    name = draw(
        st.sampled_from(["rope_type", "", *limits.ROPE_NUMBERS, *ROPE_LISTS, "truncate", "extra"])
    )
    must_be_refused = True
    if name == "rope_type":
        value = draw(st.sampled_from(["spiral", "", 1, None, ["yarn"], True]))
        must_be_refused = value is not None  # as in old files
    elif name == "":
        value = draw(st.sampled_from(["default", [], 1, True, [("rope_type", "default")]]))
        must_be_refused = bool(value)
        return Wrong(family, "rope_parameters", value, None, must_be_refused)
    elif name in ROPE_LISTS:
        value = draw(st.sampled_from([1.0, "ab", [], ["a", "b"], [0.0, 1], [-1, 1], [NAN, 1], [1]]))
    elif name in ("truncate", "extra"):
        value, must_be_refused = draw(st.sampled_from([None, "x", 1, []])), False
    elif draw(st.booleans()):
        value, must_be_refused = draw(st.sampled_from(ODD_NUMBERS)), False
    else:
        value = draw(st.sampled_from([0, -1.0, NAN, INFINITE, "two", True, [], None]))
        must_be_refused = value is not None and not (value == 0 and name.startswith("mscale"))
    return Wrong(family, name, value, rope | {name: value}, must_be_refused)


def check_refused(wrong: Wrong):
    """A wrong value is refused by name when a configuration is made; what is not refused works."""
    family = by_name[wrong.family]
    given = {**wrong.beside, wrong.name: wrong.value}
    if wrong.rope is not None:
        given = {"rope_parameters": wrong.rope}
    if wrong.rope is not None or wrong.name in ("rope_parameters", *OF_ROTATION):
        given["position_embedding_type"] = "rotary"
    # How much of a head turns decides how many factors are right.
    names = (wrong.name, *ROPE_LISTS) if wrong.name == "partial_rotary_factor" else (wrong.name,)
    configs = []
    for make in (lambda **fields: family.config_class(**fields), from_file(family.config_class)):
        try:
            configs.append(make(**{**SMALL, **given}))
        except (ValueError, StrictDataclassError) as error:
            if not any(name in str(error) for name in names):
                raise PromiseError(f"{wrong.name} is not named: {error}") from error
    if configs and wrong.must_be_refused:
        raise PromiseError(f"{wrong.name} may be {wrong.value!r}")
    for config in configs:
        check_works(family, config)


def from_file(config_class):
    return lambda **fields: config_class.from_dict(fields)


@torch.no_grad()
def check_works(family, config):
    if limits.approximate_parameter_count(config) > 10**6:
        return
    model = family.model_class(config).eval()
    ids = torch.tensor([[5, 6, 7, 8, 9, 10, 11, 12, 13, 14]])
    if not torch.isfinite(model(ids, **family.target(ids)).logits).all():
        raise PromiseError("accepted, and the logits are not finite")
