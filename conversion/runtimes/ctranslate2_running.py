"""An export in CTranslate2: its logits and generated sequences."""

from pathlib import Path
from typing import Any

import torch

from ..engine.aliases import Batch, Fields
from ..engine.checkpoints import read_json
from ..engine.side_files import GENERATION
from ..engine.translation import as_list
from .runtime import Running, Sequences, Source, unpadded


def tokens_of(source: Source) -> list[str]:
    """Return a token for each embedding, its id in digits if there is no tokenizer."""
    numbers = range(source.config.vocab_size)
    if source.tokenizer is None:
        return [str(i) for i in numbers]
    known = {i: token for token, i in source.tokenizer.get_vocab().items()}
    return [known.get(i, f"<unused {i}>") for i in numbers]


def end_tokens(source: Source) -> list[int]:
    """Return the tokens that end a sequence."""
    return as_list(generation_config(source).get("eos_token_id"))


def generation_config(source: Source) -> Fields:
    """Return the generation settings, which old folders keep in config.json."""
    path = source.folder / GENERATION
    return read_json(path) if path.is_file() else source.config.to_dict()


def kind_of(source: Source) -> str:
    if source.library.is_encoder:
        return "Encoder"
    return "Translator" if source.config.is_encoder_decoder else "Generator"


class Opened(Running):
    """An opened export in CTranslate2."""

    generates_batches = True

    def __init__(self, source: Source, folder: Path) -> None:
        import ctranslate2

        self.kind, self.tokens = kind_of(source), tokens_of(source)
        # Their files hold one token; more are given with each call.
        ends = end_tokens(source)
        self.ends = {"end_token": ends} if len(ends) > 1 else {}
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        threads = torch.get_num_threads()
        self.engine = getattr(ctranslate2, self.kind)(str(folder), intra_threads=threads)

    def strings(self, sequence: list[int]) -> list[str]:
        return [self.tokens[i] for i in sequence]

    def logits(self, batch: Batch) -> torch.Tensor:
        sequences = unpadded(batch)
        if self.kind == "Translator":
            targets = unpadded(batch, "decoder_")
            pairs = zip(sequences, targets, strict=True)
            return torch.cat([self.logits_of(source, target) for source, target in pairs])
        if self.kind == "Generator":
            found = self.engine.forward_batch(sequences)
        else:
            types = batch.get("token_type_ids")
            more = {} if types is None else {"token_type_ids": types.tolist()}
            found = self.engine.forward_batch(sequences, **more).last_hidden_state
        padded = as_tensor(found)
        return torch.cat([padded[i, : len(sequence)] for i, sequence in enumerate(sequences)])

    def logits_of(self, source: list[int], target: list[int]) -> torch.Tensor:
        """Return the logits at each token of a target, whose start token CTranslate2 adds."""
        [result] = self.engine.translate_batch(
            [self.strings(source)],
            target_prefix=[self.strings(target[1:])],
            max_decoding_length=len(target),
            min_decoding_length=0,
            beam_size=1,
            return_logits_vocab=True,
        )
        return torch.stack([as_tensor(step).flatten() for step in result.logits[0]])

    def generate(self, prompts: Sequences, new_tokens: int, num_beams: int) -> Sequences:
        if len({len(prompt) for prompt in prompts}) == 1:
            return self.generate_batch(prompts, new_tokens, num_beams)
        # Beside a shorter prompt, CTranslate2 counts the rest of a longer one as output.
        return [self.generate_batch([prompt], new_tokens, num_beams)[0] for prompt in prompts]

    def generate_batch(self, prompts: Sequences, new_tokens: int, num_beams: int) -> Sequences:
        strings = [self.strings(prompt) for prompt in prompts]
        options = {"beam_size": num_beams, "return_end_token": True, **self.ends}
        if self.kind == "Generator":
            options |= {"max_length": new_tokens, "include_prompt_in_result": False}
            results = self.engine.generate_batch(strings, **options)
            return [result.sequences_ids[0] for result in results]
        lengths = {"max_decoding_length": new_tokens, "min_decoding_length": 0}
        found = self.engine.translate_batch(strings, **lengths, **options)
        return [[self.ids[token] for token in one.hypotheses[0]] for one in found]


def as_tensor(view: Any) -> torch.Tensor:
    import ctranslate2
    import numpy

    return torch.from_numpy(numpy.array(view.to(ctranslate2.DataType.float32)))
