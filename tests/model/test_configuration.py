"""A wrong value is refused when the configuration is made, in words that name it and the remedy."""

import json
import subprocess
import sys

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig

from hf_tformer import TformerDecoderConfig, TformerSeq2SeqConfig
from support.families import DECODER, ENCODER, SEQ2SEQ

pytestmark = pytest.mark.usefixtures("warm_python")

FAIRSEQ = {"position_embedding_type": "sinusoidal", "sinusoidal_layout": "fairseq"}
# what is given → words the message must hold: the field, the value, the remedy
REFUSED = [
    ({"hidden_size": 500, "num_attention_heads": 7}, ["hidden_size (500)", "(7)", "set head_dim"]),
    ({"num_attention_heads": 8, "num_key_value_heads": 3}, ["(8)", "num_key_value_heads (3)"]),
    ({"position_embedding_type": "rotary", "head_dim": 9}, ["head_dim", "9", "even"]),
    ({"hidden_size": 0}, ["hidden_size is 0", "between 1 and"]),
    ({"intermediate_size": -4}, ["intermediate_size is -4", "between 1 and"]),
    ({"num_attention_heads": 0}, ["num_attention_heads is 0"]),
    ({"num_key_value_heads": 0}, ["num_key_value_heads is 0"]),
    ({"max_position_embeddings": 0}, ["max_position_embeddings is 0"]),
    ({"vocab_size": 10**12}, ["vocab_size is 1000000000000"]),
    ({"num_labels": 10**9}, ["num_labels is 1000000000"]),
    ({"num_labels": "3"}, ["num_labels is '3'", "whole number"]),
    ({"num_labels": True}, ["num_labels is True", "whole number"]),
    (
        {"hidden_size": 10**6, "intermediate_size": 10**7, "head_dim": 64, "vocab_size": 10**8},
        ["parameters"],
    ),
    ({"hidden_size": "512"}, ["hidden_size", "'512'", "int"]),
    ({"hidden_size": 512.0}, ["hidden_size", "512.0", "int"]),
    ({"hidden_size": True}, ["hidden_size", "True", "int"]),
    ({"tie_word_embeddings": "yes"}, ["tie_word_embeddings", "'yes'", "bool"]),
    ({"position_embedding_type": "rope"}, ["position_embedding_type is 'rope'", "rotary"]),
    ({"norm_type": "batch"}, ["norm_type is 'batch'", "layernorm"]),
    ({"norm_position": "middle"}, ["norm_position is 'middle'", "pre"]),
    ({"mlp_type": "moe"}, ["mlp_type is 'moe'", "gated"]),
    ({"hidden_act": "swish2"}, ["hidden_act is 'swish2'", "silu"]),
    ({"initializer": "zeros"}, ["initializer is 'zeros'", "xavier_uniform"]),
    ({"sinusoidal_layout": "odd"}, ["sinusoidal_layout is 'odd'", "halves"]),
    ({**FAIRSEQ, "pad_token_id": None}, ["'fairseq'", "pad_token_id (None)", "set the first"]),
    (
        {**FAIRSEQ, "pad_token_id": 1, "hidden_size": 45, "head_dim": 8},
        ["'fairseq'", "hidden_size (45)", "even"],
    ),
    ({"qk_norm": "each"}, ["qk_norm is 'each'", "all"]),
    ({"scale_embedding": 0.0}, ["scale_embedding is 0.0", "from 1e-06"]),
    ({"scale_embedding": "root"}, ["scale_embedding", "'root'"]),
    ({"dropout": 1.0}, ["dropout is 1.0", "from 0 to 0.999999"]),
    ({"attention_dropout": -0.1}, ["attention_dropout is -0.1"]),
    ({"label_smoothing": float("nan")}, ["label_smoothing is nan"]),
    ({"z_loss": -1.0}, ["z_loss is -1.0", "from 0"]),
    ({"layer_norm_eps": 0.0}, ["layer_norm_eps is 0.0", "from 1e-30"]),
    ({"attention_scale": 0.0}, ["attention_scale is 0.0", "from 1e-06"]),
    ({"pad_token_id": 32000}, ["pad_token_id is 32000", "0 to 31999"]),
    ({"bos_token_id": -1}, ["bos_token_id is -1", "0 to 31999"]),
    ({"eos_token_id": [2, 40000]}, ["eos_token_id is [2, 40000]", "0 to 31999"]),
    ({"attention_scale": 10**400}, ["attention_scale is 1000", "to 1e+06"]),
    ({"num_labels": 10**6}, ["num_labels is 1000000", "between 1 and 100000"]),
    ({"id2label": True}, ["id2label is True", "give a dict"]),
    ({"id2label": {}}, ["id2label has 0 labels", "number them 0, 1, 2"]),
    ({"id2label": {"a": "b"}}, ["id2label", "['a']", "number them 0, 1, 2"]),
    ({"id2label": {"1": "a", "2": "b"}}, ["id2label", "['1', '2']", "number them 0, 1, 2"]),
    ({"id2label": dict.fromkeys(range(10**5 + 1), "a")}, ["id2label has 100001", "at most 100000"]),
    ({"label2id": ["a"]}, ["label2id is ['a']", "give a dict"]),
    ({"problem_type": "x"}, ["problem_type is 'x'", "regression"]),
    ({"dtype": "floof"}, ["dtype is 'floof'", "bfloat16"]),
    ({"dtype": "int8"}, ["dtype is 'int8'", "bfloat16"]),
    ({"torch_dtype": 3}, ["torch_dtype is 3", "bfloat16"]),
    ({"return_dict": 7}, ["return_dict is 7", "give a bool"]),
    ({"sep_token_id": ""}, ["sep_token_id"]),
    ({"return_dict": None}, ["return_dict is None", "True or False"]),
    ({"output_hidden_states": "x"}, ["output_hidden_states is 'x'", "give a bool"]),
    ({"is_encoder_decoder": 0}, ["is_encoder_decoder", "0", "bool"]),
    ({"chunk_size_feed_forward": False}, ["chunk_size_feed_forward is False", "give"]),
    ({"architectures": 5}, ["architectures is 5", "give a list"]),
    ({"transformers_version": []}, ["transformers_version is []", "give a str"]),
    ({"quantization_config": "x"}, ["quantization_config is 'x'", "quant_method"]),
    ({"quantization_config": {}}, ["quantization_config is {}", "quant_method"]),
    ({"_attn_implementation": 5}, ["_attn_implementation is 5", "name of a backend"]),
    ({"per_layer_config": {"0": {"hidden_size": 8}}}, ["per_layer_config", "remove it"]),
    ({"text_config": {"vocab_size": 5}}, ["text_config", "remove it"]),
    ({"is_causal": False}, ["is_causal is False", "remove it"]),
    ({"model_type": "llama"}, ["model_type is 'llama'", "'tformer_"]),
    ({"my_own": {"dtype": []}}, ["dtype in my_own is []", "name of a dtype"]),
]
ROTARY = {"position_embedding_type": "rotary"}
REFUSED_ROPE = [
    ({"rope_type": "spiral"}, ["'spiral'", "linear", "yarn"]),
    ({"rope_type": "linear"}, ["linear", "factor"]),
    ({"rope_type": "llama3", "factor": 8.0}, ["llama3", "low_freq_factor"]),
    ({"rope_type": "linear", "factor": "two"}, ["factor", "'two'", "number"]),
    ({"rope_type": "default", "rope_theta": -1.0}, ["rope_theta", "-1.0", "number"]),
    ({"rope_type": "default", "partial_rotary_factor": 0.01}, ["partial_rotary_factor", "even"]),
    ({"rope_type": "default", "rope_theta": True}, ["rope_theta", "True", "number"]),
    ({"rope_type": "default", "partial_rotary_factor": "x"}, ["partial_rotary_factor", "'x'"]),
    (
        {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 0},
        ["original_max_position_embeddings", "0", "number"],
    ),
    ({"rope_type": "yarn", "factor": 2.0, "beta_fast": "a"}, ["beta_fast", "'a'"]),
    (
        {"rope_type": "longrope", "factor": 2.0, "short_factor": [1.0], "long_factor": [1.0]},
        ["short_factor", "32 pairs"],
    ),
    (
        {
            "rope_type": "llama3",
            "factor": 2.0,
            "low_freq_factor": 4.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
        ["low_freq_factor", "4.0", "high_freq_factor"],
    ),
]
REFUSED_ROPE += [
    ("default", ["rope_parameters is 'default'", "give a dict"]),
    ([("rope_type", "default")], ["rope_parameters is [", "give a dict"]),
    ({"rope_type": "default", "short_factor": 1.0}, ["short_factor", "1.0", "32 pairs"]),
    (
        {"rope_type": "longrope", "short_factor": ["a"] * 32, "long_factor": [1.0] * 32},
        ["short_factor", "'a'", "number"],
    ),
    (
        {"rope_type": "longrope", "short_factor": [1.0] * 32, "long_factor": [-1.0] * 32},
        ["long_factor", "-1.0", "number"],
    ),
    (
        {"rope_type": "longrope", "factor": 2.0, "original_max_position_embeddings": 1},
        ["original_max_position_embeddings", "is 1", "from 2"],
    ),
    ({"rope_type": "yarn", "factor": 2.0, "rope_theta": 1.0}, ["rope_theta", "1.0", "1.01"]),
    ({"rope_type": "yarn", "factor": 2.0, "mscale": "two"}, ["mscale", "'two'", "number"]),
    ({"rope_type": "default", "rope_theta": 1e-300}, ["rope_theta", "1e-300", "1.01"]),
    ({"rope_type": "default", "rope_theta": 10**30}, ["rope_theta", "1e+15"]),
    ({"rope_type": "linear", "factor": 1e-300}, ["factor", "1e-300", "1e-06"]),
    (
        {"rope_type": "dynamic", "factor": 2.0, "partial_rotary_factor": 2 / 64},
        ["rope_type", "'dynamic'", "at least 4"],
    ),
]
REFUSED_DECODER = [
    ({"sliding_window": 1}, ["sliding_window is 1", "at least 2"]),
    ({"num_hidden_layers": 10**9, "sliding_window": 4}, ["num_hidden_layers is 1000000000"]),
    ({"layer_types": ["full_attention"]}, ["layer_types has 1", "num_hidden_layers (6)"]),
    ({"layer_types": "full_attention"}, ["layer_types is 'full_attention'", "list"]),
    ({"is_encoder_decoder": True}, ["is_encoder_decoder is True", "leave it"]),
    ({"layer_types": ["banded"] * 6}, ["layer_types", "banded", "sliding_attention"]),
    ({"layer_types": ["sliding_attention"] * 6}, ["sliding_window is None", "set sliding_window"]),
    ({"sliding_window": 0}, ["sliding_window is 0"]),
    ({"no_rope_layers": [1, 0]}, ["no_rope_layers is [1, 0]", "each of 6 layers"]),
    ({"no_rope_layers": [1] * 5 + [2]}, ["no_rope_layers is [1, 1, 1, 1, 1, 2]", "0 or 1"]),
    ({"no_rope_layers": [True] * 6}, ["no_rope_layers"]),
    ({"score_bias": "relative"}, ["score_bias is 'relative'", "alibi"]),
    ({"score_bias": "alibi", "sliding_window": 4}, ["score_bias", "sliding_window (4)", "None"]),
    ({"parallel_residual": "both"}, ["parallel_residual is 'both'", "own, shared"]),
    *(
        (
            {"parallel_residual": kind, "norm_position": place},
            ["parallel_residual", repr(kind), "norm_position", repr(place), "choose 'pre'"],
        )
        for kind in ("own", "shared")
        for place in ("post", "inside", "both")
    ),
    *(
        (
            {"residual_multiplier": 0.5, "norm_position": place},
            ["residual_multiplier is 0.5", place],
        )
        for place in ("inside", "both")
    ),
    ({"residual_multiplier": 0.0}, ["residual_multiplier is 0.0", "from 1e-06"]),
    ({"attn_logit_softcapping": 0.0}, ["attn_logit_softcapping is 0.0", "from 0.001"]),
    ({"final_logit_softcapping": -30}, ["final_logit_softcapping is -30", "from 0.001"]),
    (
        {"final_logit_softcapping": 30.0, "logit_scale": 0.5},
        ["final_logit_softcapping is 30.0", "logit_scale (0.5)", "choose one"],
    ),
]
REFUSED_SEQ2SEQ = [
    (
        {**ROTARY, "rope_parameters": {"full_attention": {"rope_type": "default"}}},
        ["full_attention", "flat"],
    ),
    ({"score_bias": "alibi"}, ["score_bias is 'alibi'", "relative, relative_per_layer"]),
    ({"encoder_layers": 0}, ["encoder_layers is 0"]),
    ({"is_encoder_decoder": False}, ["is_encoder_decoder is False", "leave it"]),
    ({"decoder_layers": 10**9}, ["decoder_layers is 1000000000"]),
    ({"value_head_dim": -2}, ["value_head_dim is -2"]),
    ({"num_hidden_layers": "2"}, ["num_hidden_layers is '2'", "whole number"]),
    ({"sliding_window": 4}, ["sliding_window is 4", "remove it"]),
    ({"layer_types": ["full_attention"]}, ["layer_types is ['full_attention']", "remove it"]),
    ({"decoder_vocab_size": 5}, ["decoder_vocab_size is 5", "both stacks"]),
    ({"decoder_start_token_id": 32000}, ["decoder_start_token_id is 32000", "0 to 31999"]),
    (
        {"source_vocab_size": 100},
        ["source_vocab_size (100)", "share_encoder_decoder_embeddings=False"],
    ),
    (
        {"source_vocab_size": 10, "share_encoder_decoder_embeddings": False, "pad_token_id": 11},
        ["pad_token_id is 11", "source vocabulary"],
    ),
]

ROPE = {"rope_type": "default"}
BOTH_KINDS = {"layer_types": ["full_attention", "sliding_attention"] * 3, "sliding_window": 4}
# Of the families whose layers may differ in kind.
REFUSED_BY_KIND = [
    ({"full_attention": ROPE}, ["no sliding_attention", "one flat dict"]),
    ({"sliding_attention": ROPE}, ["no full_attention", "one flat dict"]),
    (
        {"full_attention": ROPE, "sliding_attention": "default"},
        ["rope_parameters['sliding_attention'] is 'default'", "a dict for each"],
    ),
    (
        {"full_attention": ROPE, "sliding_attention": ROPE, "factor": 2.0},
        ["rope_parameters['factor'] is 2.0", "a dict for each"],
    ),
    (
        {"full_attention": ROPE, "sliding_attention": {"rope_theta": -1.0}},
        ["rope_theta", "-1.0", "number"],
    ),
]
REFUSED_ENCODER = [
    ({"type_vocab_size": -1}, ["type_vocab_size is -1", "0 or their number"]),
    ({"type_vocab_size": 10**9}, ["type_vocab_size is 1000000000", "0 or their number"]),
    ({"type_vocab_size": 10**12}, ["type_vocab_size is 1000000000000", "0 or their number"]),
    ({"score_bias": "loud"}, ["score_bias is 'loud'", "relative"]),
    ({"score_bias": "alibi"}, ["score_bias is 'alibi'", "relative"]),
    *(
        ({"first_attention_norm": False, "norm_position": place}, ["first_attention_norm", place])
        for place in ("inside", "both")
    ),
    ({"classifier_pooling": "max"}, ["classifier_pooling is 'max'", "cls, mean"]),
    ({"classifier_act": "loud"}, ["classifier_act is 'loud'", "tanh"]),
    ({"classifier_act": None}, ["classifier_norm is True", "classifier_norm=False"]),
    ({"head_act": "loud"}, ["head_act is 'loud'", "gelu"]),
    ({"first_attention_norm": False, "norm_position": "post"}, ["first_attention_norm", "'post'"]),
    ({"is_encoder_decoder": True}, ["is_encoder_decoder is True", "leave it"]),
    ({"mask_token_id": 32000}, ["mask_token_id is 32000", "0 to 31999"]),
    ({"cls_token_id": -1}, ["cls_token_id is -1", "0 to 31999"]),
    ({"sep_token_id": 32000}, ["sep_token_id is 32000", "0 to 31999"]),
    ({"sliding_window": 0}, ["sliding_window is 0"]),
    ({"layer_types": ["full_attention"]}, ["layer_types has 1", "num_hidden_layers (6)"]),
    (
        {"sliding_window": None, "layer_types": ["sliding_attention"] * 6},
        ["sliding_window is None", "set sliding_window"],
    ),
]


def check_refused(config_class, fields, words):
    with pytest.raises((ValueError, StrictDataclassError)) as caught:
        config_class(**fields)
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"


@pytest.mark.parametrize(("fields", "words"), REFUSED, ids=lambda value: str(value)[:60])
def test_a_wrong_value_is_refused_by_name(family, fields, words):
    check_refused(family.config_class, fields, words)


@pytest.mark.parametrize(("rope", "words"), REFUSED_ROPE, ids=lambda value: str(value)[:60])
def test_wrong_rotary_parameters_are_refused_by_name(family, rope, words):
    check_refused(family.config_class, {**ROTARY, "rope_parameters": rope}, words)


@pytest.mark.parametrize("config_class", [TformerDecoderConfig, ENCODER.config_class])
@pytest.mark.parametrize(("rope", "words"), REFUSED_BY_KIND, ids=lambda value: str(value)[:60])
def test_a_rotation_for_each_kind_of_layer_names_the_kinds(config_class, rope, words):
    check_refused(config_class, {**BOTH_KINDS, "rope_parameters": rope}, words)


@pytest.mark.parametrize(("fields", "words"), REFUSED_DECODER, ids=lambda value: str(value)[:60])
def test_a_wrong_value_of_the_decoder_is_refused_by_name(fields, words):
    check_refused(TformerDecoderConfig, fields, words)


@pytest.mark.parametrize(("fields", "words"), REFUSED_SEQ2SEQ, ids=lambda value: str(value)[:60])
def test_a_wrong_value_of_the_encoder_decoder_is_refused_by_name(fields, words):
    check_refused(TformerSeq2SeqConfig, fields, words)


HIDING = ["to_dict", "validate_architecture", "save_pretrained", "get_text_config", "__class__"]
HIDING += ["attribute_map", "sub_configs", "is_heterogeneous", "_auto_class"]


@pytest.mark.parametrize("key", HIDING)
@pytest.mark.parametrize("value", [None, "x", {}], ids=str)
def test_a_key_that_would_hide_what_the_class_has_is_refused(family, key, value, tmp_path):
    check_refused(family.config_class, {key: value}, [f"{key} is {value!r}", "would hide"])
    content = {"model_type": family.config_class.model_type, key: value}
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=rf"{key} is .*would hide"):
        AutoConfig.from_pretrained(tmp_path)


