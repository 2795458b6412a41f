"""Greedy decoding with the decoder-only family, beside Llama and GPT-2."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedModel

from hf_tformer import fast

from . import engines
from .measure import OURS, Contestants, Run, Settings, Unfair, Workload, Workloads
from .peers import BOS, END, PAD, Inputs, Pair, refuse_to_compile

SPECIAL = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": END}
FIELDS = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")
FIELDS += ("num_attention_heads", "num_key_value_heads")
SIZES = {  # millions of parameters → the fields
    3: (4096, 192, 512, 6, 6, 2),
    19: (16000, 384, 1024, 8, 6, 2),
    125: (32000, 768, 2048, 16, 12, 4),
}
TOY = {**dict(zip(FIELDS, (997, 48, 64, 2, 6, 2), strict=True)), "head_dim": 8}
LENGTHS_IN_HALF = {3: 128, 19: 64, 125: 32}


def llama_pair(settings: Settings, millions: int, kind: str = "llama", **changes: Any) -> Pair:
    sizes = settings.pick(dict(zip(FIELDS, SIZES[millions], strict=True)), TOY)
    return Pair(kind, settings, **{**sizes, **changes}, **SPECIAL, tie_word_embeddings=True)


def generation(
    model: PreTrainedModel, inputs: Inputs, length: int, beams: int = 1, **options: Any
) -> Run:
    """Return a run that generates `length` tokens; its outcome is these tokens."""
    given = 1 if model.config.is_encoder_decoder else inputs["input_ids"].shape[1]

    def call(new_tokens: int = length) -> torch.Tensor:
        return model.generate(
            **inputs, max_new_tokens=new_tokens, num_beams=beams, do_sample=False, **options
        )

    return Run(call, lambda tokens: {"tokens": varied(tokens[:, given:])})


def varied(tokens: torch.Tensor) -> torch.Tensor:
    """Return the tokens, if they are a test: a model that repeats itself hides mistakes."""
    if (distinct := tokens.unique().numel()) < min(tokens.shape[1], 32) // 4:
        raise Unfair(f"{tokens.shape[1]} generated tokens have only {distinct} different ones")
    return tokens


def contestants(pair: Pair, inputs: Inputs, length: int, beams: int = 1) -> Contestants:
    """Both models, and the best that each library offers: compiled, theirs with a static cache.

    Our compiled steps serve a single sequence that is decoded without beams.
    """

    how = (generation, inputs, length, beams)
    found = pair.contestants(*how)
    tuned = pair.contestant("compiled", *how, cache_implementation="static")
    found[f"{pair.name}, static cache, compiled"] = tuned
    if beams == len(inputs["input_ids"]) == 1:

        def compiled() -> Run:
            refuse_to_compile(pair.settings)
            return generation(pair.ours, inputs, length).within(compiled_steps)

        found[f"{OURS}, compiled"] = compiled
    return found


@contextmanager
def compiled_steps() -> Iterator[None]:
    fast.enable(compiled=True)
    try:
        yield
    finally:
        fast.enable()


def greedy(settings: Settings) -> Workloads:
    """Decode at batch size 1: small models cost calls, large ones the reading of weights."""
    for millions, floor in {3: 2.0, 19: 1.4, 125: 1.1}.items():
        length = settings.pick(256 if millions < 100 else 128, 12)
        pair = llama_pair(settings, millions)
        inputs = prompt(pair, 1, settings.pick(16, 5))
        with_litgpt = {"litgpt": partial(litgpt, pair, inputs["input_ids"], length)}
        yield Workload(
            f"{millions}M parameters, {length} tokens",
            contestants(pair, inputs, length) | with_litgpt,
            {pair.name: floor},
            work={"bytes": length * bytes_per_token(pair)},
        )


def litgpt(pair: Pair, ids: torch.Tensor, length: int) -> Run:
    call = engines.litgpt_decoding(pair.theirs, ids, length)
    return Run(call, lambda tokens: {"tokens": varied(tokens[:, ids.shape[1] :])})


def greedy_half(settings: Settings) -> Workloads:
    """Decode in the number formats that most checkpoints hold, in which transformers opens them."""
    for dtype in ("bfloat16", "float16"):
        for millions in (3, 19, 125):
            for rows in (1, settings.pick(16, 3)):
                pair = llama_pair(settings, millions)
                pair.dtype = getattr(torch, dtype)
                length = settings.pick(LENGTHS_IN_HALF[millions], 12)
                inputs = prompt(pair, rows, settings.pick(16, 5))
                yield Workload(
                    f"{dtype}, {millions}M parameters, batch {rows}, {length} tokens",
                    pair.contestants(generation_in_half, inputs, length),
                    {pair.name: 1.25},
                    tolerance=1.0,  # of logits with a spread of three: rounding only
                )


def generation_in_half(model: PreTrainedModel, inputs: Inputs, length: int) -> Run:
    """Compare the logits of the prompt: rounding soon leads two models to different tokens."""

    @torch.no_grad()
    def outcome(tokens: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = model(**inputs).logits[:, -1].float()
        return {"logits": logits, "length": torch.tensor(tokens.shape)}

    return replace(generation(model, inputs, length), outcome=outcome)


EXPERTS = {
    "mixtral": (8, 2, 2),
    "qwen3_moe": (32, 8, 0.5),
}  # how many, how many a token takes, size


def mixtures(settings: Settings) -> Workloads:
    """Decode with few large experts, as Mixtral, and with many small ones, as Qwen3."""
    for kind, (count, taken, size) in EXPERTS.items():
        for hidden in (256, 512, 768):
            hidden = settings.pick(hidden, 48)
            inner = "intermediate_size" if kind == "mixtral" else "moe_intermediate_size"
            sizes = (8000, hidden, 2 * hidden, 6, 8, 4)
            fields = {**dict(zip(FIELDS, sizes, strict=True)), "head_dim": max(hidden // 8, 8)}
            experts = {"num_local_experts": count, "num_experts_per_tok": taken}
            fields |= {**experts, inner: int(hidden * size)}
            pair = Pair(kind, settings, **fields, **SPECIAL)
            length = settings.pick(96, 12)
            yield Workload(
                f"{pair.name}, {hidden} wide, {count} experts, {length} tokens",
                pair.contestants(generation, prompt(pair, 1, settings.pick(16, 5)), length),
                {pair.name: 1.25},
            )


def greedy_gpt2(settings: Settings) -> Workloads:
    """Decode with the other architecture: learned positions, LayerNorm, biases."""
    sizes = settings.pick(
        {"vocab_size": 16000, "n_embd": 384, "n_layer": 8, "n_head": 6},
        {"vocab_size": 997, "n_embd": 48, "n_layer": 2, "n_head": 6},
    )
    pair = Pair("gpt2", settings, **sizes, **SPECIAL)
    length = settings.pick(256, 12)
    inputs = prompt(pair, 1, settings.pick(16, 5))
    yield Workload(f"GPT-2 of 20M parameters, {length} tokens", contestants(pair, inputs, length))


def prompt(pair: Pair, rows: int, length: int, padding: float = 0.0) -> Inputs:
    """Draw prompts, padded on the left by a fraction of `length` on average."""
    lengths = torch.linspace(1 - 2 * padding, 1, rows).mul(length).round().int().clamp(min=1)
    return pair.batch(lengths.tolist(), padding_side="left")


def bytes_per_token(pair: Pair) -> int:
    """Count what one token has to read: every weight, the embeddings only through the head."""
    return sum(tensor.nbytes for tensor in pair.theirs.parameters())


def padded_batch(settings: Settings) -> Workloads:
    """Decode after sixteen prompts of different lengths, with a cache of a thousand tokens."""
    rows, context, length = settings.pick((16, 960, 64), (3, 16, 6))
    changes = {"hidden_size": 192, "intermediate_size": 512, "head_dim": 64, "vocab_size": 4096}
    pair = llama_pair(settings, 19, **settings.pick(changes, {}))
    inputs = prompt(pair, rows, context, padding=0.15)

    def without_prompt(prepare: Callable[[], Run]) -> Run:
        run = prepare()
        return replace(run, minus=lambda: run.call(1))

    all_of_them = contestants(pair, inputs, length)
    yield Workload(
        f"batch {rows}, {context} tokens of context, {length} new ones",
        {name: partial(without_prompt, prepare) for name, prepare in all_of_them.items()},
        {pair.name: 1.5},
    )


def beams(settings: Settings) -> Workloads:
    """Decode four beams after long prompts: one prefill serves all beams, or each has its own."""
    rows, context, length, window = settings.pick((4, 256, 32, 128), (2, 9, 6, 4))
    slides = llama_pair(settings, 19, "mistral", sliding_window=window)
    for pair, under in (llama_pair(settings, 19), ""), (slides, f", windows of {window}"):
        inputs = prompt(pair, rows, context, padding=0.15)
        yield Workload(
            f"4 beams, batch {rows}, {context} tokens of context, {length} new ones{under}",
            contestants(pair, inputs, length, beams=4),
        )


def prefill(settings: Settings) -> Workloads:
    """Run one pass over a prompt: matrix products, and a mask only where there is padding."""
    for rows, length, padding, floor in (
        (1, 128, 0.0, 1.10),
        (1, 512, 0.0, 1.08),
        (1, 2048, 0.0, 1.08),
        (1, 4096, 0.0, 1.10),
        (4, 1024, 0.3, 1.25),
    ):
        pair = llama_pair(settings, 19, max_position_embeddings=8192)
        length = settings.pick(length, length // 64)
        inputs = prompt(pair, rows, length, padding)
        weights = sum(tensor.numel() for tensor in pair.theirs.model.layers.parameters())
        where = f", {padding:.0%} padding" if padding else ""
        yield Workload(
            f"batch {rows}, {length} tokens{where}",
            pair.contestants(one_pass, inputs),
            {pair.name: floor},
            work={"flops": 2 * weights * int(inputs["attention_mask"].sum())},
        )


def one_pass(model: PreTrainedModel, inputs: Inputs) -> Run:
    @torch.no_grad()
    def call() -> Any:
        return model(**inputs, use_cache=True, logits_to_keep=1)

    return Run(call, lambda output: {"logits": output.logits})


def no_cache(settings: Settings) -> Workloads:
    """Compare with a loop that runs the model on the whole sequence for each token.

    It is sampled: sixteen of its steps are timed, each of which stands for those around it.
    """
    naive = "the same model without a cache"
    for length, floor in ((512, 4.0), (2048, 15.0)):
        length, stride = settings.pick((length, length // 16), (length // 64, 2))
        pair = llama_pair(settings, 125, num_hidden_layers=settings.pick(12, 2))
        inputs = prompt(pair, 1, 5)
        yield Workload(
            f"{settings.pick('100M parameters', 'toy')}, {length} tokens",
            {
                OURS: pair.contestant("ours", generation, inputs, length),
                naive: pair.contestant("ours", naive_loop, inputs, length, stride),
            },
            {naive: floor},
        )


def naive_loop(model: PreTrainedModel, inputs: Inputs, length: int, stride: int) -> Run:
    """Time steps on a sequence that is there already; compare the tokens that the loop chooses."""
    given = inputs["input_ids"].shape[1]
    sequence = model.generate(**inputs, max_new_tokens=length, do_sample=False)
    steps = range(given + stride // 2, sequence.shape[1], stride)

    @torch.no_grad()
    def call() -> list[torch.Tensor]:
        outputs = (model(sequence[:, :step], use_cache=False) for step in steps)
        return [output.logits[:, -1].argmax(-1) for output in outputs]

    def outcome(tokens: list[torch.Tensor]) -> dict[str, torch.Tensor]:
        chosen = sequence.clone()
        for step, token in zip(steps, tokens, strict=True):
            chosen[:, step] = token
        return {"tokens": varied(chosen[:, given:])}

    return Run(call, outcome, times=stride)
