"""The commands and the code blocks of the pages, as tests compare them."""

import re
import shlex

from book import ROOT, blocks, chapters

PAGES = ("README.md", "README.zh-CN.md")
README = ROOT / PAGES[0]


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