def test_a_key_of_the_users_own_is_kept_unless_it_is_nested_too_deep_to_be_saved(family, tmp_path):
    deep = nested = []
    for _ in range(300):
        nested.append([])
        nested = nested[0]
    check_refused(family.config_class, {"my_own": deep}, ["my_own is nested", "flatter"])
    check_refused(family.config_class, {**ROTARY, "rope_parameters": {"x": deep}}, ["rope_param"])
    family.config(my_own={"a": [1, {"b": None}]}, other=None).save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert (loaded.my_own, loaded.other) == ({"a": [1, {"b": None}]}, None)


def test_the_most_labels_that_are_accepted_are_saved_and_read_in_seconds(tmp_path):
    DECODER.config(num_labels=10**5).save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).num_labels == 10**5


def test_what_tools_set_on_a_configuration_later_may_be_set(family, tmp_path):
    config = family.config()
    later = {"num_labels": 3, "use_cache": False, "is_causal": True}
    later |= {"label2id": {0: 0, 1: 1, 2: 2}, "_attn_implementation": "eager", "dtype": torch.half}
    later |= {
        "quantization_config": {"quant_method": "fp8"},
        "tp_size": 2,
        "output_attentions": True,
    }
    for name, value in later.items():
        setattr(config, name, value)
        assert getattr(config, name) == value
    config.validate()


