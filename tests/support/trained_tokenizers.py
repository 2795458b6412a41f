# ruff: noqa: RUF001 (texts and regular expressions hold signs of many scripts)
"""Small tokenizers of every kind that llama.cpp knows, trained on the spot."""

from data import train_tokenizer as of_language_models
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)
from tokenizers.pre_tokenizers import ByteLevel, Digits, Punctuation, Sequence, Split
from tokenizers.processors import TemplateProcessing
from train_translation import train_tokenizer as of_translations
from transformers import PreTrainedTokenizerFast

from conversion.runtimes.gguf.pre_tokenizers import TEXT

END, BLANK = "<|end|>", "▁"
BYTES = [f"<0x{i:02X}>" for i in range(256)]
WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{NUMBER}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SHORT = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
BY_THREE = f"{SHORT}|{WORDS.replace('{NUMBER}', '{1,3}')}"
BY_ONE = f"{SHORT}|{WORDS.replace('{NUMBER}', '')}"
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
START = r"[^\r\n\p{L}\p{N}]?"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = rf"{START}{UPPER}*{LOWER}+{SHORT}?|{START}{UPPER}+{LOWER}*{SHORT}?|\p{{N}}{{1,3}}|{REST}"
TEKKEN = rf"{START}{UPPER}*{LOWER}+|{START}{UPPER}+{LOWER}*|\p{{N}}|{REST}"


def cut_by(*regexes):
    """Regular expressions, then bytes, as the tokenizers of large models do it."""
    splits = [Split(Regex(regex), "isolated") for regex in regexes]
    return Sequence([*splits, ByteLevel(add_prefix_space=False, use_regex=False)])


def byte_level(pre_tokenizer, **options):
    """Byte-level BPE behind a way to cut texts; it puts its first token before a text."""
    bpe = Tokenizer(models.BPE(**options))
    bpe.pre_tokenizer, bpe.decoder = pre_tokenizer, decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=401, special_tokens=[END], initial_alphabet=ByteLevel.alphabet()
    )
    bpe.train_from_iterator([TEXT] * 3, trainer)
    bpe.post_processor = TemplateProcessing(single=f"{END} $A", special_tokens=[(END, 0)])
    return wrapped(bpe)


def wrapped(tokenizer, **roles):
    roles = roles or {"bos_token": END, "eos_token": END}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **roles)


def like_sentencepiece(prefix, closed=True, cut=False):
    """BPE over characters, with bytes for those that are unknown. Where it is closed, any two
    tokens that make a third may merge, as in sentencepiece."""
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    learner.train_from_iterator(
        ["the cat sat on the mat, the rat ran " * 3, "that hat then them other mother " * 5],
        trainers.BpeTrainer(vocab_size=70),
    )
    learned = [token for token, _ in sorted(learner.get_vocab().items(), key=lambda x: x[1])]
    tokens = ["<unk>", "<s>", "</s>", *BYTES, *learned]
    vocab = {token: i for i, token in enumerate(tokens)}
    longer = [token for token in learned if len(token) > 1]
    pairs = [
        (token[:i], token[i:])
        for token in longer
        for i in range(1, len(token))
        if token[:i] in vocab and token[i:] in vocab
    ]
    if not closed:  # one way to make each
        pairs = list({a + b: (a, b) for a, b in pairs}.values())
    bpe = Tokenizer(
        models.BPE(vocab=vocab, merges=pairs, byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    )
    steps = [normalizers.Prepend(BLANK)] if prefix else []
    if cut:
        bpe.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always" if prefix else "never")
    else:
        bpe.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", BLANK)])
    bpe.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return wrapped(bpe, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def like_t5():
    """Unigram behind blanks, which it writes once; it ends each text."""
    unigram = Tokenizer(models.Unigram())
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=160, special_tokens=special, unk_token="<unk>")
    unigram.train_from_iterator(
        ["the cat sat on the mat and the rat ran over the old hat 123 "] * 9, trainer
    )
    unigram.post_processor = TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return wrapped(unigram, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")


def like_bert(lowercase=True):
    words = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    words.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words.train_from_iterator(
        [TEXT], trainers.WordPieceTrainer(vocab_size=401, special_tokens=special)
    )
    words.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    roles = dict(zip(("pad", "unk", "cls", "sep", "mask"), special, strict=True))
    return wrapped(words, **{f"{role}_token": token for role, token in roles.items()})


def with_a_token_of_the_user():
    tokenizer = byte_level(ByteLevel(add_prefix_space=False))
    tokenizer.add_tokens([AddedToken("naïve café", normalized=False)])
    return tokenizer


# How to make it, and what llama.cpp calls it.
KNOWN = {
    "language model": (lambda: of_language_models([TEXT] * 3, 401, {}), "gpt-2"),
    "translation": (lambda: of_translations([TEXT] * 3, 401), "starcoder"),
    "token of the user": (with_a_token_of_the_user, "gpt-2"),
    "digits alone": (
        lambda: byte_level(
            cut_by(
                r"\p{N}",
                r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
            )
        ),
        "starcoder",
    ),
    "llama 3": (lambda: byte_level(cut_by(BY_THREE), ignore_merges=True), "llama-bpe"),
    "smaug": (lambda: byte_level(cut_by(BY_THREE)), "smaug-bpe"),
    "qwen2": (lambda: byte_level(cut_by(BY_ONE)), "qwen2"),
    "bloom": (lambda: byte_level(cut_by(r" ?[^(\s|[.,!?…。，、।۔،])]+")), "bloom"),
    "sentencepiece": (lambda: like_sentencepiece(prefix=True), "llama"),
    "sentencepiece without prefix": (lambda: like_sentencepiece(prefix=False), "llama"),
    "sentencepiece cut": (lambda: like_sentencepiece(prefix=True, cut=True), "llama"),
    "merges over characters": (lambda: like_sentencepiece(prefix=False, closed=False), "gemma4"),
    "unigram": (like_t5, "t5"),
    "word pieces": (like_bert, "bert"),
}
# What llama.cpp has a name for, and does otherwise.
NOT_QUITE = {
    "gpt-4o": lambda: byte_level(cut_by(O200K)),
    "tekken": lambda: byte_level(cut_by(TEKKEN), ignore_merges=True),
    "falcon": lambda: byte_level(
        Sequence(
            [
                Punctuation("contiguous"),
                ByteLevel(add_prefix_space=False),
                Digits(individual_digits=False),
                Split(Regex("[0-9][0-9][0-9]"), "isolated"),
            ]
        )
    ),
}
