"""The files of an export in CTranslate2: logits and texts."""

from pathlib import Path

import torch

from ..engine.checkpoints import read_json
from ..engine.companions import HABITS, ids
from .runtime import Batch, Running, Source, Texts, real_rows


def tokens_of(source: Source) -> list[str]:
    """A token for each row of the embeddings; without a tokenizer its number is its name."""
    numbers = range(source.config.vocab_size)
    if source.tokenizer is None:
        return [str(i) for i in numbers]
    known = {i: token for token, i in source.tokenizer.get_vocab().items()}
    return [known.get(i, f"<unused {i}>") for i in numbers]


def ends_of(source: Source) -> list[int]:
    """The tokens that end a text."""
    return ids(habits_of(source).get("eos_token_id"))


def habits_of(source: Source) -> dict:
    """Those of generation, which old folders keep in config.json."""
    path = source.folder / HABITS
    return read_json(path) if path.is_file() else source.config.to_dict()


def kind_of(source: Source) -> str:
    if source.library.is_encoder:
        return "Encoder"
    return "Translator" if source.config.is_encoder_decoder else "Generator"


class Opened(Running):
    writes_batches = True

    def __init__(self, source: Source, folder: Path):
        import ctranslate2

        self.kind, self.tokens = kind_of(source), tokens_of(source)
        # A model of theirs names one token; more are said with each text.
        ends = ends_of(source)
        self.ends = {"end_token": ends} if len(ends) > 1 else {}
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        threads = torch.get_num_threads()
        self.engine = getattr(ctranslate2, self.kind)(str(folder), intra_threads=threads)

    def words(self, row: list[int]) -> list[str]:
        return [self.tokens[i] for i in row]

    def logits(self, batch: Batch) -> torch.Tensor:
        rows = real_rows(batch)
        if self.kind == "Translator":
            targets = real_rows(batch, "decoder_")
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
        how = {"beam_size": num_beams, "return_end_token": True, **self.ends}
        if self.kind == "Generator":
            how |= {"max_length": new_tokens, "include_prompt_in_result": False}
            return [found.sequences_ids[0] for found in self.engine.generate_batch(words, **how)]
        lengths = {"max_decoding_length": new_tokens, "min_decoding_length": 0}
        found = self.engine.translate_batch(words, **lengths, **how)
        return [[self.ids[token] for token in one.hypotheses[0]] for one in found]


def as_tensor(view: object) -> torch.Tensor:
    import ctranslate2
    import numpy

    return torch.from_numpy(numpy.array(view.to(ctranslate2.DataType.float32)))
