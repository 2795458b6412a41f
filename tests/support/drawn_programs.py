"""Random settings for the models of training programs, of odd sizes, and weights for them."""

import json
import random
from types import SimpleNamespace

import torch
import yaml

from conversion.formats.plain.litgpt_folder import SETTINGS
from conversion.formats.plain.torchtune import MODELS, ROTATES_HALVES
from conversion.references.litgpt import LitGPT
from conversion.references.nanochat import NanoChat
from conversion.references.torchtune import Torchtune
from conversion.references.x_transformers import XTransformers

VOCABULARY = 101  # prime, so that no dimension fits another by chance


@torch.no_grad()
def randomised(model, seed):
    """The model with all parameters and buffers of routers drawn, so that none is at its start."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in model.named_parameters():
        values = torch.randn(tensor.shape, generator=generator)
        is_gain = tensor.ndim == 1 and not name.endswith("bias")
        tensor.copy_(1 + 0.3 * values if is_gain else 0.25 * values)
    for name, tensor in model.named_buffers():
        if name.endswith("correction_bias"):
            tensor.copy_(0.1 * torch.rand(tensor.shape, generator=generator))
    return model.eval()


LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_seq_len": 16}


def litgpt_settings(rng):
    """The fields of LitGPT's Config, as keyword arguments."""
    groups, layers = rng.choice([1, 3]), rng.choice([2, 3])
    norms = rng.choice(["pre", "pre", "both", "inside", "own", "shared"])
    kind = rng.choice(["", "Gemma", "OLMo"])
    norm = "RMSNorm" if kind == "Gemma" else rng.choice(["RMSNorm", "LayerNorm"])
    mlp = rng.choice(["GptNeoxMLP", "LLaMAMLP", "GemmaMLP", "LLaMAMoE"])
    is_mixture = mlp == "LLaMAMoE"
    settings = {
        "name": f"{kind}tiny",
        "block_size": 32,
        "n_layer": layers,
        "n_embd": 36,
        "vocab_size": VOCABULARY,
        "padded_vocab_size": VOCABULARY,
        "norm_class_name": norm,
        "norm_eps": rng.choice([1e-5, 1e-3]),
        "norm_qk": rng.random() < 0.4 and not (kind == "OLMo" and norm == "LayerNorm"),
        "norm_qk_type": rng.choice(["default", "olmo2"]),
        "parallel_residual": norms in ("own", "shared"),
        "shared_attention_norm": norms == "shared",
        "norm_1": norms != "inside",
        "norm_2": norms != "inside",
        "post_attention_norm": norms in ("both", "inside"),
        "post_mlp_norm": norms in ("both", "inside"),
        "n_head": 6,
        "head_size": rng.choice([6, 8, 10]),
        "n_query_groups": groups * 2 if rng.random() < 0.5 else groups,
        "attn_bias": rng.random() < 0.5,
        "attention_scores_scalar": rng.choice([None, 7]),
        "attention_logit_softcapping": rng.choice([None, 3.0]),
        "rope_base": rng.choice([50, 10000]),
        "rotary_percentage": rng.choice([1.0, 1.0, 0.5]),
        "intermediate_size": 44,
        "bias": rng.random() < 0.5 and not is_mixture,
        "mlp_class_name": mlp,
        "gelu_approximate": rng.choice(["none", "tanh"]),
        "scale_embeddings": rng.random() < 0.3,
        "lm_head_bias": rng.random() < 0.3,
        "final_logit_softcapping": rng.choice([None, 5.0]),
    }
    if settings["head_size"] % 4:
        settings["rotary_percentage"] = 1.0
    if rng.random() < 0.5:
        slides = [rng.randrange(2) for _ in range(layers + 1)]  # longer, as in Gemma's
        settings |= {"sliding_window_size": 5, "sliding_window_indices": slides}
        if rng.random() < 0.5:
            settings |= {"rope_local_base_freq": 20.0, "rope_indices": slides}
    scaling = rng.choice([None, {"factor": 4.0}, LLAMA3])
    settings["rope_adjustments"] = scaling
    if scaling != LLAMA3:
        settings["rope_condense_ratio"] = rng.choice([1, 1, 2])
    return settings | (litgpt_experts(rng) if is_mixture else {})


def litgpt_experts(rng):
    settings = {"n_expert": 8, "n_expert_per_token": 3, "moe_intermediate_size": 20}
    settings["n_shared_expert"] = rng.choice([None, 2])
    settings["first_k_dense_replace"] = rng.choice([None, 1])
    settings["routed_scaling_factor"] = rng.choice([1.0, 1.7])
    if rng.random() < 0.5:
        settings |= {"n_expert_groups": 4, "n_topk_groups": 2, "n_topk_scores_per_group": 2}
        settings["norm_topk_prob"] = rng.random() < 0.5
    return settings


