"""An opened ExecuTorch program."""

from pathlib import Path

import torch

from ..engine.aliases import Batch
from ..engine.errors import ConversionError
from .executorch_methods import (
    BATCH,
    DECODER,
    ENCODER,
    FORWARD,
    inputs_of,
    largest_chunk,
    largest_length,
)
from .generating import Graphs, HeldPast
from .runtime import Sequences, Source

MASK = "attention_mask"


class Program(Graphs):
    """The methods of a program, which keeps its past by position."""

    generates_batches = False

    def __init__(self, source: Source, path: Path) -> None:
        from executorch.runtime import Runtime as Executor

        super().__init__(source)
        program = Executor.get().load_program(path)
        names = program.method_names & {FORWARD, ENCODER, DECODER}
        self.methods = {name: program.load_method(name) for name in names}

    def run(self, part: str, inputs: Batch) -> Batch:
        refuse_length(inputs["input_ids"].shape[1], largest_length(self.config, False))
        batches = zip(*(inputs[x].split(BATCH) for x in inputs_of(self.config)), strict=True)
        parts = [self.methods[FORWARD].execute(batch) for batch in batches]
        outputs = [torch.cat(output) for output in zip(*parts, strict=True)]
        names = ("start_logits", "end_logits") if len(outputs) > 1 else ("logits",)
        return dict(zip(names, outputs, strict=True))

    def step(self, part: str, inputs: Batch, past: HeldPast | None) -> tuple[torch.Tensor, None]:
        refuse_batches(inputs["input_ids"], inputs.get(MASK))
        start, logits = 0 if past is None else past.length, []
        refuse_length(start + inputs["input_ids"].shape[1], largest_length(self.config, True))
        for ids in inputs["input_ids"].split(largest_chunk(self.config), dim=1):
            places = torch.arange(start, start := start + ids.shape[1])
            if self.config.is_encoder_decoder:
                given = ids, inputs["encoder_hidden_states"], places
                logits += self.methods[DECODER].execute(given)
            else:
                logits += self.methods[FORWARD].execute((ids, places))
        return torch.cat(logits, dim=1), None

    def encode(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        refuse_batches(input_ids, attention_mask)
        refuse_length(input_ids.shape[1], largest_length(self.config, False))
        return self.methods[ENCODER].execute((input_ids,))[0]

    def logits(self, batch: Batch) -> torch.Tensor:
        """Return logits, one sequence at a time for a model with a past: a program has one."""
        if not self.source.generates:
            return super().logits(batch)
        indices = range(len(batch["input_ids"]))
        return torch.cat([Graphs.logits(self, alone(batch, index)) for index in indices])

    def generate(self, prompts: Sequences, new_tokens: int, num_beams: int) -> Sequences | None:
        return super().generate(prompts, new_tokens, num_beams) if num_beams == 1 else None


def refuse_batches(input_ids: torch.Tensor, attention_mask: torch.Tensor | None) -> None:
    is_padded = attention_mask is not None and not attention_mask.all()
    if len(input_ids) > 1 or is_padded:
        raise ConversionError(
            f"there are {len(input_ids)} sequences{' with padding' * is_padded}, and this "
            "ExecuTorch program takes one at a time: give one without padding, and num_beams=1"
        )


def refuse_length(length: int, most: int) -> None:
    if length > most:
        raise ConversionError(
            f"a sequence has {length} tokens, and this ExecuTorch program has room for {most}: "
            "give fewer, or a smaller max_new_tokens"
        )


def alone(batch: Batch, index: int) -> Batch:
    """Return one sequence of a batch, without its padding."""
    masks = {"input_ids": MASK, "decoder_input_ids": f"decoder_{MASK}"}
    one = {name: tensor[index] for name, tensor in batch.items() if name != "position_ids"}
    return {name: x[one[masks.get(name, name)].bool()][None] for name, x in one.items()}
