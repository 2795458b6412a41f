"""CTranslate2, through its own readers: our model as one of transformers, and that as its own."""

import tempfile
from pathlib import Path

import torch
from transformers import PreTrainedModel

from hf_tformer.model.positions import build_positions

from ..models import Config
from .ctranslate2_forms import TITLE, Form, form_for
from .runtime import Batch, Running, Runtime, Source, Texts

ENCODER = """\
import ctranslate2
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}")
encoder = ctranslate2.Encoder("{name}")
output = encoder.forward_batch([tokenizer.encode("a text")])
print(output.last_hidden_state.shape)"""
TRANSLATOR = """\
import ctranslate2
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}")
translator = ctranslate2.Translator("{name}")
tokens = tokenizer.convert_ids_to_tokens(tokenizer.encode("a text"))
[result] = translator.translate_batch([tokens], beam_size=4)
print(tokenizer.decode(tokenizer.convert_tokens_to_ids(result.hypotheses[0])))"""
GENERATOR = """\
import ctranslate2
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}")
generator = ctranslate2.Generator("{name}")
tokens = tokenizer.convert_ids_to_tokens(tokenizer.encode("a text"))
[result] = generator.generate_batch([tokens], max_length=50, include_prompt_in_result=False)
print(tokenizer.decode(result.sequences_ids[0]))"""
PROGRAMS = {"Encoder": ENCODER, "Translator": TRANSLATOR, "Generator": GENERATOR}
LONGEST = 1024  # tokens that CTranslate2 takes, unless it is told otherwise
# The most that small random models differed was 3e-5, 0.01, 0.04 and 0.23; wider ones differ less.
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

        from ..convert import Request, transfer  # which imports the runtimes

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
        return PROGRAMS[kind_of(source)].format(name=name)


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
        roles |= {"bos_token": ours.bos_token_id, "eos_token": first(ours.eos_token_id)}
    if ours.is_encoder_decoder:
        roles["decoder_start_token"] = ours.decoder_start_token_id
    for role, token in roles.items():
        setattr(spec.config, role, NOTHING if token is None else tokens[token])
    if "sinusoidal_layout" in form.written:
        nothing = torch.zeros(1, max(ours.max_position_embeddings, LONGEST), ours.hidden_size)
        [table] = build_positions(ours)(nothing, torch.arange(nothing.shape[1])[None])
        for stack in (spec.encoder, spec.decoder):
            stack.position_encodings.encodings = table


def first(ids: int | list[int] | None) -> int | None:
    return ids[0] if isinstance(ids, list) else ids


def tokens_of(source: Source) -> list[str]:
    """A token for each row of the embeddings; without a tokenizer its number is its name."""
    numbers = range(source.config.vocab_size)
    if source.tokenizer is None:
        return [str(i) for i in numbers]
    known = {i: token for token, i in source.tokenizer.get_vocab().items()}
    return [known.get(i, f"<unused {i}>") for i in numbers]


def kind_of(source: Source) -> str:
    if source.library.is_encoder:
        return "Encoder"
    return "Translator" if source.config.is_encoder_decoder else "Generator"


class Opened(Running):
    writes_together = True

    def __init__(self, source: Source, folder: Path):
        import ctranslate2

        self.kind, self.tokens = kind_of(source), tokens_of(source)
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        threads = torch.get_num_threads()
        self.engine = getattr(ctranslate2, self.kind)(str(folder), intra_threads=threads)

    def words(self, row: list[int]) -> list[str]:
        return [self.tokens[i] for i in row]

    def logits(self, batch: Batch) -> torch.Tensor:
        rows = real(batch, "input_ids", "attention_mask")
        if self.kind == "Translator":
            targets = real(batch, "decoder_input_ids", "decoder_attention_mask")
            pairs = zip(rows, targets, strict=True)
            return torch.cat([self.logits_of(source, target) for source, target in pairs])
        if self.kind == "Generator":
            found = self.engine.forward_batch(rows)
        else:
            types = batch.get("token_type_ids")
            more = {} if types is None else {"token_type_ids": types.tolist()}
            found = self.engine.forward_batch(rows, **more).last_hidden_state
        padded = as_tensor(found)
        return torch.cat([padded[i, : len(row)] for i, row in enumerate(rows)])

    def logits_of(self, source: list[int], target: list[int]) -> torch.Tensor:
        """Those at each token of a target, which begins with the start token that they set."""
        [result] = self.engine.translate_batch(
            [self.words(source)],
            target_prefix=[self.words(target[1:])],
            max_decoding_length=len(target),
            min_decoding_length=0,
            beam_size=1,
            return_logits_vocab=True,
        )
        return torch.stack([as_tensor(step).flatten() for step in result.logits[0]])

    def continue_texts(self, rows: Texts, new_tokens: int, num_beams: int) -> Texts:
        if len({len(row) for row in rows}) == 1:
            return self.continue_batch(rows, new_tokens, num_beams)
        # Beside a shorter prompt, CTranslate2 counts the rest of a longer one as an answer.
        return [self.continue_batch([row], new_tokens, num_beams)[0] for row in rows]

    def continue_batch(self, rows: Texts, new_tokens: int, num_beams: int) -> Texts:
        words = [self.words(row) for row in rows]
        how = {"beam_size": num_beams, "return_end_token": True}
        if self.kind == "Generator":
            how |= {"max_length": new_tokens, "include_prompt_in_result": False}
            return [found.sequences_ids[0] for found in self.engine.generate_batch(words, **how)]
        lengths = {"max_decoding_length": new_tokens, "min_decoding_length": 0}
        found = self.engine.translate_batch(words, **lengths, **how)
        return [[self.ids[token] for token in one.hypotheses[0]] for one in found]


def real(batch: Batch, ids: str, mask: str) -> Texts:
    """The rows without their padding."""
    pairs = zip(batch[ids], batch[mask].bool(), strict=True)
    return [row[is_real].tolist() for row, is_real in pairs]


def as_tensor(view: object) -> torch.Tensor:
    import ctranslate2
    import numpy

    return torch.from_numpy(numpy.array(view.to(ctranslate2.DataType.float32)))