def litgpt(seed, **changes):
    """Random settings of LitGPT, and our reference with random weights."""
    settings = {**litgpt_settings(random.Random(seed)), **changes}
    slides = settings.get("sliding_window_indices") or [0] * settings["n_layer"]
    config = SimpleNamespace(**{**SETTINGS, **settings})
    config.tied = False
    config.adds_one_to_norms = "Gemma" in config.name
    config.norms_have_weights = config.norm_class_name == "RMSNorm" or "OLMo" not in config.name
    config.slides = [bool(flag) for flag in slides[: config.n_layer]]
    config.window = config.sliding_window_size if any(config.slides) else None
    return settings, randomised(LitGPT(config), seed)


def save_litgpt(settings, state, folder, **beside):
    folder.mkdir(parents=True)
    text = yaml.dump(json.loads(json.dumps(settings)))  # without aliases, as from a dataclass
    (folder / "model_config.yaml").write_text(text)
    torch.save({"model": state, **beside} if beside else state, folder / "lit_model.pth")


def nanochat(seed):
    """The settings in a meta_STEP.json, and our reference; the vocabulary is filled up by some."""
    rng = random.Random(seed)
    settings = {"sequence_len": 32, "vocab_size": VOCABULARY, "n_layer": rng.choice([2, 3])}
    settings |= {"n_head": 6, "n_kv_head": rng.choice([1, 3, 6]), "n_embd": rng.choice([36, 60])}
    rows = rng.choice([VOCABULARY, 128])
    config = SimpleNamespace(**settings, rows=rows, n_inner=4 * settings["n_embd"])
    return settings, randomised(NanoChat(config), seed)


def save_nanochat(settings, state, folder, step=650):
    folder.mkdir(parents=True, exist_ok=True)
    described = {"step": step, "val_bpb": 0.8, "model_config": settings}
    (folder / f"meta_{step:06}.json").write_text(json.dumps(described))
    torch.save(state, folder / f"model_{step:06}.pt")


def torchtune_settings(rng):
    """The arguments of a builder of torchtune, and what its file does not say."""
    model = rng.choice(["llama2", "llama3", "llama3_1", "llama3_2", "phi3", "qwen2", "gemma"])
    built = {"vocab_size": VOCABULARY, "num_layers": rng.choice([2, 3]), "num_heads": 6}
    built |= {"num_kv_heads": rng.choice([1, 3, 6]), "embed_dim": rng.choice([36, 60])}
    built |= {"intermediate_dim": 44, "max_seq_len": 32}
    said = {"model": model, "num_heads": 6, "max_seq_len": 32}
    if model == "gemma":
        built["head_dim"] = 8
    if rng.random() < 0.5:
        built |= {"rope_base": 50.0, "norm_eps": 1e-3}
        said |= {"rope_base": 50.0, "norm_eps": 1e-3}
    elif model == "qwen2":
        built["norm_eps"] = 1e-6  # which its builders of whole models say
    if model in ("llama3_2", "qwen2"):
        built["tie_word_embeddings"] = rng.random() < 0.5
    return built, said


