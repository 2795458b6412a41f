"""Pairs of a decoder of transformers and ours, and batches for both."""

import torch
from transformers import (
    ArceeConfig,
    ArceeForCausalLM,
    BioGptConfig,
    BioGptForCausalLM,
    BloomConfig,
    BloomForCausalLM,
    CodeGenConfig,
    CodeGenForCausalLM,
    Cohere2Config,
    Cohere2ForCausalLM,
    CohereConfig,
    CohereForCausalLM,
    CTRLConfig,
    CTRLLMHeadModel,
    CwmConfig,
    CwmForCausalLM,
    Ernie4_5Config,
    Ernie4_5ForCausalLM,
    Exaone4Config,
    Exaone4ForCausalLM,
    FalconConfig,
    FalconForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GemmaConfig,
    GemmaForCausalLM,
    Glm4Config,
    Glm4ForCausalLM,
    GlmConfig,
    GlmForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTBigCodeConfig,
    GPTBigCodeForCausalLM,
    GPTJConfig,
    GPTJForCausalLM,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    GraniteMoeHybridConfig,
    GraniteMoeHybridForCausalLM,
    HeliumConfig,
    HeliumForCausalLM,
    HyperCLOVAXConfig,
    HyperCLOVAXForCausalLM,
    Jais2Config,
    Jais2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MinistralConfig,
    MinistralForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MptConfig,
    MptForCausalLM,
    NanoChatConfig,
    NanoChatForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    Olmo3Config,
    Olmo3ForCausalLM,
    OlmoConfig,
    OlmoForCausalLM,
    OpenAIGPTConfig,
    OpenAIGPTLMHeadModel,
    OPTConfig,
    OPTForCausalLM,
    PersimmonConfig,
    PersimmonForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PhiConfig,
    PhiForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    SeedOssConfig,
    SeedOssForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
    StableLmConfig,
    StableLmForCausalLM,
    Starcoder2Config,
    Starcoder2ForCausalLM,
    VaultGemmaConfig,
    VaultGemmaForCausalLM,
    XGLMConfig,
    XGLMForCausalLM,
)

from hf_tformer import TformerDecoderConfig, TformerDecoderForCausalLM
from support.parity import Case, random_ids

LENGTHS = (11, 4, 7)  # of the rows in a batch
WINDOW = 4  # shorter than the longest row
COMMON = {"vocab_size": 101, "num_hidden_layers": 3, "bos_token_id": None, "eos_token_id": None}
HEADS = {"hidden_size": 30, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 8}
MODERN = {
    **COMMON,
    **HEADS,
    "intermediate_size": 37,
    "rms_norm_eps": 1e-3,
    "tie_word_embeddings": False,
}
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}
OURS = (TformerDecoderConfig, TformerDecoderForCausalLM)


def llama(**options):
    return Case((LlamaConfig, LlamaForCausalLM), OURS, {**MODERN, **ROPE, **options})


def llama_with_biases():
    """One option of theirs is two of ours, for Qwen2 has biases on query, key and value only."""
    case = llama(attention_bias=True, mlp_bias=True)
    case.ours["attention_output_bias"] = True
    return case


def mistral(**options):
    return Case((MistralConfig, MistralForCausalLM), OURS, {**MODERN, **ROPE, **options})


def qwen2(theirs=None, ours=None, **options):
    return Case(
        (Qwen2Config, Qwen2ForCausalLM),
        OURS,
        {**MODERN, **ROPE, **options},
        theirs=theirs or {},
        ours={"attention_bias": True, **(ours or {})},
    )


def qwen3(ours=None, **options):
    return Case(
        (Qwen3Config, Qwen3ForCausalLM),
        OURS,
        {**MODERN, **ROPE, **options},
        ours={"qk_norm": True, **(ours or {})},
    )


GPT2_SIZES = {"hidden_size": 30, "num_attention_heads": 6, "max_position_embeddings": 13}
GPT2_THEIRS = {"n_inner": 37, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-3}
GPT2_OURS = {
    "num_key_value_heads": None,
    "position_embedding_type": "learned",
    "norm_type": "layernorm",
    "layer_norm_eps": 1e-3,
    "mlp_type": "plain",
    "intermediate_size": 37,
    "hidden_act": "gelu_new",
    "attention_bias": True,
    "attention_output_bias": True,
    "mlp_bias": True,
}