def test_a_class_of_ones_own_reads_the_files_of_the_family(family):
    own = type("Own", (family.config_class,), {"model_type": "own"})
    assert own.from_dict({"model_type": family.config_class.model_type}).model_type == "own"
    assert own(model_type="own").model_type == "own"


@pytest.mark.parametrize(("fields", "words"), REFUSED_ENCODER, ids=lambda value: str(value)[:60])
def test_a_wrong_value_of_the_encoder_is_refused_by_name(fields, words):
    check_refused(ENCODER.config_class, fields, words)


def test_a_value_made_wrong_later_is_refused_on_saving(family, tmp_path):
    config = family.config()
    config.num_key_value_heads = 5
    with pytest.raises((ValueError, StrictDataclassError), match="num_key_value_heads"):
        config.save_pretrained(tmp_path)
    assert not (tmp_path / "config.json").exists()


@pytest.mark.parametrize(
    ("field", "value"),
    [("return_dict", None), ("id2label", {1: "a", 2: "b"}), ("quantization_config", "x")],
)
def test_what_could_not_be_read_again_is_not_saved(family, field, value, tmp_path):
    config = family.config()
    setattr(config, field, value)
    with pytest.raises((ValueError, StrictDataclassError), match=field):
        config.save_pretrained(tmp_path)
    assert not (tmp_path / "config.json").exists()


