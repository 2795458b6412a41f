"""What the lessons learn from: rows of letters, to be written again in some order."""

from string import ascii_lowercase

import torch
from torch.nn.utils.rnn import pad_sequence

PAD, START, END, FIRST = 0, 1, 2, 3  # ids; the letters follow
SPECIAL = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
SIZE = FIRST + len(ascii_lowercase)
IGNORED = -100
TASKS = {  # how many letters there are, and what is made of a row
    "reversal": (len(ascii_lowercase), lambda row: row.flip(0)),
    "copy of few letters": (6, lambda row: row),
}


def draw_rows(task, count, lengths, generator):
    """Pairs of a row and what is to be written."""
    letters, answer = TASKS[task]
    chosen = torch.randint(lengths[0], lengths[1] + 1, (count,), generator=generator)
    rows = [torch.randint(letters, (n,), generator=generator) + FIRST for n in chosen.tolist()]
    return [(row, answer(row)) for row in rows]


def source_and_target(rows):
    """A batch for an encoder-decoder."""
    end = torch.tensor([END])
    ids = pad_sequence([torch.cat((row, end)) for row, _ in rows], True, PAD)
    labels = pad_sequence([torch.cat((answer, end)) for _, answer in rows], True, IGNORED)
    return {"input_ids": ids, "attention_mask": (ids != PAD).long(), "labels": labels}


def prompt_and_answer(rows):
    """A batch for a decoder: <s> stands between a row and its answer; rows are of one length."""
    start, end = torch.tensor([START]), torch.tensor([END])
    ids = torch.stack([torch.cat((row, start, answer, end)) for row, answer in rows])
    prompt = len(rows[0][0]) + 1
    labels = ids.clone()
    labels[:, :prompt] = IGNORED
    return {"input_ids": ids, "labels": labels}


def prompts(rows, is_encoder_decoder):
    """What a model is given to write the answers."""
    if is_encoder_decoder:
        batch = source_and_target(rows)
        return {name: batch[name] for name in ("input_ids", "attention_mask")}
    ids = torch.stack([torch.cat((row, torch.tensor([START]))) for row, _ in rows])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


@torch.no_grad()
def share_of_right_tokens(model, rows):
    """Of what `model.generate` writes, how much stands where it belongs."""
    given = prompts(rows, model.config.is_encoder_decoder)
    wanted = source_and_target(rows)["labels"]
    written = model.generate(**given, max_new_tokens=wanted.shape[1], do_sample=False)
    written = written[:, 1 if model.config.is_encoder_decoder else given["input_ids"].shape[1] :]
    written = torch.nn.functional.pad(written, (0, wanted.shape[1] - written.shape[1]), value=PAD)
    counted = wanted != IGNORED
    return (written[counted] == wanted[counted]).float().mean().item()


def make_tokenizer():
    """One token for each letter; blanks between them do not count."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = [*SPECIAL.values(), *ascii_lowercase]
    letters = Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, "<pad>"))
    letters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=letters, **SPECIAL)
