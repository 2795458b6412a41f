"""Kills work at random moments and looks at what is left.

    python -m support.killing WORK COUNT FOLDER

One process imports everything and forks each piece of work, so that a kill costs no import. It
prints how often the result was there or absent, and stops at the first that was neither.
"""

import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import torch

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)
ME = "user/tiny"


def files_of(folder):
    """Digest by path of everything below a folder, hidden or not."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


class Converting:
    """The folder appears whole or not at all; what is read stays as it is."""

    def __init__(self, place):
        from support.converting import CASES, save_theirs

        self.src, self.place = place / "theirs", place / "results"
        save_theirs(CASES["llama tied"], self.src)
        self.source = files_of(self.src)
        self.place.mkdir()

    def run(self):
        from conversion import import_checkpoint

        import_checkpoint(self.src, self.place / "new" / "ours")

    def learn(self):
        self.run()
        self.whole = files_of(self.place)

    def look(self):
        assert files_of(self.src) == self.source, "the source was changed"
        found = files_of(self.place)
        shown = {name: digest for name, digest in found.items() if ".partial" not in name}
        assert shown in ({}, self.whole), f"neither whole nor absent: {sorted(shown)}"
        return "whole" if shown else "absent"

    def rests(self):
        """Also the folder above, which had to be made, where nothing is in it."""
        beside = [path for path in self.place.glob("new/*") if path.name != "ours"]
        return beside or [path for path in self.place.glob("new") if not any(path.iterdir())]

    def clear(self):
        shutil.rmtree(self.place / "new" / "ours", ignore_errors=True)
        with contextlib.suppress(OSError):
            (self.place / "new").rmdir()


class Publishing:
    """The branch holds the one model whole or the other whole."""

    def __init__(self, place):
        from support.hub_server import HubServer, environment

        self.hub = HubServer().__enter__()
        os.environ.update(environment(self.hub, place / "home"))
        from support.families import DECODER  # what it imports reads the environment

        self.temporary = place / "temporary"
        self.temporary.mkdir()
        tempfile.tempdir = str(self.temporary)
        self.models = [place / "first", place / "second"]
        for width, model in zip((36, 60), self.models, strict=True):
            DECODER.build(hidden_size=width).save_pretrained(model)
        self.turn = 0

    def run(self):
        from huggingface_hub import close_session

        from hf_tformer import publish

        publish(self.models[self.turn], ME, verify=False)
        close_session()  # a fork must not talk over the same connection

    def learn(self):
        self.whole = []
        for self.turn in (0, 1):
            self.run()
            self.whole.append(self.arrived())

    def arrived(self):
        files = self.hub.files(ME)
        assert files.pop("README.md"), "the card is missing"  # its text names the commit
        return files

    def look(self):
        found = self.arrived()
        assert found in self.whole, f"neither of the models is whole: {sorted(found)}"
        return "whole" if found == self.whole[self.turn] else "absent"

    def rests(self):
        return list(self.temporary.iterdir())

    def clear(self):
        self.turn = 1 - self.whole.index(self.arrived())


class Saving:
    """config.json, which marks a model, is there with everything else or not at all."""

    def __init__(self, place):
        from support.families import DECODER

        self.place, self.model = place / "saved", DECODER.build()
        self.place.mkdir()

    def run(self):
        from hf_tformer.atomic_folders import save_whole

        save_whole(self.place, self.model)

    def learn(self):
        self.run()
        self.whole = files_of(self.place)

    def look(self):
        found = files_of(self.place)
        shown = {name: digest for name, digest in found.items() if ".saving" not in name}
        assert shown.items() <= self.whole.items(), "a file is not as it was saved"
        assert shown == self.whole or "config.json" not in shown, "marked, but not whole"
        return "whole" if shown == self.whole else "absent"

    def rests(self):
        return list(self.place.glob(".saving-*"))

    def clear(self):
        for name in self.whole:
            (self.place / name).unlink(missing_ok=True)


class Preparing:
    """The folder of tokens appears whole or not at all."""

    def __init__(self, place):
        from data import train_tokenizer

        self.place = place / "prepared"
        self.documents = [f"document {number} of many: " + "text " * 50 for number in range(300)]
        self.tokenizer = train_tokenizer(self.documents, 300, {})
        self.place.mkdir()

    def run(self):
        from hf_tformer.scale import write_tokens

        settings = {"shard_tokens": 5000, "validation": 20}
        write_tokens(self.documents, self.tokenizer, self.place / "tokens", **settings)

    def learn(self):
        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # threads do not survive a fork
        self.run()
        self.whole = files_of(self.place)

    def look(self):
        found = files_of(self.place)
        shown = {name: digest for name, digest in found.items() if ".partial" not in name}
        assert shown in ({}, self.whole), f"neither whole nor absent: {sorted(shown)}"
        return "whole" if shown else "absent"

    def rests(self):
        return list(self.place.glob(".*"))

    def clear(self):
        shutil.rmtree(self.place / "tokens", ignore_errors=True)


def alone(work, after=None, number=None):
    """Runs the work in a process of its own, killed after so many seconds; how long it took."""
    began = time.perf_counter()
    if (process := os.fork()) == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        os._exit(status)
    if after is not None:
        time.sleep(after)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert code in (0, -(number or 0)), f"it ended with {code}"
    return time.perf_counter() - began


def kill(work, count):
    work.learn()  # in this process, which then has imported all that it needs
    work.clear()
    usual = []
    for _ in range(3):
        work.clear()
        usual.append(alone(work.run))
    usual = statistics.median(usual)
    outcomes = Counter()
    for attempt in range(count):
        work.clear()
        number = SIGNALS[attempt % len(SIGNALS)]
        # One kill in each part of the usual time, and some after it.
        alone(work.run, 1.3 * usual * (attempt + random.random()) / count, number)
        outcomes[f"{number.name} {work.look()}"] += 1
        if number is signal.SIGKILL:
            outcomes["rests of SIGKILL"] += bool(work.rests())
            work.clear()
            alone(work.run)  # the next run
            assert work.look() == "whole"
        assert not work.rests(), f"{number.name} left {work.rests()}"
    return outcomes


if __name__ == "__main__":
    name, count, place = sys.argv[1:]
    random.seed(int(os.environ.get("SEED", "0")))
    torch.set_num_threads(1)  # a forked process would wait for the other threads of its parent
    works = {"convert": Converting, "prepare": Preparing, "publish": Publishing, "save": Saving}
    work = works[name](Path(place))
    print(json.dumps(kill(work, int(count))))
    sys.stdout.flush()
    os._exit(0)