def gpt2(theirs=None, ours=None, **options):
    return Case(
        (GPT2Config, GPT2LMHeadModel),
        OURS,
        {**COMMON, **GPT2_SIZES, **options},
        theirs={**GPT2_THEIRS, **(theirs or {})},
        ours={**GPT2_OURS, **(ours or {})},
    )


def stablelm(use_parallel_residual=False, **rope_parameters):
    """Rotates a part of each head, and has LayerNorm; its head size cannot be chosen."""
    theirs = {"use_parallel_residual": use_parallel_residual}
    ours = {"parallel_residual": "shared" if use_parallel_residual else None}
    sizes = {"hidden_size": 48, "head_dim": 8, "layer_norm_eps": 1e-3}
    rope = {"rope_theta": 100.0, "partial_rotary_factor": 0.5, **rope_parameters}
    return Case(
        (StableLmConfig, StableLmForCausalLM),
        OURS,
        {**MODERN, **sizes, "max_position_embeddings": 32, "rope_parameters": rope},
        # Said twice: transformers 5.16 would fall back to the quarter that StableLM has by default.
        theirs={"use_qkv_bias": True, "partial_rotary_factor": 0.5, **theirs},
        ours={"norm_type": "layernorm", "attention_bias": True, **ours},
    )


EVEN_HEADS = {"hidden_size": 48, "head_dim": 8}  # where a head is a part of the hidden size


def phi3(rope_type="default", factor=0.5, **options):
    rope = {"rope_type": rope_type, "rope_theta": 100.0, "partial_rotary_factor": factor}
    if rope_type == "longrope":  # the original length is half of the batch, so both sets count
        rope |= {"short_factor": [1.0, 1.3], "long_factor": [1.2, 5.0]}
        rope["original_max_position_embeddings"] = 8
    return Case(
        (Phi3Config, Phi3ForCausalLM),
        OURS,
        {**MODERN, **EVEN_HEADS, "rope_parameters": rope, **options},
        theirs={"original_max_position_embeddings": 8, "pad_token_id": None},
    )


def olmo(ours=None, **options):
    """Its norms learn nothing; ours have a gain of one, and a bias of zero where they have any."""
    options = {**MODERN, **EVEN_HEADS, **ROPE, "pad_token_id": None, **options}
    del options["rms_norm_eps"]
    ours = {"norm_type": "layernorm_unbiased", **(ours or {})}
    return Case((OlmoConfig, OlmoForCausalLM), OURS, options, ours=ours)


def nanochat(attention_bias=False, **options):
    """Its norms learn nothing, its heads turn by negative angles, its logits are bounded."""
    options = {**MODERN, **ROPE, "hidden_act": "relu2", "final_logit_softcapping": 3.0, **options}
    ours = {"embedding_norm": True, "qk_norm": True, "mlp_type": "plain"}
    return Case(
        (NanoChatConfig, NanoChatForCausalLM),
        OURS,
        {**options, "pad_token_id": None, "attention_bias": attention_bias},
        ours={**ours, "attention_output_bias": attention_bias},
    )


def glm(classes=(GlmConfig, GlmForCausalLM), ours=None):
    """Rotates neighbours, in half of each head."""
    rope = {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}
    biases = {"attention_bias": True, "pad_token_id": None, "eos_token_id": 2}
    return Case(classes, OURS, {**MODERN, "rope_parameters": rope, **biases}, ours=ours or {})


def glm4():
    return glm((Glm4Config, Glm4ForCausalLM), {"norm_position": "both"})


def seed_oss():
    """Its biases of query, key and value are one option, that of the output another."""
    options = {**MODERN, **ROPE, "pad_token_id": None, "attention_bias": True}
    return Case((SeedOssConfig, SeedOssForCausalLM), OURS, options)


def arcee(attention_bias=False, **options):
    plain = {"mlp_type": "plain", "attention_output_bias": attention_bias}
    options = {**MODERN, **ROPE, "hidden_act": "relu2", "attention_bias": attention_bias, **options}
    return Case((ArceeConfig, ArceeForCausalLM), OURS, options, ours=plain)


def helium(**options):
    """Rotates neighbours; its output projection is square."""
    options = {**MODERN, **EVEN_HEADS, **ROPE, "pad_token_id": None, **options}
    return Case((HeliumConfig, HeliumForCausalLM), OURS, options)


