"""Llama as Meta ships it: params.json, and one consolidated.*.pth per model-parallel rank."""

from pathlib import Path
from types import SimpleNamespace

import torch

from ...engine.aliases import Fields, FilePath
from ...engine.checkpoints import Checkpoint, PickledShard, read_json
from ...engine.errors import ConversionError
from ...engine.format import DECODER, carry
from ...engine.plain import TOKEN_IDS, Needed, PlainFormat, count, head_size, is_same
from ...engine.rotations import rotation_of_llama
from ...engine.rules import Rule, matches, weights
from ...references.meta_llama import MetaLlama
from ..shared import LAYER, LLAMA_FIXED, NEIGHBOURS

THEIRS = "layers.{i}"
MODULES = {
    "self_attn_norm": "attention_norm",
    "self_attn.v_proj": "attention.wv",
    "self_attn.o_proj": "attention.wo",
    "mlp_norm": "ffn_norm",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.down_proj": "feed_forward.w2",
    "mlp.up_proj": "feed_forward.w3",
}
RULES = (
    Rule("model.embed_tokens.weight", "tok_embeddings.weight"),
    *(
        Rule(f"{LAYER}.self_attn.{x}_proj.weight", f"{THEIRS}.attention.w{x}.weight", pairs)
        for x, pairs in NEIGHBOURS.items()
    ),
    *weights(LAYER, THEIRS, MODULES),
    Rule("model.norm.weight", "norm.weight"),
    Rule("lm_head.weight", "output.weight"),
)
IGNORED = {
    "rope.freqs": "computed from rope_theta",
    f"{THEIRS}.attention.inner_attention.rope.freqs": "computed from rope_theta",
}

# The dimension along which tensors are split among the ranks; each rank has the others whole.
SPLIT = {
    **{f"{THEIRS}.attention.{name}.weight": 0 for name in ("wq", "wk", "wv")},
    **{f"{THEIRS}.feed_forward.{name}.weight": 0 for name in ("w1", "w3")},
    "output.weight": 0,
    f"{THEIRS}.attention.wo.weight": 1,
    f"{THEIRS}.feed_forward.w2.weight": 1,
}


class Ranks:
    """The files of all ranks as one checkpoint, whose tensors are joined when they are read."""

    prefix = ""

    def __init__(self, shards: list[PickledShard], description: Fields) -> None:
        self.shards, self.description = shards, description
        if len({frozenset(shard.names()) for shard in shards}) > 1:
            raise ConversionError("the files of the ranks hold different tensors: fetch them again")

    def names(self) -> list[str]:
        return sorted(self.shards[0].names())

    def shape(self, name: str) -> tuple[int, ...]:
        if name not in self.shards[0].names():
            raise ConversionError(f"tensors are missing: {name}; fetch the folder again")
        shape, dim = list(self.shards[0].shape(name)), self.dim(name)
        if dim is not None:
            shape[dim] = sum(shard.shape(name)[dim] for shard in self.shards)
        return tuple(shape)

    def nbytes(self, name: str) -> int:
        return sum(shard.nbytes(name) for shard in self.shards)

    def read(self, name: str) -> torch.Tensor:
        parts, dim = [shard.read(name) for shard in self.shards], self.dim(name)
        if dim is not None:
            return torch.cat(parts, dim) if len(parts) > 1 else parts[0]
        if not all(torch.equal(parts[0], part) for part in parts):
            raise ConversionError(f"the ranks have different {name}: fetch the folder again")
        return parts[0]

    def dim(self, name: str) -> int | None:
        if name == "tok_embeddings.weight":  # Llama 2 split its width, Llama 3 its vocabulary
            return 0 if self.shards[0].shape(name)[1] == self.description["dim"] else 1
        return next((dim for pattern, dim in SPLIT.items() if matches(pattern, name)), None)


def is_meta_folder(folder: Path) -> bool:
    return (folder / "params.json").is_file() and not (folder / "config.json").is_file()


