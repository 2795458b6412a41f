# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""What both configurations refuse, and in which words.

Every check raises a ValueError that names the field, the value and the remedy. The checks run when
a configuration is made, when it is loaded from a file with overrides, and once more before it is
saved. Types are checked by `@strict`, which needs real annotations: a postponed-annotations import
would switch it off.
"""

from transformers.activations import ACT2FN
from transformers.configuration_utils import PreTrainedConfig, strict
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

# Raised when older code would compute something else from a new checkpoint. Code reads every format
# up to its own and refuses later ones; a difference without a new number does not matter.
FORMAT_VERSION = 1

POSITION_EMBEDDING_TYPES = ("rotary", "learned", "sinusoidal", "none")
NORM_TYPES = ("rmsnorm", "layernorm")
NORM_POSITIONS = ("pre", "post")
MLP_TYPES = ("gated", "plain")
INITIALIZERS = ("normal", "xavier_uniform")
SINUSOIDAL_LAYOUTS = ("interleaved", "halves")

# The largest value a field may have; what passes each limit can still be too large together.
LARGEST = {
    "format_version": FORMAT_VERSION,
    "vocab_size": 10**8,
    "source_vocab_size": 10**8,
    "hidden_size": 10**6,
    "intermediate_size": 10**7,
    "encoder_layers": 10**4,  # before num_hidden_layers, which is another name for it
    "decoder_layers": 10**4,
    "num_hidden_layers": 10**4,
    "num_attention_heads": 10**5,
    "num_key_value_heads": 10**5,
    "head_dim": 10**5,
    "value_head_dim": 10**5,
    "max_position_embeddings": 10**9,
    "sliding_window": 10**9,
    "num_labels": 10**7,
}
LARGEST_PARAMETER_COUNT = 10**13
POSITIVE_NUMBERS = ("rms_norm_eps", "layer_norm_eps", "initializer_range")
POSITIVE_NUMBERS += ("attention_scale", "logit_scale")
# The smallest and the largest value; between them every formula of transformers stays finite.
ROPE_NUMBERS = {
    "rope_theta": (1.01, 1e15),
    "partial_rotary_factor": (1e-6, 1.0),
    "original_max_position_embeddings": (2, 1e9),
    **dict.fromkeys(("factor", "attention_factor", "beta_fast", "beta_slow"), (1e-6, 1e6)),
    **dict.fromkeys(("low_freq_factor", "high_freq_factor"), (1e-6, 1e6)),
    **dict.fromkeys(("mscale", "mscale_all_dim"), (0, 1e6)),
}


@strict
class TformerConfig(PreTrainedConfig):
    """The checks and the loading rules that both families share; each has its own fields."""

    keys_to_ignore_at_inference = ["past_key_values"]
    ignore_keys_at_rope_validation = {"partial_rotary_factor"}

    format_version: int = FORMAT_VERSION

    @classmethod
    def from_dict(cls, config_dict, **kwargs):
        """Reads a file's dict; overrides come in before anything is derived or checked."""
        refuse_foreign_attention(config_dict)
        config_dict = {
            name: value for name, value in config_dict.items() if not name.endswith("_internal")
        }
        refuse_later_format(config_dict.get("format_version", 1))
        # Not dtype: the base class resolves "auto".
        names = {*cls.__dataclass_fields__, "layer_types", "rope_parameters"} - {"dtype"}
        overrides = {name: kwargs.pop(name) for name in list(kwargs) if name in names}
        config_dict = {**config_dict, **overrides}
        if "rope_theta" in kwargs:  # the old name of what stands in rope_parameters today
            rope = config_dict.get("rope_parameters") or {}
            check_dict("rope_parameters", rope)
            config_dict["rope_parameters"] = {**rope, "rope_theta": kwargs.pop("rope_theta")}
        return super().from_dict(config_dict, **kwargs)

    def derive_heads(self):
        """Fills `num_key_value_heads` and `head_dim` where they are None."""
        heads = self.num_attention_heads
        if self.num_key_value_heads is None:
            self.num_key_value_heads = heads
        if self.head_dim is None:
            if self.hidden_size % heads:
                raise ValueError(
                    f"hidden_size ({self.hidden_size}) is not divisible by num_attention_heads "
                    f"({heads}): choose other sizes, or set head_dim"
                )
            self.head_dim = self.hidden_size // heads

    def take_rope(self, rope_parameters, kwargs):
        """Sets `rope_parameters`, in its new or its old words, only where something rotates.

        Where the attribute exists the base class fills it in, and tools expect rotary positions.
        """
        if self.position_embedding_type == "rotary":
            check_dict("rope_parameters", rope_parameters)
            check_dict("rope_scaling", kwargs.get("rope_scaling"))
            # A copy: the base class fills it in, and the caller may make another of it.
            self.rope_parameters = None if rope_parameters is None else dict(rope_parameters)
        else:
            for name in ("rope_theta", "rope_scaling", "partial_rotary_factor"):
                kwargs.pop(name, None)

    def validate_architecture(self):
        super().validate_architecture()
        self.check_sizes()
        self.check_choices()
        self.check_numbers()
        self.check_rotary()
        self.check_parameter_count()
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(
                f"num_attention_heads ({self.num_attention_heads}) must be a multiple of "
                f"num_key_value_heads ({self.num_key_value_heads}): choose other numbers, or set "
                "num_key_value_heads=None for one per query head"
            )

    def check_first(self, num_labels):
        """Before anything is derived: nothing may be divided by, or allocated for, a wrong size."""
        refuse_later_format(self.format_version)
        self.check_sizes(num_labels=num_labels)
        self.format_version = FORMAT_VERSION  # what is read is written in today's format

    def check_sizes(self, **sizes):
        for name, largest in LARGEST.items():
            value = sizes.get(name, getattr(self, name, None))
            if value is not None and type(value) is not int:
                raise ValueError(f"{name} is {value!r}: choose a whole number")
            if value is not None and not 1 <= value <= largest:
                raise ValueError(f"{name} is {value}: choose a value between 1 and {largest}")

    def check_choices(self):
        for name, choices in {
            "position_embedding_type": POSITION_EMBEDDING_TYPES,
            "norm_type": NORM_TYPES,
            "norm_position": NORM_POSITIONS,
            "mlp_type": MLP_TYPES,
            "initializer": INITIALIZERS,
            "sinusoidal_layout": SINUSOIDAL_LAYOUTS,
            "hidden_act": tuple(ACT2FN),
        }.items():
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(f"{name} is {value!r}: choose one of {', '.join(sorted(choices))}")

    def check_numbers(self):
        for name in ("attention_dropout", "dropout", "label_smoothing"):
            if not 0 <= getattr(self, name) < 1:
                value = getattr(self, name)
                raise ValueError(
                    f"{name} is {value}: choose a value from 0 up to, not including, 1"
                )
        for name in POSITIVE_NUMBERS:
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name} is {value}: choose a positive number")
        if not 0 <= self.z_loss < float("inf"):
            raise ValueError(
                f"z_loss is {self.z_loss}: choose 0 (off) or a small positive number such as 1e-4"
            )

    def check_rotary(self):
        rope = getattr(self, "rope_parameters", None)
        if rope is None:
            return
        known = ("default", *ROPE_INIT_FUNCTIONS)
        rope_type = rope.get("rope_type")
        if rope_type not in known:
            raise ValueError(
                f"rope_parameters['rope_type'] is {rope_type!r}: choose one of {', '.join(known)}"
            )
        self.check_rotary_numbers(rope)
        try:
            self.validate_rope()
        except KeyError as error:
            raise ValueError(
                f"rope_parameters of rope_type {rope_type!r}: {error.args[0]}"
            ) from error

    def check_rotary_numbers(self, rope):
        if nested := [name for name, value in rope.items() if isinstance(value, dict)]:
            raise ValueError(f"rope_parameters holds {nested}: give one flat dict for every layer")
        for name, (least, most) in ROPE_NUMBERS.items():
            if name in rope and not (is_number(rope[name]) and least <= rope[name] <= most):
                raise ValueError(
                    f"rope_parameters[{name!r}] is {rope[name]!r}: choose a positive number, from "
                    f"{least:g} to {most:g}"
                )
        fraction = rope.get("partial_rotary_factor", 1.0)
        rotated = int(self.head_dim * fraction)
        # The proportional type leaves its pairs at their places in the head and turns some of them.
        turned = self.head_dim if rope["rope_type"] == "proportional" else rotated
        if turned % 2 or not 0 < rotated <= self.head_dim:
            raise ValueError(
                f"rotary positions turn pairs, but head_dim ({self.head_dim}) x "
                f"partial_rotary_factor ({fraction}) gives {turned} dimensions: choose an even "
                "head_dim"
            )
        if rope["rope_type"] == "dynamic" and rotated == 2:  # its formula divides by rotated - 2
            raise ValueError(
                f"rope_parameters['rope_type'] is 'dynamic', but head_dim ({self.head_dim}) x "
                f"partial_rotary_factor ({fraction}) gives 2 dimensions: choose at least 4"
            )
        for name in ("short_factor", "long_factor"):
            if name in rope and not is_list_of_positives(rope[name], rotated // 2):
                raise ValueError(
                    f"rope_parameters[{name!r}] is {rope[name]!r}: give a list of one positive "
                    f"number for each of {rotated // 2} pairs"
                )
        low, high = rope.get("low_freq_factor"), rope.get("high_freq_factor")
        if low is not None and high is not None and low >= high:
            raise ValueError(
                f"rope_parameters['low_freq_factor'] is {low}: choose less than high_freq_factor "
                f"({high})"
            )

    def check_parameter_count(self):
        count = self.approximate_parameter_count()
        if count > LARGEST_PARAMETER_COUNT:
            sizes = {
                name: getattr(self, name)
                for name in LARGEST
                if getattr(self, name, None) is not None and name != "format_version"
            }
            raise ValueError(
                f"these sizes make a model of about {count:.0e} parameters, more than any machine "
                f"holds (limit {LARGEST_PARAMETER_COUNT:.0e}): reduce {sizes}"
            )

    def check_token_ids(self, *names):
        for name in names:
            value = getattr(self, name)
            for token_id in value if isinstance(value, list) else [value]:
                if token_id is not None and not 0 <= token_id < self.vocab_size:
                    raise ValueError(
                        f"{name} is {value}, outside the vocabulary of {self.vocab_size}: "
                        f"choose an id from 0 to {self.vocab_size - 1}, or None"
                    )


def check_dict(name, value):
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"{name} is {value!r}: give a dict, such as {{'rope_theta': 1e4}}")


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_list_of_positives(value, length):
    is_list = isinstance(value, list) and len(value) == length
    return is_list and all(is_number(x) and 0 < x < float("inf") for x in value)


