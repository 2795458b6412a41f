"""A GGUF file opened in llama.cpp by cyllama, its bindings for Python."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from ...engine.aliases import Batch
from ...engine.errors import ConversionError
from ..runtime import Running, Sequences, Source, unpadded

ROOM = 512  # tokens in a cache
Token = tuple[int, int, int]  # id, position, number of the sequence


class LlamaCpp(Running):
    """An opened GGUF file."""

    def __init__(self, path: Path, source: Source) -> None:
        from cyllama.llama import llama_cpp

        class Model(llama_cpp.LlamaModel):
            # Contexts of cyllama 0.2 read it from the model, which lacks it.
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

    def context(self, sequences: int, tokens: int = ROOM) -> Any:
        """Return a context without rounding of its own: float32 keys, no flash attention."""
        params = self.cpp.LlamaContextParams()
        params.n_batch = params.n_ubatch = max(ROOM, tokens)
        params.n_ctx = params.n_batch * sequences
        params.n_seq_max = sequences
        params.type_k = params.type_v = 0  # float32
        params.flash_attn_type = 0  # none
        params.n_threads = params.n_threads_batch = torch.get_num_threads()
        if self.source.library.is_encoder:
            params.embeddings = True
            params.pooling_type = 0  # none
        return self.cpp.LlamaContext(self.model, params, verbose=False)

    def batch(self, tokens: Iterable[Token], last: bool = False) -> Any:
        """Return a batch whose tokens are answered with logits, or the last of them alone."""
        tokens = list(tokens)
        first = len(tokens) - 1 if last else 0
        batch = self.cpp.LlamaBatch(n_tokens=len(tokens), embd=0, n_seq_max=1)
        for i, (token, position, sequence) in enumerate(tokens):
            batch.add(token, position, [sequence], i >= first)
        return batch

    def logits(self, batch: Batch) -> torch.Tensor:
        sequences = unpadded(batch)
        if "decoder_input_ids" in batch:
            pairs = zip(sequences, unpadded(batch, "decoder_"), strict=True)
            return torch.cat([self.logits_of(*pair) for pair in pairs])
        context = self.context(len(sequences), sum(map(len, sequences)))
        context.decode(
            self.batch((t, i, n) for n, ids in enumerate(sequences) for i, t in enumerate(ids))
        )
        answers = (
            context.get_embeddings_ith if self.source.library.is_encoder else context.get_logits_ith
        )
        return torch.tensor([answers(i) for i in range(sum(map(len, sequences)))])

    def logits_of(self, source: list[int], target: list[int]) -> torch.Tensor:
        context = self.encode(source)
        context.decode(self.batch((t, i, 0) for i, t in enumerate(target)))
        return torch.tensor([context.get_logits_ith(i) for i in range(len(target))])

    def encode(self, source: list[int]) -> Any:
        """Return a context with the encoded source, ready for the decoder."""
        context = self.context(1)
        context.encode(self.batch((t, i, 0) for i, t in enumerate(source)))
        return context

    def generate(self, prompts: Sequences, new_tokens: int, num_beams: int) -> Sequences | None:
        return [self.generate_one(prompt, new_tokens) for prompt in prompts]

    def generate_one(self, prompt: list[int], new_tokens: int) -> list[int]:
        if self.source.config.is_encoder_decoder:
            context, given = self.encode(prompt), [self.model.decoder_start_token()]
        else:
            context, given = self.context(1), prompt
        sampler = self.cpp.LlamaSampler()  # as a list of Python, logits cost as much as a step
        sampler.add_greedy()
        output: list[int] = []
        past = 0
        while len(output) < new_tokens:
            tokens = [(t, past + i, 0) for i, t in enumerate(given)]
            context.decode(self.batch(tokens, last=True))
            best = sampler.sample(context, len(given) - 1)
            output.append(best)
            if self.vocab.is_eog(best):
                break
            past, given = past + len(given), [best]
        return output

    def ids(self, text: str) -> list[int]:
        return list(self.vocab.tokenize(text, True, True))