def open_ranks(folder: FilePath) -> Ranks:
    paths = sorted(Path(folder).glob("consolidated.*.pth"))
    if not paths:
        raise ConversionError(f"{folder} holds params.json but no consolidated.*.pth: fetch them")
    numbers = [path.name.split(".")[1] for path in paths]
    if numbers != [f"{number:02}" for number in range(len(paths))]:
        raise ConversionError(
            f"{folder} holds consolidated.*.pth of the ranks {', '.join(numbers)}: one is missing"
        )
    params = read_json(Path(folder) / "params.json")
    for name, value in params.items():
        if name not in SETTINGS and value is not None:
            raise ConversionError(
                f"{name} is {value!r} in {folder}/params.json, which hf_tformer cannot express: "
                f"supported are {', '.join(SETTINGS)}"
            )
    if type(params.get("dim")) is not int:
        raise ConversionError(f"{folder}/params.json has no whole number dim: fetch it again")
    return Ranks([PickledShard(path) for path in paths], params)


# params.json; where it is silent, Meta's code has these values.
SETTINGS = {
    "dim": Needed(4096),
    "n_layers": Needed(32),
    "n_heads": Needed(32),
    "n_kv_heads": None,  # as many as heads
    "norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "use_scaled_rope": False,
    "rope_scaling_factor": None,
    "max_seq_len": 2048,  # a choice: rotary positions have no end
    # The shapes determine these.
    "vocab_size": None,
    "multiple_of": None,
    "ffn_dim_multiplier": None,
    "max_batch_size": None,
    **TOKEN_IDS,
}


def sizes(checkpoint: Checkpoint, settings: SimpleNamespace) -> Fields:
    if settings.use_scaled_rope and not settings.rope_scaling_factor:
        raise ConversionError(
            "use_scaled_rope is true in params.json, without the factor: give it with "
            "--set rope_scaling_factor=8 for Llama 3.1, --set rope_scaling_factor=32 for 3.2"
        )
    layers = count(checkpoint, f"{THEIRS}.attention.wq.weight")
    if layers != settings.n_layers:
        raise ConversionError(f"n_layers is {settings.n_layers}, but the files hold {layers}")
    head_size(settings.dim, settings.n_heads, "n_heads")
    return {
        "vocab_size": checkpoint.shape("tok_embeddings.weight")[0],
        "hidden_dim": checkpoint.shape("layers.0.feed_forward.w1.weight")[0],
        "n_kv_heads": settings.n_kv_heads or settings.n_heads,
        "tied": is_same(checkpoint, "tok_embeddings.weight", "output.weight"),
    }


def to_ours(theirs: SimpleNamespace) -> Fields:
    return {
        **LLAMA_FIXED,
        "vocab_size": theirs.vocab_size,
        "hidden_size": theirs.dim,
        "intermediate_size": theirs.hidden_dim,
        "num_hidden_layers": theirs.n_layers,
        "num_attention_heads": theirs.n_heads,
        "num_key_value_heads": theirs.n_kv_heads,
        "max_position_embeddings": theirs.max_seq_len,
        "rms_norm_eps": theirs.norm_eps,
        "rope_parameters": rotation_of_llama(
            theirs.rope_theta, theirs.rope_scaling_factor if theirs.use_scaled_rope else None
        ),
        "tie_word_embeddings": theirs.tied,
        **carry(theirs, tuple(TOKEN_IDS)),
    }


FORMATS = (
    PlainFormat(
        name="meta-llama",
        remark="Meta's folder, whose params.json holds all settings but rope_scaling_factor",
        released="Llama 1, 2, 3, 3.1, 3.2 and 3.3 as Meta ships them",
        rules=RULES,
        config_to_ours=to_ours,
        our_classes=DECODER,
        reference=MetaLlama,
        sizes=sizes,
        settings=SETTINGS,
        marks=(),  # a folder is recognised by params.json
        ignored=IGNORED,
        opener=open_ranks,
        in_folder=is_meta_folder,
    ),
)
