"""A GGUF file that is asked in llama.cpp, with its weights unpacked.

Few bits round weights, which is no fault, and products with them round once more. So three things
are asked apart: whether each tensor is the model's up to what its type rounds, whether llama.cpp
computes from the unpacked tensors what the class of the model computes from them, and how near the
packed file comes.
"""

import contextlib
import tempfile
import unicodedata
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import torch

from ..engine.aliases import Fields, State
from ..engine.errors import ConversionError
from ..engine.exporting import export_checkpoint
from ..engine.format import OURS, Format
from ..engine.models import LoadedModel
from ..engine.proof import real_logits
from ..engine.registry import FORMATS, of_named_head
from ..engine.rules import SavedTensors, is_ignored, saved_state
from ..engine.translation import as_list, translate
from ..runtimes.gguf.architectures import ARCHITECTURES
from ..runtimes.gguf.describing import Described, are_near, with_defaults
from ..runtimes.gguf.fields import fields_of
from ..runtimes.gguf.file import PLAIN_TYPES, GgufFile, damage, rounding
from ..runtimes.gguf.importing import GgufShard
from ..runtimes.gguf.proving import write_unpacked
from ..runtimes.gguf.reading_tokenizer import told_of
from ..runtimes.gguf.running import LlamaCpp
from ..runtimes.gguf.runtime import TABLE, Gguf, has_a_table, has_marks
from ..runtimes.gguf.tensors import layout_of
from ..runtimes.gguf.tokenizer import ENDS, PREFIX
from ..runtimes.proof import measure_few_bits
from .answer import NEAR, SETTINGS, Answer, compare_fields, unasked
from .model import Model
from .numbers_in import BFLOAT16, HALF, TOLERANCES
from .opened import Chat, Opened, rendered
from .outputs import LENGTHS
from .weights import compare_weights

PACKED = "packed answers"
# Of logits, where weights cannot be compared.
OF_HALVES = {"F16": TOLERANCES[HALF], "BF16": TOLERANCES[BFLOAT16]}


