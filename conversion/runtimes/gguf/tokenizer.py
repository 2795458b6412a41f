"""The tokenizer of a GGUF file: the fields with which llama.cpp has our ids.

A tokenizer is recognised by its behaviour, not by its name. Behaviour that none of llama.cpp's
kinds has is refused here; the proof compares the ids of a text of many scripts in llama.cpp.
"""

import base64
import json
from itertools import pairwise
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from ...engine.aliases import Fields
from ...engine.errors import ConversionError, UnexpressibleError
from .pre_tokenizers import TEXT, recognise

Content = dict[str, Any]  # of tokenizer.json
READER = "llama.cpp"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
BLANK = "▁"  # a space, in the tokens of sentencepiece
BYTES = [f"<0x{i:02X}>" for i in range(256)]
ROLES = {  # of our tokenizers → in a file
    "bos_token_id": "bos_token_id",
    "pad_token_id": "padding_token_id",
    "unk_token_id": "unknown_token_id",
    "sep_token_id": "seperator_token_id",  # as llama.cpp spells it
    "mask_token_id": "mask_token_id",
}
PREFIX = "tokenizer.ggml."  # of the fields in a file
ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")


def tokenizer_fields(
    tokenizer: PreTrainedTokenizerBase | None, rows: int, ends: list[int]
) -> Fields:
    """Return the fields by their names behind `tokenizer.` in a file.

    `rows` is the number of embeddings, `ends` are the tokens that end a sequence.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if tokenizer is None or backend is None:
        raise ConversionError(
            "there is no tokenizer.json, and llama.cpp reads the tokenizer from its own file: give "
            "one with --tokenizer"
        )
    content = json.loads(backend.to_str())
    kind = content["model"]["type"]
    tokens, types = vocabulary(tokenizer, rows)
    if kind not in KINDS:
        raise UnexpressibleError("model.type in tokenizer.json", kind, READER, tuple(KINDS))
    fields = {
        "tokens": tokens,
        "token_type": types,
        **KINDS[kind](content, backend, tokens, types),
        **roles(tokenizer, ends),
    }
    if fields["model"] != "bert":  # which always adds both
        fields |= added_tokens(tokenizer)
    fields = {f"ggml.{name}": value for name, value in fields.items()}
    if isinstance(tokenizer.chat_template, str):
        fields["chat_template"] = tokenizer.chat_template
    return fields


def vocabulary(tokenizer: PreTrainedTokenizerBase, rows: int) -> tuple[list[str], list[int]]:
    """Return tokens and their types; an embedding without a token gets an unused one."""
    tokens, types = [f"[PAD{i}]" for i in range(rows)], [UNUSED] * rows
    for token, i in tokenizer.get_vocab().items():
        tokens[i], types[i] = token, NORMAL
    for i, token in tokenizer.added_tokens_decoder.items():
        types[i] = CONTROL if token.special else USER_DEFINED
    return tokens, types


def bpe(content: Content, backend: Tokenizer, tokens: list[str], types: list[int]) -> Fields:
    model = content["model"]
    for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(name):
            raise UnexpressibleError(f"{name} in tokenizer.json", model[name], READER, (None,))
    pairs = [tuple(m.split(" ") if isinstance(m, str) else m) for m in model["merges"]]
    merges = [" ".join(pair) for pair in pairs]
    if not model.get("byte_fallback"):
        kind = (content["normalizer"] or {}).get("type")
        if kind not in (None, "NFC"):  # NFC changes hardly any text
            raise UnexpressibleError("normalizer in tokenizer.json", kind, READER, (None, "NFC"))
        pre = recognise(backend.pre_tokenizer, model["ignore_merges"])
        return {"model": "gpt2", "pre": pre, "merges": merges}
    mark_bytes(tokens, types)
    prefix, cut = blanks(backend)
    if cut and any(BLANK in token[1:] for token in tokens):
        raise ConversionError(
            f"pre_tokenizer in tokenizer.json cuts text at blanks, but some tokens hold {BLANK!r} "
            "inside, and llama.cpp would use them: train a tokenizer without such tokens"
        )
    if is_closed(pairs, model["vocab"]):
        return {"model": "llama", "add_space_prefix": prefix, "scores": ranks(pairs, tokens)}
    if prefix:
        raise ConversionError(
            "merges in tokenizer.json are not all that its vocabulary allows, as sentencepiece's "
            "are, and it adds a space before a text, which llama.cpp cannot express together: "
            "train a tokenizer with ByteLevel(add_prefix_space=False)"
        )
    return {"model": "gemma4", "merges": merges, "scores": [0.0] * len(tokens)}


def mark_bytes(tokens: list[str], types: list[int]) -> None:
    places = {token: i for i, token in enumerate(tokens)}
    if missing := [token for token in BYTES if token not in places]:
        raise ConversionError(
            f"byte_fallback is true in tokenizer.json, but there is no token {missing[0]}: "
            "train the tokenizer with all 256 of them"
        )
    for token in BYTES:
        types[places[token]] = BYTE


def blanks(backend: Tokenizer) -> tuple[bool, bool]:
    """Return whether a space is added before a text, and whether text is cut at spaces."""
    shown, pieces = written_out(backend, TEXT)
    marked = TEXT.replace(" ", BLANK)
    if shown not in (marked, BLANK + marked):
        raise ConversionError(
            "normalizer and pre_tokenizer in tokenizer.json do more than to write spaces as "
            f"{BLANK!r}, which is all that llama.cpp does: train a tokenizer with Metaspace alone"
        )
    return shown != marked, pieces > 1


def written_out(backend: Tokenizer, text: str) -> tuple[str, int]:
    """Return a text as the tokenizer's model gets it, and the number of its pieces."""
    if backend.normalizer is not None:
        text = backend.normalizer.normalize_str(text)
    if backend.pre_tokenizer is None:
        return text, 1
    pieces = [piece for piece, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
    return "".join(pieces), len(pieces)


def is_closed(pairs: list[tuple[str, str]], vocab: dict[str, int]) -> bool:
    """Return whether any two tokens that make a third may merge, and each token has one rank.

    Then tokens alone, without the pairs that merge, have the same merges, as in sentencepiece.
    """
    known, made = set(pairs), [a + b for a, b in pairs]
    grouped = sum(x != y for x, y in pairwise(made)) + 1 == len(set(made))
    return grouped and all(
        (token[:i], token[i:]) in known
        for token in set(made)
        for i in range(1, len(token))
        if token[:i] in vocab and token[i:] in vocab
    )


def ranks(pairs: list[tuple[str, str]], tokens: list[str]) -> list[float]:
    """Return the score of each token, which is higher the earlier it is merged."""
    first: dict[str, float] = {}
    for rank, (left, right) in enumerate(pairs):
        first.setdefault(left + right, float(-rank))
    return [first.get(token, float(-len(pairs))) for token in tokens]


def unigram(content: Content, backend: Tokenizer, tokens: list[str], types: list[int]) -> Fields:
    model = content["model"]
    if model.get("byte_fallback"):
        raise UnexpressibleError("byte_fallback in tokenizer.json", True, READER, (False,))
    types[model["unk_id"]] = UNKNOWN
    scores = [score for _, score in model["vocab"]]
    fields = {
        "model": "t5",
        "scores": scores + [0.0] * (len(tokens) - len(scores)),
        **treatment_of_blanks(backend),
    }
    steps = content["normalizer"] or {}
    for step in steps.get("normalizers", [steps]):
        if step.get("type") == "Precompiled":
            fields["precompiled_charsmap"] = base64.b64decode(step["precompiled_charsmap"])
        elif step.get("type") not in (None, "Replace", "Strip"):  # of blanks, tested above
            allowed = ("Precompiled", "Replace", "Strip")
            raise UnexpressibleError("normalizer in tokenizer.json", step["type"], READER, allowed)
    return fields


def treatment_of_blanks(backend: Tokenizer) -> Fields:
    """Return whether a space is added before a text, and whether extra spaces are dropped."""
    shown, _ = written_out(backend, "a  b  ")
    ways = {
        BLANK * prefix + (f"a{BLANK}b" if less else "a  b  ".replace(" ", BLANK)): (prefix, less)
        for prefix in (True, False)
        for less in (True, False)
    }
    if shown not in ways:
        raise ConversionError(
            f"normalizer and pre_tokenizer in tokenizer.json write 'a  b  ' as {shown!r}, which "
            f"llama.cpp cannot express: only {', '.join(map(repr, ways))} convert"
        )
    prefix, less = ways[shown]
    return {"add_space_prefix": prefix, "remove_extra_whitespaces": less}


def word_piece(content: Content, backend: Tokenizer, tokens: list[str], types: list[int]) -> Fields:
    """Mark tokens that begin a word with a blank, where ours mark the others with ##."""
    prefix = content["model"]["continuing_subword_prefix"]
    if prefix != "##":
        raise UnexpressibleError("continuing_subword_prefix", prefix, READER, ("##",))
    normalizer = content["normalizer"] or {}
    for name, value in {"type": "BertNormalizer", "lowercase": True}.items():
        if normalizer.get(name) != value:
            what = f"normalizer.{name} in tokenizer.json"
            raise UnexpressibleError(what, normalizer.get(name), READER, (value,))
    for i, token in enumerate(tokens):
        if types[i] == NORMAL:
            tokens[i] = token[2:] if token.startswith(prefix) else BLANK + token
    return {"model": "bert"}


KINDS = {"BPE": bpe, "Unigram": unigram, "WordPiece": word_piece}


def roles(tokenizer: PreTrainedTokenizerBase, ends: list[int]) -> Fields:
    if len(ends) > len(ENDS):
        raise ConversionError(
            f"eos_token_id is {ends}, but llama.cpp has {len(ENDS)} end tokens: name fewer of them "
            "in generation_config.json"
        )
    known = {name: getattr(tokenizer, ours, None) for ours, name in ROLES.items()}
    if tokenizer.cls_token_id is not None and tokenizer.bos_token_id is None:
        known["bos_token_id"] = tokenizer.cls_token_id  # both stand before a text
    known |= dict(zip(ENDS, ends, strict=False))
    return {name: i for name, i in known.items() if i is not None}


def added_tokens(tokenizer: PreTrainedTokenizerBase) -> Fields:
    """Return whether bos_token is added before a text, and eos_token behind it."""
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = tokenizer("a")["input_ids"]
    places = range(len(whole) - len(bare) + 1)
    start = next((i for i in places if whole[i : i + len(bare)] == bare), 0)
    before, behind = whole[:start], whole[start + len(bare) :]
    first, last = [tokenizer.bos_token_id], [tokenizer.eos_token_id]
    if before not in ([], first) or behind not in ([], last):
        raise ConversionError(
            f"post_processor in tokenizer.json puts tokens {before} before a text and {behind} "
            "behind it, but llama.cpp adds bos_token and eos_token alone: correct one of them"
        )
    return {"add_bos_token": bool(before), "add_eos_token": bool(behind)}
