"""The commands and the code blocks of the pages, as tests compare them."""

import re
import shlex

from book import FENCE, ROOT, blocks, chapters

PAGES = ("README.md", "README.zh-CN.md")
README = ROOT / PAGES[0]
EXERCISES = re.compile(r"^## (?:Exercises|练习)", re.M)
# How fast a technical page is read: words and Chinese characters in a minute, seconds for a line of
# a program or of what it prints, and for a formula.
WORDS, CHARACTERS, LINE, FORMULA = 200, 300, 4, 20


def commands(first, *pages):
    """The command lines that begin with a word, as lists of words; of README and the whole book
    unless pages are named."""
    found = [block for page in pages or (README, *chapters("en")) for block in blocks(page)]
    shells = "".join(block.text for block in found if block.kind == "bash")
    lines = shells.replace("\\\n", " ").splitlines()
    split = [shlex.split(line, comments=True) for line in lines]
    return [words for words in split if words[:1] == [first]]


def without_words(code):
    """Comments and the right-hand side of the folder map are translated; the rest is not."""
    lines = [re.split(r"#|(?<=\S)\s{2,}", line)[0].strip() for line in code.splitlines()]
    return [line for line in lines if line]


def reading_minutes(text):
    """How long a page takes to read, without its exercises, which are for doing."""
    read = EXERCISES.split(text)[0]
    lines = sum(bool(line.strip()) for m in FENCE.finditer(read) for line in m["text"].splitlines())
    prose, formulas = re.subn(r"^\$\$.*?^\$\$$", "", FENCE.sub("", read), flags=re.M | re.S)
    prose = re.sub(r"\]\([^)]*\)", "]", prose)  # where a link leads is not read
    characters = len(re.findall(r"[\u4e00-\u9fff]", prose))
    words = len(re.findall(r"[A-Za-z0-9$][^\s\u4e00-\u9fff]*", prose))
    return words / WORDS + characters / CHARACTERS + (lines * LINE + formulas * FORMULA) / 60
