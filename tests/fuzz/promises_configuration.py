"""Promise about configuration files: what is accepted works, what is refused is refused by name."""

import json
import re
import resource
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from huggingface_hub.errors import StrictDataclassError
from hypothesis import strategies as st
from transformers import AutoConfig, GenerationConfig

from hf_tformer import TformerDecoderForSequenceClassification, limits

from .building import PromiseError, by_name, check_same
from .cases import DECODERS, FAMILIES
from .promises_refusals import INFINITE, NAN, SMALL

SECONDS, MEGABYTES = 5, 500
REFUSALS = (ValueError, TypeError, StrictDataclassError, OSError)
# AutoConfig reads these before it asks a class of ours, and trips over odd values of them.
READ_BY_AUTO_CONFIG = ("auto_map", "model_type", "configuration_files")
# What transformers looks for in a configuration, beside the fields that it declares.
OF_TRANSFORMERS = (
    *READ_BY_AUTO_CONFIG,
    *("_attn_implementation", "attn_implementation", "experts_implementation"),
    *("_name_or_path", "_post_init_done", "_output_attentions", "_commit_hash", "name_or_path"),
    *("num_labels", "torch_dtype", "output_attentions", "tie_last_hidden_states"),
    *("rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor"),
    *("quantization_config", "transformers_weights", "distributed_config", "fusion_config"),
    *("per_layer_config", "text_config", "text_encoder", "decoder", "generator", "kwargs", "self"),
    *("layer_types", "mlp_layer_types", "mtp_layer_types", "num_mtp_layers", "sliding_window"),
    *("attention_chunk_size", "is_causal", "kv_sharing_modes", "num_kv_shared_layers"),
    *("num_heads", "embed_dim", "is_decoder", "add_cross_attention", "gradient_checkpointing"),
    *("cross_attention_hidden_size", "tie_encoder_decoder", "sep_token_id", "image_token_id"),
    *("classifier_dropout", "initializer_factor", "pruned_heads", "num_hidden_layers"),
    *("max_length", "no_such_key", "", "a b", "a.b", "a\0b", "\ud800"),
)
# A value that is wrong may be refused in the words of another size that it has to fit.
SIZES = {
    *("vocab_size", "source_vocab_size", "hidden_size", "head_dim", "sliding_window"),
    *("num_attention_heads", "num_key_value_heads", "num_hidden_layers", "encoder_layers"),
    *("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "layer_types"),
    *("value_head_dim", "share_encoder_decoder_embeddings", "position_embedding_type"),
    *(
        "rope_parameters",
        "rope_scaling",
        "rope_theta",
        "max_position_embeddings",
        "id2label",
        "num_labels",
        "problem_type",
    ),
}


class Deep(list):
    """Lists in lists; its name, because Python does not read that many brackets."""

    def __init__(self, depth):
        super().__init__([Deep(depth - 1)] if depth else [])
        self.depth = depth

    def __repr__(self):
        return f"Deep({self.depth})"


VALUES = [
    *(None, True, False, 0, 1, -1, 2, 3, 16, 10**5, 10**7, 10**9, 10**12, 10**400),
    *(0.0, 0.5, 1.0, 1.5, -1.5, 1e-300, 1e300, NAN, INFINITE, -INFINITE),
    *("", "x", "false", "0", "eager", "sdpa", "rotary", "learned", "float32", "floof", "nn"),
    *("int8", "auto", "float8_e4m3fn", "torch.float32", "regression", "a/b", "../x", "x" * 5000),
    *([], [0], [1, 2], [-1], ["a"], ["full_attention"], ["sliding_attention"] * 2, [None], [[]]),
    *({}, {"a": 1}, {"0": "a"}, {"0": "a", "1": "b", "2": "c"}, {"1": "a"}, {"01": "a"}),
    *({"a": "b"}, {"0": 1}, {"a": 0}, {"": "eager"}, {"": 5}, {"0": {"hidden_size": 8}}),
    *({"dtype": []}, {"dtype": 1.5}, {"a": {"dtype": {"b": []}}}, {"model_type": "bert"}),
    *({"factor": 2.0}, {"type": "linear", "factor": 2}, {"rope_type": "yarn"}, {"rope_type": []}),
    *({"full_attention": {"rope_theta": 5}}, {"rope_theta": 1e-300}),
    *({"quant_method": 5}, {"quant_method": "x"}, {"AutoConfig": 5}, {"AutoConfig": "a--b.c"}),
    *(Deep(30), Deep(300), {"a": Deep(300)}, {"rope_type": "default", "x": Deep(300)}),
]


@dataclass
class ConfigurationFile:
    """A small configuration with some keys changed, read from a file or given to the class."""

    family: str
    config: dict[str, object]
    from_file: bool = True


@cache
def attributes_of(config_class):
    """Asked once: some are set when a first model is made."""
    return sorted(dir(config_class))


@st.composite
def configuration_files(draw):
    family = draw(st.sampled_from(FAMILIES))
    config_class = by_name[family].config_class
    fields = sorted(config_class.__dataclass_fields__)
    keys = st.one_of(
        st.sampled_from(fields),
        st.sampled_from(OF_TRANSFORMERS),
        st.sampled_from(attributes_of(config_class)),
        st.sampled_from(fields + list(OF_TRANSFORMERS)).map("decoder_{}".format),
        st.sampled_from(sorted(GenerationConfig().to_dict())),
    )
    changed = draw(st.dictionaries(keys, st.sampled_from(VALUES), min_size=1, max_size=3))
    if draw(st.booleans()):
        changed.setdefault("position_embedding_type", "rotary")
    return ConfigurationFile(family, changed, draw(st.booleans()))


def check_configuration_file(case: ConfigurationFile):
    """Opened, built, run, saved and opened again; or refused by name before anything is built."""
    start = time.process_time()
    with TemporaryDirectory() as folder, at_most(MEGABYTES):
        config = opened_or_refused(case, Path(folder))
        if config is not None:
            check_works(case, config, folder)
    if time.process_time() - start > SECONDS:
        raise PromiseError(f"took {time.process_time() - start:.1f} seconds")


@contextmanager
def at_most(megabytes):
    """An allocation beyond that fails, instead of taking the machine with it."""
    pages = int(Path("/proc/self/statm").read_text().split()[5])
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    most = pages * resource.getpagesize() + megabytes * 2**20
    resource.setrlimit(resource.RLIMIT_DATA, (most, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)


def opened_or_refused(case, folder):
    config_class = by_name[case.family].config_class
    values = {**SMALL, "model_type": config_class.model_type, **case.config}
    try:
        if not case.from_file:
            return config_class(**values)
        (folder / "config.json").write_text(json.dumps(values))
        config = AutoConfig.from_pretrained(folder)
    except REFUSALS as error:
        if not is_named(case, error):
            raise PromiseError(f"refused without a name: {error!r}") from error
    except AttributeError as error:
        if not (case.from_file and case.config.keys() & set(READ_BY_AUTO_CONFIG)):
            raise PromiseError(f"refused as {error!r}") from error
    else:
        return config if isinstance(config, config_class) else None  # of another model_type


def is_named(case, error):
    if case.from_file and case.config.keys() & set(READ_BY_AUTO_CONFIG):
        return True
    names = case.config.keys() | (SIZES if SIZES & case.config.keys() else set())
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", str(error)) for name in names)


@torch.no_grad()
def check_works(case, config, folder):
    family = by_name[case.family]
    layers = config.num_hidden_layers + getattr(config, "decoder_layers", 0)
    if layers > 20 or limits.approximate_parameter_count(config) > 10**6:
        config.save_pretrained(folder)
        return
    model_class = family.model_class
    if case.family == "decoder" and {"id2label", "num_labels"} & case.config.keys():
        model_class = TformerDecoderForSequenceClassification
    try:
        model = model_class(config).eval()
    except (ValueError, ImportError) as error:  # which backends there are shows when one is asked
        if not re.search("_attn_implementation|attn_implementation", " ".join(case.config)):
            raise
        # A name with a slash is a kernel of the Hub, which transformers refuses for any model.
        if not re.search("attn_implementation|`kernels`", str(error)):
            raise PromiseError(f"refused without a name: {error!r}") from error
        return
    model.save_pretrained(folder)
    backend = model.config._attn_implementation
    again = model_class.from_pretrained(folder, attn_implementation=backend).eval()
    if without_weights(again.config) != without_weights(model.config):
        raise PromiseError("saved and opened again, it is another configuration")
    expected, found = logits(family, model), logits(family, again)
    if not torch.isfinite(expected).all():
        raise PromiseError("accepted, and the logits are not finite")
    # A file's weights lie elsewhere in memory, by which products may round the last bit.
    check_same(found, expected, "logits saved and opened again")


def without_weights(config):
    """What a file holds beside the name and the precision of its weights."""
    values = config.to_dict()
    kept = {name: values[name] for name in values if name not in ("_name_or_path", "dtype")}
    return json.dumps(kept, sort_keys=True)


def logits(family, model):
    ids = torch.tensor([[5, 6, 7, 8, 9, 10, 11, 12]]) % model.config.vocab_size
    target = {} if family.name in DECODERS else {"decoder_input_ids": ids}
    if model.can_generate():
        model.generate(ids, max_new_tokens=2, pad_token_id=0)
    return model(ids, **target, return_dict=True).logits.float()
