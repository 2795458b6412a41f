"""generate() of transformers, driving the graphs of another runtime."""

from abc import ABC, abstractmethod

import torch
from transformers import GenerationConfig, GenerationMixin, PreTrainedModel
from transformers.cache_utils import Cache, DynamicLayer
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutputWithPast, Seq2SeqLMOutput
from transformers.utils import ModelOutput

from ..engine.models import ask_encoder
from .graphs import DECODER, ENCODER, MODEL
from .proof import write
from .runtime import Batch, Running, Source, Texts

# In a card, where a runtime has no loop of its own for a model.
WITH_GENERATE = """\
import torch

from conversion import open_exported

model = open_exported("{name}")
print(model.generate(torch.tensor([[3, 4, 5]]), num_beams=4, max_new_tokens=20))"""


def program(source: Source, name: str, writing: str, answering: str) -> str:
    """The lines for a card: those of the GenAI of a runtime, of generate(), or of the runtime."""
    if not source.generates:
        return answering.format(name=name)
    is_text = not source.config.is_encoder_decoder and source.tokenizer is not None
    return (writing if is_text else WITH_GENERATE).format(name=name)


class HeldPast(Cache):
    """A past that the runtime holds, in its own form; its order changes when beams do.

    `held` is what the runtime wants to be given with the next step, `order` the row of it that each
    row continues.
    """

    def __init__(self, held: object, length: int):
        super().__init__(layer_class_to_replicate=DynamicLayer)
        self.held, self.length = held, length
        self.order: torch.Tensor | None = None

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.length

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        self.order = beam_idx if self.order is None else self.order[beam_idx]


class Graphs(Running, ABC):
    """The opened graphs of a model; a subclass runs them."""

    writes_batches = True  # by generate()

    def __init__(self, source: Source):
        self.source = source
        self.config = source.config

    @abstractmethod
    def run(self, part: str, inputs: Batch) -> Batch:
        """Runs a graph without a past."""

    @abstractmethod
    def step(self, part: str, inputs: Batch, past: object | None) -> tuple[torch.Tensor, object]:
        """The logits of the tokens in `inputs`, and the past with them in it; None is no past."""

    def __call__(self, **inputs: torch.Tensor) -> ModelOutput:
        """The answer of a model that does not write."""
        return ModelOutput(self.run(MODEL, inputs))

    def decode(self, inputs: Batch, past: object | None) -> tuple[torch.Tensor, object]:
        return self.step(DECODER if self.config.is_encoder_decoder else MODEL, inputs, past)

    def encode(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        return self.run(ENCODER, inputs)["last_hidden_state"]

    def logits(self, batch: Batch) -> torch.Tensor:
        if not self.source.generates:
            return ask_encoder(self, batch)
        if not self.config.is_encoder_decoder:
            return self.decode(batch, None)[0][batch["attention_mask"].bool()]
        inputs = {
            "input_ids": batch["decoder_input_ids"],
            "encoder_hidden_states": self.encode(batch["input_ids"], batch["attention_mask"]),
            "encoder_attention_mask": batch["attention_mask"],
        }
        return self.decode(inputs, None)[0][batch["decoder_attention_mask"].bool()]

    def continue_texts(self, rows: Texts, new_tokens: int, num_beams: int) -> Texts:
        return write(InGenerate(self.source, self), rows, new_tokens, num_beams).texts


class InGenerate(PreTrainedModel, GenerationMixin):
    """A model without weights around graphs, for generate() to drive."""

    main_input_name = "input_ids"
    _supports_sdpa = True  # whatever the configuration asks for is the graphs' own affair
    device, dtype = torch.device("cpu"), torch.float32

    def __init__(self, source: Source, graphs: Graphs):
        super().__init__(source.library.load_config(source.folder))
        if (source.folder / "generation_config.json").is_file():
            self.generation_config = GenerationConfig.from_pretrained(source.folder)
        self.graphs = graphs
        self.encoder = GraphEncoder(graphs)

    def get_encoder(self, modality: str | None = None) -> "GraphEncoder":
        return self.encoder

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        past_key_values=None,
        encoder_outputs=None,
        decoder_input_ids=None,
        **kwargs,
    ):
        past = past_key_values if isinstance(past_key_values, HeldPast) else None
        known = 0 if past is None else past.length  # a cache without layers counts as false
        if encoder_outputs is None:
            ids = input_ids
            if attention_mask is None:
                attention_mask = torch.ones(len(ids), known + ids.shape[1], dtype=torch.long)
            positions = (attention_mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
            inputs = {
                "input_ids": ids,
                "attention_mask": attention_mask,
                "position_ids": positions,
            }
        else:
            ids, states = decoder_input_ids, encoder_outputs.last_hidden_state
            if attention_mask is None:
                attention_mask = torch.ones(states.shape[:2], dtype=torch.long)
            inputs = {
                "input_ids": ids,
                "encoder_hidden_states": states,
                "encoder_attention_mask": attention_mask,
            }
        logits, held = self.graphs.decode(inputs, past)
        past = HeldPast(held, known + ids.shape[1])
        output = CausalLMOutputWithPast if encoder_outputs is None else Seq2SeqLMOutput
        return output(logits=logits, past_key_values=past)


class GraphEncoder:
    """The encoder, as generate() calls it."""

    main_input_name = "input_ids"

    def __init__(self, graphs: Graphs):
        self.graphs = graphs

    def __call__(self, **inputs):
        return self.forward(**inputs)

    def forward(self, input_ids, attention_mask=None, **kwargs) -> BaseModelOutput:
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        return BaseModelOutput(last_hidden_state=self.graphs.encode(input_ids, attention_mask))