class OpenedGguf(Opened):
    title = "llama.cpp"

    def __init__(self, model: Model, path: Path) -> None:
        Gguf().refuse_missing_packages()
        self.file = GgufFile(path)
        self.folder = tempfile.TemporaryDirectory()
        super().__init__(self.of_transformers(model.body()))
        # llama.cpp has one kind of segment.
        self.model.loaded = replace(self.model.loaded, types=0)
        self.kinds = {t.tensor_type.name for t in self.file.packed.values()}
        self.described, self.why_not = self.describe()
        if self.described is None:
            self.bits = 4 if self.kinds - PLAIN_TYPES.keys() else None
            self.tolerance = max(OF_HALVES.get(kind, TABLE) for kind in self.kinds)
        elif has_a_table(self.described.ours):
            self.tolerance = TABLE

    def of_transformers(self, model: Model) -> Model:
        """Return a model of ours as one of the class of transformers that the file is like."""
        if model.config.model_type not in OURS:
            return model
        family = model.library.config_name
        for one in (one for one in ARCHITECTURES if one.name == self.file.architecture):
            if FORMATS[one.format].our_classes.config_name == family:
                theirs = Path(self.folder.name) / one.format
                with contextlib.suppress(ConversionError):
                    export_checkpoint(model.folder, theirs, one.format, verify=False)
                    made = Model(theirs)
                    made.tokenizer, made.generation = model.tokenizer, model.generation
                    return made
        raise ConversionError(
            f"general.architecture is {self.file.architecture!r} in {self.file.path}, which cannot "
            f"express {model.folder}: `tformer convert export --to gguf` says why"
        )

    def describe(self) -> tuple[Described | None, str]:
        """Return the model in the words of the file's architecture, or why there are none."""
        config = self.model.config
        format = FORMATS.get(config.model_type)
        kin = [one for one in ARCHITECTURES if one.format == config.model_type]
        named = [one for one in kin if one.name == self.file.architecture]
        if not isinstance(format, Format) or not named:
            return None, f"{self.file.architecture} is not known to be {config.model_type}"
        try:
            format = of_named_head(format, self.model.folder)
            assert isinstance(format, Format)
            # Numbers are read as the file holds them, and not rounded as the model is stored.
            ours = translate(config, format, to_ours=True, dtype=torch.float32)
            described = Described(named[0], format, ours, config)
            with_defaults(self.file)
            self.shard = GgufShard(self.file, described)
            return described, ""
        except ConversionError as error:
            return None, str(error)

    @cached_property
    def running(self) -> LlamaCpp:
        """Open the file with its weights in float32."""
        path = self.file.path
        if self.kinds != {"F32"}:
            path = Path(self.folder.name) / "unpacked.gguf"
            write_unpacked(self.file, path)
        return self.opened(path)

    def opened(self, path: Path) -> LlamaCpp:
        try:
            return LlamaCpp(path, self.model.source(self.model.folder))
        except ConversionError as error:
            raise ConversionError(
                f"llama.cpp does not open {self.file.path}: fetch it again, or convert it anew"
            ) from error

    def askable(self, text: str) -> str:
        """Leave out what llama.cpp has no support for: NFC, and combining marks in WordPiece."""
        text = unicodedata.normalize("NFC", text)
        if self.file.fields.get(f"{PREFIX}model") != "bert":
            return text
        return " ".join(word for word in text.split() if not has_marks(word))

    def ids(self, text: str) -> list[int] | None:
        return self.running.ids(text) if self.vocabulary() else None

    def vocabulary(self) -> dict[str, int]:
        return {token: i for i, token in enumerate(told_of(self.file).get("tokens", ()))}

    def chat(self, chat: Chat, answers: bool) -> str | None:
        template = self.file.fields.get("tokenizer.chat_template")
        if not isinstance(template, str):
            return None
        return rendered(self.model.tokenizer, chat, answers, template)

    def special(self) -> Fields:
        """Return the beginning and the ends; llama.cpp knows some ends by their text as well."""
        told = self.file.below(PREFIX)
        tokenizer, ours = self.model.tokenizer, as_list(self.model.generation.eos_token_id)
        usual = getattr(tokenizer, "eos_token_id", None)
        needed = usual if usual in ours else next(iter(ours), None)
        named = told.get(ENDS[0], needed)
        ends = needed is None or (self.running.vocab.is_eog(needed) and named in ours)
        found: Fields = {"eos_token_id": self.model.generation.eos_token_id if ends else named}
        first = getattr(tokenizer, "bos_token_id", None)
        if told.get("add_bos_token") and first is not None:  # an encoder begins with [CLS]
            found["the tokenizer's bos_token_id"] = told.get("bos_token_id", first)
        return found

    @cached_property
    def weights(self) -> tuple[State, State] | None:
        """Return the tensors of the model and of the file, by the model's names."""
        if self.described is None:
            return None
        shard = self.shard
        with damage(self.file.path):
            theirs = {name: shard.read(name).float() for name in shard.names()}
        ours = {
            name: self.as_kept(name, tensor.float())
            for name, tensor in saved_state(self.model.loaded.model).items()
            if not is_ignored(self.model.library.may_lack, name)
        }
        return ours, theirs

    def as_kept(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Return what a file keeps of a tensor: of positions, not those of padding."""
        assert self.described is not None
        layout, ours = layout_of(name, self.described.architecture), self.described.ours
        return layout.forward(layout.inverse((tensor,), ours), ours)[0]

    @cached_property
    def start(self) -> LoadedModel:
        """Return the model with the weights of the file."""
        if self.weights is None:
            return self.model.loaded
        state, theirs = self.model.state, self.weights[1]
        saved = SavedTensors.of(self.model.loaded.model)
        there = {name: theirs.get(saved.canonical(name), tensor) for name, tensor in state.items()}
        fitting = {name: x for name, x in there.items() if x.shape == state[name].shape}
        return self.model.changed({}, {**state, **fitting})

    def more_answers(self) -> list[Answer]:
        if self.described is None:
            return [unasked(SETTINGS, self.why_not)]
        assert self.weights is not None
        ours, theirs = self.weights
        kinds = {name: self.kind_of(name) for name in theirs}
        rounds = {name: rounding(kind) for name, kind in kinds.items()}
        weights = compare_weights(self.model.config, ours, theirs, rounds.__getitem__)
        return [self.compare_settings(self.described), weights, *self.packed_answers()]

    def kind_of(self, name: str) -> str:
        return str(self.file.packed[self.shard.places[name]].tensor_type.name)

    def compare_settings(self, described: Described) -> Answer:
        """Compare fields with those of the model's configuration; what is absent, logits show."""
        expected = fields_of(described.ours, described.architecture, "llama.cpp")
        told = {name: x for name, x in with_defaults(self.file).items() if name not in NOT_COMPARED}
        return compare_fields(expected, told, are_near, "the file was given other settings")

    def packed_answers(self) -> list[Answer]:
        """Say how near the file comes as it is, where its weights are packed in few bits."""
        kinds = self.kinds - PLAIN_TYPES.keys()
        if not kinds:
            return []
        batch = self.model.batch(max(LENGTHS))
        expected = real_logits(self.model.loaded, batch)
        actual = self.opened(self.file.path).logits(batch)
        if expected.ndim != 2 or actual.shape != expected.shape:
            return []
        few = measure_few_bits(actual, expected)
        seen = (
            f"{', '.join(sorted(kinds))}: {few.divergence:.1e} nats from the model's, "
            f"{few.same_best:.0%} of next tokens the same"
        )
        return [Answer(PACKED, NEAR, seen)]


NOT_COMPARED = {"vocab_size", "tensor_data_layout", "attention.causal", "rope.scaling.finetuned"}
