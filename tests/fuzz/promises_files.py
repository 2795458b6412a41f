"""Promises about what is kept in files."""

import tempfile
from pathlib import Path

import torch
from hypothesis import strategies as st
from transformers import AutoConfig

from conversion import ConversionError, export_checkpoint, import_checkpoint

from .building import PromiseError, as_batch, build, by_name, check_same, texts
from .cases import Case, cases
from .configurations import LONGEST, configurations

# What a folder says about itself, and not about the model.
OF_THE_FOLDER = ("architectures", "dtype", "transformers_version", "_name_or_path", "auto_map")

saved_cases = cases()


@torch.no_grad()
def check_saved(case: Case):
    """A model that was saved and loaded is the one it was, to the last bit."""
    model = build(case)
    batch, _ = as_batch(case, *texts(case))
    with tempfile.TemporaryDirectory(prefix="fuzz") as folder:
        model.save_pretrained(folder)
        loaded = by_name[case.family].auto.from_pretrained(
            folder, trust_remote_code=False, attn_implementation=case.backend
        )
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    if loaded.dtype != model.dtype:
        raise PromiseError(f"saved as {model.dtype}, loaded as {loaded.dtype}")
    check_equal(described(config), described(model.config), "configuration")
    check_equal(described(loaded.config), described(model.config), "configuration of the model")
    again = type(config)(**described(config))
    check_equal(described(again), described(config), "configuration made of its fields")
    tensors, before = (dict((*m.named_buffers(), *m.state_dict().items())) for m in (loaded, model))
    check_equal(sorted(tensors), sorted(before), "names of the tensors")
    for name, value in before.items():
        if tensors[name].dtype != value.dtype or not torch.equal(tensors[name], value):
            raise PromiseError(f"{name} is not what was saved")
    # Weights of a file lie at other addresses, where products may be summed in another order.
    check_same(loaded(**batch).logits, model(**batch).logits, "loaded and saved")


def described(config):
    return {name: value for name, value in config.to_dict().items() if name not in OF_THE_FOLDER}


def check_equal(actual, expected, what):
    if actual != expected:
        if isinstance(expected, dict):
            names = {n for n in {*actual, *expected} if actual.get(n) != expected.get(n)}
            actual, expected = ({n: of.get(n) for n in names} for of in (actual, expected))
        raise PromiseError(f"{what}: {actual} and {expected}")


# What a format asks for; a random configuration would nearly always be refused.
NO_BIAS = {"attention_bias": False, "attention_output_bias": False, "mlp_bias": False}
BIASES = dict.fromkeys(NO_BIAS, True)
PLAIN_NORM = {"norm_type": "layernorm", "mlp_type": "plain"}
LEARNED = {**PLAIN_NORM, "position_embedding_type": "learned"}
SEQ2SEQ = {**PLAIN_NORM, "norm_position": "post", "final_norm": False, **BIASES}
NORMS_FIRST = {"norm_position": "pre", "final_norm": True}
MARIAN = {**SEQ2SEQ, "sinusoidal_layout": "halves", "lm_head_bias": True}
BART = {
    **SEQ2SEQ,
    "position_embedding_type": "learned",
    "embedding_norm": True,
    "lm_head_bias": True,
}
M2M100 = {**SEQ2SEQ, **NORMS_FIRST, "sinusoidal_layout": "fairseq", "lm_head_bias": False}
ALIBI = {
    "position_embedding_type": "none",
    "score_bias": "alibi",
    "mlp_type": "plain",
    "sliding_window": None,
    "layer_types": None,
}
FAIRSEQ = {
    **PLAIN_NORM,
    **BIASES,
    "position_embedding_type": "sinusoidal",
    "sinusoidal_layout": "fairseq",
    "layer_norm_eps": 1e-5,
    "sliding_window": None,
    "layer_types": None,
    "pad_token_id": 1,
}


BESIDE = {"parallel_residual": "shared", "lm_head_bias": True}


