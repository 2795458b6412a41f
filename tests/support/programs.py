"""The programs of examples/, run as a user runs them."""

import runpy
import sys

import torch

from support.paths import ROOT

EXAMPLES = ROOT / "examples"
SENTENCE = "the cat sat on a mat and dog ran to tree where bird sang of sun rain wind"
WORDS = SENTENCE.split()


class Run:
    """A program as a user runs it, in this process: its exit status and what it printed."""

    def __init__(self, monkeypatch, capsys):
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, name, *arguments):
        words = [word for text in arguments for word in as_words(text)]
        self.monkeypatch.setattr(sys, "argv", [str(EXAMPLES / f"{name}.py"), *words])
        self.capsys.readouterr()
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
            status = 0
        except SystemExit as stop:
            status = stop.code
        printed = self.capsys.readouterr()
        return status, printed.out, printed.err

    def works(self, *arguments):
        status, out, err = self(*arguments)
        assert status == 0, err
        return out

    def refuses(self, *arguments):
        """The sentence on stderr."""
        status, _, err = self(*arguments)
        assert status in (1, 2), err
        assert "Traceback" not in err
        return err.strip().splitlines()[-1]


def as_words(text):
    """Flags are written as one string; a path or a prompt may hold blanks."""
    return str(text).split() if str(text).startswith("--") else [str(text)]


def write_text(path, count=1500, seed=0):
    generator = torch.Generator().manual_seed(seed)
    picks = torch.randint(len(WORDS), (count,), generator=generator).tolist()
    path.write_text(" ".join(WORDS[i] for i in picks), encoding="utf-8")
    return path
