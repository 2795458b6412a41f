"""What cannot be converted exactly is refused in one sentence, and nothing is left behind."""

import json
from functools import partial

import pytest
import torch

import conversion.engine.convert
import conversion.engine.proof
from conversion import ConversionError, Rule, export_checkpoint, import_checkpoint
from conversion.engine.proof import verify
from conversion.engine.rules import plan
from support import parity_mixture as mixtures
from support.converting import (
    CASES,
    assert_refused,
    edit_config,
    edit_weights,
    save_ours,
    save_theirs,
)
from support.damage import Trap


@pytest.fixture
def llama(tmp_path):
    """A folder of theirs that converts, for tests that spoil it."""
    save_theirs(CASES["llama tied"], tmp_path / "theirs")
    return tmp_path / "theirs"


def test_an_index_cannot_point_out_of_its_folder(tmp_path, llama):
    (llama / "model.safetensors").rename(tmp_path / "model.safetensors")
    index = {"weight_map": {"model.norm.weight": "../model.safetensors"}}
    (llama / "model.safetensors.index.json").write_text(json.dumps(index))
    assert_refused(tmp_path, "does not lie beside it")


def test_a_trapped_pickle_is_refused_and_not_run(tmp_path, llama):
    (llama / "model.safetensors").unlink()
    torch.save({"model.norm.weight": Trap(tmp_path / "sprung")}, llama / "pytorch_model.bin")
    assert_refused(tmp_path, "pytorch_model.bin", "could run code")
    assert not (tmp_path / "sprung").exists()


def test_a_truncated_file_is_refused(tmp_path, llama):
    whole = (llama / "model.safetensors").read_bytes()
    (llama / "model.safetensors").write_bytes(whole[:-100])
    assert_refused(tmp_path, "model.safetensors is truncated")


# Every tensor is explained


def test_a_tensor_that_no_rule_explains_is_refused(tmp_path, llama):
    edit_weights(llama, lambda tensors: tensors.update({"score.weight": torch.ones(2)}))
    assert_refused(tmp_path, "no rule explains: score.weight")


def test_a_missing_tensor_is_refused(tmp_path, llama):
    edit_weights(llama, lambda tensors: tensors.pop("model.layers.1.mlp.up_proj.weight"))
    assert_refused(tmp_path, "missing: model.layers.1.mlp.up_proj.weight")


def test_a_tensor_of_another_shape_is_refused(tmp_path, llama):
    edit_weights(llama, lambda tensors: tensors.update({"model.norm.weight": torch.ones(29)}))
    assert_refused(tmp_path, "model.norm.weight", "[29]", "[30]")


def test_integers_where_weights_belong_are_refused(tmp_path, llama):
    whole = torch.ones(30, dtype=torch.int8)
    edit_weights(llama, lambda tensors: tensors.update({"model.norm.weight": whole}))
    assert_refused(tmp_path, "model.norm.weight", "int8")


def test_a_table_with_no_rule_or_two_for_a_tensor_is_refused():
    rule = Rule("norm.{i}.weight", "ln_{i}.weight")
    for rules, count in (((), 0), ((rule, rule), 2)):
        with pytest.raises(ConversionError, match=f"{count} rules .* norm.3.weight"):
            plan(rules, ["norm.3.weight"])


def test_tied_tensors_with_different_values_are_refused(tmp_path, llama):
    edit_weights(llama, lambda tensors: tensors.update({"lm_head.weight": torch.ones(101, 30)}))
    assert_refused(tmp_path, "lm_head.weight", "model.embed_tokens.weight", "tie_word_embeddings")


def test_a_format_that_the_folder_does_not_hold_is_refused(tmp_path, llama):
    def run(src, dst):
        import_checkpoint(src, dst, format="qwen2")

    assert_refused(tmp_path, "is llama, not qwen2", run=run)
    edit_config(llama, model_type="deberta")
    assert_refused(tmp_path, "'deberta'")


def test_quantised_weights_are_refused(tmp_path, llama):
    edit_config(llama, quantization_config={"quant_method": "gptq"})
    assert_refused(tmp_path, "quantization_config")


# Nothing is approximated

