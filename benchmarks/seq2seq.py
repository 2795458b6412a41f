"""Translation with the encoder-decoder family, beside Marian and BART."""

import torch

from .decoding import varied
from .measure import OURS, Run, Workload
from .peers import END, PAD, Pair, random_ids

SPECIAL = {
    "pad_token_id": PAD,
    "bos_token_id": 1,
    "eos_token_id": END,
    "decoder_start_token_id": 1,
    "forced_eos_token_id": None,
    "max_position_embeddings": 256,
}
KINDS = {"marian": "MarianMTModel", "bart": "BartForConditionalGeneration"}


def pair_of(kind, settings, width=512, layers=6, vocab_size=16000):
    width, layers, vocab_size = settings.pick((width, layers, vocab_size), (48, 2, 997))
    sizes = {"d_model": width, "vocab_size": vocab_size, "activation_function": "gelu"}
    for stack in ("encoder", "decoder"):
        sizes[f"{stack}_layers"] = layers
        sizes[f"{stack}_ffn_dim"] = 4 * width
        sizes[f"{stack}_attention_heads"] = max(width // 64, 2)
    if kind == "marian":
        sizes |= {"activation_function": "swish", "scale_embedding": True}
    return Pair(kind, settings, **sizes, **SPECIAL)


def source(pair, lengths, settings):
    """Sentences of these lengths, padded on the right."""
    ids = random_ids(pair.sizes["vocab_size"], len(lengths), max(lengths), settings)
    mask = torch.ones_like(ids)
    for row, real in enumerate(lengths):
        ids[row, real:], mask[row, real:] = PAD, 0
    return {"input_ids": ids, "attention_mask": mask}


def mixed_lengths(rows, longest, seed=3):
    """Like those of a corpus: most sentences are short, a few are long."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randn(rows, generator=generator).mul(0.6).add(-1.0).exp().mul(longest)
    return [*lengths.round().int().clamp(3, longest).tolist()[:-1], longest]


def translating(model, inputs, length, beams, **options):
    def call():
        return model.generate(
            **inputs, max_new_tokens=length, num_beams=beams, do_sample=False, **options
        )

    return Run(call, lambda tokens: {"tokens": varied(tokens[:, 1:])})


def contestants(pair, inputs, length, beams, settings):
    def tuned():
        return translating(pair.compiled, inputs, length, beams, cache_implementation="static")

    name = KINDS[pair.kind]
    return {
        OURS: lambda: translating(pair.ours, inputs, length, beams),
        name: lambda: translating(pair.theirs, inputs, length, beams),
        f"{name}, static cache, compiled": tuned,
    }


def seq2seq(settings):
    """Greedy: one sentence, a padded batch, and one sentence with a small model."""
    length = settings.pick(48, 8)
    for kind in KINDS:
        for width, layers, rows, floor in ((512, 6, 1, 1.3), (512, 6, 32, 1.5), (256, 3, 1, 2.0)):
            pair = pair_of(kind, settings, width, layers)
            lengths = mixed_lengths(settings.pick(rows, min(rows, 3)), settings.pick(32, 9))
            inputs = source(pair, lengths, settings)
            yield Workload(
                f"{kind}, {width} wide, {layers}+{layers} layers, batch {rows}",
                contestants(pair, inputs, length, 1, settings),
                {KINDS[kind]: floor},
            )


def beams(settings):
    """Four beams over one padded batch; no sentence ends before the last."""
    rows, length = settings.pick((32, 32), (3, 6))
    for kind in KINDS:
        pair = pair_of(kind, settings)
        inputs = source(pair, mixed_lengths(rows, settings.pick(32, 9)), settings)
        yield Workload(
            f"{kind}, 4 beams, batch {rows}, {length} tokens",
            contestants(pair, inputs, length, 4, settings),
            {KINDS[kind]: 1.4},
        )
