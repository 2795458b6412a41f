"""What a folder of LitGPT says, and what of it hf_tformer cannot follow."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import yaml

from ...engine.aliases import Fields, FilePath
from ...engine.checkpoints import Checkpoint, open_file
from ...engine.errors import ConversionError
from ...engine.format import require, require_one_of
from ...engine.plain import TOKEN_IDS, count, is_same
from ..shared import GPT2_LAYER

NAMES = ("lit_model.pth", "model_config.yaml")
YAML_BYTES = 2**20  # a hundred times the longest that LitGPT writes
ACTIVATIONS = {"GptNeoxMLP": "gelu", "LLaMAMLP": "silu", "GemmaMLP": "gelu"}


def settings_in(folder: FilePath) -> Fields:
    """Return what model_config.yaml says, where it says no more than it may."""
    path = Path(folder) / NAMES[1]
    if (size := path.stat().st_size) > YAML_BYTES:
        raise ConversionError(f"{path} has {size} bytes, too many to describe a model")
    try:
        text = path.read_text(encoding="utf-8")
        has_aliases = any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text))
        settings = None if has_aliases else yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConversionError(f"{path} is no YAML that can be read: fetch it again") from error
    if has_aliases:  # a few of them can stand for more values than fit into memory
        raise ConversionError(
            f"{path} has aliases (*name), which LitGPT never writes: write them out"
        )
    if not isinstance(settings, dict):
        raise ConversionError(f"{path} holds no settings: fetch it again")
    return settings


def has_files(folder: Path) -> bool:
    return all((folder / name).is_file() for name in NAMES)


def is_mixture(folder: Path) -> bool:
    return has_files(folder) and settings_in(folder).get("mlp_class_name") == "LLaMAMoE"


def is_dense(folder: Path) -> bool:
    return has_files(folder) and not is_mixture(folder)


def open_folder(folder: FilePath) -> Checkpoint:
    checkpoint = open_file(Path(folder) / NAMES[0])
    checkpoint.description = settings_in(folder)
    for name, value in checkpoint.description.items():
        if name not in SETTINGS and name not in UNREAD and value:
            raise ConversionError(
                f"{name} is {value!r} in {folder}/{NAMES[1]}, which hf_tformer does not know: "
                "remove it there if it changes nothing"
            )
    if "transformer.h.0.attn.attn.weight" in checkpoint.names():
        raise ConversionError(
            f"{folder}/{NAMES[0]} has tensors named attn.attn, as LitGPT before 0.5.4 saved them: "
            "load it with a later LitGPT, and save its state_dict there"
        )
    return checkpoint


# model_config.yaml, with the defaults of LitGPT 0.5.13.
SETTINGS = {
    "name": "",
    "block_size": 4096,
    "n_layer": 16,
    "n_embd": 4096,
    "norm_class_name": "LayerNorm",
    "norm_eps": 1e-5,
    "norm_qk": False,
    "norm_qk_type": "default",
    "post_attention_norm": False,
    "post_mlp_norm": False,
    "parallel_residual": True,
    "shared_attention_norm": False,
    "n_head": 32,
    "head_size": None,
    "n_query_groups": None,
    "attn_bias": False,
    "attention_scores_scalar": None,
    "sliding_window_size": None,
    "sliding_window_indices": None,
    "attention_logit_softcapping": None,
    "rope_base": 10000.0,
    "rotary_percentage": 0.25,
    "rope_condense_ratio": 1.0,
    "rope_adjustments": None,
    "rope_interleave": False,
    "intermediate_size": None,
    "moe_intermediate_size": None,
    "bias": True,
    "mlp_class_name": "GptNeoxMLP",
    "gelu_approximate": "none",
    "n_expert": 0,
    "n_shared_expert": None,
    "n_expert_groups": None,
    "n_topk_groups": None,
    "n_topk_scores_per_group": None,
    "n_expert_per_token": 0,
    "first_k_dense_replace": None,
    "routed_scaling_factor": 1.0,
    "norm_topk_prob": False,
    "scale_embeddings": False,
    "lm_head_bias": False,
    "final_logit_softcapping": None,
    "norm_1": True,
    "norm_2": True,
    "latent_attention": None,
    "rope_local_base_freq": None,
    "rope_indices": None,
    **TOKEN_IDS,
}
# Names of the checkpoint, and sizes that the shapes determine.
UNREAD = ("hf_config", "vocab_size", "padding_multiple", "padded_vocab_size", "_mlp_class")


def sizes(checkpoint: Checkpoint, settings: SimpleNamespace) -> Fields:
    refuse(settings)
    n_layer, slides = settings.n_layer, [False] * settings.n_layer
    if (layers := count(checkpoint, f"{GPT2_LAYER}.attn.qkv.weight")) != n_layer:
        raise ConversionError(f"n_layer is {n_layer}, but {NAMES[0]} holds {layers}")
    if settings.sliding_window_size is not None:
        slides = flags(settings, "sliding_window_indices")
    if settings.rope_local_base_freq is not None and flags(settings, "rope_indices") != slides:
        raise ConversionError(
            f"rope_indices is {settings.rope_indices}, but hf_tformer has another rotation for "
            "sliding layers alone: only those of sliding_window_indices convert"
        )
    return {
        "padded_vocab_size": checkpoint.shape("transformer.wte.weight")[0],
        "head_size": settings.head_size or settings.n_embd // settings.n_head,
        "n_query_groups": settings.n_query_groups or settings.n_head,
        "intermediate_size": settings.intermediate_size or 4 * settings.n_embd,
        "moe_intermediate_size": settings.moe_intermediate_size or settings.intermediate_size,
        "tied": is_same(checkpoint, "transformer.wte.weight", "lm_head.weight"),
        "adds_one_to_norms": "Gemma" in settings.name,
        "norms_have_weights": settings.norm_class_name == "RMSNorm" or "OLMo" not in settings.name,
        "slides": slides,
        "window": settings.sliding_window_size if any(slides) else None,
    }


def flags(settings: SimpleNamespace, name: str) -> list[bool]:
    """Return a setting that has one number, 0 or 1, for each layer or for none."""
    value = getattr(settings, name)
    value = [1] * settings.n_layer if value is None else value
    if not isinstance(value, list) or len(value) < settings.n_layer:
        raise ConversionError(f"{name} is {value!r}: give 0 or 1 for each of n_layer layers")
    return [bool(flag) for flag in value[: settings.n_layer]]


SCALED = {"factor", "low_freq_factor", "high_freq_factor", "original_max_seq_len"}  # Llama 3.1


def refuse(theirs: SimpleNamespace) -> None:
    """Refuse settings that ours cannot follow."""
    refused = partial(require_one_of, theirs, "hf_tformer")
    require(theirs, "hf_tformer", latent_attention=None, rope_interleave=False)
    refused(norm_class_name=("RMSNorm", "LayerNorm"), norm_qk_type=("default", "olmo2"))
    refused(mlp_class_name=(*ACTIVATIONS, "LLaMAMoE"), gelu_approximate=("none", "tanh"))
    # Both norms of a kind, or none of them.
    refused(norm_2=(theirs.norm_1,), post_mlp_norm=(theirs.post_attention_norm,))
    if theirs.parallel_residual:
        require(theirs, "hf_tformer", norm_1=True, post_attention_norm=False)
    elif not theirs.norm_1:
        require(theirs, "hf_tformer", post_attention_norm=True)
    if not theirs.parallel_residual:
        require(theirs, "hf_tformer", shared_attention_norm=False)
    if theirs.norm_class_name == "LayerNorm" and "OLMo" in theirs.name:
        require(theirs, "hf_tformer", norm_qk=False)
    adjusted = theirs.rope_adjustments
    if adjusted is not None and (
        not isinstance(adjusted, dict) or adjusted.keys() not in ({"factor"}, SCALED)
    ):
        raise ConversionError(
            f"rope_adjustments is {adjusted!r}, which hf_tformer cannot express: factor alone "
            f"converts, or {', '.join(sorted(SCALED))}"
        )
    if adjusted and len(adjusted) > 1:
        refused(rope_condense_ratio=(1,))
    if theirs.mlp_class_name == "LLaMAMoE":
        refused(bias=(False,), n_topk_scores_per_group=(None, 2))
    for name in ("n_head", "n_embd", "n_layer"):
        if getattr(theirs, name) < 1:
            raise ConversionError(f"{name} is {getattr(theirs, name)}: give at least 1")