def test_a_proportional_rotation_may_turn_any_fraction_of_the_pairs():
    rope = {"rope_type": "proportional", "partial_rotary_factor": 0.5}
    assert TformerDecoderConfig(head_dim=10, rope_parameters=rope).head_dim == 10


@pytest.mark.parametrize("scaling", ["linear", 2.0])
def test_rotary_parameters_under_their_old_name_are_a_dict_too(family, scaling):
    check_refused(family.config_class, {**ROTARY, "rope_scaling": scaling}, ["rope_scaling is"])


def test_a_configuration_leaves_the_dict_that_it_was_given_as_it_was(family):
    rope = {"rope_type": "linear", "factor": 2.0}
    first, second = (family.config(**ROTARY, rope_parameters=rope) for _ in range(2))
    first.rope_parameters["factor"] = 3.0
    assert rope == {"rope_type": "linear", "factor": 2.0}
    assert second.rope_parameters["factor"] == 2.0


def test_the_old_name_of_theta_overrides_on_loading(family, tmp_path):
    family.config(**ROTARY, rope_theta=5.0).save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path, rope_theta=77.0)
    assert config.rope_parameters["rope_theta"] == 77.0


def test_an_override_on_loading_is_checked_and_derived_like_a_value_in_the_file(tmp_path):
    DECODER.config().save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path, sliding_window=4)
    assert config.layer_types == ["sliding_attention"] * 2
    with pytest.raises((ValueError, StrictDataclassError), match="num_key_value_heads"):
        AutoConfig.from_pretrained(tmp_path, num_key_value_heads=4)


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation_internal"])
@pytest.mark.parametrize(
    "kernel", ["someone/kernel", "someone/kernel@v1:attend", {"": "a/b"}], ids=str
)
def test_a_file_may_not_choose_code_to_download(family, tmp_path, key, kernel):
    family.config().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: kernel}))
    with pytest.raises(ValueError, match=rf"{key}.*remove the key"):
        AutoConfig.from_pretrained(tmp_path)