def ernie(bias=False, **options):
    """One option of theirs gives biases to all projections."""
    ours = dict.fromkeys(("attention_bias", "attention_output_bias", "mlp_bias"), bias)
    options = {**MODERN, **ROPE, "pad_token_id": None, **options}
    classes = (Ernie4_5Config, Ernie4_5ForCausalLM)
    return Case(classes, OURS, options, theirs={"use_bias": bias}, ours=ours)


GPT_NEO_OURS = {"attention_bias": False, "attention_scale": 1.0, "layer_norm_eps": 1e-5}


def gpt_neo(*kinds, **options):
    names = {"global": "full_attention", "local": "sliding_attention"}
    windows = {"layer_types": [names[kind] for kind in kinds], "sliding_window": WINDOW}
    return Case(
        (GPTNeoConfig, GPTNeoForCausalLM),
        OURS,
        {**COMMON, **GPT2_SIZES, "intermediate_size": 37, **options},
        theirs={"attention_types": [[[*kinds], 1]], "window_size": WINDOW},
        ours={**GPT2_OURS, **GPT_NEO_OURS, **windows},
    )


def gpt_bigcode(ours=None, **theirs):
    return Case(
        (GPTBigCodeConfig, GPTBigCodeForCausalLM),
        OURS,
        {**COMMON, **GPT2_SIZES},
        theirs={**GPT2_THEIRS, **theirs},
        ours={**GPT2_OURS, **(ours or {})},
    )


LEARNED_THEIRS = {"ffn_dim": 37, "activation_function": "relu"}
LEARNED_OURS = {**GPT2_OURS, "layer_norm_eps": 1e-5, "hidden_act": "relu"}


def opt(theirs=None, ours=None, **options):
    return Case(
        (OPTConfig, OPTForCausalLM),
        OURS,
        {**COMMON, **GPT2_SIZES, **options},
        theirs={**LEARNED_THEIRS, "dropout": 0.0, **(theirs or {})},
        ours={**LEARNED_OURS, **(ours or {})},
    )


def biogpt(**options):
    """Its norms do not read the layer_norm_eps of its configuration."""
    return Case(
        (BioGptConfig, BioGptForCausalLM),
        OURS,
        {**COMMON, **GPT2_SIZES, "intermediate_size": 37, "hidden_act": "gelu", **options},
        theirs={"layer_norm_eps": 1e-2},
        ours={
            k: v for k, v in LEARNED_OURS.items() if k not in ("intermediate_size", "hidden_act")
        },
    )


BIASES = ("attention_bias", "attention_output_bias", "mlp_bias")
NO_BIASES = dict.fromkeys(BIASES, False)


def starcoder2(use_bias=True, **options):
    ours = {"norm_type": "layernorm", "layer_norm_eps": 1e-3, "mlp_type": "plain"}
    return Case(
        (Starcoder2Config, Starcoder2ForCausalLM),
        OURS,
        {**MODERN, **ROPE, "hidden_act": "gelu_pytorch_tanh", **options},
        theirs={"norm_epsilon": 1e-3, "use_bias": use_bias},
        ours={**ours, **dict.fromkeys(BIASES, use_bias)},
    )


ALIBI = {**GPT2_OURS, "position_embedding_type": "none", "score_bias": "alibi"}


def bloom(heads=6, **options):
    """Its model has a width of its own for the MLP, and one activation."""
    sizes = {"hidden_size": 5 * heads, "num_attention_heads": heads}
    layout = {"intermediate_size": 20 * heads, "hidden_act": "gelu_pytorch_tanh"}
    return Case(
        (BloomConfig, BloomForCausalLM),
        OURS,
        {**COMMON, **sizes, **options},
        theirs={"layer_norm_epsilon": 1e-3},
        ours={**ALIBI, **layout, "embedding_norm": True},
    )


def mpt(heads=6, softmax_scale=None, **options):
    """What it has besides the weights of its norms are projections."""
    sizes = {"hidden_size": 5 * heads, "num_attention_heads": heads}
    layout = {"intermediate_size": 20 * heads, "hidden_act": "gelu", **NO_BIASES}
    return Case(
        (MptConfig, MptForCausalLM),
        OURS,
        {**COMMON, **sizes, **options},
        theirs={"layer_norm_epsilon": 1e-3, "attn_config": {"softmax_scale": softmax_scale}},
        ours={
            **ALIBI,
            **layout,
            "norm_type": "layernorm_unbiased",
            "attention_scale": softmax_scale,
        },
    )