THEIR_REFUSALS = {
    "gpt2 scaled by layer": ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
    "gpt2 cross-attention": ("gpt2", {"add_cross_attention": True}),
    "marian two head counts": ("marian", {"decoder_attention_heads": 5}),
    "phi3 layers of two kinds": ("phi3 partial rotation", {"layer_types": ["full_attention"] * 3}),
    "olmo clipped queries": ("olmo", {"clip_qkv": 8.0}),
    "bart two widths": ("bart", {"decoder_ffn_dim": 41}),
    "gpt_bigcode cross-attention": ("gpt_bigcode head by head", {"add_cross_attention": True}),
    "gpt_neox two head sizes": ("gpt_neox", {"head_dim": 6}),
    "gptj odd rotation": ("gptj", {"rotary_dim": 5}),
    "gptj rotation beyond the head": ("gptj", {"rotary_dim": 12}),
    "phi norms of heads": ("phi", {"qk_layernorm": True}),
    "falcon distances": ("falcon one after the other", {"alibi": True}),
    "falcon three norms": ("falcon 40b", {"num_ln_in_parallel_attn": 3}),
    "falcon two norms of old": ("falcon 7b", {"num_ln_in_parallel_attn": 2}),
    "falcon shared keys of old": ("falcon one after the other", {"num_kv_heads": 2}),
    "falcon new one after the other": ("falcon 40b", {"parallel_attn": False}),
    "cohere norms of heads": ("cohere biases", {"use_qk_norm": True}),
    "granite without branches": ("granite biases", {"residual_multiplier": 0.0}),
    "stablelm norms of heads": ("stablelm partial rotation", {"qk_layernorm": True}),
    "stablelm two head sizes": ("stablelm partial rotation", {"head_dim": 6}),
    "opt narrower embeddings": ("opt", {"word_embed_proj_dim": 15}),
    "opt bare norms": ("opt", {"layer_norm_elementwise_affine": False}),
    "starcoder2 kinds of layers": (
        "starcoder2 sliding window",
        {"layer_types": ["full_attention"] * 3},
    ),
    "bloom residual behind the norm": (
        "bloom",
        {"apply_residual_connection_post_layernorm": True},
    ),
    "bloom slices": ("bloom", {"slow_but_exact": True, "pretraining_tp": 2}),
    "mpt other widths": ("mpt", {"expansion_ratio": 2}),
    "mpt biases": ("mpt", {"no_bias": False}),
    "mpt scaled logits": ("mpt", {"logit_scale": 0.5}),
    "mpt other norms": ("mpt", {"norm_type": "rmsnorm"}),
    "xglm other padding": ("xglm", {"pad_token_id": 3}),
    "xglm cross-attention": ("xglm", {"add_cross_attention": True}),
    "m2m_100 two head counts": ("m2m_100", {"decoder_attention_heads": 5}),
    "gemma to both sides": ("gemma biases", {"use_bidirectional_attention": True}),
    "gemma2 to both sides": ("gemma2", {"use_bidirectional_attention": True}),
    "smollm3 windows for some backends": ("smollm3 windows", {"use_sliding_window": False}),
    "llama part of each head": (
        "llama tied",
        {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}},
    ),
}


@pytest.mark.parametrize("case", THEIR_REFUSALS)
def test_what_we_cannot_express_is_refused_by_field_and_value(case, tmp_path):
    name, fields = THEIR_REFUSALS[case]
    save_theirs(CASES[name], tmp_path / "theirs")
    edit_config(tmp_path / "theirs", **fields)
    (field, value) = next(iter(fields.items()))
    assert_refused(tmp_path, field, "0.5" if isinstance(value, dict) else str(value))


def test_a_switch_that_changes_nothing_is_no_reason_to_refuse(tmp_path):
    save_theirs(CASES["bloom"], tmp_path / "theirs")
    edit_config(tmp_path / "theirs", slow_but_exact=True)
    assert import_checkpoint(tmp_path / "theirs", tmp_path / "ours").difference < 1e-4


def test_a_model_that_people_know_is_named_with_what_it_has(tmp_path):
    save_theirs(CASES["opt"], tmp_path / "theirs")
    edit_config(tmp_path / "theirs", word_embed_proj_dim=15)
    assert_refused(tmp_path, "(the embeddings of OPT-350M are narrower than its layers)")