def test_keys_that_only_transformers_may_set_are_dropped_from_a_file(family, tmp_path):
    family.config().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    smuggled = {"_attn_implementation_internal": "eager", "_anything_internal": {"a": 1}}
    path.write_text(json.dumps({**json.loads(path.read_text()), **smuggled}))
    config = AutoConfig.from_pretrained(tmp_path)
    assert config._attn_implementation is None
    assert not hasattr(config, "_anything_internal")


def test_the_user_may_choose_what_a_file_may_not(family, tmp_path):
    family.config().save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path, attn_implementation="someone/kernel")
    assert config._attn_implementation == "someone/kernel"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            {"rope_theta": 5000.0},
            {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}},
        ),
        (
            {"rope_scaling": {"type": "linear", "factor": 2.0}, "rope_theta": 500.0},
            {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0}},
        ),
        ({"torch_dtype": "bfloat16"}, {"dtype": "bfloat16"}),
        ({"torch_dtype": torch.float16}, {"dtype": torch.float16}),
    ],
    ids=str,
)
def test_old_keys_load_to_the_model_of_the_new_ones(family, old, new):
    old, new = family.config(**ROTARY, **old), family.config(**ROTARY, **new)
    assert old.dtype == new.dtype
    for key, value in new.rope_parameters.items():
        assert old.rope_parameters[key] == value
    ids = torch.tensor([[5, 6, 7, 8]])
    target = family.target(ids)
    logits = []
    for config in (old, new):
        torch.manual_seed(0)
        logits.append(family.model_class(config)(ids, **target).logits)
    assert torch.equal(*logits)


