"""The encoder-only family beside BERT and ModernBERT, and what its windows cost."""

import tempfile
from functools import partial
from pathlib import Path

import torch
from transformers import PreTrainedModel

from hf_tformer import TformerEncoderConfig, TformerEncoderModel

from .measure import OURS, Absent, Run, Settings, Workload, Workloads
from .peers import BOS, END, PAD, Inputs, Pair, random_batch
from .travelling import WHERE, without_package

PADDING = 0.3  # of all places in a batch
SPECIAL = {"bos_token_id": BOS, "eos_token_id": END, "cls_token_id": BOS, "sep_token_id": END}
# Kind, width, layers; sequences, and tokens of the longest.
TASKS = (
    ("bert", 384, 6, 32, 64),
    ("bert", 768, 12, 16, 128),
    ("modernbert", 512, 6, 32, 128),
    ("modernbert", 512, 6, 8, 512),
)


def pair_of(
    kind: str, settings: Settings, width: int, layers: int, head: str | None = None
) -> Pair:
    width, layers, vocab_size = settings.pick((width, layers, 30000), (48, 2, 997))
    sizes = {
        "vocab_size": vocab_size,
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "num_hidden_layers": layers,
        "num_attention_heads": max(width // 64, 2),
        "pad_token_id": PAD,
    }
    if kind == "modernbert":  # both sides of our default window
        sizes |= {**SPECIAL, "intermediate_size": 43 * width // 16, "local_attention": 126}
    return Pair(kind, settings, head, **sizes)


def sentences_of(pair: Pair, rows: int, longest: int) -> Inputs:
    """Draw sequences from two fifths of the longest up, so that PADDING is what is left."""
    lengths = torch.linspace(longest * (1 - 2 * PADDING), longest, rows).round().int()
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(3))
    return pair.batch(lengths[order].tolist())


def encoding(model: PreTrainedModel, inputs: Inputs) -> Run:
    real = inputs["attention_mask"].bool()

    @torch.no_grad()
    def call() -> torch.Tensor:
        return model(**inputs).last_hidden_state

    return Run(call, lambda states: {"states": states[real]})


def encoder_only(settings: Settings) -> Workloads:
    """Encode a padded batch of mixed lengths: with the package, and as a saved folder alone."""
    for kind, width, layers, rows, longest in TASKS:
        pair = pair_of(kind, settings, width, layers)
        rows, longest = settings.pick((rows, longest), (3, 10))
        inputs = sentences_of(pair, rows, longest)
        label = f"{kind}, {width} wide, {layers} layers, {rows} sequences of up to {longest} tokens"
        contestants = pair.contestants(encoding, inputs)
        floors = {pair.name: 1.5}, {pair.name: 1.0}
        yield Workload(label, contestants, *floors, measures=("seconds", "MiB"))
        alone = {**contestants, OURS: without_package(contestants[OURS])}
        yield Workload(f"{label}, {WHERE}", alone, {pair.name: 1.0})


def sentences(settings: Settings) -> Workloads:
    """Encode many short texts by sentence-transformers."""
    count, longest = settings.pick((1000, 32), (8, 9))
    pair = pair_of("bert", settings, 384, 6)
    inputs = sentences_of(pair, count, longest)
    real = (ids[mask.bool()].tolist() for ids, mask in zip(*inputs.values(), strict=True))
    texts = [" ".join(f"w{word}" for word in row) for row in real]
    yield Workload(
        f"bert, 384 wide, 6 layers, {count} sentences",
        pair.contestants(encoding_sentences, texts, pair.sizes["vocab_size"]),
        {pair.name: 1.0},
    )


def encoding_sentences(model: PreTrainedModel, texts: list[str], vocab_size: int) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        save_tokenizer(vocab_size, Path(folder))
        return by_sentence_transformers(Path(folder), texts)


def by_sentence_transformers(folder: Path, texts: list[str]) -> Run:
    try:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    except ImportError as error:
        raise Absent("sentence-transformers 6 is not installed") from error
    encoder = Transformer(str(folder))
    encoder.auto_model.eval()
    pooling = Pooling(encoder.get_embedding_dimension())
    sentence_model = SentenceTransformer(modules=[encoder, pooling], device="cpu")
    return Run(
        lambda: sentence_model.encode(texts, show_progress_bar=False),
        lambda vectors: {"vectors": torch.as_tensor(vectors)},
    )


def save_tokenizer(vocab_size: int, folder: Path) -> None:
    """Save a tokenizer with one word for each id."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {f"w{index}": index for index in range(vocab_size)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token=f"w{BOS}"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=f"w{PAD}", unk_token=f"w{BOS}", model_max_length=512
    )
    tokenizer.save_pretrained(folder)


def windows(settings: Settings) -> Workloads:
    """Measure growing sequences, with sliding windows alone and with full attention, too."""
    lengths = settings.pick((1024, 2048, 4096, 8192, 16384), (100, 200))
    layers = settings.pick(6, 2)
    kinds = {
        "sliding windows alone": ["sliding_attention"] * layers,
        "full attention in every third layer": None,
    }
    for name, layer_types in kinds.items():
        for length in lengths:
            yield Workload(
                f"{length} tokens, {name}",
                {OURS: partial(one_sequence, length, layer_types, layers)},
                measures=("seconds", "MiB"),
                points={OURS: (name, length)},
            )


def one_sequence(length: int, layer_types: list[str] | None, layers: int) -> Run:
    torch.manual_seed(0)
    config = TformerEncoderConfig(
        vocab_size=997,
        hidden_size=256,
        intermediate_size=688,
        num_attention_heads=4,
        num_hidden_layers=layers,
        max_position_embeddings=length,
        layer_types=layer_types,
    )
    return encoding(TformerEncoderModel(config).eval(), random_batch(config.vocab_size, [length]))
