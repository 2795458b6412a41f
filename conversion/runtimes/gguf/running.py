"""A GGUF file, opened in llama.cpp by cyllama, its bindings for Python."""

from collections.abc import Iterable
from pathlib import Path

import torch

from ...engine.errors import ConversionError
from ..runtime import Batch, Running, Source, Texts, real_rows

ROOM = 512  # tokens in a cache
Token = tuple[int, int, int]  # its id, its place, the row that it is in


class LlamaCpp(Running):
    def __init__(self, path: Path, source: Source):
        from cyllama.llama import llama_cpp

        class Model(llama_cpp.LlamaModel):
            # Contexts of cyllama 0.2 ask their model for it, which does not have it.
            n_vocab = property(lambda self: self.get_vocab().n_vocab)

        self.cpp, self.source = llama_cpp, source
        llama_cpp.disable_logging()
        params = llama_cpp.LlamaModelParams()
        params.n_gpu_layers = 0
        try:
            self.model = Model(str(path), params, verbose=False)
        except ValueError as error:
            raise ConversionError(
                f"llama.cpp does not open {path.name} of this model: nothing is kept; please "
                "report this configuration"
            ) from error
        self.vocab = self.model.get_vocab()

    def context(self, rows: int):
        """Keys and values in float32, and no flash attention, which rounds to float16 as well: so
        the numbers in the file are compared, and not these."""
        params = self.cpp.LlamaContextParams()
        params.n_ctx = ROOM * rows
        params.n_batch = params.n_ubatch = ROOM
        params.n_seq_max = rows
        params.type_k = params.type_v = 0  # float32
        params.flash_attn_type = 0  # none
        params.n_threads = params.n_threads_batch = torch.get_num_threads()
        if self.source.library.is_encoder:
            params.embeddings = True
            params.pooling_type = 0  # none
        return self.cpp.LlamaContext(self.model, params, verbose=False)

    def batch(self, tokens: Iterable[Token]):
        tokens = list(tokens)
        batch = self.cpp.LlamaBatch(n_tokens=len(tokens), embd=0, n_seq_max=1)
        for token, place, row in tokens:
            batch.add(token, place, [row], True)
        return batch

    def logits(self, batch: Batch) -> torch.Tensor:
        rows = real_rows(batch)
        if "decoder_input_ids" in batch:
            targets = real_rows(batch, "decoder_")
            return torch.cat([self.of_pair(*pair) for pair in zip(rows, targets, strict=True)])
        context = self.context(len(rows))
        context.decode(
            self.batch((t, i, n) for n, row in enumerate(rows) for i, t in enumerate(row))
        )
        answers = (
            context.get_embeddings_ith if self.source.library.is_encoder else context.get_logits_ith
        )
        return torch.tensor([answers(i) for i in range(sum(map(len, rows)))])

    def of_pair(self, source: list[int], target: list[int]) -> torch.Tensor:
        context = self.read(source)
        context.decode(self.batch((t, i, 0) for i, t in enumerate(target)))
        return torch.tensor([context.get_logits_ith(i) for i in range(len(target))])

    def read(self, source: list[int]):
        """The encoder has read it, and the decoder may begin."""
        context = self.context(1)
        context.encode(self.batch((t, i, 0) for i, t in enumerate(source)))
        return context

    def continue_texts(self, rows: Texts, new_tokens: int, num_beams: int) -> Texts | None:
        return [self.continue_text(row, new_tokens) for row in rows]

    def continue_text(self, row: list[int], new_tokens: int) -> list[int]:
        if self.source.config.is_encoder_decoder:
            context, given = self.read(row), [self.model.decoder_start_token()]
        else:
            context, given = self.context(1), row
        written, past = [], 0
        while len(written) < new_tokens:
            context.decode(self.batch((t, past + i, 0) for i, t in enumerate(given)))
            best = torch.tensor(context.get_logits_ith(len(given) - 1)).argmax().item()
            written.append(best)
            if self.vocab.is_eog(best):
                break
            past, given = past + len(given), [best]
        return written

    def ids(self, text: str) -> list[int]:
        return list(self.vocab.tokenize(text, True, True))