def xglm(**options):
    sinusoids = {"position_embedding_type": "sinusoidal", "sinusoidal_layout": "fairseq"}
    return Case(
        (XGLMConfig, XGLMForCausalLM),
        OURS,
        {**COMMON, **GPT2_SIZES, "pad_token_id": 1, "scale_embedding": True, **options},
        theirs={**LEARNED_THEIRS, "dropout": 0.0},
        ours={**LEARNED_OURS, **sinusoids},
    )


HALF = {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}
BESIDE = {**COMMON, "hidden_size": 48, "num_attention_heads": 6, "tie_word_embeddings": False}
BESIDE_OURS = {
    "num_key_value_heads": None,
    "intermediate_size": 37,
    "norm_type": "layernorm",
    "layer_norm_eps": 1e-3,
    "mlp_type": "plain",
    **dict.fromkeys(BIASES, True),
}


def neox(use_parallel_residual=True, ours=None, rope_parameters=HALF, **options):
    sizes = {"intermediate_size": 37, "layer_norm_eps": 1e-3, "hidden_act": "gelu"}
    ours = {**BESIDE_OURS, **(ours or {})}
    theirs = {"attention_bias": ours["attention_bias"]}
    return Case(
        (GPTNeoXConfig, GPTNeoXForCausalLM),
        OURS,
        {**BESIDE, **sizes, "rope_parameters": rope_parameters, **options},
        theirs={**theirs, "use_parallel_residual": use_parallel_residual},
        ours={**ours, "parallel_residual": "own" if use_parallel_residual else None},
    )


def gptj(**options):
    """Turns neighbours in half of each head, at a pace that cannot be chosen."""
    theirs = {"n_inner": 37, "layer_norm_epsilon": 1e-3, "rotary_dim": 4}
    return Case(
        (GPTJConfig, GPTJForCausalLM),
        OURS,
        {**BESIDE, "max_position_embeddings": 32, **options},
        theirs={**theirs, "activation_function": "gelu_new"},
        ours={
            **BESIDE_OURS,
            "attention_bias": False,
            "attention_output_bias": False,
            "lm_head_bias": True,
            "hidden_act": "gelu_new",
            "parallel_residual": "shared",
            "rope_parameters": {**HALF, "rope_theta": 10000.0},
        },
    )


def codegen():
    """GPT-J with one projection; its heads make four parts, and it names no padding."""
    case = gptj(hidden_size=64, num_attention_heads=8)
    both = {name: value for name, value in case.both.items() if name != "pad_token_id"}
    classes = (CodeGenConfig, CodeGenForCausalLM)
    return Case(classes, OURS, both, theirs=case.theirs, ours={**case.ours, "pad_token_id": None})


def gpt1(**options):
    """Norms behind the sums, and four times the width within."""
    sizes = {"intermediate_size": 120, "norm_position": "post"}
    theirs = {"layer_norm_epsilon": 1e-3, "afn": "gelu"}
    return Case(
        (OpenAIGPTConfig, OpenAIGPTLMHeadModel),
        OURS,
        {**COMMON, **GPT2_SIZES, **options},
        theirs=theirs,
        ours={**GPT2_OURS, **sizes},
    )


def ctrl(**options):
    theirs = {"dff": 37}
    special = {"position_embedding_type": "sinusoidal", "sinusoidal_layout": "halves"}
    special |= {"scale_embedding": True, "hidden_act": "relu", "lm_head_bias": True}
    return Case(
        (CTRLConfig, CTRLLMHeadModel),
        OURS,
        {**COMMON, **GPT2_SIZES, "max_position_embeddings": 32, **options},
        theirs=theirs,
        ours={**GPT2_OURS, **special, "layer_norm_eps": 1e-6},
    )


def persimmon(is_normed=True, **options):
    sizes = {"intermediate_size": 37, "layer_norm_eps": 1e-3, "hidden_act": "relu2"}
    return Case(
        (PersimmonConfig, PersimmonForCausalLM),
        OURS,
        {**BESIDE, **sizes, "rope_parameters": HALF, **options},
        theirs={"qk_layernorm": is_normed},
        ours={**BESIDE_OURS, "qk_norm": is_normed},
    )


