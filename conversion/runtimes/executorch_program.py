"""An ExecuTorch program, opened and asked."""

from pathlib import Path

import torch

from ..engine.errors import ConversionError
from .executorch_methods import DECODER, ENCODER, FORWARD, ROWS, inputs_of, piece, room
from .generating import Graphs, HeldPast
from .runtime import Batch, Source, Texts

MASK = "attention_mask"


class Program(Graphs):
    """The methods of a program; what it has read, it remembers by place."""

    writes_batches = False

    def __init__(self, source: Source, path: Path):
        from executorch.runtime import Runtime as Executor

        super().__init__(source)
        program = Executor.get().load_program(path)
        names = program.method_names & {FORWARD, ENCODER, DECODER}
        self.methods = {name: program.load_method(name) for name in names}

    def run(self, part: str, inputs: Batch) -> Batch:
        refuse_length(inputs["input_ids"].shape[1], room(self.config, False))
        parts = zip(*(inputs[x].split(ROWS) for x in inputs_of(self.config)), strict=True)
        rows = [self.methods[FORWARD].execute(one) for one in parts]
        said = [torch.cat(outputs) for outputs in zip(*rows, strict=True)]
        names = ("start_logits", "end_logits") if len(said) > 1 else ("logits",)
        return dict(zip(names, said, strict=True))

    def step(self, part: str, inputs: Batch, past: HeldPast | None) -> tuple[torch.Tensor, None]:
        refuse_batches(inputs["input_ids"], inputs.get(MASK))
        start, said = 0 if past is None else past.length, []
        refuse_length(start + inputs["input_ids"].shape[1], room(self.config, True))
        for ids in inputs["input_ids"].split(piece(self.config), dim=1):
            places = torch.arange(start, start := start + ids.shape[1])
            if self.config.is_encoder_decoder:
                given = ids, inputs["encoder_hidden_states"], places
                said += self.methods[DECODER].execute(given)
            else:
                said += self.methods[FORWARD].execute((ids, places))
        return torch.cat(said, dim=1), None

    def encode(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        refuse_batches(input_ids, attention_mask)
        refuse_length(input_ids.shape[1], room(self.config, False))
        return self.methods[ENCODER].execute((input_ids,))[0]

    def logits(self, batch: Batch) -> torch.Tensor:
        """Text by text where there is a past: a program has one."""
        if not self.source.generates:
            return super().logits(batch)
        rows = range(len(batch["input_ids"]))
        return torch.cat([Graphs.logits(self, alone(batch, row)) for row in rows])

    def continue_texts(self, rows: Texts, new_tokens: int, num_beams: int) -> Texts | None:
        return super().continue_texts(rows, new_tokens, num_beams) if num_beams == 1 else None


def refuse_batches(input_ids: torch.Tensor, attention_mask: torch.Tensor | None) -> None:
    is_padded = attention_mask is not None and not attention_mask.all()
    if len(input_ids) > 1 or is_padded:
        raise ConversionError(
            f"there are {len(input_ids)} rows{' with padding' * is_padded}, and this ExecuTorch "
            "program reads one text at a time: give one without padding, and num_beams=1"
        )


def refuse_length(length: int, most: int) -> None:
    if length > most:
        raise ConversionError(
            f"a text has {length} tokens, and this ExecuTorch program has room for {most}: "
            "give fewer, or a smaller max_new_tokens"
        )


def alone(batch: Batch, row: int) -> Batch:
    """One text of a batch, without its padding."""
    masks = {"input_ids": MASK, "decoder_input_ids": f"decoder_{MASK}"}
    masks = {name: masks.get(name, name) for name in batch if name != "position_ids"}
    return {name: batch[name][row, batch[mask][row].bool()][None] for name, mask in masks.items()}
