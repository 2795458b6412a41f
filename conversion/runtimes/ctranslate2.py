"""CTranslate2, through its own readers: our model as one of transformers, and that as its own."""

import tempfile
from pathlib import Path

import torch
from transformers import PreTrainedModel

from hf_tformer.model.positions import build_positions

from ..engine.aliases import Config
from ..engine.conversion import Request
from ..engine.convert import transfer
from .ctranslate2_forms import TITLE, Form, form_for
from .ctranslate2_running import Opened, ends_of, habits_of, kind_of, tokens_of
from .runtime import Running, Runtime, Source

OPEN = """\
import ctranslate2
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}")
model = ctranslate2.{kind}("{name}")
tokens = tokenizer.convert_ids_to_tokens(tokenizer.encode("a text"))
"""
USE = {
    "Encoder": """\
output = model.forward_batch([tokens])
print(output.last_hidden_state.shape)""",
    "Translator": """\
[result] = model.translate_batch([tokens], beam_size=4{more})
print(tokenizer.decode(tokenizer.convert_tokens_to_ids(result.hypotheses[0])))""",
    "Generator": """\
[result] = model.generate_batch([tokens], max_length=50, include_prompt_in_result=False{more})
print(tokenizer.decode(result.sequences_ids[0]))""",
}
LONGEST = 1024  # tokens that CTranslate2 takes, unless it is told otherwise
# The most that small random models differed was 3e-5, 0.01, 0.04 and 0.23.
TOLERANCE = {"float32": 1e-4, "float16": 3e-2, "bfloat16": 1e-1, "int8": 3e-1}
NOTHING = ""  # in place of a special token that a model does not have


class CTranslate2(Runtime):
    """Weights are stored in a dtype, and computed with in the nearest that the processor has."""

    name = "ctranslate2"
    title = TITLE
    packages = ("ctranslate2",)
    extra = "ctranslate2"
    library_name = "ctranslate2"
    tolerance = TOLERANCE

    def refuse(self, source: Source) -> None:
        form_for(source)

    @torch.no_grad()
    def write(self, source: Source, folder: Path) -> None:
        from ctranslate2.converters import transformers as readers

        form, theirs = form_for(source)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            between = Path(place) / form.name
            transfer(Request(source.folder, between, theirs, "export", verify=False))
            model = theirs.theirs.model_class.from_pretrained(between)
            say_in_old_words(model, source.config)
            reader = getattr(readers, form.reader)()
            spec = reader.get_model_spec(model)
            del model
            reader.set_vocabulary(spec, tokens_of(source))
            describe(spec, form, source)
            spec.validate()
            spec.optimize(source.dtype)
            spec.save(str(folder))

    def open(self, source: Source, folder: Path) -> Running:
        return Opened(source, folder)

    def program(self, source: Source, name: str) -> str:
        kind = kind_of(source)
        more = "" if kind == "Encoder" else options(source)
        return OPEN.format(name=name, kind=kind) + USE[kind].format(more=more)


def options(source: Source) -> str:
    """What a model is used to and its files have no place for: Marian never writes its padding."""
    more, ends, tokens = {}, ends_of(source), tokens_of(source)
    if len(ends) > 1:
        more["end_token"] = ends
    if banned := habits_of(source).get("bad_words_ids"):
        more["suppress_sequences"] = [[tokens[i] for i in words] for words in banned]
    return "".join(f", {name}={value}" for name, value in more.items())


def say_in_old_words(model: PreTrainedModel, ours: Config) -> None:
    """Their readers look for names that transformers 5 has no more."""
    config = model.config
    config.normalize_before = getattr(ours, "norm_position", None) == "pre"
    config.normalize_embedding = ours.embedding_norm
    rope = getattr(config, "rope_parameters", None)
    if rope:
        config.rope_theta = rope["rope_theta"]
        config.rotary_pct = rope.get("partial_rotary_factor", 1.0)
        model.embed_out = model.lm_head
    if getattr(ours, "score_bias", None) in ("relative", "relative_per_layer"):
        config.tie_word_embeddings = ours.logit_scale != 1.0  # of T5: whether logits are scaled
    if config.model_type == "bert":
        # Read as RoBERTa, which may have no pooler: ours has none, and a file of theirs would
        # hold random numbers.
        config.position_embedding_type, model.pooler = "absolute", None
        model.embeddings.position_embeddings.padding_idx = 0


def describe(spec: object, form: Form, source: Source) -> None:
    """What their readers take from elsewhere, or from nowhere: epsilon, special tokens, places."""
    ours, tokens = source.config, tokens_of(source)
    is_rms = ours.norm_type.startswith("rmsnorm")
    spec.config.layer_norm_epsilon = ours.rms_norm_eps if is_rms else ours.layer_norm_eps
    roles = {"unk_token": getattr(source.tokenizer, "unk_token_id", None)}
    if not source.library.is_encoder:
        roles |= {"bos_token": ours.bos_token_id, "eos_token": ends_of(source)[0]}
    if ours.is_encoder_decoder:
        roles["decoder_start_token"] = ours.decoder_start_token_id
    for role, token in roles.items():
        setattr(spec.config, role, NOTHING if token is None else tokens[token])
    if "sinusoidal_layout" in form.written:
        nothing = torch.zeros(1, max(ours.max_position_embeddings, LONGEST), ours.hidden_size)
        [table] = build_positions(ours)(nothing, torch.arange(nothing.shape[1])[None])
        for stack in (spec.encoder, spec.decoder):
            stack.position_encodings.encodings = table
