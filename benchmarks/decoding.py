"""Greedy decoding with the decoder-only family, beside Llama and GPT-2."""

from dataclasses import replace
from functools import partial

import torch

from hf_tformer import fast

from . import engines
from .measure import OURS, Run, Unfair, Workload
from .peers import END, PAD, Pair, random_ids, refuse_to_compile

COMPILED = f"{OURS}, compiled"
SPECIAL = {"pad_token_id": PAD, "bos_token_id": 1, "eos_token_id": END}
TOY = {
    "vocab_size": 997,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
}
SIZES = {  # by millions of parameters
    3: {
        "vocab_size": 4096,
        "hidden_size": 192,
        "intermediate_size": 512,
        "num_hidden_layers": 6,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
    },
    19: {
        "vocab_size": 16000,
        "hidden_size": 384,
        "intermediate_size": 1024,
        "num_hidden_layers": 8,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
    },
    125: {
        "vocab_size": 32000,
        "hidden_size": 768,
        "intermediate_size": 2048,
        "num_hidden_layers": 16,
        "num_attention_heads": 12,
        "num_key_value_heads": 4,
    },
}

LENGTHS_IN_HALF = {3: 128, 19: 64, 125: 32}


def llama_pair(settings, millions, **changes):
    sizes = {**settings.pick(SIZES[millions], TOY), **changes}
    # They ask generate to keep the length, and attention to make room for it.
    return Pair("llama", settings, **sizes, **SPECIAL, tie_word_embeddings=True)


def generation(model, inputs, length, beams=1, **options):
    """A run that writes `length` tokens after a prompt; its outcome is the tokens it wrote."""
    prompt = inputs["input_ids"].shape[1]

    def call(new_tokens=length):
        return model.generate(
            **inputs, max_new_tokens=new_tokens, num_beams=beams, do_sample=False, **options
        )

    return Run(call, lambda tokens: {"tokens": varied(tokens[:, prompt:])})


def varied(tokens):
    """The tokens themselves, if they are a test: a model that repeats itself hides mistakes."""
    if (distinct := tokens.unique().numel()) < min(tokens.shape[1], 32) // 4:
        raise Unfair(f"a text of {tokens.shape[1]} tokens has only {distinct} different ones")
    return tokens


def contestants(pair, inputs, length, beams=1):
    """We, their default, and the best their library offers: a static cache and a compiled model."""

    def tuned():
        return generation(pair.compiled, inputs, length, beams, cache_implementation="static")

    name = type(pair.theirs).__name__
    return {
        OURS: lambda: generation(pair.ours, inputs, length, beams),
        name: lambda: generation(pair.theirs, inputs, length, beams),
        f"{name}, static cache, compiled": tuned,
        **compiled_steps(pair, inputs, beams, lambda: generation(pair.ours, inputs, length)),
    }


def compiled_steps(pair, inputs, beams, write):
    """Of one text that is written alone: there are no others."""
    if beams > 1 or len(inputs["input_ids"]) > 1:
        return {}

    def prepared():
        refuse_to_compile(pair.settings)
        run = write()

        def call(*arguments):
            fast.enable(compiled=True)
            try:
                return run.call(*arguments)
            finally:
                fast.enable()

        return replace(run, call=call)

    return {COMPILED: prepared}


def greedy(settings):
    """Batch 1: time goes into calls while a model is small, into reading weights once it is not."""
    floors = {3: 2.0, 19: 1.4, 125: 1.1}
    for millions, floor in floors.items():
        length = settings.pick(256 if millions < 100 else 128, 12)
        pair = llama_pair(settings, millions)
        inputs = prompt(pair, 1, settings.pick(16, 5), settings)
        with_litgpt = {"litgpt": partial(litgpt, pair, inputs["input_ids"], length)}
        yield Workload(
            f"{millions}M parameters, {length} tokens",
            contestants(pair, inputs, length) | with_litgpt,
            {"LlamaForCausalLM": floor},
            work={"bytes": length * bytes_per_token(pair)},
        )


def litgpt(pair, ids, length):
    call = engines.litgpt_decoding(pair.theirs, ids, length)
    return Run(call, lambda tokens: {"tokens": varied(tokens[:, ids.shape[1] :])})


def greedy_half(settings):
    """In the number formats that most folders hold, in which transformers opens them."""
    for dtype in ("bfloat16", "float16"):
        for millions in (3, 19, 125):
            for texts in (1, settings.pick(16, 3)):
                narrow = replace(settings, dtype=dtype)
                pair = llama_pair(narrow, millions)
                length = settings.pick(LENGTHS_IN_HALF[millions], 12)
                inputs = prompt(pair, texts, settings.pick(16, 5), narrow)
                sides = {OURS: "ours", "LlamaForCausalLM": "theirs"}
                yield Workload(
                    f"{dtype}, {millions}M parameters, batch {texts}, {length} tokens",
                    {
                        name: partial(generation_in_half, pair, side, inputs, length)
                        for name, side in sides.items()
                    },
                    {"LlamaForCausalLM": 1.25},
                    tolerance=1.0,  # of scores with a spread of three: rounding only
                )


def generation_in_half(pair, side, inputs, length):
    """Rounding soon leads two models to different words: compared are the logits of the prompt."""
    model = getattr(pair, side)

    @torch.no_grad()
    def outcome(tokens):
        logits = model(**inputs).logits[:, -1].float()
        return {"logits": logits, "length": torch.tensor(tokens.shape)}

    return replace(generation(model, inputs, length), outcome=outcome)