def phi(rope_parameters=HALF, **options):
    sizes = {"intermediate_size": 37, "layer_norm_eps": 1e-3, "num_key_value_heads": 3}
    return Case(
        (PhiConfig, PhiForCausalLM),
        OURS,
        {
            **BESIDE,
            **sizes,
            "hidden_act": "gelu_new",
            "rope_parameters": rope_parameters,
            **options,
        },
        # Said twice, as for StableLM.
        theirs={"partial_rotary_factor": rope_parameters["partial_rotary_factor"]},
        ours={
            **{name: value for name, value in BESIDE_OURS.items() if name not in sizes},
            "lm_head_bias": True,
            "parallel_residual": "shared",
        },
    )


def falcon(parallel_residual, kv_heads=1, bias=False, theirs=None, **options):
    sizes = {"ffn_hidden_size": 37, "layer_norm_epsilon": 1e-3, "activation": "gelu"}
    return Case(
        (FalconConfig, FalconForCausalLM),
        OURS,
        {**BESIDE, **ROPE, **options},
        theirs={**sizes, "bias": bias, **(theirs or {})},
        ours={
            **BESIDE_OURS,
            **dict.fromkeys(BIASES, bias),
            "num_key_value_heads": kv_heads,
            "hidden_act": "gelu",
            "parallel_residual": parallel_residual,
        },
    )


COHERE = {**MODERN, **ROPE, "layer_norm_eps": 1e-3, "logit_scale": 0.3, "pad_token_id": None}
del COHERE["rms_norm_eps"]
COHERE_OURS = {"norm_type": "layernorm_unbiased", "parallel_residual": "shared"}


def cohere(bias=False, **options):
    ours = {**COHERE_OURS, "attention_output_bias": bias}
    options = {**COHERE, "attention_bias": bias, **options}
    return Case((CohereConfig, CohereForCausalLM), OURS, options, ours=ours)


def cohere2(kinds, **options):
    """Its layers turn where they have a window; its head size cannot be chosen."""
    turns = [int(kind == "sliding_attention") for kind in kinds]
    windows = {"layer_types": kinds, "sliding_window": WINDOW}
    options = {**COHERE, **EVEN_HEADS, **windows, **options}
    ours = {**COHERE_OURS, "no_rope_layers": turns}
    return Case((Cohere2Config, Cohere2ForCausalLM), OURS, options, ours=ours)


def granite(bias=False, **options):
    """Four numbers of its own, three of which have other names in ours."""
    return Case(
        (GraniteConfig, GraniteForCausalLM),
        OURS,
        {**MODERN, **ROPE, "attention_bias": bias, "residual_multiplier": 0.22, **options},
        theirs={
            "mlp_bias": bias,
            "embedding_multiplier": 12.0,
            "attention_multiplier": 0.21,
            "logits_scaling": 7.2,
        },
        ours={
            **dict.fromkeys(BIASES, bias),
            "scale_embedding": 12.0,
            "attention_scale": 0.21,
            "logit_scale": 1 / 7.2,
        },
    )


def granite4(positions="rope"):
    """Granite 4 without states and experts; the other intermediate_size is that of an expert."""
    case = granite()
    theirs = {
        "intermediate_size": 9,
        "shared_intermediate_size": MODERN["intermediate_size"],
        "num_local_experts": 0,
        "mamba_n_heads": 1,
        "layer_types": ["full_attention"] * 3,
        "position_embedding_type": positions,
        **{name: value for name, value in case.theirs.items() if name != "mlp_bias"},
    }
    return Case(
        (GraniteMoeHybridConfig, GraniteMoeHybridForCausalLM),
        OURS,
        case.both,
        theirs=theirs,
        ours={**case.ours, "position_embedding_type": "rotary" if positions else "none"},
    )


def hyperclovax(use_post_norm=True, bias=False):
    """Its factor of the logits multiplies, where Granite's divides."""
    case = granite(bias)
    norms = {"norm_position": "both" if use_post_norm else "pre"}
    return Case(
        (HyperCLOVAXConfig, HyperCLOVAXForCausalLM),
        OURS,
        {**case.both, **NO_PADDING, "residual_multiplier": 1.0 if use_post_norm else 0.22},
        theirs={**case.theirs, "use_post_norm": use_post_norm, "logits_scaling": 0.3},
        ours={**case.ours, **norms, "logit_scale": 0.3},
    )