def attention_parameter_count(config, value_head_dim):
    """Weights of one attention layer, biases left out."""
    query_and_output = config.num_attention_heads * (config.head_dim + value_head_dim)
    key_and_value = config.num_key_value_heads * (config.head_dim + value_head_dim)
    return config.hidden_size * (query_and_output + key_and_value)


def mlp_parameter_count(config):
    return config.hidden_size * config.intermediate_size * (3 if config.mlp_type == "gated" else 2)


def refuse_later_format(version):
    """A checkpoint of a later format may mean something that this code does not know."""
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise ValueError(
            f"format_version is {version}, but this code reads checkpoints up to {FORMAT_VERSION}: "
            "upgrade with `pip install --upgrade hf-tformer`, or load it where the package is not "
            "installed, with trust_remote_code=True, to run the code that came with it"
        )


def refuse_foreign_attention(config_dict):
    """A file may not choose attention code: a '/' or ':' in a name means to download and run it."""
    for key in ("attn_implementation", "_attn_implementation", "_attn_implementation_internal"):
        value = config_dict.get(key)
        for name in value.values() if isinstance(value, dict) else [value]:
            if isinstance(name, str) and ("/" in name or ":" in name):
                raise ValueError(
                    f"{key} is {value!r} in the configuration file, which would download and run "
                    "code from there: remove the key, and pass attn_implementation=... to "
                    "from_pretrained if you trust that kernel"
                )