def test_a_field_that_their_configuration_computes_is_refused_by_name(tmp_path):
    save_theirs(CASES["falcon 7b"], tmp_path / "theirs")
    edit_config(tmp_path / "theirs", head_dim=4)
    assert_refused(tmp_path, "config.json", "head_dim")


KINDS = ("full_attention", "sliding_attention")
HALF = {"rope_theta": 1e4, "rope_type": "default", "partial_rotary_factor": 0.5}
PLAIN = {"norm_type": "layernorm", "mlp_type": "plain"}
LEARNED = {"position_embedding_type": "learned", **PLAIN}
GPT_NEO = {"attention_output_bias": True, **LEARNED}
GPT_BIGCODE = {"attention_bias": True, "mlp_bias": True, **GPT_NEO}
THEIR_BIASES = {"attention_bias": True, "attention_output_bias": True, "mlp_bias": True}
ALIBI = {
    "position_embedding_type": "none",
    "score_bias": "alibi",
    "mlp_type": "plain",
    "intermediate_size": 48,
}
BLOOM = {
    **ALIBI,
    **THEIR_BIASES,
    "norm_type": "layernorm",
    "embedding_norm": True,
    "hidden_act": "gelu_new",
}
MPT = {**ALIBI, "norm_type": "layernorm_unbiased", "hidden_act": "gelu"}
XGLM = {
    **PLAIN,
    **THEIR_BIASES,
    "position_embedding_type": "sinusoidal",
    "sinusoidal_layout": "fairseq",
    "pad_token_id": 1,
}
NANOCHAT = {"embedding_norm": True, "qk_norm": True, "mlp_type": "plain"}
M2M100 = {"sinusoidal_layout": "fairseq", "norm_position": "pre", "lm_head_bias": False}


def but(layout, **fields):
    """The layout with these fields, which stand first."""
    return {**fields, **{name: layout[name] for name in layout if name not in fields}}


NEOX = {"mlp_bias": True, **PLAIN}
GPTJ = {"parallel_residual": "shared", "lm_head_bias": True, **NEOX}
PHI = {"attention_bias": True, "attention_output_bias": True, **GPTJ}
COHERE = {"norm_type": "layernorm_unbiased", "parallel_residual": "shared"}
WINDOWS = {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 4}


