"""The task of the lessons: sequences of letters, to be generated again in some order."""

from string import ascii_lowercase

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase

PAD, START, END, FIRST = 0, 1, 2, 3  # ids; the letters follow
SPECIAL = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
SIZE = FIRST + len(ascii_lowercase)
IGNORED = -100
TASKS = {  # the number of letters, and the answer to a sequence
    "reversal": (len(ascii_lowercase), lambda letters: letters.flip(0)),
    "copy of few letters": (6, lambda letters: letters),
}
Pairs = list[tuple[torch.Tensor, torch.Tensor]]  # a sequence and its answer


def draw_pairs(
    task: str, count: int, lengths: tuple[int, int], generator: torch.Generator
) -> Pairs:
    size, answer = TASKS[task]
    chosen = torch.randint(lengths[0], lengths[1] + 1, (count,), generator=generator)
    drawn = [torch.randint(size, (n,), generator=generator) + FIRST for n in chosen.tolist()]
    return [(letters, answer(letters)) for letters in drawn]


def closed(sequences: list[torch.Tensor], padding: int) -> torch.Tensor:
    """Close each sequence with the end token, and pad on the right."""
    end = torch.tensor([END])
    return pad_sequence([torch.cat((ids, end)) for ids in sequences], True, padding)


def training_batch(pairs: Pairs, is_encoder_decoder: bool) -> dict[str, torch.Tensor]:
    """Return inputs and labels; for a decoder, <s> joins a sequence and its answer."""
    labels = closed([answer for _, answer in pairs], IGNORED)
    given = prompts(pairs, is_encoder_decoder)
    if is_encoder_decoder:
        return {**given, "labels": labels}
    prompt = given["input_ids"]
    ids = torch.cat((prompt, labels), 1)
    return {"input_ids": ids, "labels": torch.cat((torch.full_like(prompt, IGNORED), labels), 1)}


def prompts(pairs: Pairs, is_encoder_decoder: bool) -> dict[str, torch.Tensor]:
    """Return the inputs from which a model generates the answers."""
    if is_encoder_decoder:
        ids = closed([letters for letters, _ in pairs], PAD)
    else:
        ids = torch.stack([torch.cat((letters, torch.tensor([START]))) for letters, _ in pairs])
    return {"input_ids": ids, "attention_mask": (ids != PAD).long()}


@torch.no_grad()
def share_right(model: PreTrainedModel, pairs: Pairs) -> float:
    """Return the share of generated tokens that are right and in their place."""
    given = prompts(pairs, model.config.is_encoder_decoder)
    wanted = closed([answer for _, answer in pairs], IGNORED)
    found = model.generate(**given, max_new_tokens=wanted.shape[1], do_sample=False)
    found = found[:, 1 if model.config.is_encoder_decoder else given["input_ids"].shape[1] :]
    found = torch.nn.functional.pad(found, (0, wanted.shape[1] - found.shape[1]), value=PAD)
    counted = wanted != IGNORED
    return (found[counted] == wanted[counted]).float().mean().item()


def make_tokenizer() -> PreTrainedTokenizerBase:
    """Make a token of each letter; blanks between them do not count."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = [*SPECIAL.values(), *ascii_lowercase]
    letters = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, "<pad>"))
    letters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=letters, **SPECIAL)
