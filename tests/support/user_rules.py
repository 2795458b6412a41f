"""The programs that CONTRIBUTING.md shows under "A layout of your own", and weights for them."""

import re
import runpy

import torch

from support.paths import ROOT

GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTION = GUIDE.split("## A layout of your own")[1].split("\n## ")[0]
# As they stand: a GPT, a decoder of alternating layers, an encoder.
GPT, ALTERNATING, MASKED = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)


def save_mine(tmp_path, rules):
    """The module of these rules with random weights, their file, and that of the rules."""
    (tmp_path / "mine.py").write_text(rules)
    model = runpy.run_path(str(tmp_path / "mine.py"))["reference"]()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator), alpha=0.2)
    state = {**model.state_dict(), "steps": torch.tensor(7)}
    torch.save({"state_dict": state}, tmp_path / "w.ckpt")
    return model.eval(), tmp_path / "w.ckpt", tmp_path / "mine.py"