OFFSET = {"norm_type": "rmsnorm_offset", "scale_embedding": True}
GEMMA2 = {**OFFSET, "norm_position": "both"}
BEHIND = {"norm_position": "inside", "qk_norm": "all"}
BY_KIND = {
    "rope_parameters": {KINDS[0]: {"rope_theta": 1e6}, KINDS[1]: {"rope_theta": 1e4}},
    "layer_types": list(KINDS),
    "sliding_window": 4,
}
OUR_REFUSALS = [
    ("llama", {"qk_norm": True}),
    ("llama", {"norm_position": "post"}),
    ("llama", {"position_embedding_type": "sinusoidal"}),
    ("llama", {"lm_head_bias": True}),
    ("llama", {"sliding_window": 4}),
    ("llama", {"attention_output_bias": True}),
    ("llama", {"attention_scale": 1.0}),
    ("llama", {"logit_scale": 0.5}),
    ("llama", {"scale_embedding": True}),
    ("llama", {"mlp_type": "plain"}),
    ("mistral", {"attention_bias": True}),
    ("mistral", {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 4}),
    ("mistral", {"attention_output_bias": True}),
    ("mistral", {"mlp_bias": True}),
    ("qwen2", {"attention_bias": False}),
    ("qwen2", {"attention_output_bias": True, "attention_bias": True}),
    ("qwen3", {"mlp_bias": True, "qk_norm": True}),
    ("qwen3", {"qk_norm": False}),
    ("qwen2", {**BY_KIND, "attention_bias": True}),
    ("qwen3", {**BY_KIND, "qk_norm": True}),
    ("gemma2", {**BY_KIND, **GEMMA2}),
    ("smollm3", BY_KIND),
    ("gemma", {"hidden_act": "gelu", **OFFSET}),
    ("gemma2", {"attention_scale": 0.3, **GEMMA2}),
    ("gemma3_text", {"attn_logit_softcapping": 1.5, "qk_norm": True, **GEMMA2}),
    ("olmo2", {"sliding_window": 4, **BEHIND}),
    ("olmo2", {"position_embedding_type": "learned", **BEHIND}),
    ("olmo3", {"attention_output_bias": True, **BEHIND}),
    ("exaone4", {"no_rope_layers": [0, 1], **BEHIND, "qk_norm": True}),
    ("exaone4", {"mlp_bias": True, **BEHIND, "qk_norm": True}),
    ("glm4", {"norm_position": "pre"}),
    ("opt", {"norm_position": "inside", **LEARNED}),
    ("phi3", {"attention_bias": True}),
    ("phi3", {"rope_parameters": {"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0}}),
    ("olmo", {"norm_type": "rmsnorm"}),
    ("olmo", {"layer_norm_eps": 1e-3, "norm_type": "layernorm"}),
    ("olmo", {"attention_output_bias": True, "norm_type": "layernorm_unbiased"}),
    ("glm", {"eos_token_id": None}),
    ("glm", {"attention_output_bias": True}),
    ("glm", {"sliding_window": 4}),
    ("seed_oss", {"sliding_window": 4}),
    ("seed_oss", {"qk_norm": True}),
    ("arcee", {"mlp_type": "gated"}),
    ("arcee", {"attention_output_bias": True, "mlp_type": "plain"}),
    ("helium", {"head_dim": 8}),
    ("helium", {"attention_output_bias": True}),
    ("ernie4_5", {"mlp_bias": True}),
    ("ernie4_5", {"attention_output_bias": False, "attention_bias": True}),
    ("gpt2", {"position_embedding_type": "rotary"}),
    ("gpt2", {"norm_type": "rmsnorm", "position_embedding_type": "learned"}),
    ("opt", {"position_embedding_type": "rotary"}),
    ("opt", {"layer_norm_eps": 1e-3, **LEARNED}),
    ("opt", {"mlp_bias": True, **LEARNED}),
    ("opt", {"scale_embedding": True, **LEARNED}),
    ("opt", {"final_norm": True, "norm_position": "post", **LEARNED}),
    ("opt", {"num_key_value_heads": 1, **LEARNED}),
    ("biogpt", {"attention_bias": False, **LEARNED}),
    ("biogpt", {"layer_norm_eps": 1e-3, **LEARNED}),
    ("biogpt", {"norm_position": "post", **LEARNED}),
    ("starcoder2", {"norm_type": "rmsnorm"}),
    ("starcoder2", {"attention_output_bias": True, **PLAIN}),
    ("starcoder2", {"attention_scale": 1.0, **PLAIN}),
    ("starcoder2", {"mlp_type": "gated", "norm_type": "layernorm"}),
    (
        "starcoder2",
        {
            "layer_types": ["full_attention", "sliding_attention"],
            "sliding_window": 4,
            **PLAIN,
        },
    ),
    ("gpt_neo", {"attention_bias": True, **GPT_NEO}),
    ("gpt_neo", {"attention_scale": 0.5, "mlp_bias": True, **GPT_NEO}),
    ("gpt_neo", {"mlp_bias": False, **GPT_NEO}),
    ("gpt_neo", {"num_key_value_heads": 1, "mlp_bias": True, "attention_scale": 1.0, **GPT_NEO}),
    ("gpt_bigcode", {"scale_embedding": True, **GPT_BIGCODE}),
    ("gpt_bigcode", {"attention_scale": 0.5, **GPT_BIGCODE}),
    ("gpt_bigcode", {"head_dim": 4, **GPT_BIGCODE}),
    (
        "gpt_bigcode",
        {
            "num_key_value_heads": 2,
            "num_attention_heads": 4,
            **GPT_BIGCODE,
        },
    ),
    ("bloom", but(BLOOM, score_bias=None)),
    ("bloom", but(BLOOM, embedding_norm=False)),
    ("bloom", but(BLOOM, intermediate_size=47)),
    ("bloom", but(BLOOM, hidden_act="gelu")),
    ("bloom", but(BLOOM, attention_bias=False)),
    ("bloom", but(BLOOM, head_dim=4)),
    ("bloom", but(BLOOM, attention_scale=1.0)),
    ("mpt", but(MPT, norm_type="layernorm")),
    ("mpt", but(MPT, mlp_bias=True)),
    ("mpt", but(MPT, embedding_norm=True)),
    ("mpt", but(MPT, intermediate_size=47)),
    ("mpt", but(MPT, qk_norm=True)),
    ("mpt", but(MPT, num_key_value_heads=1)),
    ("xglm", but(XGLM, pad_token_id=0)),
    ("xglm", but(XGLM, sinusoidal_layout="halves")),
    ("xglm", but(XGLM, layer_norm_eps=1e-3)),
    ("xglm", but(XGLM, attention_bias=False)),
    ("m2m_100", but(M2M100, sinusoidal_layout="halves")),
    ("m2m_100", but(M2M100, lm_head_bias=True)),
    ("m2m_100", but(M2M100, norm_position="post")),
    ("m2m_100", but(M2M100, embedding_norm=True)),
    ("nanochat", but(NANOCHAT, embedding_norm=False)),
    ("nanochat", but(NANOCHAT, qk_norm=False)),
    ("nanochat", but(NANOCHAT, qk_norm="all")),
    ("nanochat", but(NANOCHAT, attention_output_bias=True)),
    ("nanochat", but(NANOCHAT, attention_scale=1.0)),
    ("nanochat", but(NANOCHAT, logit_scale=0.5)),
    ("llama", {"parallel_residual": "own"}),
    ("llama", {"residual_multiplier": 0.5}),
    ("gpt_neox", {"parallel_residual": "shared", **NEOX}),
    ("gpt_neox", {"attention_output_bias": True, **NEOX}),
    ("gpt_neox", {"num_key_value_heads": 1, **NEOX}),
    ("gpt_neox", {"head_dim": 4, **NEOX}),
    ("gpt_neox", {"lm_head_bias": True, **NEOX}),
    ("gptj", {"lm_head_bias": False, **{k: v for k, v in GPTJ.items() if k != "lm_head_bias"}}),
    ("gptj", {"attention_bias": True, **GPTJ}),
    ("gptj", {"parallel_residual": None, "lm_head_bias": True, **NEOX}),
    ("phi", {"parallel_residual": "own", "lm_head_bias": True, **NEOX, "attention_bias": True}),
    ("phi", {"attention_scale": 1.0, **PHI}),
    ("phi", {"qk_norm": True, **PHI}),
    ("falcon", {"mlp_bias": True, **PLAIN}),
    ("falcon", {"head_dim": 4, **PLAIN}),
    ("falcon", {"num_key_value_heads": 2, "num_attention_heads": 6, "head_dim": 2, **PLAIN}),
    ("cohere", {"norm_type": "layernorm", "parallel_residual": "shared"}),
    ("cohere", {"parallel_residual": "own", "norm_type": "layernorm_unbiased"}),
    ("cohere", {"sliding_window": 4, **COHERE}),
    ("cohere", {"attention_output_bias": True, **COHERE}),
    ("cohere", {"no_rope_layers": [0, 1], **COHERE}),
    ("cohere2", {"no_rope_layers": [1, 1], **COHERE, **WINDOWS}),
    ("cohere2", {"qk_norm": True, **COHERE}),
    ("granite", {"scale_embedding": True}),
    ("granite", {"parallel_residual": "shared"}),
    ("granite", {"attention_output_bias": True}),
    ("granitemoehybrid", {"position_embedding_type": "sinusoidal"}),
    ("granitemoehybrid", {"mlp_bias": True}),
    ("granitemoehybrid", {"sliding_window": 4}),
    ("hyperclovax", {"norm_position": "inside"}),
    ("cwm", {"attention_bias": True}),
    ("cwm", {"qk_norm": True}),
    ("ministral", {"mlp_bias": True}),
    ("ministral", {"no_rope_layers": [0, 1]}),
    ("jais2", {"norm_type": "rmsnorm"}),
    ("jais2", {"attention_output_bias": True, "norm_type": "layernorm", "mlp_type": "plain"}),
    ("vaultgemma", {"norm_position": "both", "norm_type": "rmsnorm_offset"}),
    ("stablelm", {"parallel_residual": "own", "norm_type": "layernorm"}),
    ("stablelm", {"norm_type": "rmsnorm"}),
    ("stablelm", {"head_dim": 4, "norm_type": "layernorm"}),
    ("stablelm", {"sliding_window": 4, "norm_type": "layernorm"}),
    ("stablelm", {"attention_output_bias": True, "norm_type": "layernorm"}),
    ("stablelm", {"attention_scale": 1.0, "norm_type": "layernorm"}),
    ("marian", {"position_embedding_type": "rotary"}),
    ("marian", {"sinusoidal_layout": "interleaved"}),
    ("marian", {"norm_position": "pre", "final_norm": True}),
    ("marian", {"lm_head_bias": False}),
    ("marian", {"value_head_dim": 4}),
    ("marian", {"num_key_value_heads": 1}),
    ("marian", {"tie_word_embeddings": False, "share_encoder_decoder_embeddings": True}),
    ("bart", {"position_embedding_type": "sinusoidal"}),
    ("bart", {"norm_type": "rmsnorm"}),
]


@pytest.mark.parametrize(("to", "fields"), OUR_REFUSALS, ids=lambda value: str(value)[:40])
def test_what_they_cannot_express_is_refused_by_field_and_value(to, fields, tmp_path):
    is_pair = to in ("marian", "bart", "m2m_100")
    family = "tformer_seq2seq" if is_pair else "tformer_decoder"
    save_ours(tmp_path / "theirs", family, **fields)

    def run(src, dst):
        export_checkpoint(src, dst, to=to)

    field, value = next(iter(fields.items()))
    words = [field] if isinstance(value, (list, dict)) else [field, str(value)]
    assert_refused(tmp_path, *words, run=run)


@pytest.mark.parametrize(("to", "dense"), [("glm4_moe", [1]), ("ernie4_5_moe", [2])])
def test_experts_in_layers_that_they_cannot_name_are_refused(to, dense, tmp_path):
    case = mixtures.CASES[to]
    fields = {"num_hidden_layers": 4, "mlp_only_layers": dense}
    case.build_one(case.our_classes, {**case.ours, **fields}).save_pretrained(tmp_path / "theirs")

    def run(src, dst):
        export_checkpoint(src, dst, to=to)

    assert_refused(tmp_path, f"mlp_only_layers is {dense}", "choose qwen2_moe", run=run)


def test_a_text_model_that_sees_both_sides_is_no_decoder(tmp_path):
    save_theirs(CASES["gemma3 biases"], tmp_path / "theirs")
    edit_config(tmp_path / "theirs", use_bidirectional_attention=True)
    assert_refused(tmp_path, "architectures", "Gemma3ForCausalLM", "Gemma3TextModel")


def test_a_part_of_the_heads_of_one_kind_of_layers_is_refused(tmp_path):
    save_theirs(CASES["olmo3"], tmp_path / "theirs")
    ropes = {"full_attention": {"rope_theta": 1e6}, "sliding_attention": HALF}
    edit_config(tmp_path / "theirs", rope_parameters=ropes)
    assert_refused(tmp_path, "partial_rotary_factor", "0.5", "OLMo-3")


def test_a_default_rotation_of_part_of_each_head_is_refused_for_llama(tmp_path):
    save_ours(tmp_path / "theirs", head_dim=8, rope_parameters=HALF)

    def run(src, dst):
        export_checkpoint(src, dst, to="llama")

    assert_refused(tmp_path, "partial_rotary_factor", "0.5", run=run)


@pytest.mark.parametrize(("role", "change"), [("weight", 1.5), ("bias", 0.5)])
def test_a_norm_that_has_learned_is_refused_where_theirs_do_not_learn(tmp_path, role, change):
    save_ours(tmp_path / "theirs", norm_type="layernorm")
    values = torch.full((12,), change)
    edit_weights(
        tmp_path / "theirs", lambda tensors: tensors.update({f"model.norm.{role}": values})
    )

    def run(src, dst):
        export_checkpoint(src, dst, to="olmo")

    assert_refused(tmp_path, "norm", role, run=run)


def test_a_norm_of_heads_that_has_learned_is_refused_for_nanochat(tmp_path):
    save_ours(tmp_path / "theirs", **NANOCHAT)
    name, values = "model.layers.1.self_attn.k_norm.weight", torch.full((6,), 1.5)
    edit_weights(tmp_path / "theirs", lambda tensors: tensors.update({name: values}))
    run = partial(export_checkpoint, to="nanochat")
    assert_refused(tmp_path, "norm", "weight", run=run)


@pytest.mark.parametrize("direction", ["import", "export"])
def test_a_rotation_that_scales_is_refused_for_nanochat(direction, tmp_path):
    """It norms what was turned, and so undoes the scale."""
    yarn = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0}
    if direction == "import":
        save_theirs(CASES["nanochat"], tmp_path / "theirs")
        edit_config(tmp_path / "theirs", rope_parameters=yarn)
        run = import_checkpoint
    else:
        save_ours(tmp_path / "theirs", **NANOCHAT, rope_parameters=yarn)
        run = partial(export_checkpoint, to="nanochat")
    assert_refused(tmp_path, "rope_type", "yarn", "nanochat", run=run)


def test_another_pace_of_rotation_is_refused_for_gptj(tmp_path):
    save_ours(tmp_path / "theirs", rope_parameters={"rope_theta": 500.0}, **GPTJ)

    def run(src, dst):
        export_checkpoint(src, dst, to="gptj")

    assert_refused(tmp_path, "rope_theta", "500.0", "10000.0", run=run)


def test_a_rotation_spread_over_whole_heads_is_refused_for_stablelm(tmp_path):
    rope = {"rope_type": "proportional", "partial_rotary_factor": 0.5, "factor": 2.0}
    save_ours(tmp_path / "theirs", norm_type="layernorm", rope_parameters=rope)

    def run(src, dst):
        export_checkpoint(src, dst, to="stablelm")

    assert_refused(tmp_path, "partial_rotary_factor", "proportional", run=run)


def test_a_format_of_the_other_family_is_refused(tmp_path):
    save_ours(tmp_path / "theirs")

    def run(src, dst):
        export_checkpoint(src, dst, to="bart")

    assert_refused(tmp_path, "tformer_decoder", "bart", "llama", run=run)


# Nothing is left behind


def test_wrong_weights_do_not_pass_the_proof(tmp_path, llama, monkeypatch):
    def spoiled(tensors, dtype):
        for name, tensor in tensors:
            yield name, tensor * 1.01 if name.endswith("1.mlp.up_proj.weight") else tensor

    monkeypatch.setattr(conversion.engine.convert, "rounded", spoiled)
    assert_refused(tmp_path, "the logits differ by")


def test_a_failed_proof_leaves_nothing(tmp_path, llama, monkeypatch):
    monkeypatch.setattr(conversion.engine.proof, "TOLERANCE", -1.0)
    assert_refused(tmp_path, "the logits differ by")


@pytest.mark.parametrize(("value", "words"), [("nan", "NaN"), ("-inf", "infinity")])
def test_a_weight_that_is_no_number_is_refused_by_name(value, words, tmp_path, llama):
    def spoil(tensors):
        tensors["model.norm.weight"][3] = float(value)

    edit_weights(llama, spoil)
    for options in ({}, {"verify": False}):
        assert_refused(
            tmp_path,
            f"model.norm.weight holds {words}",
            run=partial(import_checkpoint, **options),
        )


def test_a_comparison_names_the_weight_that_is_no_number(tmp_path, llama):
    import_checkpoint(llama, tmp_path / "ours")
    edit_weights(llama, lambda tensors: tensors["model.norm.weight"].fill_(float("nan")))
    with pytest.raises(ConversionError, match=r"theirs hold NaN.*model.norm.weight holds NaN"):
        verify(llama, tmp_path / "ours")


def test_a_number_too_large_for_the_precision_is_refused_by_name(tmp_path, llama):
    edit_weights(llama, lambda tensors: tensors["model.norm.weight"].fill_(1e5))
    run = partial(import_checkpoint, dtype="float16", verify=False)
    assert_refused(tmp_path, "model.norm.weight", "too large", "float16", run=run)


def test_adapters_are_not_mistaken_for_their_model(tmp_path, llama):
    """transformers would open the model that they name, wherever that is."""
    (llama / "adapter_config.json").write_text('{"base_model_name_or_path": "/elsewhere"}')
    assert_refused(tmp_path, "adapter_config.json", "merge")


def test_what_is_there_already_is_left_alone(tmp_path, llama):
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours/thesis.tex").write_text("years of work")
    assert_refused(tmp_path, "exists")
    assert (tmp_path / "ours/thesis.tex").read_text() == "years of work"
