"""docs/EXPORTS.md: what was proven for each runtime and family, its size and its time."""

import platform
from importlib.metadata import version
from typing import NamedTuple

HEAD = """# Exports, proven

Written by `make exports`, never by hand: each row is one run of its command in a process of its
own, whose proof compares the answers of the runtime with those of the model before anything is
kept. "Difference" is the largest one of logits (of hidden states, where there is no head), beside
the largest number; "greedy" and "4 beams" are texts with the tokens of `generate()`. Memory is the
peak of the process beyond what it needs for its imports, as a multiple of the weights in float32,
and then the same with the files that are mapped into it, whose pages the system takes back when it
needs them; it says something where the weights are large. Times are those of {machine}. From q6_k
to q4_0, the outputs are those of the file in float32, before llama.cpp packs it; each packed weight
is then compared with the one that it stands for.

{versions}

"""
COLUMNS = ("model", "`tformer convert export SRC DST ...`", "difference", "greedy", "4 beams")
COLUMNS += ("size", "time", "memory")
PACKAGES = ("torch", "transformers", "onnxruntime", "openvino", "executorch", "ctranslate2", "gguf")


class Row(NamedTuple):
    model: str
    options: str
    found: dict  # what the process said, or why it was refused

    def cells(self):
        if "refused" in self.found:
            return [self.model, f"`{self.options}`", f"refused: {self.found['refused']}", *[""] * 5]
        found = self.found
        return [
            self.model,
            f"`{self.options}`",
            "not told" if found["difference"] is None else nearness(found),
            texts(found, "1"),
            texts(found, "4"),
            f"{found['size'] / 1e6:.1f} MB",
            f"{found['seconds']:.0f} s",
            "{:.1f}, {:.1f}".format(*found["memory"]),
        ]


def nearness(found):
    return f"{found['difference']:.0e} of {found['largest']:.1f}"


def texts(found, beams):
    equal = found["texts"].get(beams)
    return "" if equal is None else f"{equal[0]} of {equal[1]}"


def page(rows):
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    head = HEAD.format(machine=f"{platform.processor() or platform.machine()}", versions=versions)
    lines = [COLUMNS, ["---"] * len(COLUMNS), *(row.cells() for row in rows)]
    return head + "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
