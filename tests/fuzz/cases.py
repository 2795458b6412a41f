"""What a promise is tried on: a model, a batch, and what is asked of it."""

from dataclasses import dataclass, field, fields

from hypothesis import strategies as st

from .configurations import configurations

BACKENDS = ("eager", "sdpa", "flash_attention_2", "flex_attention")
FAMILIES = ("decoder", "seq2seq", "encoder", "mixture")
WRITERS = ("decoder", "seq2seq", "mixture")
DECODERS = ("decoder", "mixture")


@dataclass
class Case:
    """Its repr is a program: only what is not the default is shown."""

    family: str
    config: dict[str, object]  # arguments of the configuration
    lengths: list[int]  # of each text, or of each source
    targets: list[int] = field(default_factory=list)  # of an encoder-decoder
    side: str = "left"  # where texts (sources) are padded
    target_side: str = "left"
    dtype: str = "float32"
    backend: str = "sdpa"
    seed: int = 0  # of the weights, the tokens and of sampling
    chunks: list[int] = field(default_factory=list)  # lengths of what is read beside a cache
    cache: str = "dynamic"
    reweighted: bool = False  # all weights are replaced after each chunk
    cropped: bool = False  # the last token of each chunk is read once more
    types: bool = False  # each token of an encoder is given a type
    embedded: bool = False  # the embeddings are given, not the tokens
    begun: bool = False  # the texts to be written begin with the targets
    options: dict[str, object] = field(default_factory=dict)  # of generate, or of the loss
    format: str = ""  # of a conversion

    def __repr__(self):
        values = {f.name: (getattr(self, f.name), f.default) for f in fields(self)}
        shown = {
            name: value
            for name, (value, default) in values.items()
            if value != default and value not in ([], {})
        }
        return f"Case({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


@st.composite
def cases(
    draw,
    backends=("sdpa",),
    steady=False,
    dropout=True,
    chunks=False,
    options=None,
    families=FAMILIES,
):
    family = draw(st.sampled_from(families))
    texts = draw(st.integers(1, 5))
    lengths = st.lists(st.integers(1, 12), min_size=texts, max_size=texts)
    case = Case(family, draw(configurations(family, steady, dropout)), draw(lengths))
    case.side, case.target_side = draw(sides), draw(sides)
    case.dtype = draw(st.sampled_from(["float32", "float64"]))
    case.backend = draw(st.sampled_from(backends))
    case.seed = draw(st.integers(0, 999))
    if family == "seq2seq":
        case.targets = draw(lengths)
    if chunks:
        case.chunks = draw(st.lists(st.integers(1, 6), min_size=1, max_size=8))
        case.cache = draw(st.sampled_from(["dynamic", "dynamic", "static"]))
        grows = case.cache == "dynamic" and not case.config.get("sliding_window")
        case.cropped = grows and draw(st.booleans())
    if options is not None:
        case.options = draw(options(case))
    # Flash attention is made for values that are no wider than keys, and adds nothing to scores.
    wide = (case.config.get("value_head_dim") or 0) > head_dim(case.config)
    if (wide or case.config.get("score_bias")) and case.backend.startswith("flash"):
        case.backend = "sdpa"
    if case.config.get("attn_logit_softcapping") and case.backend == "sdpa":
        case.backend = "eager"  # the other bounds nothing
    case.types = bool(case.config.get("type_vocab_size")) and draw(st.booleans())
    case.embedded = draw(st.booleans())
    return case


def head_dim(config):
    heads = config.get("num_attention_heads", 8)
    return config.get("head_dim") or config["hidden_size"] // heads


sides = st.sampled_from(["left", "right"])


def some_of(choices):
    return st.fixed_dictionaries({}, optional=choices)


@st.composite
def ends(draw, vocab_size):
    """Few ids end a text rarely, many end texts at different steps."""
    ids = st.integers(0, vocab_size - 1)
    return draw(st.none() | ids | st.lists(ids, min_size=1, max_size=8, unique=True))


