"""The tokenizer of a GGUF file: what `tokenizer_fields` writes, read backwards."""

from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import generate_merges

from ...engine.aliases import Fields
from ...engine.errors import ConversionError
from .file import GgufFile
from .pre_tokenizers import CUTS, Cut, steps
from .tokenizer import BLANK, CONTROL, NORMAL, PREFIX, ROLES, UNUSED, USER_DEFINED

MODELS = ("gpt2", "llama", "gemma4")
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
    told = file.below(PREFIX)
    kind = told.get("model", "none")
    if kind in ("none", "no_vocab"):
        return None
    if kind not in MODELS:
        raise ConversionError(
            f"tokenizer.ggml.model is {kind!r} in {file.path}, which is not read: only "
            f"{', '.join(MODELS)} convert; give the tokenizer of the model with --tokenizer"
        )
    backend = byte_level(file, told) if kind == "gpt2" else sentencepiece(told)
    backend.add_tokens(special_tokens(told))
    backend.post_processor = around(told)
    names = {ours.removesuffix("_id"): told.get(theirs) for ours, theirs in ROLES.items()}
    names["eos_token"] = told.get("eos_token_id")
    roles = {name: told["tokens"][i] for name, i in names.items() if i is not None}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=file.described().get("context_length"),
        clean_up_tokenization_spaces=False,
        **roles,
    )
    tokenizer.chat_template = file.fields.get("tokenizer.chat_template")
    return tokenizer


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


def sentencepiece(told: Fields) -> Tokenizer:
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
    first = told.get("bos_token_id") if told.get("add_bos_token", is_usual) else None
    last = told.get("eos_token_id") if told.get("add_eos_token", False) else None
    tokens = [(told["tokens"][i], i) for i in (first, last) if i is not None]
    if not tokens:
        return processors.ByteLevel(trim_offsets=False) if told["model"] == "gpt2" else None
    named = {i: token for token, i in tokens}
    parts = [named[first]] if first is not None else []
    parts += ["$A"] + ([named[last]] if last is not None else [])
    return processors.TemplateProcessing(single=" ".join(parts), special_tokens=tokens)