BEHIND = {"norm_position": "inside", "qk_norm": "all"}
OFFSET = {"norm_type": "rmsnorm_offset", "scale_embedding": True}
WANTED = {
    "llama": {},
    "mistral": {},
    "qwen2": {"attention_bias": True},
    "qwen3": {"qk_norm": True},
    "smollm3": {},
    "olmo2": BEHIND,
    "olmo3": BEHIND,
    "exaone4": {**BEHIND, "qk_norm": True},
    "gemma": OFFSET,
    "gemma2": {**OFFSET, "norm_position": "both"},
    "gemma3_text": {**OFFSET, "norm_position": "both", "qk_norm": True},
    "glm4": {"norm_position": "both"},
    "gpt2": {**LEARNED, **BIASES},
    "opt": {**LEARNED, **BIASES, "layer_norm_eps": 1e-5},
    "biogpt": {**LEARNED, **BIASES, "layer_norm_eps": 1e-5},
    "gpt_neo": {**LEARNED, **BIASES, "attention_bias": False, "attention_scale": 1.0},
    "gpt_bigcode": {**LEARNED, **BIASES},
    "bloom": {**ALIBI, **PLAIN_NORM, **BIASES, "embedding_norm": True, "hidden_act": "gelu_new"},
    "mpt": {**ALIBI, "norm_type": "layernorm_unbiased", "hidden_act": "gelu"},
    "xglm": FAIRSEQ,
    "starcoder2": PLAIN_NORM,
    "stablelm": {"norm_type": "layernorm"},
    "gpt_neox": {**PLAIN_NORM, **BIASES, "parallel_residual": "own"},
    "gptj": {
        **PLAIN_NORM,
        **BESIDE,
        "mlp_bias": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    "phi": {**PLAIN_NORM, **BIASES, **BESIDE},
    "falcon": {**PLAIN_NORM, "parallel_residual": "shared"},
    "cohere": {"norm_type": "layernorm_unbiased", "parallel_residual": "shared"},
    "granite": {"residual_multiplier": 0.22},
    "granitemoehybrid": {"residual_multiplier": 0.22, "position_embedding_type": "none"},
    "hyperclovax": {"norm_position": "both", "logit_scale": 0.3},
    "cwm": {},
    "ministral": {},
    "jais2": {"norm_type": "layernorm", "mlp_type": "plain", "hidden_act": "relu2"},
    "vaultgemma": OFFSET,
    "marian": MARIAN,
    "bart": BART,
    "plbart": BART,
    "mbart": {**BART, **NORMS_FIRST},
    "pegasus": {**MARIAN, **NORMS_FIRST},
    "blenderbot": {**BART, **NORMS_FIRST, "embedding_norm": False},
    "m2m_100": M2M100,
    "torch-transformer": {**SEQ2SEQ, "hidden_act": "gelu"},
}
# What these leave free, beside sizes, token ids and rotations.
FREE = (
    "hidden_act",
    "rms_norm_eps",
    "tie_word_embeddings",
    "attention_scale",
    "scale_embedding",
    "norm_position",
    "final_norm",
    "mlp_bias",
    "attention_bias",
    "attention_output_bias",
    "layer_norm_eps",
    "lm_head_bias",
    "logit_scale",
    "share_encoder_decoder_embeddings",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "no_rope_layers",
)
KEPT = ("rope_parameters", "sliding_window", "layer_types", "source_vocab_size")
OF_SEQ2SEQ = ("marian", "bart", "plbart", "mbart", "pegasus", "blenderbot", "m2m_100")
OF_SEQ2SEQ += ("torch-transformer",)
FOUR_TIMES = ("bloom", "mpt")  # as wide is their MLP
WHOLE_HEADS = (*OF_SEQ2SEQ, *FOUR_TIMES, "gpt2", "opt", "biogpt", "gpt_neo", "gpt_bigcode", "xglm")
WHOLE_HEADS += ("gpt_neox", "gptj", "falcon")


@st.composite
def converted_cases(draw):
    """What a format asks for, with at most two fields that it may not know how to say."""
    form = draw(st.sampled_from(sorted(WANTED)))
    family = "seq2seq" if form in OF_SEQ2SEQ else "decoder"
    drawn = draw(configurations(family, steady=True))
    changed = draw(st.lists(st.sampled_from(FREE), max_size=2, unique=True))
    config = {name: value for name, value in drawn.items() if is_kept(name) or name in changed}
    config = {**config, **{n: v for n, v in WANTED[form].items() if n not in changed}}
    if config.get("norm_position", "pre") != "pre":  # side by side, norms come first
        config.pop("parallel_residual", None)
    if form in WHOLE_HEADS:
        heads = config["num_attention_heads"] = draw(st.integers(1, 3))
        size = 2 * draw(st.integers(1, 5))
        config |= {"num_key_value_heads": None, "hidden_size": heads * size, "head_dim": None}
        config.pop("value_head_dim", None)
        if form in FOUR_TIMES:
            config["intermediate_size"] = 4 * heads * size
        if "rope_parameters" not in WANTED[form]:  # drawn for other sizes
            config.pop("rope_parameters", None)
    elif config.get("head_dim", 0) is not None:
        heads = config.get("num_attention_heads", 8)
        if (config.get("head_dim") or config["hidden_size"] // heads) % 2:
            config["head_dim"] = 4
            config.pop("rope_parameters", None)
    if config.get("source_vocab_size") not in (None, config["vocab_size"]):
        config["share_encoder_decoder_embeddings"] = False
    config["max_position_embeddings"] = draw(st.sampled_from([LONGEST, 64]))
    texts_drawn = draw(st.lists(st.integers(1, 12), min_size=1, max_size=3))
    targets = [draw(st.integers(1, 12)) for _ in texts_drawn] if family == "seq2seq" else []
    return Case(family, config, texts_drawn, targets, seed=draw(st.integers(0, 999)), format=form)


def is_kept(name):
    sizes = ("size", "layers", "heads", "head_dim", "token_id")
    return name in KEPT or name.endswith(sizes)


@torch.no_grad()
def check_converted(case: Case):
    """Exported and imported again, a model is what it was, or it is refused in a sentence."""
    model = build(case)
    batch, real = as_batch(case, *texts(case))
    with tempfile.TemporaryDirectory(prefix="fuzz") as folder:
        ours, theirs, again = (Path(folder) / name for name in ("ours", "theirs", "again"))
        model.save_pretrained(ours)
        try:
            export_checkpoint(ours, theirs, to=case.format)
        except ConversionError as error:
            check_sentence(str(error))
            return
        source, settings = imported_from(case, theirs, model.config)
        import_checkpoint(source, again, settings=settings)
        loaded = by_name[case.family].model_class.from_pretrained(again)
        loaded.config._attn_implementation = case.backend
    check_same(loaded(**batch).logits[real], model(**batch).logits[real], "exported and imported")


def imported_from(case, folder, config):
    """The folder, or the one file in it with what that does not say."""
    if case.format != "torch-transformer":
        return folder, None
    told = {
        "nhead": config.num_attention_heads,
        "pad_token_id": config.pad_token_id,
        "norm_first": config.norm_position == "pre",
        "activation": config.hidden_act,
        "layer_norm_eps": config.layer_norm_eps,
        "scale_embedding": config.scale_embedding,
    }
    (file,) = (path for path in folder.iterdir() if path.suffix in (".pt", ".pth", ".safetensors"))
    return file, told


def check_sentence(words):
    if "\n" in words or len(words.split()) < 5:
        raise PromiseError(f"not a sentence: {words!r}")
