"""Guessed tokens on a released model: transformers' prompt lookup, with text that repeats itself.

A random model never repeats its prompt, so this needs trained weights: `make .real/ready` fetches
SmolLM2-135M-Instruct, which is asked for a copy of a text. The same tokens come of every way.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

from transformers import AutoTokenizer, LlamaForCausalLM

from hf_tformer import TformerDecoderForCausalLM

from .decoding import generation
from .measure import OURS, Run, Settings, Workload, Workloads
from .weights import smollm

GUESSES = {"prompt_lookup_num_tokens": 10}
THEIRS, PLAIN = "LlamaForCausalLM", f"{OURS}, without guesses"
TEXT = """Repeat the following text exactly, word by word:

The cache of a decoder keeps the keys and values of all tokens so far. A new token attends to them,
and its own are added behind. Without the cache, each new token would cost a pass over all tokens
before it. With the cache it costs a pass over one token, and the reading of what is kept. The cache
grows with the text: two numbers for each layer, head, dimension of a head and token. Heads that
share keys and values divide what is kept by the number of heads that share them."""


def assisted(settings: Settings) -> Workloads:
    length = settings.pick(64, 6)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        ways = {
            OURS: lambda: writing(place, OURS, length, GUESSES),
            PLAIN: lambda: writing(place, OURS, length, {}),
            THEIRS: lambda: writing(place, THEIRS, length, GUESSES),
        }
        floors = {PLAIN: 1.3, THEIRS: 1.0}
        yield Workload(f"SmolLM2-135M copies a text, {length} tokens", ways, floors)


def writing(place: Path, side: str, length: int, options: dict[str, int]) -> Run:
    """Return a run that writes the copy; what it takes to read the prompt is subtracted."""
    is_ours = side == OURS
    folder = smollm(place) / ("ours" if is_ours else "theirs")
    model_class = TformerDecoderForCausalLM if is_ours else LlamaForCausalLM
    model = model_class.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    messages = [{"role": "user", "content": TEXT}]
    inputs = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    run = generation(model, dict(inputs), length, **options)
    reading = generation(model, dict(inputs), 1)
    return replace(run, minus=reading.call)
