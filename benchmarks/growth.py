"""What grows with a text, and how fast: time per token, the cache, the memory of training."""

import torch

from .decoding import bytes_per_token, generation, llama_pair, prompt
from .measure import OURS, Count, Row, Run, Unfair, Workload
from .memory import MIB
from .training import step

FORMULA = "2 × layers × kv_heads × head_dim × bytes × tokens"
NEW_TOKENS = 64


def growth(settings):
    lengths = settings.pick((256, 512, 1024, 2048, 4096), (64, 128))
    room = {"max_position_embeddings": 2 * lengths[-1]}
    yield decoding(llama_pair(settings, 125, **room), 125, lengths)
    pair = llama_pair(settings, 19, **room)
    yield decoding(pair, 19, lengths)
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


def decoding(pair, millions, lengths):
    """Tokens after the longest context, beside tokens after each shorter one.

    A token reads all weights and all that is cached; the label says by how much these bytes grow.
    """
    *shorter, longest = lengths
    contexts = {OURS: longest} | {f"{OURS}, after {length}": length for length in shorter}
    sizes = [bytes_per_token(pair) + needed_bytes(pair, length) for length in (shorter[0], longest)]
    return Workload(
        f"{millions}M parameters, a token after {longest}; its bytes: {sizes[1] / sizes[0]:.2f}x",
        {
            name: lambda length=length: continuing(
                pair.ours, prompt(pair, 1, length, pair.settings)
            )
            for name, length in contexts.items()
        },
        {f"{OURS}, after {shorter[0]}": 1 / 1.3},
        points={name: (f"one token, {millions}M", length) for name, length in contexts.items()},
    )


def continuing(model, inputs):
    """Writes on from a cache that holds the prompt; it is cut back to it before each call."""
    length = inputs["input_ids"].shape[1] - 1
    cache = cache_after(model, {name: ids[:, :length] for name, ids in inputs.items()}, 1)
    run = generation(model, inputs, NEW_TOKENS, past_key_values=cache)

    @torch.no_grad()
    def outcome(result):
        """Texts differ here; each has to be what the model writes without a cache, too."""
        text = torch.cat((inputs["input_ids"], run.outcome(result)["tokens"]), dim=1)
        scores = model(text[:, :-1], use_cache=False, logits_to_keep=NEW_TOKENS).logits
        chosen = scores.gather(-1, text[:, -NEW_TOKENS:, None])
        if (scores.amax(-1, keepdim=True) - chosen > 1e-3).any():
            raise Unfair(f"after {length} tokens the cache changes what is written")

    return Run(
        run.call,
        outcome,
        before=lambda: cache.crop(length - cache.get_seq_length()),
        times=1 / NEW_TOKENS,
    )


def cache_after(model, inputs, new_tokens):
    """What generate leaves behind; the last new token is not read again, and not in it."""
    written = model.generate(
        **inputs, max_new_tokens=new_tokens, do_sample=False, return_dict_in_generate=True
    )
    return written.past_key_values


def weigh_cache(pair, tokens, settings):
    """All that the cache holds, reserves included, beside what the tokens need."""
    new_tokens = NEW_TOKENS // 2
    inputs = prompt(pair, 1, tokens - new_tokens + 1, settings)
    cache = cache_after(pair.ours, inputs, new_tokens)
    held = [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in held}
    ours = sum(storage.nbytes() for storage in storages.values()) / MIB
    needed = needed_bytes(pair, tokens) / MIB
    label = f"cache of {tokens} tokens"
    return [
        Row(label, "MiB", OURS, ours, curve="the cache", size=tokens),
        Row(label, "MiB", FORMULA, ours, needed, needed / ours, floor=0.9),
    ]


def needed_bytes(pair, tokens):
    config = pair.ours.config
    per_token = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    return per_token * pair.settings.torch_dtype.itemsize * tokens
