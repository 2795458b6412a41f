"""The tokenizer of a GGUF file: what `tokenizer_fields` writes, read backwards."""

from collections.abc import Callable
from string import ascii_uppercase
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import generate_merges

from ...engine.aliases import Fields
from ...engine.errors import ConversionError
from .file import GgufFile
from .pre_tokenizers import CUTS, Cut, steps
from .tokenizer import BLANK, CONTROL, NORMAL, PREFIX, ROLES, UNUSED, USER_DEFINED

# The special tokens that llama.cpp assumes where a file names none.
ASSUMED = {
    "t5": {"padding_token_id": 0, "eos_token_id": 1, "unknown_token_id": 2},
    "bert": {
        **{"padding_token_id": 0, "unknown_token_id": 100, "bos_token_id": 101},
        **{"seperator_token_id": 102, "mask_token_id": 103},
    },
}
# Other names of llama.cpp for the same way to cut a text.
SAME_CUT = {
    **dict.fromkeys(("llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral"), "llama-bpe"),
    **dict.fromkeys(("mpt", "olmo", "phi-2", "roberta-bpe", "jais", "gigachat"), "gpt-2"),
    **dict.fromkeys(("refact", "command-r", "smollm", "codeshell", "exaone"), "starcoder"),
    **dict.fromkeys(("deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan"), "qwen2"),
    **dict.fromkeys(("dbrx", "glm4", "chatglm-bpe"), "smaug-bpe"),
    **dict.fromkeys(("gpt3-finnish",), "bloom"),
    **dict.fromkeys(("llama4", "gpt-oss"), "gpt-4o"),
}


def read_tokenizer(file: GgufFile) -> PreTrainedTokenizerFast | None:
    """Return the tokenizer of a file, or None if it has none; refuse one of another kind."""
    told = told_of(file)
    kind = told.get("model", "none")
    if kind in ("none", "no_vocab"):
        return None
    if kind not in KINDS:
        raise ConversionError(
            f"tokenizer.ggml.model is {kind!r} in {file.path}, which is not read: only "
            f"{', '.join(KINDS)} convert; give the tokenizer of the model with --tokenizer"
        )
    backend = KINDS[kind](file, told)
    backend.add_tokens(special_tokens(told))
    backend.post_processor = around(told)
    names = {ours.removesuffix("_id"): told.get(theirs) for ours, theirs in ROLES.items()}
    names["eos_token"] = told.get("eos_token_id")
    if told.get("seperator_token_id") is not None:  # an encoder's, whose texts begin with [CLS]
        names["cls_token"] = told.get("bos_token_id")
    more: Fields = {}
    if kind == "bert":
        del names["bos_token"]
    if kind == "bert" and "token_types.weight" in file.packed:
        more["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    roles = {name: told["tokens"][i] for name, i in names.items() if i is not None}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=file.described().get("context_length"),
        clean_up_tokenization_spaces=False,
        **roles,
        **more,
    )
    tokenizer.chat_template = file.fields.get("tokenizer.chat_template")
    return tokenizer


def told_of(file: GgufFile) -> Fields:
    """Return what a file says of its tokenizer; tokens are named as transformers names them."""
    told = file.below(PREFIX)
    told = {**ASSUMED.get(told.get("model", ""), {}), **told}
    if told.get("model") == "bert":
        told["tokens"] = [word_piece_of(token) for token in told["tokens"]]
    return told


def word_piece_of(token: str) -> str:
    """Return a token without the blank that begins a word, and with ## where it goes on."""
    if token.startswith(BLANK):
        return token.removeprefix(BLANK)
    return token if token.startswith("[") and token.endswith("]") else f"##{token}"


def byte_level(file: GgufFile, told: Fields) -> Tokenizer:
    name, cut = told.get("pre", "default"), cut_of(told)
    if cut is None:
        raise ConversionError(
            f"tokenizer.ggml.pre is {name!r} in {file.path}, and how that cuts a text is not "
            "known: give the tokenizer of the model with --tokenizer"
        )
    model = models.BPE(
        vocab=vocabulary(told), merges=merges_of(told), ignore_merges=cut.ignores_merges
    )
    backend = Tokenizer(model)
    backend.pre_tokenizer, backend.decoder = steps(cut), decoders.ByteLevel()
    return backend


def cut_of(told: Fields) -> Cut | None:
    name = told.get("pre", "default")
    return CUTS.get(SAME_CUT.get(str(name), str(name))) if told["model"] == "gpt2" else None


