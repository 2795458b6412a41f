"""What grows with a sequence: time per token, the cache, the memory of training."""

from functools import partial

import torch
from transformers import Cache, PreTrainedModel

from .decoding import bytes_per_token, generation, llama_pair, prompt
from .measure import MIB, OURS, Row, Run, Settings, Unfair, Workload, Workloads
from .peers import Inputs, Pair
from .training import step

FORMULA = "2 × layers × kv_heads × head_dim × bytes × tokens"
NEW_TOKENS = 64


def growth(settings: Settings) -> Workloads:
    lengths = settings.pick((256, 512, 1024, 2048, 4096), (64, 128))
    room = {"max_position_embeddings": 2 * lengths[-1]}
    yield decoding(llama_pair(settings, 125, **room), 125, lengths)
    pair = llama_pair(settings, 19, **room)
    yield decoding(pair, 19, lengths)
    for length in lengths:
        yield Workload(f"cache of {length} tokens", rows=partial(weigh_cache, pair, length))
    for length in lengths[1:]:
        ids = prompt(pair, 1, length)["input_ids"]
        yield Workload(
            f"training on {length} tokens",
            {OURS: pair.contestant("ours", step, ids)},
            measures=("MiB",),
            points={OURS: ("a training step", length)},
        )


def decoding(pair: Pair, millions: int, lengths: tuple[int, ...]) -> Workload:
    """Time tokens after the longest context, beside tokens after each shorter one.

    A token reads all weights and all that is cached; the label gives the growth of these bytes.
    """
    *shorter, longest = lengths
    contexts = {OURS: longest} | {f"{OURS}, after {length}": length for length in shorter}
    sizes = [bytes_per_token(pair) + needed_bytes(pair, length) for length in (shorter[0], longest)]
    return Workload(
        f"{millions}M parameters, a token after {longest}; its bytes: {sizes[1] / sizes[0]:.2f}x",
        {
            name: pair.contestant("ours", continuing, prompt(pair, 1, length))
            for name, length in contexts.items()
        },
        {f"{OURS}, after {shorter[0]}": 1 / 1.3},
        points={name: (f"one token, {millions}M", length) for name, length in contexts.items()},
    )


def continuing(model: PreTrainedModel, inputs: Inputs) -> Run:
    """Decode with a cache that holds the prompt, and is cropped to it before each call."""
    length = inputs["input_ids"].shape[1] - 1
    cache = cache_after(model, {name: ids[:, :length] for name, ids in inputs.items()}, 1)
    run = generation(model, inputs, NEW_TOKENS, past_key_values=cache)

    @torch.no_grad()
    def outcome(result: torch.Tensor) -> None:
        """Contestants generate different tokens; each has to agree with itself without a cache."""
        sequence = torch.cat((inputs["input_ids"], run.outcome(result)["tokens"]), dim=1)
        logits = model(sequence[:, :-1], use_cache=False, logits_to_keep=NEW_TOKENS).logits
        chosen = logits.gather(-1, sequence[:, -NEW_TOKENS:, None])
        if (logits.amax(-1, keepdim=True) - chosen > 1e-3).any():
            raise Unfair(f"after {length} tokens the cache changes what is generated")

    return Run(
        run.call,
        outcome,
        before=lambda: cache.crop(length - cache.get_seq_length()),
        times=1 / NEW_TOKENS,
    )


def cache_after(model: PreTrainedModel, inputs: Inputs, new_tokens: int) -> Cache:
    """Return the cache that generate fills; the last new token is not in it."""
    output = model.generate(
        **inputs, max_new_tokens=new_tokens, do_sample=False, return_dict_in_generate=True
    )
    return output.past_key_values


def weigh_cache(pair: Pair, tokens: int) -> list[Row]:
    """Compare all that the cache holds, reserves included, with what the tokens need."""
    new_tokens = NEW_TOKENS // 2
    inputs = prompt(pair, 1, tokens - new_tokens + 1)
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


def needed_bytes(pair: Pair, tokens: int) -> int:
    config = pair.ours.config
    per_token = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    return per_token * pair.dtype.itemsize * tokens