def greedy_gpt2(settings):
    """Batch 1, the other architecture: learned positions, LayerNorm, biases."""
    sizes = settings.pick(
        {"vocab_size": 16000, "n_embd": 384, "n_layer": 8, "n_head": 6},
        {"vocab_size": 997, "n_embd": 48, "n_layer": 2, "n_head": 6},
    )
    pair = Pair("gpt2", settings, **sizes, **SPECIAL)
    length = settings.pick(256, 12)
    inputs = prompt(pair, 1, settings.pick(16, 5), settings)
    yield Workload(f"GPT-2 of 20M parameters, {length} tokens", contestants(pair, inputs, length))


def prompt(pair, rows, length, settings, padding=0.0):
    """Ids and mask; the rows are padded on the left, by a fraction of `length` on average."""
    ids = random_ids(pair.sizes["vocab_size"], rows, length, settings)
    mask = torch.ones_like(ids)
    if padding:
        lengths = torch.linspace(1 - 2 * padding, 1, rows).mul(length).round().int().clamp(min=1)
        for row, real in enumerate(lengths.tolist()):
            ids[row, : length - real], mask[row, : length - real] = PAD, 0
    return {"input_ids": ids, "attention_mask": mask}


def bytes_per_token(pair):
    """What one token has to read: every weight, but of the embeddings only through the head."""
    return sum(tensor.nbytes for tensor in pair.theirs.parameters())


def padded_batch(settings):
    """Sixteen prompts of different lengths beside a cache of a thousand tokens; decoding alone."""
    rows, context, length = settings.pick((16, 960, 64), (3, 16, 6))
    changes = {"hidden_size": 192, "intermediate_size": 512, "head_dim": 64, "vocab_size": 4096}
    pair = llama_pair(settings, 19, **settings.pick(changes, {}))
    inputs = prompt(pair, rows, context, settings, padding=0.15)

    def without_prompt(prepare):
        def prepared():
            run = prepare()
            run.minus = lambda: run.call(1)
            return run

        return prepared

    all_of_them = contestants(pair, inputs, length)
    yield Workload(
        f"batch {rows}, {context} tokens of context, {length} new ones",
        {name: without_prompt(prepare) for name, prepare in all_of_them.items()},
        {"LlamaForCausalLM": 1.5},
    )


def beams(settings):
    """Four beams after prompts of a page: they are read once for all beams, or once for each."""
    rows, context, length = settings.pick((4, 256, 32), (2, 9, 6))
    pair = llama_pair(settings, 19)
    inputs = prompt(pair, rows, context, settings, padding=0.15)
    yield Workload(
        f"4 beams, batch {rows}, {context} tokens of context, {length} new ones",
        contestants(pair, inputs, length, beams=4),
    )


def prefill(settings):
    """A prompt is read in one pass: matrix products, and a mask only where there is padding."""
    for rows, length, padding, floor in (
        (1, 512, 0.0, 1.08),
        (1, 2048, 0.0, 1.08),
        (4, 1024, 0.3, 1.25),
    ):
        pair = llama_pair(settings, 19)
        length = settings.pick(length, length // 64)
        inputs = prompt(pair, rows, length, settings, padding)
        where = f", {padding:.0%} padding" if padding else ""
        yield Workload(
            f"batch {rows}, {length} tokens{where}",
            {
                OURS: lambda pair=pair, inputs=inputs: reading(pair.ours, inputs),
                "LlamaForCausalLM": lambda pair=pair, inputs=inputs: reading(pair.theirs, inputs),
            },
            {"LlamaForCausalLM": floor},
            work={"flops": 2 * matrix_weights(pair) * int(inputs["attention_mask"].sum())},
        )


def matrix_weights(pair):
    """Parameters that every token is multiplied by: those of the layers."""
    return sum(tensor.numel() for tensor in pair.theirs.model.layers.parameters())


@torch.no_grad()
def reading(model, inputs):
    @torch.no_grad()
    def call():
        return model(**inputs, use_cache=True, logits_to_keep=1)

    return Run(call, lambda output: {"logits": output.logits})


def no_cache(settings):
    """The loop of the first lesson: the whole text again for each token.

    It is sampled: sixteen of its steps are timed, each of which stands for those around it.
    """
    for length, floor in ((512, 4.0), (2048, 15.0)):
        length, stride = settings.pick((length, length // 16), (length // 64, 2))
        pair = llama_pair(settings, 125, num_hidden_layers=settings.pick(12, 2))
        inputs = prompt(pair, 1, 5, settings)
        yield Workload(
            f"{settings.pick('100M parameters', 'toy')}, {length} tokens",
            {
                OURS: lambda pair=pair, inputs=inputs, n=length: generation(pair.ours, inputs, n),
                "the same model without a cache": (
                    lambda pair=pair, inputs=inputs, n=length, stride=stride: naive_loop(
                        pair.ours, inputs["input_ids"], n, stride
                    )
                ),
            },
            {"the same model without a cache": floor},
        )


def naive_loop(model, ids, length, stride):
    """Timed on a text that is there already; compared on the tokens that the true loop writes."""
    text = model.generate(ids, max_new_tokens=length, do_sample=False)

    @torch.no_grad()
    def call():
        steps = range(ids.shape[1] + stride // 2, text.shape[1], stride)
        return [model(text[:, :step], use_cache=False).logits[:, -1].argmax(-1) for step in steps]

    def outcome(tokens):
        steps = range(ids.shape[1] + stride // 2, text.shape[1], stride)
        written = text.clone()
        for step, token in zip(steps, tokens, strict=True):
            written[:, step] = token
        return {"tokens": varied(written[:, ids.shape[1] :])}

    return Run(call, outcome, times=stride)
