"""Models of transformers and ours write the same texts, with a cache, greedily and by beams."""

from dataclasses import replace

import pytest
import torch
from transformers import GenerationConfig

from support import parity_decoder as decoders
from support import parity_seq2seq as seq2seqs
from support.converting import CASES

# No token comes twice and no text ends early: where tables are tied, random models repeat one word.
HABITS = {"max_new_tokens": 6, "no_repeat_ngram_size": 1, "do_sample": False}
TOKENS = {"pad_token_id": 0, "eos_token_id": None, "decoder_start_token_id": 2}
# Where a text grows beyond the length first trained on, transformers reads it anew, ours goes on.
READ_ANEW = "phi3 longrope in windows"
# With a cache, transformers compares the tokens of one step with the mask of all.
UNBALANCED = "mixtral balanced"
PROMPT = 7  # tokens at most: with what is written, learned positions have no more


def padded_prompts(is_seq2seq):
    batch = seq2seqs.right_padded_batch() if is_seq2seq else decoders.left_padded_batch()
    part = slice(PROMPT) if is_seq2seq else slice(-PROMPT, None)
    return {name: batch[name][:, part] for name in ("input_ids", "attention_mask")}


def shallow(case):
    """T5 of transformers cannot write where its decoder is deeper than its encoder."""
    if "num_decoder_layers" not in case.theirs:
        return case
    depth = case.theirs["num_layers"]
    return replace(
        case,
        theirs={**case.theirs, "num_decoder_layers": depth},
        ours={**case.ours, "decoder_layers": depth},
    )


@pytest.mark.parametrize("name", sorted(CASES.keys() - {READ_ANEW, UNBALANCED}))
def test_the_texts_of_transformers_are_written(name):
    models = shallow(CASES[name]).build("sdpa")
    prompts = padded_prompts(models[0].config.is_encoder_decoder)
    for beams in (1, 3):
        habits = GenerationConfig(**HABITS, **TOKENS, num_beams=beams)
        texts = []
        for model in models:
            model.generation_config = habits
            texts.append(model.generate(**prompts))
        assert torch.equal(*texts), f"{beams} beams"