def sentencepiece(file: GgufFile, told: Fields) -> Tokenizer:
    """Return a tokenizer that merges the pair with the highest score, or by the file's merges."""
    vocab = vocabulary(told)
    if told["model"] == "gemma4":
        merges, prefix = merges_of(told), False
    else:
        scores = dict(zip(told["tokens"], told["scores"], strict=True))
        kinds = dict(zip(told["tokens"], told["token_type"], strict=True))
        learned = {token: score for token, score in scores.items() if kinds[token] == NORMAL}
        merges = generate_merges(vocab, learned)
        prefix = told.get("add_space_prefix", True)
    unknown = told.get("unknown_token_id")
    model = models.BPE(
        vocab=vocab,
        merges=merges,
        byte_fallback=True,
        fuse_unk=True,
        unk_token=None if unknown is None else told["tokens"][unknown],
    )
    backend = Tokenizer(model)
    before = [normalizers.Prepend(BLANK)] if prefix else []
    backend.normalizer = normalizers.Sequence([*before, normalizers.Replace(" ", BLANK)])
    parts: list[Any] = [decoders.Replace(BLANK, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*parts, *([decoders.Strip(" ", 1, 0)] if prefix else [])])
    return backend


def unigram(file: GgufFile, told: Fields) -> Tokenizer:
    """Return a tokenizer of the likeliest pieces, behind spaces as llama.cpp treats them."""
    tokens = told["tokens"][: max(vocabulary(told).values()) + 1]  # each keeps its id
    pieces = list(zip(tokens, told["scores"], strict=False))
    backend = Tokenizer(models.Unigram(pieces, told["unknown_token_id"], byte_fallback=False))
    charsmap = told.get("precompiled_charsmap")
    less, prefix = (told.get(x) for x in ("remove_extra_whitespaces", "add_space_prefix"))
    before: list[normalizers.Normalizer] = []
    if charsmap:
        before.append(normalizers.Precompiled(bytes(charsmap)))
    if less:
        before += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    backend.normalizer = normalizers.Sequence(before)
    where, is_cut = ("always" if prefix else "never"), not any(BLANK in x[1:] for x in tokens)
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=where, split=is_cut)
    backend.decoder = decoders.Metaspace(prepend_scheme=where, split=is_cut)
    return backend


def word_piece(file: GgufFile, told: Fields) -> Tokenizer:
    """Return a tokenizer of word pieces in small letters, as llama.cpp writes every text."""
    vocab = vocabulary(told)
    words = (token for token in vocab if not token.startswith("["))
    if capital := next((token for token in words if any(map(ascii_uppercase.count, token))), None):
        raise ConversionError(
            f"the vocabulary in {file.path} holds {capital!r}, but llama.cpp writes texts in small "
            "letters: give the tokenizer of the model with --tokenizer"
        )
    backend = Tokenizer(models.WordPiece(vocab, unk_token=told["tokens"][told["unknown_token_id"]]))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    return backend


def merges_of(told: Fields) -> list[tuple[str, str]]:
    return [tuple(merge.split(" ", 1)) for merge in told["merges"]]


def vocabulary(told: Fields) -> dict[str, int]:
    """Return the id of each token; an embedding without a token has none."""
    kinds = told.get("token_type") or [NORMAL] * len(told["tokens"])
    pairs = zip(told["tokens"], kinds, strict=True)
    return {token: i for i, (token, kind) in enumerate(pairs) if kind != UNUSED}


def special_tokens(told: Fields) -> list[AddedToken]:
    """Return the tokens that are found in a text before it is cut, in the order of their ids."""
    pairs = zip(told["tokens"], told.get("token_type", ()), strict=False)
    return [
        AddedToken(token, special=kind == CONTROL, normalized=False)
        for token, kind in pairs
        if kind in (CONTROL, USER_DEFINED)
    ]


def around(told: Fields) -> processors.PostProcessor | None:
    """Return what stands before and behind a text: llama.cpp adds two tokens if it is told to."""
    cut = cut_of(told)
    is_usual = told["model"] == "llama" or (cut is not None and cut.ignores_merges)
    ends = told["model"] == "t5"
    first = told.get("bos_token_id") if told.get("add_bos_token", is_usual) else None
    last = told.get("eos_token_id") if told.get("add_eos_token", ends) else None
    if told["model"] == "bert":
        first, last = told["bos_token_id"], told["seperator_token_id"]
    tokens = [(told["tokens"][i], i) for i in (first, last) if i is not None]
    if not tokens:
        return processors.ByteLevel(trim_offsets=False) if told["model"] == "gpt2" else None
    named = {i: token for token, i in tokens}
    parts = [named[first]] if first is not None else []
    parts += ["$A"] + ([named[last]] if last is not None else [])
    pair = None
    if told["model"] in ASSUMED and last is not None:  # XLM-RoBERTa ends the first of two twice
        twice, kind = ([named[last]] if ends and first is not None else []), int(not ends)
        pair = " ".join((*parts, *twice, f"$B:{kind}", f"{named[last]}:{kind}"))
    return processors.TemplateProcessing(" ".join(parts), pair, special_tokens=tokens)


KINDS: dict[str, Callable[[GgufFile, Fields], Tokenizer]] = {
    "gpt2": byte_level,
    "llama": sentencepiece,
    "gemma4": sentencepiece,
    "t5": unigram,
    "bert": word_piece,
}