def cwm(mlp_bias=False):
    options = {**MODERN, **ROPE, **NO_PADDING, **WINDOWS, "bos_token_id": 2, "eos_token_id": 3}
    return Case((CwmConfig, CwmForCausalLM), OURS, {**options, "mlp_bias": mlp_bias})


def ministral(**options):
    classes = (MinistralConfig, MinistralForCausalLM)
    return Case(classes, OURS, {**MODERN, **ROPE, **NO_PADDING, **options})


def jais2(bias=True, **options):
    both = {**MODERN, **ROPE, **NO_PADDING, "hidden_act": "relu2", "layer_norm_eps": 1e-3}
    del both["rms_norm_eps"]
    return Case(
        (Jais2Config, Jais2ForCausalLM),
        OURS,
        {**both, "attention_bias": bias, "mlp_bias": bias, **options},
        ours={"norm_type": "layernorm", "mlp_type": "plain", "attention_output_bias": bias},
    )


def vaultgemma():
    case = gemma2()
    classes = (VaultGemmaConfig, VaultGemmaForCausalLM)
    return Case(classes, OURS, case.both, case.theirs, {**case.ours, "norm_position": "pre"})


MIXED = ["sliding_attention", "full_attention", "sliding_attention"]
SLIDING = {"use_sliding_window": True, "sliding_window": WINDOW}
WINDOWS = {"layer_types": MIXED, "sliding_window": WINDOW}
# Each kind of layer turns in its own way; only full layers are stretched, as in OLMo-3.
ROPES = {
    "full_attention": {
        "rope_type": "yarn",
        "rope_theta": 500.0,
        "factor": 4.0,
        "original_max_position_embeddings": 8,
    },
    "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
}
BY_KIND = {**WINDOWS, "rope_parameters": ROPES, "max_position_embeddings": 32}
INSIDE = {"norm_position": "inside", "qk_norm": "all"}
NO_PADDING = {"pad_token_id": None}


def olmo2(attention_bias=False, **options):
    ours = {**INSIDE, "attention_output_bias": attention_bias}
    options = {**MODERN, **ROPE, **NO_PADDING, "attention_bias": attention_bias, **options}
    return Case((Olmo2Config, Olmo2ForCausalLM), OURS, options, ours=ours)


def olmo3(**options):
    classes = (Olmo3Config, Olmo3ForCausalLM)
    return Case(classes, OURS, {**MODERN, **BY_KIND, **NO_PADDING, **options}, ours=INSIDE)


def exaone4(no_rope_layers=None, **options):
    ours = {"norm_position": "inside", "qk_norm": True, "no_rope_layers": no_rope_layers}
    return Case((Exaone4Config, Exaone4ForCausalLM), OURS, {**MODERN, **ROPE, **options}, ours=ours)


def smollm3(attention_bias=False, **options):
    options = {**MODERN, **ROPE, **WINDOWS, **NO_PADDING, "no_rope_layers": [1, 0, 1], **options}
    return Case(
        (SmolLM3Config, SmolLM3ForCausalLM),
        OURS,
        {**options, "attention_bias": attention_bias},
        theirs={"use_sliding_window": True},
        ours={"attention_output_bias": attention_bias},
    )


GEMMA = {**MODERN, **NO_PADDING, "tie_word_embeddings": True}
OFFSET = {"norm_type": "rmsnorm_offset", "scale_embedding": True, "hidden_act": "gelu_pytorch_tanh"}


def gemma(attention_bias=False, **options):
    ours = {**OFFSET, "attention_output_bias": attention_bias}
    options = {**GEMMA, **ROPE, "attention_bias": attention_bias, **options}
    return Case((GemmaConfig, GemmaForCausalLM), OURS, options, ours=ours)


