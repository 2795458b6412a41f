"""What a file makes of texts: ids, chats, special tokens, settings of generation."""

from transformers import PreTrainedTokenizerBase

from ..runtimes.proof import first_place
from .answer import DIFFERS, SAME, Answer, counted, differences, unasked
from .opened import Opened, rendered, settings_of, tokens_of
from .texts import CHATS, TEXTS

IDS, CHAT, SPECIAL = "token ids", "chat template", "special tokens"
SHOWN = 3
AROUND = 24  # characters shown at a difference


def ask_ids(opened: Opened) -> Answer:
    """Compare the ids of texts of many scripts."""
    tokenizer = opened.model.tokenizer
    if tokenizer is None:
        return unasked(IDS, "the model has no tokenizer")
    if opened.ids("a") is None:
        return unasked(IDS, "the file has no tokenizer")
    texts = {name: opened.askable(text) for name, text in TEXTS.items()}
    ours = {name: list(tokenizer(text)["input_ids"]) for name, text in texts.items()}
    theirs = {name: list(opened.ids(text) or ()) for name, text in texts.items()}
    wrong = [name for name in texts if ours[name] != theirs[name]]
    if not wrong:
        total = sum(map(len, ours.values()))
        return Answer(IDS, SAME, f"{counted(total, 'token')} of {counted(len(texts), 'text')}")
    first = wrong[0]
    place = first_place(ours[first], theirs[first])
    near = tokenizer.decode(ours[first][max(0, place - 3) : place + 3])
    seen = (
        f"{counted(len(wrong), 'text')} of {len(texts)} differ ({', '.join(wrong[:SHOWN])}); first "
        f"near {near!r}: {theirs[first][place : place + SHOWN]} there, and "
        f"{ours[first][place : place + SHOWN]} here"
    )
    return Answer(IDS, DIFFERS, seen, cause_of_ids(tokenizer, ours, theirs, texts, opened))


def cause_of_ids(
    tokenizer: PreTrainedTokenizerBase,
    ours: dict[str, list[int]],
    theirs: dict[str, list[int]],
    texts: dict[str, str],
    opened: Opened,
) -> str:
    """Return what the difference of the ids means, by what would undo it."""
    begins = list(tokenizer("")["input_ids"])
    for said, fits in (
        ("a token at the beginning (BOS) is missing there", lambda a, b: a[1:] == b),
        ("a token at the beginning (BOS) is added there", lambda a, b: a == b[1:]),
        ("a token at the end (EOS) is missing there", lambda a, b: a[:-1] == b),
        ("a token at the end (EOS) is added there", lambda a, b: a == b[:-1]),
        ("special tokens are missing there", lambda a, b: without(a, begins) == b),
    ):
        if all(fits(ours[name], theirs[name]) for name in ours):
            return said
    for said, change in NORMALIZED:
        changed = {name: tokenizer(change(text))["input_ids"] for name, text in texts.items()}
        if changed != ours and all(changed[name] == theirs[name] for name in ours):
            return said
    here, there = tokenizer.get_vocab(), opened.vocabulary()
    moved = [token for token in here.keys() & there.keys() if here[token] != there[token]]
    if moved:
        first = min(moved, key=here.__getitem__)
        return f"the vocabulary has another order there, first at {first!r}"
    if all(decoded(tokenizer, ours[n]) == decoded(tokenizer, theirs[n]) for n in ours):
        return "text is cut into words in another way there (the pre-tokenizer) or merged otherwise"
    return "the text is changed before it is cut there (the normalizer), or tokens are missing"


def without(ids: list[int], some: list[int]) -> list[int]:
    return [i for i in ids if i not in some]


def decoded(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))


NORMALIZED = (
    ("text is lowercased there", str.lower),
    ("text begins with a blank there", lambda text: f" {text}"),
    ("blanks at both ends are removed there", str.strip),
)


def ask_chat(opened: Opened) -> Answer:
    """Compare rendered chats."""
    tokenizer = opened.model.tokenizer
    if tokenizer is None or tokenizer.chat_template is None:
        return unasked(CHAT, "the model has no chat template")
    if not opened.vocabulary():
        return unasked(CHAT, "the file has no tokenizer")
    differing = []
    for name, (chat, answers) in CHATS.items():
        ours, theirs = rendered(tokenizer, chat, answers), opened.chat(chat, answers)
        if ours != theirs:
            differing.append((name, ours, theirs))
    if not differing:
        return Answer(CHAT, SAME, counted(len(CHATS), "chat"))
    if all(theirs is None for *_, theirs in differing):
        return Answer(CHAT, DIFFERS, "none is rendered there", "the file has no chat template")
    name, ours, theirs = differing[0]
    place = first_place(ours or "", theirs or "")
    seen = (
        f"{counted(len(differing), 'chat')} of {len(CHATS)} differ, first {name}: "
        f"{(theirs or '')[place : place + AROUND]!r} there, and "
        f"{(ours or '')[place : place + AROUND]!r} here"
    )
    return Answer(CHAT, DIFFERS, seen, "the file has another chat template")


def ask_special(opened: Opened) -> Answer:
    """Compare ids of special tokens and settings of generation, as far as both say them."""
    model = opened.model
    ours = {**tokens_of(model.tokenizer), **settings_of(model.generation)}
    theirs = opened.special()
    if not theirs:
        return unasked(SPECIAL, "the file names none")
    wrong = list(differences(ours, theirs, are_equal))
    if not wrong:
        common = sum(name in theirs for name in ours)
        return Answer(SPECIAL, SAME, counted(common, "setting"))
    causes = {
        "eos_token_id": "generation ends too early, or not at all",
        "bos_token_id": "a sequence begins with another token",
        "pad_token_id": "batches are padded with another token",
        "decoder_start_token_id": "the decoder begins with another token",
    }
    cause = next((told for name, told in causes.items() if name in wrong[0]), "")
    return Answer(SPECIAL, DIFFERS, "; ".join(wrong), cause or "generation is set up otherwise")


def are_equal(one: object, other: object) -> bool:
    return as_listed(one) == as_listed(other)


def as_listed(value: object) -> object:
    """Return ids as a sorted list, in which one is the same as a list of one."""
    if isinstance(value, list | tuple):
        return sorted(value) if all(isinstance(one, int) for one in value) else list(value)
    return [value]
