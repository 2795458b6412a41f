"""Translation with the encoder-decoder family, beside Marian and BART."""

import torch

from . import engines
from .decoding import compiled_steps, varied
from .measure import OURS, Run, Unfair, Workload
from .peers import END, PAD, Pair, random_ids

SPECIAL = {
    "pad_token_id": PAD,
    "bos_token_id": 1,
    "eos_token_id": END,
    "decoder_start_token_id": 1,
    "forced_eos_token_id": None,
    "max_position_embeddings": 256,
}
SLOPE = 3.0  # by which the score of the end token rises with each word beyond the source
KINDS = {"marian": "MarianMTModel", "bart": "BartForConditionalGeneration"}
NAMES = {**KINDS, "t5": "T5ForConditionalGeneration"}
T5_FLOORS = {(512, 1, 1): 1.15, (512, 16, 1): 1.3, (512, 16, 4): 1.6, (256, 1, 1): 2.0}


def pair_of(kind, settings, width=512, layers=6, vocab_size=16000, activation="swish"):
    width, layers, vocab_size = settings.pick((width, layers, vocab_size), (48, 2, 997))
    sizes = {"d_model": width, "vocab_size": vocab_size, "activation_function": "gelu"}
    for stack in ("encoder", "decoder"):
        sizes[f"{stack}_layers"] = layers
        sizes[f"{stack}_ffn_dim"] = 4 * width
        sizes[f"{stack}_attention_heads"] = max(width // 64, 2)
    if kind == "marian":
        sizes |= {"activation_function": activation, "scale_embedding": True}
    return Pair(kind, settings, **sizes, **SPECIAL)


def t5_pair(settings, width=512, layers=6, vocab_size=32128):
    """Of version 1.1, as Flan-T5: a gated MLP, and logits that are not scaled."""
    width, layers, vocab_size = settings.pick((width, layers, vocab_size), (128, 2, 997))
    sizes = {"d_model": width, "d_kv": 64, "num_heads": width // 64, "d_ff": 2 * width}
    sizes |= {"num_layers": layers, "vocab_size": vocab_size, "feed_forward_proj": "gated-gelu"}
    special = {name: value for name, value in SPECIAL.items() if name.endswith("_token_id")}
    return Pair("t5", settings, **sizes, **special, tie_word_embeddings=False)


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

    name = NAMES[pair.kind]
    return {
        OURS: lambda: translating(pair.ours, inputs, length, beams),
        name: lambda: translating(pair.theirs, inputs, length, beams),
        f"{name}, static cache, compiled": tuned,
        **compiled_steps(pair, inputs, beams, lambda: translating(pair.ours, inputs, length, 1)),
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


def t5(settings):
    """Distances add to the scores of attention: one sentence and sixteen, greedily and by beams."""
    for width, layers, vocab_size in ((512, 6, 32128), (256, 3, 16000)):
        pair = t5_pair(settings, width, layers, vocab_size)
        for rows, beams in ((1, 1), (16, 1), (1, 4), (16, 4)):
            lengths = mixed_lengths(settings.pick(rows, min(rows, 3)), settings.pick(32, 9))
            inputs = source(pair, lengths, settings)
            how = "greedy" if beams == 1 else f"{beams} beams"
            floor = T5_FLOORS.get((width, rows, beams))
            yield Workload(
                f"{width} wide, {layers}+{layers} layers, {how}, batch {rows}",
                contestants(pair, inputs, settings.pick(32, 8), beams, settings),
                {NAMES["t5"]: floor} if floor else {},
            )


def corpus(settings):
    """Sentences of all lengths, in batches: as they come, and sorted by length."""
    rows, batch, longest = settings.pick((128, 32, 40), (12, 4, 12))
    pair = pair_of("marian", settings)
    end_with_the_source(pair, longest, settings)
    inputs = source(pair, mixed_lengths(rows, longest), settings)
    name = KINDS["marian"]

    def prepare(side, order):
        return lambda: translating_corpus(getattr(pair, side), inputs, order, batch, longest + 8)

    as_they_come = torch.arange(rows)
    by_length = inputs["attention_mask"].sum(1).argsort(descending=True, stable=True)
    yield Workload(
        f"{rows} sentences of 3 to {longest} tokens, 4 beams, batches of {batch}",
        {
            OURS: prepare("ours", by_length),
            f"{OURS}, in the order of the corpus": prepare("ours", as_they_come),
            name: prepare("theirs", as_they_come),
            f"{name}, sorted by length": prepare("theirs", by_length),
        },
        {name: 2.0},
    )


def translating_corpus(model, inputs, order, batch, length):
    def call():
        texts = {}
        for rows in order.split(batch):
            ids, mask = inputs["input_ids"][rows], inputs["attention_mask"][rows]
            width = int(mask.sum(1).max())
            found = model.generate(
                input_ids=ids[:, :width],
                attention_mask=mask[:, :width],
                max_new_tokens=length,
                num_beams=4,
                do_sample=False,
            )
            texts |= zip(rows.tolist(), found.tolist(), strict=True)
        return texts

    def outcome(texts):
        written = [until_end(texts[row][1:]) for row in sorted(texts)]
        lengths = torch.tensor([len(text) for text in written])
        if lengths.unique().numel() < 3:
            raise Unfair(f"all translations are about {lengths[0]} tokens long")
        return {"texts": torch.nn.utils.rnn.pad_sequence(list(map(torch.tensor, written)))}

    return Run(call, outcome)


def until_end(tokens):
    return tokens[: tokens.index(END)] if END in tokens else tokens


@torch.no_grad()
def end_with_the_source(pair, longest, settings):
    """Gives the end token a row that scores high once as much has been written as was read.

    A trained model does; a random one would end all sentences alike. The score is a linear function
    of the decoder's state, fitted on sentences of all lengths.
    """
    model = pair.theirs
    lengths = torch.arange(3, longest + 1).repeat(4)
    inputs = source(pair, lengths.tolist(), settings)
    written = model.generate(**inputs, max_new_tokens=longest + 8)
    output = model(**inputs, decoder_input_ids=written, output_hidden_states=True)
    states = output.decoder_hidden_states[-1].double()
    beyond = torch.arange(states.shape[1]) - lengths[:, None].to(states.device)
    best = output.logits.amax(-1)
    wanted = (best + SLOPE * beyond).double()
    row = torch.linalg.lstsq(states.flatten(0, 1), wanted.flatten()[:, None]).solution[:, 0]
    model.get_input_embeddings().weight[END] = row.to(model.dtype)


def engine(settings):
    """The same weights in CTranslate2, which is made of C++ and packs its matrices."""
    rows, length = settings.pick((16, 48), (3, 6))
    pair = pair_of("marian", settings)
    inputs = source(pair, mixed_lengths(rows, settings.pick(32, 9)), settings)
    for beams in (1, 4):

        def theirs(beams=beams):
            call = engines.ctranslate2_translating(pair.theirs, inputs, length, beams)
            return Run(call, lambda tokens: {"tokens": varied(tokens)})

        yield Workload(
            f"{'greedy' if beams == 1 else f'{beams} beams'}, batch {rows}, {length} tokens",
            {
                OURS: lambda beams=beams: translating(pair.ours, inputs, length, beams),
                "CTranslate2": theirs,
            },
            {"CTranslate2": 0.85},
        )


def encoder(settings):
    """The encoder alone, in inference: torch.nn has a path of its own for it."""
    rows, length = settings.pick((32, 128), (3, 9))
    pair = pair_of("marian", settings, activation="relu")
    inputs = source(pair, mixed_lengths(rows, length), settings)
    real = inputs["attention_mask"][..., None]

    def run(encode):
        @torch.no_grad()
        def call():
            return encode()

        return Run(call, lambda states: {"states": states * real})

    def of_torch():
        model = engines.torch_encoder_from(pair.theirs)
        theirs = pair.theirs.model.encoder
        padding = inputs["attention_mask"] == 0

        def encode():
            embedded = theirs.embed_tokens(inputs["input_ids"]) * theirs.embed_scale
            embedded = embedded + theirs.embed_positions(embedded.shape)
            # It leaves trailing padding out where that serves all rows.
            states = model(embedded, src_key_padding_mask=padding)
            return torch.nn.functional.pad(states, (0, 0, 0, padding.shape[1] - states.shape[1]))

        return run(encode)

    yield Workload(
        f"batch {rows}, up to {length} tokens",
        {
            OURS: lambda: run(lambda: pair.ours.model.encoder(**inputs).last_hidden_state),
            "MarianEncoder": lambda: run(
                lambda: pair.theirs.model.encoder(**inputs).last_hidden_state
            ),
            "torch.nn.TransformerEncoder": of_torch,
        },
        {"MarianEncoder": 1.1, "torch.nn.TransformerEncoder": 1.0},
    )