@st.composite
def generate_options(draw, case):
    """Options of generate: greedy, sampled or beams, and every processor that takes few words."""
    limit = case.config["vocab_size"]
    ids = st.integers(0, limit - 1)
    some_ids = st.lists(ids, min_size=1, max_size=3, unique=True)
    words = st.lists(st.lists(ids, min_size=1, max_size=2), min_size=1, max_size=3, unique_by=tuple)
    options = {"max_new_tokens": draw(st.integers(1, 10)), "pad_token_id": draw(st.integers(0, 10))}
    beams = draw(st.sampled_from([1, 1, 2, 3, 4, 5]))
    sampled = draw(st.integers(0, 3)) == 3
    if beams > 1:
        options |= {"num_beams": beams, "num_return_sequences": draw(st.integers(1, beams))}
        choices = {
            "length_penalty": st.sampled_from([0.0, 1.0, -1.0, 0.4, 2.0]),
            "early_stopping": st.sampled_from([False, True, "never"]),
        }
        options |= draw(some_of(choices))
    if sampled:
        options["do_sample"] = True
        choices = {
            "temperature": st.sampled_from([0.5, 1.0, 2.0]),
            "top_k": st.integers(1, 8),
            "top_p": st.sampled_from([0.3, 0.9, 1.0]),
            "min_p": st.sampled_from([0.05, 0.3]),
            "typical_p": st.sampled_from([0.4, 0.9]),
            "epsilon_cutoff": st.just(0.01),
            "eta_cutoff": st.just(0.01),
        }
        options |= draw(some_of(choices))
        if beams == 1:
            options["num_return_sequences"] = draw(st.integers(1, 3))
    if draw(st.booleans()):
        options["eos_token_id"] = draw(ends(limit))
    choices = {
        "repetition_penalty": st.sampled_from([1.3, 0.8, 2.5]),
        "no_repeat_ngram_size": st.integers(1, 3),
        "encoder_repetition_penalty": st.sampled_from([1.3, 0.8]),
        "encoder_no_repeat_ngram_size": st.integers(1, 3),
        "min_new_tokens": st.integers(1, 6),
        "min_length": st.integers(1, 12),
        "bad_words_ids": words,
        "forced_bos_token_id": ids,
        "forced_eos_token_id": ids,  # several would have one score
        "suppress_tokens": some_ids,
        "begin_suppress_tokens": some_ids,
        "exponential_decay_length_penalty": st.just((2, 1.5)),
        "renormalize_logits": st.booleans(),
        "remove_invalid_values": st.booleans(),
        "cache_implementation": st.sampled_from(["dynamic", "static"]),
        "use_cache": st.booleans(),
        "return_dict_in_generate": st.booleans(),
    }
    if case.config.get("source_vocab_size"):  # whose ids mean nothing to the target's scores
        choices = {n: choice for n, choice in choices.items() if not n.startswith("encoder_")}
    names = draw(st.lists(st.sampled_from(sorted(choices)), max_size=3, unique=True))
    if "exponential_decay_length_penalty" in names:  # which asks for an end
        options["eos_token_id"] = draw(ids)
    return options | {name: draw(choices[name]) for name in names}


@st.composite
def steady_options(draw, case):
    """Those under which a text does not depend on the padding in front of it."""
    limit = case.config["vocab_size"]
    ids = st.integers(0, limit - 1)
    options = {"max_new_tokens": draw(st.integers(1, 8)), "pad_token_id": draw(st.integers(0, 10))}
    choices = {
        "num_beams": st.integers(1, 4),
        "eos_token_id": ends(limit),
        "min_new_tokens": st.integers(1, 4),
        "suppress_tokens": st.lists(ids, min_size=1, max_size=3, unique=True),
        "cache_implementation": st.sampled_from(["dynamic", "static"]),
        "use_cache": st.booleans(),
    }
    names = draw(st.lists(st.sampled_from(sorted(choices)), max_size=3, unique=True))
    return options | {name: draw(choices[name]) for name in names}


@st.composite
def loss_options(draw, case):
    """How many labels are ignored besides padding, and what the sum is divided by."""
    choices = {
        "ignored": st.sampled_from([0.3, 0.9, 1.0]),
        "num_items_in_batch": st.integers(1, 99),
        "label_smoothing": st.sampled_from([0.0, 0.2]),
        "z_loss": st.sampled_from([0.0, 0.05]),
    }
    return draw(some_of(choices))
