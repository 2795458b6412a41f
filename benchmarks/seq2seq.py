"""Translation with the encoder-decoder family, beside Marian, BART and T5."""

from collections.abc import Callable

import torch
from transformers import PreTrainedModel

from . import engines
from .decoding import contestants
from .measure import OURS, Run, Settings, Unfair, Workload, Workloads
from .peers import BOS, END, PAD, Inputs, Pair

SPECIAL = {
    "pad_token_id": PAD,
    "bos_token_id": BOS,
    "eos_token_id": END,
    "decoder_start_token_id": BOS,
    "forced_eos_token_id": None,
    "max_position_embeddings": 256,
}
SLOPE = 3.0  # by which the logit of the end token rises with each token beyond the source
KINDS = ("marian", "bart")
T5_FLOORS = {(512, 1, 1): 1.15, (512, 16, 1): 1.3, (512, 16, 4): 1.6, (256, 1, 1): 2.0}


def pair_of(
    kind: str, settings: Settings, width: int = 512, layers: int = 6, activation: str = "swish"
) -> Pair:
    width, layers, vocab_size = settings.pick((width, layers, 16000), (48, 2, 997))
    sizes = {"d_model": width, "vocab_size": vocab_size, "activation_function": "gelu"}
    for stack in ("encoder", "decoder"):
        sizes[f"{stack}_layers"] = layers
        sizes[f"{stack}_ffn_dim"] = 4 * width
        sizes[f"{stack}_attention_heads"] = max(width // 64, 2)
    if kind == "marian":
        sizes |= {"activation_function": activation, "scale_embedding": True}
    return Pair(kind, settings, **sizes, **SPECIAL)


def t5_pair(settings: Settings, width: int, layers: int, vocab_size: int) -> Pair:
    """Version 1.1, as Flan-T5: a gated MLP, and logits that are not scaled."""
    width, layers, vocab_size = settings.pick((width, layers, vocab_size), (128, 2, 997))
    sizes = {"d_model": width, "d_kv": 64, "num_heads": width // 64, "d_ff": 2 * width}
    sizes |= {"num_layers": layers, "vocab_size": vocab_size, "feed_forward_proj": "gated-gelu"}
    special = {name: value for name, value in SPECIAL.items() if name.endswith("_token_id")}
    return Pair("t5", settings, **sizes, **special, tie_word_embeddings=False)


def sources(pair: Pair, rows: int, longest: int) -> Inputs:
    """Draw sentences as long as those of a corpus: most are short, a few are long."""
    generator = torch.Generator().manual_seed(3)
    lengths = torch.randn(rows, generator=generator).mul(0.6).add(-1.0).exp().mul(longest)
    return pair.batch([*lengths.round().int().clamp(3, longest).tolist()[:-1], longest])


def seq2seq(settings: Settings) -> Workloads:
    """Translate one sentence, a padded batch, and one sentence with a small model."""
    for kind in KINDS:
        for width, layers, rows, floor in ((512, 6, 1, 1.3), (512, 6, 32, 1.5), (256, 3, 1, 2.0)):
            pair = pair_of(kind, settings, width, layers)
            inputs = sources(pair, settings.pick(rows, min(rows, 3)), settings.pick(32, 9))
            yield Workload(
                f"{kind}, {width} wide, {layers}+{layers} layers, batch {rows}",
                contestants(pair, inputs, settings.pick(48, 8)),
                {pair.name: floor},
            )


def beams(settings: Settings) -> Workloads:
    """Translate a padded batch with four beams; no sentence ends before the last."""
    rows, length = settings.pick((32, 32), (3, 6))
    for kind in KINDS:
        pair = pair_of(kind, settings)
        inputs = sources(pair, rows, settings.pick(32, 9))
        yield Workload(
            f"{kind}, 4 beams, batch {rows}, {length} tokens",
            contestants(pair, inputs, length, 4),
            {pair.name: 1.4},
        )


def t5(settings: Settings) -> Workloads:
    """Generate from one source and sixteen, where distances add to the scores of attention."""
    for width, layers, vocab_size in ((512, 6, 32128), (256, 3, 16000)):
        pair = t5_pair(settings, width, layers, vocab_size)
        for rows, beams in ((1, 1), (16, 1), (1, 4), (16, 4)):
            inputs = sources(pair, settings.pick(rows, min(rows, 3)), settings.pick(32, 9))
            how = "greedy" if beams == 1 else f"{beams} beams"
            floor = T5_FLOORS.get((width, rows, beams))
            yield Workload(
                f"{width} wide, {layers}+{layers} layers, {how}, batch {rows}",
                contestants(pair, inputs, settings.pick(32, 8), beams),
                {pair.name: floor} if floor else {},
            )


def corpus(settings: Settings) -> Workloads:
    """Translate sentences of all lengths in batches: as they come, and sorted by length."""
    rows, batch, longest = settings.pick((128, 32, 40), (12, 4, 12))
    pair = pair_of("marian", settings)
    end_with_the_source(pair, longest)
    inputs = sources(pair, rows, longest)
    by_length = inputs["attention_mask"].sum(1).argsort(descending=True, stable=True)

    def contestant(side: str, order: torch.Tensor) -> Callable[[], Run]:
        return pair.contestant(side, translating_corpus, inputs, order.split(batch), longest + 8)

    yield Workload(
        f"{rows} sentences of 3 to {longest} tokens, 4 beams, batches of {batch}",
        {
            OURS: contestant("ours", by_length),
            f"{OURS}, in the order of the corpus": contestant("ours", torch.arange(rows)),
            pair.name: contestant("theirs", torch.arange(rows)),
            f"{pair.name}, sorted by length": contestant("theirs", by_length),
        },
        {pair.name: 2.0},
    )


def translating_corpus(
    model: PreTrainedModel, inputs: Inputs, batches: tuple[torch.Tensor, ...], length: int
) -> Run:
    def call() -> dict[int, torch.Tensor]:
        translations = {}
        for rows in batches:
            ids, mask = inputs["input_ids"][rows], inputs["attention_mask"][rows]
            width = int(mask.sum(1).max())
            found = model.generate(
                input_ids=ids[:, :width],
                attention_mask=mask[:, :width],
                max_new_tokens=length,
                num_beams=4,
                do_sample=False,
            )
            translations |= zip(rows.tolist(), found[:, 1:], strict=True)
        return translations

    def outcome(translations: dict[int, torch.Tensor]) -> dict[str, torch.Tensor]:
        found = [translations[row] for row in sorted(translations)]
        found = [tokens[(tokens == END).cumsum(0) == 0] for tokens in found]  # up to the end
        if len({len(tokens) for tokens in found}) < 3:
            raise Unfair(f"all translations are about {len(found[0])} tokens long")
        return {"tokens": torch.nn.utils.rnn.pad_sequence(found)}

    return Run(call, outcome)


@torch.no_grad()
def end_with_the_source(pair: Pair, longest: int) -> None:
    """Fit the embedding of the end token so that translations are about as long as their source.

    Those of a trained model are; a random one would end all sentences alike. The logit is a linear
    function of the decoder's state, fitted on sentences of all lengths.
    """
    model = pair.theirs
    lengths = torch.arange(3, longest + 1).repeat(4)
    inputs = pair.batch(lengths.tolist())
    generated = model.generate(**inputs, max_new_tokens=longest + 8)
    output = model(**inputs, decoder_input_ids=generated, output_hidden_states=True)
    states = output.decoder_hidden_states[-1].double()
    beyond = torch.arange(states.shape[1]) - lengths[:, None]
    best = output.logits.amax(-1)
    wanted = (best + SLOPE * beyond).double()
    row = torch.linalg.lstsq(states.flatten(0, 1), wanted.flatten()[:, None]).solution[:, 0]
    model.get_input_embeddings().weight[END] = row.to(model.dtype)


def encoder(settings: Settings) -> Workloads:
    """Run the encoder alone, in inference: torch.nn has a fast path of its own for it."""
    rows, length = settings.pick((32, 128), (3, 9))
    pair = pair_of("marian", settings, activation="relu")
    inputs = sources(pair, rows, length)

    def encoding(encode: Callable[[], torch.Tensor]) -> Run:
        real = inputs["attention_mask"][..., None]
        return Run(torch.no_grad()(encode), lambda states: {"states": states * real})

    def encoder_of(model: PreTrainedModel) -> Run:
        return encoding(lambda: model.model.encoder(**inputs).last_hidden_state)

    def encoder_of_torch(model: PreTrainedModel) -> Run:
        converted, theirs = engines.torch_encoder_from(model), model.model.encoder
        padding = inputs["attention_mask"] == 0

        def encode() -> torch.Tensor:
            embedded = theirs.embed_tokens(inputs["input_ids"]) * theirs.embed_scale
            embedded = embedded + theirs.embed_positions(embedded.shape)
            # It drops trailing padding where that serves the whole batch.
            states = converted(embedded, src_key_padding_mask=padding)
            return torch.nn.functional.pad(states, (0, 0, 0, padding.shape[1] - states.shape[1]))

        return encoding(encode)

    yield Workload(
        f"batch {rows}, up to {length} tokens",
        {
            OURS: pair.contestant("ours", encoder_of),
            "MarianEncoder": pair.contestant("theirs", encoder_of),
            "torch.nn.TransformerEncoder": pair.contestant("theirs", encoder_of_torch),
        },
        {"MarianEncoder": 1.1, "torch.nn.TransformerEncoder": 1.0},
    )
