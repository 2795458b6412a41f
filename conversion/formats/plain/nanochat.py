"""nanochat's folder: model_STEP.pt and meta_STEP.json, as its code of 2025 saved them.

Later code mixes in embeddings of values, earlier states and the token before, which ours does not.
"""

import re
from pathlib import Path
from types import SimpleNamespace

from ...engine.aliases import Fields, FilePath
from ...engine.checkpoints import Checkpoint, open_file, read_json
from ...engine.errors import ConversionError
from ...engine.format import DECODER, carry
from ...engine.plain import TOKEN_IDS, Needed, PlainFormat, count, head_size
from ...engine.rules import Rule, matches
from ...engine.transforms import FirstRows, Ones, SwappedHalves
from ...references.nanochat import BASE, CAP, EPSILON, NanoChat
from ..shared import GPT2_LAYER, LAYER, LLAMA_FIXED

MODEL = re.compile(r"model_(\d+)\.pt")
HEADS = {"q": "num_attention_heads", "k": "num_key_value_heads"}
NORMS = ("model.embed_norm", f"{LAYER}.self_attn_norm", f"{LAYER}.mlp_norm", "model.norm")
RULES = (
    Rule("model.embed_tokens.weight", "transformer.wte.weight", FirstRows("vocab_size")),
    Rule("lm_head.weight", "lm_head.weight", FirstRows("vocab_size")),
    *(
        Rule(f"{LAYER}.self_attn.{x}_proj.weight", f"{GPT2_LAYER}.attn.c_{x}.weight", swapped)
        for x, swapped in ((x, SwappedHalves(heads)) for x, heads in HEADS.items())
    ),
    Rule(f"{LAYER}.self_attn.v_proj.weight", f"{GPT2_LAYER}.attn.c_v.weight"),
    Rule(f"{LAYER}.self_attn.o_proj.weight", f"{GPT2_LAYER}.attn.c_proj.weight"),
    Rule(f"{LAYER}.mlp.up_proj.weight", f"{GPT2_LAYER}.mlp.c_fc.weight"),
    Rule(f"{LAYER}.mlp.down_proj.weight", f"{GPT2_LAYER}.mlp.c_proj.weight"),
    *(Rule(f"{norm}.weight", (), Ones("hidden_size")) for norm in NORMS),
    *(Rule(f"{LAYER}.self_attn.{x}_norm.weight", (), Ones("head_dim")) for x in HEADS),
)
SETTINGS = {
    "sequence_len": 2048,
    "vocab_size": Needed(65536),
    "n_layer": Needed(20),
    "n_head": Needed(10),
    "n_kv_head": Needed(10),
    "n_embd": Needed(1280),
    **TOKEN_IDS,
}


def steps_in(folder: Path) -> list[str]:
    """Return the numbers of the steps whose model and settings lie in a folder, in order."""
    found = (MODEL.fullmatch(path.name) for path in folder.glob("model_*.pt"))
    steps = [hit[1] for hit in found if hit and (folder / f"meta_{hit[1]}.json").is_file()]
    return sorted(steps, key=int)


def open_folder(folder: FilePath) -> Checkpoint:
    step = steps_in(Path(folder))[-1]
    checkpoint = open_file(Path(folder) / f"model_{step}.pt")
    described = read_json(Path(folder) / f"meta_{step}.json").get("model_config")
    checkpoint.description = described if isinstance(described, dict) else {}
    return checkpoint


def sizes(checkpoint: Checkpoint, settings: SimpleNamespace) -> Fields:
    read = {name for rule in RULES for name in [rule.theirs] if isinstance(name, str)}
    if later := [n for n in checkpoint.names() if not any(matches(name, n) for name in read)]:
        raise ConversionError(
            f"the file holds {later[0]}, which nanochat has had since 2026 and hf_tformer cannot "
            "express: begin with `tformer new`, and write this part there"
        )
    head_size(settings.n_embd, settings.n_head, "n_head")
    if settings.n_kv_head < 1 or settings.n_head % settings.n_kv_head:
        raise ConversionError(
            f"n_kv_head is {settings.n_kv_head}, which does not divide n_head "
            f"({settings.n_head}): correct it in meta_*.json"
        )
    layers = count(checkpoint, f"{GPT2_LAYER}.attn.c_q.weight")
    if layers != settings.n_layer:
        raise ConversionError(f"n_layer is {settings.n_layer}, but the file holds {layers}")
    rows = checkpoint.shape("transformer.wte.weight")[0]
    if rows < settings.vocab_size:
        raise ConversionError(f"vocab_size is {settings.vocab_size}, but the file holds {rows}")
    return {"rows": rows, "n_inner": checkpoint.shape("transformer.h.0.mlp.c_fc.weight")[0]}


# theirs → ours
FIELDS = {
    "vocab_size": "vocab_size",
    "sequence_len": "max_position_embeddings",
    "n_embd": "hidden_size",
    "n_inner": "intermediate_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_kv_head": "num_key_value_heads",
    **{name: name for name in TOKEN_IDS},
}


def to_ours(theirs: SimpleNamespace) -> Fields:
    return {
        **LLAMA_FIXED,
        **carry(theirs, FIELDS),
        "embedding_norm": True,
        "qk_norm": True,
        "mlp_type": "plain",
        "hidden_act": "relu2",
        "rms_norm_eps": EPSILON,
        "rope_parameters": {"rope_type": "default", "rope_theta": BASE},
        "final_logit_softcapping": CAP,
        "tie_word_embeddings": False,
    }


FORMATS = (
    PlainFormat(
        name="nanochat-checkpoint",
        remark="nanochat's folder of model_STEP.pt and meta_STEP.json, the last of its steps",
        released="nanochat as it was in 2025",
        rules=RULES,
        config_to_ours=to_ours,
        our_classes=DECODER,
        reference=NanoChat,
        sizes=sizes,
        settings=SETTINGS,
        marks=(),
        opener=open_folder,
        in_folder=lambda folder: bool(steps_in(folder)),
        is_described=True,
    ),
)