def test_another_rope_theta_is_another_model(family):
    ids = torch.tensor([[5, 6, 7, 8]])
    target = family.target(ids)
    near, far = (
        family.build(**ROTARY, rope_theta=theta)(ids, **target).logits for theta in (1e2, 1e6)
    )
    assert not torch.allclose(near, far)


def test_a_configuration_survives_its_file(family, tmp_path):
    config = family.config(
        **ROTARY, rope_parameters={"rope_type": "yarn", "factor": 4.0}, dropout=0.25
    )
    config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    loaded.name_or_path = config.name_or_path
    assert loaded.to_dict() == config.to_dict()


def test_unused_rotary_parameters_are_not_kept(family):
    """Where the attribute exists, tools take the positions for rotary ones."""
    for given in ({}, {"rope_theta": 5.0}, {"rope_parameters": {"rope_type": "default"}}):
        config = family.config(position_embedding_type="learned", **given)
        assert not hasattr(config, "rope_parameters")
        assert not hasattr(config, "rope_theta")


def test_layer_types_exist_only_where_a_layer_slides():
    assert not hasattr(TformerDecoderConfig(), "layer_types")
    assert not hasattr(TformerDecoderConfig(layer_types=["full_attention"] * 6), "layer_types")
    assert TformerDecoderConfig(sliding_window=8).layer_types == ["sliding_attention"] * 6


