"""The encoder-only family beside BERT and ModernBERT, and what its windows cost."""

import tempfile
from pathlib import Path

import torch

from hf_tformer import TformerEncoderConfig, TformerEncoderModel

from .measure import OURS, Absent, Run, Workload
from .peers import BOS, END, PAD, Pair, random_ids
from .seq2seq import source
from .travelling import WHERE, as_it_travels

PADDING = 0.3  # of all places in a batch
KINDS = {"bert": "BertModel", "modernbert": "ModernBertModel"}
SPECIAL = {"bos_token_id": BOS, "eos_token_id": END, "cls_token_id": BOS, "sep_token_id": END}
# Kind, width, layers; texts, and tokens of the longest.
TASKS = (
    ("bert", 384, 6, 32, 64),
    ("bert", 768, 12, 16, 128),
    ("modernbert", 512, 6, 32, 128),
    ("modernbert", 512, 6, 8, 512),
)


def pair_of(kind, settings, width, layers):
    width, layers, vocab_size = settings.pick((width, layers, 30000), (48, 2, 997))
    sizes = {
        "vocab_size": vocab_size,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": max(width // 64, 2),
        "pad_token_id": PAD,
    }
    if kind == "bert":
        return Pair(kind, settings, **sizes, intermediate_size=4 * width)
    # Both sides of our default window.
    return Pair(
        kind, settings, **sizes, **SPECIAL, intermediate_size=43 * width // 16, local_attention=126
    )


def mixed_lengths(rows, longest):
    """From two fifths of the longest up, so that PADDING is what is left."""
    lengths = torch.linspace(longest * (1 - 2 * PADDING), longest, rows).round().int()
    return lengths[torch.randperm(rows, generator=torch.Generator().manual_seed(3))].tolist()


def encoding(model, inputs):
    real = inputs["attention_mask"].bool()

    @torch.no_grad()
    def call():
        return model(**inputs).last_hidden_state

    return Run(call, lambda states: {"states": states[real]})


def encoder_only(settings):
    """A padded batch of mixed lengths: with the package, and as a folder travels."""
    for kind, width, layers, rows, longest in TASKS:
        pair = pair_of(kind, settings, width, layers)
        rows, longest = settings.pick((rows, longest), (3, 10))
        inputs = source(pair, mixed_lengths(rows, longest), settings)
        name = KINDS[kind]
        label = f"{kind}, {width} wide, {layers} layers, {rows} texts of up to {longest} tokens"
        contestants = {
            OURS: lambda pair=pair, inputs=inputs: encoding(pair.ours, inputs),
            name: lambda pair=pair, inputs=inputs: encoding(pair.theirs, inputs),
        }
        yield Workload(label, contestants, {name: 1.5}, {name: 1.0}, measures=("seconds", "MiB"))
        travelling = {**contestants, OURS: as_it_travels(contestants[OURS])}
        yield Workload(f"{label}, {WHERE}", travelling, {name: 1.0})


def sentences(settings):
    """sentence-transformers' own encode() of many short texts."""
    count, longest = settings.pick((1000, 32), (8, 9))
    pair = pair_of("bert", settings, 384, 6)
    lengths = mixed_lengths(count, longest)
    ids = random_ids(pair.sizes["vocab_size"], count, longest, settings).tolist()
    texts = [
        " ".join(f"w{word}" for word in row[:length])
        for row, length in zip(ids, lengths, strict=True)
    ]
    yield Workload(
        f"bert, 384 wide, 6 layers, {count} sentences",
        {
            OURS: lambda: encoding_sentences(pair.ours, texts, pair.sizes["vocab_size"]),
            "BertModel": lambda: encoding_sentences(pair.theirs, texts, pair.sizes["vocab_size"]),
        },
        {"BertModel": 1.0},
    )


def encoding_sentences(model, texts, vocab_size):
    try:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    except ImportError as error:
        raise Absent("sentence-transformers 6 is not installed") from error
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        save_tokenizer(Path(folder), vocab_size)
        encoder = Transformer(folder)
    encoder.auto_model.eval()
    pooling = Pooling(encoder.get_embedding_dimension())
    sentence_model = SentenceTransformer(modules=[encoder, pooling], device="cpu")
    return Run(
        lambda: sentence_model.encode(texts, show_progress_bar=False),
        lambda vectors: {"vectors": torch.as_tensor(vectors)},
    )


def save_tokenizer(folder, vocab_size):
    """One word for each id."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {f"w{index}": index for index in range(vocab_size)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token=f"w{BOS}"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=f"w{PAD}", unk_token=f"w{BOS}", model_max_length=512
    )
    tokenizer.save_pretrained(folder)


def windows(settings):
    """Time and memory as a text grows, under windows alone, and with layers that see all."""
    lengths = settings.pick((1024, 2048, 4096, 8192, 16384), (100, 200))
    layers = settings.pick(6, 2)
    forms = {
        "windows alone": ["sliding_attention"] * layers,
        "every third layer sees all": None,
    }
    for name, layer_types in forms.items():
        for length in lengths:
            yield Workload(
                f"{length} tokens, {name}",
                {OURS: lambda n=length, kinds=layer_types: one_text(n, kinds, layers, settings)},
                measures=("seconds", "MiB"),
                points={OURS: (name, length)},
            )


def one_text(length, layer_types, layers, settings):
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
    model = TformerEncoderModel(config).to(settings.device, settings.torch_dtype).eval()
    ids = random_ids(config.vocab_size, 1, length, settings)
    return encoding(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)})