def gemma2(**options):
    """Its scores are bounded, which sdpa cannot do."""
    caps = {"attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.0}
    return Case(
        (Gemma2Config, Gemma2ForCausalLM),
        OURS,
        {**GEMMA, **ROPE, **WINDOWS, **caps, **options},
        theirs={"query_pre_attn_scalar": 7},
        ours={**OFFSET, "norm_position": "both", "attention_scale": 7**-0.5},
    )


def gemma3(ours=None, **options):
    """It names a bound of the scores, and does not read it."""
    return Case(
        (Gemma3TextConfig, Gemma3ForCausalLM),
        OURS,
        {**GEMMA, **BY_KIND, **options},
        theirs={"query_pre_attn_scalar": 7, "attn_logit_softcapping": 1.5},
        ours={**gemma2().ours, "qk_norm": True, **(ours or {})},
    )


CASES = {
    "llama multi-head": llama(num_key_value_heads=6),
    "llama grouped-query": llama(),
    "llama multi-query": llama(num_key_value_heads=1),
    "llama tied": llama(tie_word_embeddings=True),
    "llama biases": llama_with_biases(),
    "llama gelu": llama(hidden_act="gelu_pytorch_tanh"),
    "mistral sliding window": mistral(sliding_window=WINDOW),
    "mistral no window": mistral(sliding_window=None),
    "qwen2": qwen2(),
    "qwen2 windows in upper layers": qwen2(
        theirs={**SLIDING, "max_window_layers": 1},
        ours={
            "sliding_window": WINDOW,
            "layer_types": ["full_attention", *["sliding_attention"] * 2],
        },
    ),
    "qwen2 mixed layer types": qwen2(
        theirs=SLIDING, ours={"sliding_window": WINDOW}, layer_types=MIXED, tie_word_embeddings=True
    ),
    "qwen3": qwen3(),
    "qwen3 biases": qwen3(attention_bias=True, ours={"attention_output_bias": True}),
    "phi3 partial rotation": phi3(),
    "phi3 longrope in windows": phi3(
        "longrope", max_position_embeddings=32, sliding_window=WINDOW, tie_word_embeddings=True
    ),
    "olmo": olmo(),
    "olmo biases": olmo(
        {"norm_type": "layernorm", "attention_output_bias": True},
        attention_bias=True,
        tie_word_embeddings=True,
    ),
    "nanochat": nanochat(),
    "nanochat biases tied": nanochat(
        attention_bias=True, final_logit_softcapping=None, tie_word_embeddings=True
    ),
    "olmo2 biases": olmo2(attention_bias=True, tie_word_embeddings=True),
    "olmo3": olmo3(),
    "gemma biases": gemma(attention_bias=True),
    "gemma2": gemma2(),
    "gemma2 without bounds": gemma2(
        attn_logit_softcapping=None,
        final_logit_softcapping=None,
        layer_types=["full_attention"] * 3,
        tie_word_embeddings=False,
    ),
    "gemma3 biases": gemma3(
        ours={"attention_output_bias": True}, attention_bias=True, final_logit_softcapping=2.0
    ),
    "exaone4": exaone4(sliding_window=None, layer_types=["full_attention"] * 3),
    "exaone4 windows": exaone4([1, 0, 1], **WINDOWS, tie_word_embeddings=True),
    "smollm3 windows": smollm3(attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "glm": glm(),
    "glm4": glm4(),
    "seed_oss": seed_oss(),
    "arcee biases": arcee(attention_bias=True, mlp_bias=True, tie_word_embeddings=True),
    "helium biases": helium(attention_bias=True, mlp_bias=True),
    "ernie biases": ernie(bias=True, tie_word_embeddings=True),
    "gpt2": gpt2(),
    "gpt2 untied": gpt2(tie_word_embeddings=False),
    "gpt2 unscaled scores": gpt2(
        theirs={"scale_attn_weights": False}, ours={"attention_scale": 1.0}
    ),
    "opt": opt(),
    "opt norms behind": opt(
        theirs={"do_layer_norm_before": False},
        ours={"norm_position": "post"},
        tie_word_embeddings=False,
    ),
    "opt without biases and last norm": opt(
        theirs={"enable_bias": False, "_remove_final_layer_norm": True},
        ours={**NO_BIASES, "final_norm": False},
    ),
    "starcoder2 sliding window": starcoder2(sliding_window=WINDOW),
    "starcoder2 without biases": starcoder2(False, tie_word_embeddings=True),
    "gpt_neo": gpt_neo("global", "local", "global"),
    "gpt_neo without windows": gpt_neo(*["global"] * 3, tie_word_embeddings=False),
    "gpt_bigcode one key head": gpt_bigcode(ours={"num_key_value_heads": 1}),
    "gpt_bigcode head by head": gpt_bigcode(multi_query=False),
    "biogpt": biogpt(scale_embedding=True),
    "biogpt untied": biogpt(scale_embedding=False, tie_word_embeddings=False),
    "bloom": bloom(),
    "bloom three heads untied": bloom(3, tie_word_embeddings=False),
    "mpt": mpt(),
    "mpt one head untied": mpt(1, tie_word_embeddings=False),
    "mpt scale of its own": mpt(2, softmax_scale=0.3),
    "xglm": xglm(),
    "xglm untied, not scaled": xglm(scale_embedding=False, tie_word_embeddings=False),
    "stablelm partial rotation": stablelm(rope_type="default"),
    "stablelm partial yarn": stablelm(
        rope_type="yarn", factor=4.0, original_max_position_embeddings=8
    ),
    "stablelm beside the mlp": stablelm(use_parallel_residual=True, rope_type="default"),
    "gpt_neox": neox(),
    "gpt_neox one after the other": neox(
        False,
        {"attention_bias": False, "attention_output_bias": False},
        tie_word_embeddings=True,
        rope_parameters={**HALF, "rope_type": "proportional"},
    ),
    "gptj": gptj(),
    "codegen": codegen(),
    "ctrl": ctrl(),
    "ctrl untied": ctrl(tie_word_embeddings=False),
    "openai-gpt": gpt1(),
    "openai-gpt untied": gpt1(tie_word_embeddings=False),
    "persimmon": persimmon(),
    "persimmon without norms of heads": persimmon(False, tie_word_embeddings=True),
    "phi": phi(),
    "phi yarn": phi(
        {**HALF, "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8},
        max_position_embeddings=32,
        tie_word_embeddings=True,
    ),
    "falcon 7b": falcon("shared", tie_word_embeddings=True),
    "falcon 11b": falcon(
        "shared",
        3,
        theirs={"new_decoder_architecture": True, "num_kv_heads": 3, "num_ln_in_parallel_attn": 1},
    ),
    "falcon 40b": falcon(
        "own", 3, bias=True, theirs={"new_decoder_architecture": True, "num_kv_heads": 3}
    ),
    "falcon one after the other": falcon(
        None, 6, bias=True, theirs={"parallel_attn": False, "multi_query": False}
    ),
    "cohere biases": cohere(bias=True, tie_word_embeddings=True),
    "cohere2": cohere2(MIXED),
    "granite biases": granite(bias=True, tie_word_embeddings=True),
    "granite4": granite4(),
    "granite4 no positions": granite4(None),
    "hyperclovax biases": hyperclovax(bias=True),
    "hyperclovax no norm behind": hyperclovax(use_post_norm=False),
    "cwm": cwm(),
    "cwm biases": cwm(mlp_bias=True),
    "ministral no window": ministral(sliding_window=4, layer_types=["full_attention"] * 3),
    "ministral windows": ministral(**WINDOWS, tie_word_embeddings=True),
    "jais2": jais2(),
    "jais2 no biases": jais2(bias=False, tie_word_embeddings=True),
    "vaultgemma": vaultgemma(),
}

# Each stretches a context of 8 to 32.
ROPE_TYPES = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 8},
    "longrope": {
        "factor": 4.0,
        "original_max_position_embeddings": 8,
        "short_factor": [1.0, 1.1, 1.3, 1.6],
        "long_factor": [1.2, 2.0, 3.0, 5.0],
    },
    "llama3": {
        "factor": 4.0,
        "original_max_position_embeddings": 8,
        "low_freq_factor": 0.5,
        "high_freq_factor": 2.0,
    },
    "proportional": {"factor": 4.0, "partial_rotary_factor": 0.5},
}


def even_batch(length=11):
    ids = random_ids(3, length)
    return {"input_ids": ids, "labels": ids}


def left_padded_batch():
    """Labels skip the first token of each row too, for only padding stands before it."""
    ids = random_ids(len(LENGTHS), max(LENGTHS))
    place = torch.arange(max(LENGTHS)) - (max(LENGTHS) - torch.tensor(LENGTHS)[:, None])
    return {
        "input_ids": ids,
        "attention_mask": (place >= 0).long(),
        "labels": ids.masked_fill(place < 1, -100),
    }
