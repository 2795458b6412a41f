# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""Checks and derived values that all configurations share.

Every check raises a ValueError that names the field, the value and the remedy: when a configuration
is made, and once more before it is saved. `@strict` checks types; a postponed-annotations import
would switch it off. Where hf_tformer is installed, it checks untrusted files more closely.
"""

from transformers.activations import ACT2FN
from transformers.configuration_utils import PreTrainedConfig, strict
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

# Increased when older code would compute something else from a new checkpoint. Code reads every
# format up to its own and refuses later ones; a difference without a new number does not matter.
FORMAT_VERSION = 1

CHOICES = {
    "position_embedding_type": ("rotary", "learned", "sinusoidal", "none"),
    "norm_type": ("rmsnorm", "rmsnorm_offset", "layernorm", "layernorm_unbiased"),
    "norm_position": ("pre", "post", "inside", "both"),
    "parallel_residual": ("own", "shared"),
    "qk_norm": (True, False, "all"),
    "mlp_type": ("gated", "plain"),
    "initializer": ("normal", "xavier_uniform"),
    "sinusoidal_layout": ("interleaved", "halves", "fairseq"),
    "hidden_act": tuple(ACT2FN),
}
SIZES = ("vocab_size", "source_vocab_size", "hidden_size", "intermediate_size")
SIZES += ("encoder_layers", "decoder_layers", "num_hidden_layers", "max_position_embeddings")
SIZES += ("num_attention_heads", "num_key_value_heads", "head_dim", "value_head_dim")
SIZES += ("sliding_window", "num_labels")

# How tensor and pipeline parallelism divide a decoder or an encoder.
COLWISE = (*(f"self_attn.{x}_proj" for x in "qkv"), "mlp.gate_proj", "mlp.up_proj")
TP_PLAN = {
    **{f"layers.*.{name}": "colwise" for name in COLWISE},
    **{f"layers.*.{name}": "rowwise" for name in ("self_attn.o_proj", "mlp.down_proj")},
    **{f"layers.*.self_attn.{x}_norm": "replicated_with_grad_allreduce" for x in "qk"},
}
PP_PLAN = {
    "embed_tokens": (["input_ids"], ["inputs_embeds"]),
    "layers": (["hidden_states", "attention_mask"], ["hidden_states"]),
    "norm": (["hidden_states"], ["hidden_states"]),
}


@strict
class TformerConfig(PreTrainedConfig):
    """Base class of the families' configurations; each has its own fields."""

    keys_to_ignore_at_inference = ["past_key_values", "cache"]
    ignore_keys_at_rope_validation = {"partial_rotary_factor"}

    own_choices = {}  # as CHOICES, of one family

    format_version: int = FORMAT_VERSION

    @classmethod
    def from_dict(cls, config_dict: dict, **kwargs: object) -> "TformerConfig":
        """Read a file's dict; overrides are applied before anything is derived or checked."""
        refuse_later_format(config_dict.get("format_version", 1))
        # Not dtype: the base class resolves "auto".
        names = {*cls.__dataclass_fields__, "layer_types", "rope_parameters"} - {"dtype"}
        overrides = {name: kwargs.pop(name) for name in list(kwargs) if name in names}
        config_dict = {**config_dict, **overrides}
        rope = config_dict.get("rope_parameters") or {}
        if "rope_theta" in kwargs and isinstance(rope, dict):  # its name before transformers 5
            config_dict["rope_parameters"] = {**rope, "rope_theta": kwargs.pop("rope_theta")}
        return super().from_dict(config_dict, **kwargs)

    def __post_init__(
        self, rope_parameters: dict | None = None, layer_types: list | None = None, **kwargs: object
    ) -> None:
        refuse_later_format(self.format_version)
        self.check_sizes()  # before anything is divided by one
        self.format_version = FORMAT_VERSION  # always saved in the current format
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads
        if self.head_dim is None:
            self.head_dim, rest = divmod(self.hidden_size, self.num_attention_heads)
            if rest:
                raise ValueError(
                    f"hidden_size ({self.hidden_size}) is not divisible by num_attention_heads "
                    f"({self.num_attention_heads}): choose other sizes, or set head_dim"
                )
        if self.final_norm is None:
            self.final_norm = self.norm_position != "post"
        self.take_layer_types(layer_types)
        if self.position_embedding_type != "rotary":
            for name in ("rope_theta", "rope_scaling", "partial_rotary_factor"):
                kwargs.pop(name, None)
        else:  # only here: where the attribute exists, tools expect rotary positions
            rope = kwargs.pop("rope_scaling", None) or rope_parameters or {}
            self.rope_parameters = self.ropes_in_use(rope)
        super().__post_init__(**kwargs)

    def take_layer_types(self, layer_types: list[str] | None) -> None:
        if layer_types is not None:
            raise wrong("layer_types", layer_types, "remove it, all layers here are alike")

    def ropes_in_use(self, rope: dict) -> dict:
        """Copy the rotary parameters, which the base class fills in."""
        return dict(rope)

    def ropes(self) -> list[dict]:
        """Every dict of rotary parameters."""
        rope = getattr(self, "rope_parameters", None)
        return [] if rope is None else [rope]

    def validate_architecture(self) -> None:
        super().validate_architecture()
        self.check_sizes()
        for name, choices in {**CHOICES, **self.own_choices}.items():
            if getattr(self, name, None) not in (*choices, None):  # @strict refuses None elsewhere
                listed = ", ".join(map(str, choices))
                raise wrong(name, getattr(self, name), f"choose one of {listed}")
        for rope in self.ropes():
            self.check_rotary(rope)
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads ({self.num_attention_heads}) is no multiple of "
                f"num_key_value_heads ({self.num_key_value_heads}): choose others, or leave it None"
            )

    def check_sizes(self) -> None:
        for name in SIZES:
            value = getattr(self, name, None)
            if value is not None and not (type(value) is int and value > 0):
                raise wrong(name, value, "choose a whole number of at least 1")

    def check_rotary(self, rope: dict) -> None:
        supported = ("default", *ROPE_INIT_FUNCTIONS)
        label, rope_type = "rope_parameters['rope_type']", rope.get("rope_type")
        if rope_type not in supported:
            raise wrong(label, rope_type, f"choose one of {', '.join(supported)}")
        fraction = rope.get("partial_rotary_factor", 1.0)
        size = int(self.head_dim * fraction)
        # The proportional type pairs the dimensions of the whole head, and rotates some pairs.
        paired = self.head_dim if rope_type == "proportional" else size
        least = 4 if rope_type == "dynamic" else 2  # the dynamic formula divides by size - 2
        if paired % 2 or not least <= size <= self.head_dim:
            raise ValueError(
                f"rope_parameters['rope_type'] is {rope_type!r}, which rotates pairs, but head_dim "
                f"({self.head_dim}) x partial_rotary_factor ({fraction}) gives {paired} "
                f"dimensions: choose an even head_dim, with at least {least}"
            )
        try:
            self.validate_rope()
        except KeyError as error:
            raise wrong(label, rope_type, error.args[0]) from error


def wrong(name: str, value: object, remedy: str) -> ValueError:
    return ValueError(f"{name} is {value!r}: {remedy}")


def refuse_later_format(version: object) -> None:
    """Refuse a checkpoint of a later format, which may mean something that this code cannot do."""
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise ValueError(
            f"format_version is {version}, but this code reads checkpoints up to {FORMAT_VERSION}: "
            "upgrade with `pip install --upgrade hf-tformer`, or load it where the package is not "
            "installed, with trust_remote_code=True, to run the code that came with it"
        )
