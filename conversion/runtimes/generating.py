"""The opened graphs of a model, run by themselves and by generate() of transformers."""

from abc import ABC, abstractmethod
from typing import Any, cast

import torch
from transformers import GenerationConfig, GenerationMixin, PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutputWithPast, Seq2SeqLMOutput
from transformers.utils import ModelOutput

from ..engine.aliases import Batch
from ..engine.models import ask
from .graphs import DECODER, ENCODER, MODEL
from .proof import generate
from .runtime import Running, Sequences, Source

# The program of a card, if the runtime has no loop of its own for a model.
WITH_GENERATE = """\
import torch

from conversion import open_exported

model = open_exported("{name}")
print(model.generate(torch.tensor([[3, 4, 5]]), num_beams=4, max_new_tokens=20))"""


def program(source: Source, name: str, generating: str, answering: str) -> str:
    """Return the program for a card: the runtime's GenAI, generate(), or the bare runtime."""
    if not source.generates:
        return answering.format(name=name)
    takes_text = not source.config.is_encoder_decoder and source.tokenizer is not None
    return (generating if takes_text else WITH_GENERATE).format(name=name)


class HeldPast(Cache):
    """A past that the runtime holds; its order changes with that of the beams.

    `held` is passed to the runtime at the next step, `order` is the sequence of it that each
    sequence continues.
    """

    def __init__(self, held: Any, length: int) -> None:
        super().__init__(layer_class_to_replicate=DynamicLayer)
        self.held, self.length = held, length
        self.order: torch.Tensor | None = None

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.length

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        self.order = beam_idx if self.order is None else self.order[beam_idx]


class Graphs(Running, ABC):
    """The opened graphs of a model; a subclass runs them."""

    generates_batches = True  # by transformers' generate()

    def __init__(self, source: Source) -> None:
        self.source = source
        self.config = source.config

    @abstractmethod
    def run(self, part: str, inputs: Batch) -> Batch:
        """Run a graph without a past."""

    @abstractmethod
    def step(self, part: str, inputs: Batch, past: HeldPast | None) -> tuple[torch.Tensor, object]:
        """Return the logits of the tokens in `inputs`, and the past that includes them."""

    def __call__(self, **inputs: torch.Tensor) -> ModelOutput:
        """Return the output of a model that does not generate."""
        return ModelOutput(self.run(MODEL, inputs))

    def decode(self, inputs: Batch, past: HeldPast | None) -> tuple[torch.Tensor, object]:
        return self.step(DECODER if self.config.is_encoder_decoder else MODEL, inputs, past)

    def encode(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        return self.run(ENCODER, inputs)["last_hidden_state"]

    def logits(self, batch: Batch) -> torch.Tensor:
        if not self.source.generates:
            return ask(self, batch)
        if not self.config.is_encoder_decoder:
            return self.decode(batch, None)[0][batch["attention_mask"].bool()]
        inputs = {
            "input_ids": batch["decoder_input_ids"],
            "encoder_hidden_states": self.encode(batch["input_ids"], batch["attention_mask"]),
            "encoder_attention_mask": batch["attention_mask"],
        }
        return self.decode(inputs, None)[0][batch["decoder_attention_mask"].bool()]

    def generate(self, prompts: Sequences, new_tokens: int, num_beams: int) -> Sequences | None:
        model = InGenerate(self.source, self)
        return generate(model, prompts, new_tokens, num_beams).sequences


class InGenerate(PreTrainedModel, GenerationMixin):
    """A model without weights around graphs, for generate()."""

    main_input_name = "input_ids"
    _supports_sdpa = True  # the graphs contain their own attention
    device, dtype = torch.device("cpu"), torch.float32

    def __init__(self, source: Source, graphs: Graphs) -> None:
        super().__init__(source.library.load_config(source.folder))
        if (source.folder / "generation_config.json").is_file():
            self.generation_config = GenerationConfig.from_pretrained(source.folder)
        self.graphs = graphs
        self.encoder = GraphEncoder(graphs)

    def get_encoder(self, modality: str | None = None) -> "GraphEncoder":
        return self.encoder

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        past_key_values: Cache | None = None,
        encoder_outputs: BaseModelOutput | None = None,
        decoder_input_ids: torch.Tensor | None = None,
        **kwargs: object,
    ) -> CausalLMOutputWithPast | Seq2SeqLMOutput:
        past_key_values = cast(Cache | None, kwargs.get("cache", past_key_values))
        past = past_key_values if isinstance(past_key_values, HeldPast) else None
        known = 0 if past is None else past.length  # a cache without layers counts as false
        ids = cast(torch.Tensor, input_ids if encoder_outputs is None else decoder_input_ids)
        inputs = {"input_ids": ids}
        if encoder_outputs is None:
            if attention_mask is None:
                attention_mask = torch.ones(len(ids), known + ids.shape[1], dtype=torch.long)
            inputs["attention_mask"] = attention_mask
            positions = (attention_mask.cumsum(-1) - 1).clamp(min=0)
            inputs["position_ids"] = positions[:, -ids.shape[1] :]
        else:
            inputs["encoder_hidden_states"] = states = encoder_outputs.last_hidden_state
            if attention_mask is None:
                attention_mask = torch.ones(states.shape[:2], dtype=torch.long)
            inputs["encoder_attention_mask"] = attention_mask
        logits, held = self.graphs.decode(inputs, past)
        past = HeldPast(held, known + ids.shape[1])
        output = CausalLMOutputWithPast if encoder_outputs is None else Seq2SeqLMOutput
        return output(None, logits, past)


class GraphEncoder:
    """The encoder for generate()."""

    main_input_name = "input_ids"

    def __init__(self, graphs: Graphs) -> None:
        self.graphs = graphs

    def __call__(self, **inputs: torch.Tensor) -> BaseModelOutput:
        return self.forward(**inputs)

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, **kwargs: object
    ) -> BaseModelOutput:
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        return BaseModelOutput(last_hidden_state=self.graphs.encode(input_ids, attention_mask))
