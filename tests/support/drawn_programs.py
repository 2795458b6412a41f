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


# The formats whose settings are drawn, by the functions that draw them.
DRAWN = {"litgpt": litgpt_settings, "litgpt-moe": litgpt_settings}
DRAWN |= {"nanochat-checkpoint": nanochat, "torchtune": torchtune}