def test_derived_sizes_are_filled_in_once():
    decoder = TformerDecoderConfig(num_key_value_heads=None)
    assert (decoder.num_key_value_heads, decoder.head_dim, decoder.final_norm) == (8, 64, True)
    seq2seq = TformerSeq2SeqConfig(head_dim=10)
    assert (seq2seq.num_key_value_heads, seq2seq.value_head_dim, seq2seq.final_norm) == (
        8,
        10,
        False,
    )
    assert TformerSeq2SeqConfig(norm_position="pre").final_norm


def test_caches_are_made_for_the_depth_of_the_decoder():
    text_config = SEQ2SEQ.config().get_text_config(decoder=True)
    assert text_config.num_hidden_layers == SEQ2SEQ.sizes["decoder_layers"]


def test_a_huge_configuration_is_refused_before_anything_is_allocated(tmp_path):
    """In a process that may hold 2 GiB: a list of a billion layers would kill it."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30))\n"
        "from hf_tformer import TformerDecoderConfig\n"
        "try: TformerDecoderConfig(num_hidden_layers=10**9, sliding_window=4, num_labels=10**9)\n"
        "except ValueError as error: print('refused:', error)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.startswith("refused: num_hidden_layers is 1000000000"), run.stderr


@torch.no_grad()
def test_a_configuration_that_asks_for_tuples_gives_them(family):
    model = family.build(return_dict=False)
    batch = family.training_batch([[5, 6, 7], [8, 9]])
    as_tuple, as_output = model(**batch), model(**batch, return_dict=True)
    assert type(as_tuple) is tuple
    assert torch.equal(as_tuple[0], as_output.loss)
    assert torch.equal(as_tuple[1], as_output.logits)
