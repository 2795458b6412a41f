"""Writes the checkpoints of the present format that later code has to read.

    python tests/checkpoints/write.py

Run once when FORMAT_VERSION is raised, with the code that raises it; the folders of earlier formats
stay as they are.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from families import DECODER, SEQ2SEQ  # noqa: E402

from hf_tformer.model.configuration_base import FORMAT_VERSION  # noqa: E402

SMALL = {"hidden_size": 12, "intermediate_size": 14, "head_dim": 4, "vocab_size": 29}


def main():
    for family, depth in (
        (DECODER, {"num_hidden_layers": 2, "sliding_window": 4}),
        (SEQ2SEQ, {"decoder_layers": 1}),
    ):
        model = family.build(**SMALL, **depth)
        folder = HERE / f"format-{FORMAT_VERSION}" / family.name
        model.save_pretrained(folder)
        for code in folder.glob("*.py"):
            code.unlink()  # the point is that today's code reads it
        ids = torch.arange(3, 15).reshape(2, 6)
        target = {} if family is DECODER else {"decoder_input_ids": ids[:, :4]}
        logits = model(input_ids=ids, **target).logits.detach()
        target = {name: ids.contiguous() for name, ids in target.items()}
        save_file(
            {"input_ids": ids, "logits": logits.contiguous(), **target},
            folder / "expected.safetensors",
        )


if __name__ == "__main__":
    main()
