"""CTranslate2 files, written by its own loaders from our model as one of transformers."""

import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from hf_tformer.model.positions import build_positions

from ..engine.aliases import Config, Fields
from ..engine.convert import transfer
from ..engine.models import unreported
from ..engine.request import Request
from .ctranslate2_loaders import TITLE, Loader, loader_for
from .ctranslate2_running import Opened, end_tokens, generation_config, kind_of, tokens_of
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
LONGEST = 1024  # tokens that CTranslate2 takes by default
# Small random models differed by 3e-5, 0.01, 0.04 and 0.23 at most.
TOLERANCE = {"float32": 1e-4, "float16": 3e-2, "bfloat16": 1e-1, "int8": 3e-1}
NO_TOKEN = ""  # for a special token that a model does not have


class CTranslate2(Runtime):
    """CTranslate2, which computes in the dtype of the processor nearest to the stored one."""

    name = "ctranslate2"
    title = TITLE
    packages = ("ctranslate2",)
    extra = "ctranslate2"
    library_name = "ctranslate2"
    tolerance = TOLERANCE

    def refuse(self, source: Source) -> None:
        source.refuse_experts(self.title)
        loader_for(source)

    @torch.no_grad()
    def write(self, source: Source, folder: Path) -> None:
        from ctranslate2.converters import transformers as loaders

        loader, theirs = loader_for(source)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            between = Path(place) / loader.name
            transfer(Request(source.folder, between, theirs, "export", verify=False))
            with unreported():  # of tables that their model computes
                model = theirs.theirs.model_class.from_pretrained(between)
            set_old_names(model, source.config)
            reader = getattr(loaders, loader.reader)()
            spec = reader.get_model_spec(model)
            del model
            reader.set_vocabulary(spec, tokens_of(source))
            complete(spec, loader, source)
            spec.validate()
            spec.optimize(source.dtype)
            spec.save(str(folder))

    def advice(self, dtype: str) -> str:
        usual = super().advice(dtype)
        if dtype != "int8":
            return usual
        return (
            "on a processor without VNNI, where oneDNN's products of eight bits overflow, set "
            f"CT2_USE_MKL=1 in the environment, here and wherever the files are used; else {usual}"
        )

    def open(self, source: Source, folder: Path) -> Running:
        return Opened(source, folder)

    def program(self, source: Source, name: str) -> str:
        kind = kind_of(source)
        more = "" if kind == "Encoder" else options(source)
        return OPEN.format(name=name, kind=kind) + USE[kind].format(more=more)


def options(source: Source) -> str:
    """Return settings of generation that the files lack: Marian never generates its padding."""
    more: Fields = {}
    ends, tokens = end_tokens(source), tokens_of(source)
    if len(ends) > 1:
        more["end_token"] = ends
    if banned := generation_config(source).get("bad_words_ids"):
        more["suppress_sequences"] = [[tokens[i] for i in ids] for ids in banned]
    return "".join(f", {name}={value}" for name, value in more.items())


def set_old_names(model: PreTrainedModel, ours: Config) -> None:
    """Set the names that loaders expect and transformers 5 does not have any more."""
    config = model.config
    config.normalize_before = getattr(ours, "norm_position", None) == "pre"
    config.normalize_embedding = ours.embedding_norm
    rope = getattr(config, "rope_parameters", None)
    if rope:
        config.rope_theta = rope["rope_theta"]
        config.rotary_pct = rope.get("partial_rotary_factor", 1.0)
        model.embed_out = model.lm_head
    if getattr(ours, "score_bias", None) in ("relative", "relative_per_layer"):
        config.tie_word_embeddings = ours.logit_scale != 1.0  # T5: whether logits are scaled
    if config.model_type == "bert":
        # Read as RoBERTa, which may lack a pooler: ours has none, and their file would hold
        # random numbers.
        config.position_embedding_type, model.pooler = "absolute", None
        model.embeddings.position_embeddings.padding_idx = 0


def complete(spec: Any, loader: Loader, source: Source) -> None:
    """Set what loaders read elsewhere or not at all: epsilon, special tokens, positions."""
    ours, tokens = source.config, tokens_of(source)
    is_rms = ours.norm_type.startswith("rmsnorm")
    spec.config.layer_norm_epsilon = ours.rms_norm_eps if is_rms else ours.layer_norm_eps
    roles = {"unk_token": getattr(source.tokenizer, "unk_token_id", None)}
    if not source.library.is_encoder:
        roles |= {"bos_token": ours.bos_token_id, "eos_token": end_tokens(source)[0]}
    if ours.is_encoder_decoder:
        roles["decoder_start_token"] = ours.decoder_start_token_id
    for role, token in roles.items():
        setattr(spec.config, role, NO_TOKEN if token is None else tokens[token])
    if "sinusoidal_layout" in loader.written:
        zeros = torch.zeros(1, max(ours.max_position_embeddings, LONGEST), ours.hidden_size)
        [table] = build_positions(ours)(zeros, torch.arange(zeros.shape[1])[None])
        for stack in (spec.encoder, spec.decoder):
            stack.position_encodings.encodings = table
