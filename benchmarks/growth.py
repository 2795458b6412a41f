"""What grows with a text, and how fast: time per token, the cache, the memory of training."""

import torch

from .decoding import generation, llama_pair, prompt
from .measure import OURS, Count, Row, Run, Workload
from .memory import MIB
from .training import step

FORMULA = "2 × layers × kv_heads × head_dim × bytes × tokens"
NEW_TOKENS = 64


def growth(settings):
    lengths = settings.pick((256, 512, 1024, 2048, 4096), (64, 128))
    pair = llama_pair(settings, 19, max_position_embeddings=2 * lengths[-1])
    yield decoding(pair, lengths, settings)
    for length in lengths:
        yield Count(
            f"cache of {length} tokens",
            lambda length=length: weigh_cache(pair, length, settings),
        )
    for length in lengths[1:]:
        ids = prompt(pair, 1, length, settings)["input_ids"]
        yield Workload(
            f"training on {length} tokens",
            {OURS: lambda ids=ids: step(pair.ours, ids)},
            measures=("MiB",),
            points={OURS: ("a training step", length)},
        )


def decoding(pair, lengths, settings):
    """Tokens after the longest context, beside tokens after each shorter one."""
    *shorter, longest = lengths
    contexts = {OURS: longest} | {f"{OURS}, after {length}": length for length in shorter}
    return Workload(
        f"a token, after {longest} tokens",
        {
            name: lambda length=length: continuing(pair.ours, prompt(pair, 1, length, settings))
            for name, length in contexts.items()
        },
        {f"{OURS}, after {shorter[0]}": 1 / 1.3},
        points={name: ("one token", length) for name, length in contexts.items()},
    )


def continuing(model, inputs):
    run = generation(model, inputs, NEW_TOKENS)

    @torch.no_grad()
    def outcome(text):
        """Texts differ here; each has to be what the model writes without a cache, too."""
        scores = model(text[:, :-1], use_cache=False, logits_to_keep=NEW_TOKENS).logits
        chosen = scores.gather(-1, text[:, -NEW_TOKENS:, None])
        return bool((scores.amax(-1, keepdim=True) - chosen < 1e-3).all())

    return Run(run.call, outcome, minus=lambda: run.call(1), times=1 / (NEW_TOKENS - 1))


def weigh_cache(pair, tokens, settings):
    """All that the cache holds, reserves included, beside what the tokens need."""
    inputs = prompt(pair, 1, tokens - NEW_TOKENS // 2 + 1, settings)
    cache = pair.ours.generate(
        **inputs,
        max_new_tokens=NEW_TOKENS // 2,  # the last one is not read again, and never cached
        do_sample=False,
        return_dict_in_generate=True,
    ).past_key_values
    held = [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in held}
    ours = sum(storage.nbytes() for storage in storages.values()) / MIB
    config = pair.ours.config
    per_token = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    needed = per_token * tokens * held[0].element_size() / MIB
    label = f"cache of {tokens} tokens"
    return [
        Row(label, "MiB", OURS, ours, curve="the cache", size=tokens),
        Row(label, "MiB", FORMULA, ours, needed, needed / ours, floor=0.9),
    ]
