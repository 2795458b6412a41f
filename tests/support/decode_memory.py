"""How far the peak of a process grows while it opens a folder and generates.

    python decode_memory.py FOLDER DTYPE

prints that, the bytes of the weights, and those of the cache.
"""

import sys

import torch
from plan_memory import forget_peak, resident  # beside this file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, logging

import hf_tformer

TOKENS, WRITTEN = 64, 32
SMALL = {"vocab_size": 16, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 2}


def generate(model):
    ids = torch.arange(TOKENS)[None] % 13 + 3
    options = {"min_new_tokens": WRITTEN, "max_new_tokens": WRITTEN, "do_sample": False}
    return model.generate(ids, use_cache=True, return_dict_in_generate=True, **options)


def main(folder, dtype):
    torch.set_num_threads(2)
    ours = hf_tformer.TformerDecoderForCausalLM(hf_tformer.TformerDecoderConfig(**SMALL, **HEADS))
    for small in (ours, LlamaForCausalLM(LlamaConfig(**SMALL, **HEADS))):
        generate(small.to(getattr(torch, dtype)).eval())  # what is read for the first time
    forget_peak()
    before = resident("VmRSS")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    cache = generate(model).past_key_values
    print("peak", resident("VmHWM") - before)
    print("weights", sum(p.numel() * p.element_size() for p in model.parameters()))
    states = [part for layer in cache.layers for part in (layer.keys, layer.values)]
    print("cache", sum(part.numel() * part.element_size() for part in states))


if __name__ == "__main__":
    logging.set_verbosity_error()
    main(*sys.argv[1:])
