"""How often what is fast was taken: whoever compares two ways has to know that there were two."""

from contextlib import contextmanager, nullcontext
from unittest.mock import patch

import torch

from hf_tformer import fast
from hf_tformer.fast import patches, steps
from support.families import pad, random_rows


@contextmanager
def counted_passes(name, plain=False):
    """A list that grows with every pass that a function of passes.py makes; none if `plain`."""
    taken, run = [], getattr(patches, name)

    def counted(*args):
        result = run(*args)
        if result is not None:
            taken.append(args[1].shape)
        return result

    way = fast.disabled() if plain else nullcontext()
    with patch.object(patches, name, counted), way:
        yield taken


@contextmanager
def counted_steps(plain=False):
    """A list that grows by the number of texts in each step of our own loops."""
    texts, call = [], steps.DecodingStep.__call__

    def counted(step, tokens):
        texts.append(len(tokens))
        return call(step, tokens)

    way = fast.disabled() if plain else nullcontext()
    with patch.object(steps.DecodingStep, "__call__", counted), way:
        yield texts


def steps_taken(family, model, plain=False):
    """The logits of three texts, token by token, and how often modules were left out."""
    with counted_passes("run_next_tokens", plain) as taken, torch.no_grad():
        return family.steps(model, torch.tensor(random_rows([9, 9, 9])), 1), len(taken)


def generated(model, plain=False, **options):
    """What generate() writes, and the number of texts in each step of our own."""
    torch.manual_seed(3)
    with counted_steps(plain) as texts:
        output = model.generate(**{"max_new_tokens": 20, "pad_token_id": 0, **options})
    return output, texts


def written(model, plain=False, **options):
    """What generate() writes, and how many steps were taken without transformers' loop."""
    output, texts = generated(model, plain, **options)
    return output, len(texts)


def left_padded(lengths):
    ids, mask = pad(random_rows(lengths), "left")
    return {"input_ids": ids, "attention_mask": mask}
