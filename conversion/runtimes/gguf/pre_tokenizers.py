# ruff: noqa: RUF001 (texts and regular expressions hold signs of many scripts)
"""The pre-tokenizers of llama.cpp, which cut a text before byte-level BPE merges bytes.

The pre-tokenizer of a tokenizer is found by comparing its splits of one text with those of each of
llama.cpp's, so a newly trained tokenizer is recognised as well as a known one.
"""

from dataclasses import dataclass

from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, PreTokenizer, Sequence, Split

from ...engine.errors import ConversionError, UnexpressibleError

Pieces = list[tuple[str, tuple[int, int]]]  # each with its place in a text

# Scripts with and without spaces and cases, combining marks, digits of several scripts, emoji made
# of several characters, contractions, code, and blanks of all kinds and lengths.
TEXT = (
    "Hello, world! It's 2026; they'RE here, we'll go, I'D stay, 'tis John's. Don't\tstop   now.\n"
    "\n\n  def f(x_1, *args):\r\n\treturn {'a': x_1 ** 2, \"b\": [0x1F, 3.14e-10]}  # why?\n    \n"
    "1 12 123 1234 12345 123456 1,234,567.89 3rd 2nd x2y3 ٣٤٥ १२३ ２３ ½ Ⅷ ²³\n"
    "naïve café Übergröße Straße ŁÓDŹ İstanbul ﬁne ẞ — “quotes” ‘single’ «guillemets» … ¿qué?\n"
    "Привет, мир! Ёлка. Γειά σου Κόσμε. שלום עולם. مرحبا بالعالم، كيف؟ नमस्ते दुनिया। สวัสดีชาวโลก "
    "你好，世界！我们在2026年。 こんにちは世界、カタカナ。 "
    "안녕하세요 세계 Xin chào thế giới Ქართული ᏣᎳᎩ\n"
    "🚀 👩‍💻👨‍👩‍👧‍👦 🇫🇷🇯🇵 ❤️ ✅✅ 😀😃 a🙂b 👍🏽 ©®™ €£¥ $100 50% #tag @user a+b=c <tag attr='x'/> "
    "a&b|c^d~e `code` \\path\\to /usr/bin --flag=val https://example.org/?q=1&r=2 snake_case "
    "camelCase PascalCase SCREAMING_CASE iPhone12Pro USAToday ...!!!??? ((())) [[]] {{}} ===>\n"
    "\u00a0nbsp\u2003em\u3000wide\u200bzero ̈combining é \t\t tabs \x0b\x0c\n"
    "end   \n \n  \n   x     "
)

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
SHORT = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"  # 's, 't and their like
WORD, BLANKS = r"[^\r\n\p{L}\p{N}]?\p{L}+", r"\s*[\r\n]+|\s+(?!\S)|\s+"
SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
BY_THREE = rf"{SHORT}|{WORD}|\p{{N}}{{1,3}}|{SIGNS}|{BLANKS}"
BY_ONE = rf"{SHORT}|{WORD}|\p{{N}}|{SIGNS}|{BLANKS}"
DIGITS_OF_THREE = r"\p{N}{1,3}"
HAN_AND_KANA = "[一-龥\u3040-ゟ゠-ヿ]+"
DEEPSEEK3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
    rf" ?[\p{{P}}\p{{S}}]+[\r\n]*|{BLANKS}"
)
# llama.cpp's version of tiktoken's o200k. It supports no combining marks and only the capitals of
# ASCII, so tokenizers of this kind are refused with the place where they differ.
UPPER, LOWER = r"(?:(?=\p{L})[^a-z])", r"(?:(?=\p{L})[^A-Z])"
START = r"[^\r\n\p{L}\p{N}]?"
LOWERED, RAISED = f"{START}{UPPER}*{LOWER}+", f"{START}{UPPER}+{LOWER}*"
SIGNS_OR_PATHS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
GPT4O = rf"{LOWERED}{SHORT}?|{RAISED}{SHORT}?|\p{{N}}{{1,3}}|{SIGNS_OR_PATHS}|{BLANKS}"
TEKKEN = rf"{LOWERED}|{RAISED}|\p{{N}}|{SIGNS_OR_PATHS}|{BLANKS}"
SENTENCES = " ?[^(\\s|.,!?…。，、।۔،)]+"


@dataclass(frozen=True)
class Cut:
    """A pre-tokenizer of llama.cpp: its regular expressions, which are applied one by one.

    If it ignores merges, a word that is a token stays whole.
    """

    regexes: tuple[str, ...]
    ignores_merges: bool = False


CUTS = {
    "gpt-2": Cut((GPT2,)),
    "starcoder": Cut((r"\p{N}", GPT2)),
    "llama-bpe": Cut((BY_THREE,), ignores_merges=True),
    "smaug-bpe": Cut((BY_THREE,)),
    "qwen2": Cut((BY_ONE,)),
    "falcon": Cut((r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]")),
    "deepseek-coder": Cut(
        ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+", r"\p{N}")
    ),
    "deepseek-v3": Cut((DIGITS_OF_THREE, HAN_AND_KANA, DEEPSEEK3)),
    "gpt-4o": Cut((GPT4O,)),
    "tekken": Cut((TEKKEN,), ignores_merges=True),
    "bloom": Cut((SENTENCES,)),
    "viking": Cut((SENTENCES, r"\p{N}")),
}


def recognise(pre_tokenizer: PreTokenizer | None, ignores_merges: bool) -> str:
    """Return llama.cpp's name of a byte-level pre-tokenizer."""
    wanted = pieces(pre_tokenizer) if pre_tokenizer else []
    known = {name: pieces(steps(cut)) for name, cut in CUTS.items()}
    alike = [name for name, found in known.items() if found == wanted]
    for name in alike:
        if CUTS[name].ignores_merges == ignores_merges:
            return name
    if alike:
        format_name, other = f"llama.cpp's {alike[0]}", not ignores_merges
        raise UnexpressibleError(
            "ignore_merges in tokenizer.json", ignores_merges, format_name, (other,)
        )
    nearest = max(known, key=lambda name: len(set(known[name]) & set(wanted)))
    raise ConversionError(
        f"pre_tokenizer in tokenizer.json cuts text as none of llama.cpp does: {nearest} is the "
        f"nearest, {first_difference(wanted, known[nearest])}; train a tokenizer with "
        "ByteLevel(add_prefix_space=False)"
    )


def pieces(pre_tokenizer: PreTokenizer) -> Pieces:
    return pre_tokenizer.pre_tokenize_str(TEXT)


def first_difference(ours: Pieces, theirs: Pieces) -> str:
    pairs = ((x, y) for x, y in zip(ours, theirs, strict=False) if x != y)
    (_, our_span), (_, their_span) = next(pairs, ((None, (0, 0)), (None, (0, 0))))
    return f"which cuts {TEXT[slice(*their_span)]!r} where this one cuts {TEXT[slice(*our_span)]!r}"


def steps(cut: Cut) -> PreTokenizer:
    splits = [Split(Regex(regex), "isolated") for regex in cut.regexes]
    return Sequence([*splits, ByteLevel(add_prefix_space=False, use_regex=False)])