def torchtune(seed):
    """What a file of torchtune does not say, and our reference."""
    built, said = torchtune_settings(random.Random(seed))
    model, is_gemma = said["model"], said["model"] == "gemma"
    base, eps, factor = MODELS[model]
    fields = {"rope_base": base, "norm_eps": eps, "scale_factor": factor, **built}
    fields.setdefault("head_dim", built["embed_dim"] // 6)
    fields |= {"tied": is_gemma or built.get("tie_word_embeddings", False), "is_gemma": is_gemma}
    fields |= {"has_bias": model == "qwen2", "rotates_halves": model in ROTATES_HALVES}
    return said, randomised(Torchtune(SimpleNamespace(**fields)), seed)


def x_transformers_settings(rng, causal):
    """The arguments of a Decoder or Encoder and its wrapper, and what their file does not say."""
    layers = {"dim": 36, "depth": rng.choice([2, 3]), "heads": 6, "attn_dim_head": 8}
    wrapper, said = {"num_tokens": VOCABULARY, "max_seq_len": 32}, {"attn_dim_head": 8}
    layers["attn_kv_heads"] = rng.choice([1, 3, 6])
    layers["use_rmsnorm"] = rng.random() < 0.5
    layers["norm_add_unit_offset"] = rng.random() < 0.7
    layers |= rng.choice([{}, {"sandwich_norm": True}, {"pre_norm": False}])
    layers["ff_glu"], layers["ff_no_bias"] = rng.random() < 0.5, rng.random() < 0.5
    activation = rng.choice(["gelu", "silu", "relu2"])
    layers |= {"silu": {"ff_swish": True}, "relu2": {"ff_relu_squared": True}}.get(activation, {})
    said["activation"] = activation
    wrapper["post_emb_norm"] = rng.random() < 0.3 and not layers["use_rmsnorm"]
    wrapper["tie_embedding"] = causal and rng.random() < 0.4
    biases = [{}, {"alibi_pos_bias": True}] if causal else [{}, {"rel_pos_bias": True}]
    layers |= (bias := rng.choice(biases))
    if bias and layers["attn_kv_heads"] == 3:
        layers["attn_kv_heads"] = 6
    if causal:
        said |= bias
    if "rel_pos_bias" not in bias and rng.random() < 0.5:
        layers |= {"rotary_pos_emb": True, "rotary_emb_dim": rng.choice([4, 8])}
        said["max_seq_len"] = 32
        said["rotary_interpolation_factor"] = rng.choice([1.0, 2.0])
        layers["rotary_interpolation_factor"] = said["rotary_interpolation_factor"]
        layers["rotary_base_rescale_factor"] = rng.choice([1.0, 4.0])
    if causal and not bias and rng.random() < 0.5:
        layers["attn_max_attend_past"] = said["attn_max_attend_past"] = 5
    return layers, wrapper, said


def x_transformers(seed, causal):
    """What a file of x-transformers does not say, and our reference."""
    layers, wrapper, said = x_transformers_settings(random.Random(seed), causal)
    is_rotary, has_bias = "rotary_pos_emb" in layers, "rel_pos_bias" in layers
    size, scale = layers.get("rotary_emb_dim", 0), layers.get("rotary_base_rescale_factor", 1.0)
    norms = "both" if "sandwich_norm" in layers else "pre" if layers.get("pre_norm", 1) else "post"
    fields = {"causal": causal, "dim": 36, "heads": 6, "kv_heads": layers["attn_kv_heads"]}
    fields |= {"inner": 144, "num_tokens": VOCABULARY, "max_seq_len": 32}
    fields |= {"depth": layers["depth"], "ff_glu": layers["ff_glu"], "rel_pos_bias": has_bias}
    fields["norm"] = "g" if layers["use_rmsnorm"] else "gamma"
    fields["ff_bias"] = not layers["ff_no_bias"]
    fields |= {"norm_position": norms, "has_final_norm": norms != "post"}
    fields |= {"has_positions": not (is_rotary or has_bias), "tied": wrapper["tie_embedding"]}
    fields |= {"rotary_emb_dim": size, "tie_embedding_scale": 36**-0.5}
    fields["rotary_base"] = 10000.0 * scale ** (size / (size - 2)) if is_rotary else 0.0
    fields |= {"norm_add_unit_offset": layers["norm_add_unit_offset"]}
    fields |= {"alibi_pos_bias": False, "attn_max_attend_past": None, **said}
    fields |= {"post_emb_norm": wrapper["post_emb_norm"]}
    fields.setdefault("rotary_interpolation_factor", 1.0)
    theirs = randomised(XTransformers(SimpleNamespace(**fields)), seed)
    return said, centred(theirs, layers["norm_add_unit_offset"])


@torch.no_grad()
def centred(model, is_offset):
    """The model with weights of norms around zero if one is added to them."""
    for name, tensor in model.named_parameters():
        if is_offset and name.endswith((".g", ".gamma")) and not name.startswith("post_emb"):
            tensor -= 1
    return model


def x_transformers_state(model):
    """The tensors that x-transformers saves: a rotation's frequencies among them."""
    config, state = model.config, model.state_dict()
    if size := config.rotary_emb_dim:
        frequencies = config.rotary_base ** -(torch.arange(0, size, 2).float() / size)
        state["attn_layers.rotary_pos_emb.inv_freq"] = frequencies
    return state


# The formats whose settings are drawn, by the functions that draw them.
DRAWN = {"litgpt": litgpt_settings, "litgpt-moe": litgpt_settings}
DRAWN |= {"nanochat-checkpoint": nanochat, "torchtune": torchtune}
DRAWN |= dict.fromkeys(("x-transformers", "x-transformers-encoder"), x_transformers)
