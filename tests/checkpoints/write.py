"""Writes the checkpoints of the present format that later code and later libraries have to read.

    python tests/checkpoints/write.py [NAME]

Without a name: folders without code, which the code of today reads. Run once when FORMAT_VERSION is
raised, with the code that raises it.

With a name, such as `with-code`: folders that carry their code, as strangers hold them, for
transformers and torch of every age to open. Run when the code that travels has changed in what it
imports from them, with a name of its own.

The folders that are there already stay as they are.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from hf_tformer.model.configuration_base import FORMAT_VERSION  # noqa: E402
from support.families import DECODER, ENCODER, MIXTURE, SEQ2SEQ, WRITERS  # noqa: E402

SMALL = {"hidden_size": 12, "intermediate_size": 14, "head_dim": 4, "vocab_size": 29}
NEW_TOKENS = 6


def main(name=None):
    for family, fields in (
        (DECODER, {"sliding_window": 4}),
        (SEQ2SEQ, {"decoder_layers": 1}),
        (ENCODER, {"sliding_window": 2, "type_vocab_size": 2}),
        (MIXTURE, {"moe_intermediate_size": 6, "router_bias": True}),
    ):
        torch.manual_seed(0)
        model = family.build(**SMALL, **fields)
        kept_as = f"{family.name}-{name}" if name else family.name
        folder = HERE / f"format-{FORMAT_VERSION}" / kept_as
        if folder.exists():
            print(f"{folder} is there and stays as it is")
            continue
        model.save_pretrained(folder)
        if not name:
            for code in folder.glob("*.py"):
                code.unlink()
        ids = torch.arange(3, 15).reshape(2, 6)
        inputs = {"input_ids": ids, **family.target(ids[:, :4])}
        answers = {"logits": model(**inputs).logits.detach()}
        if name and family in WRITERS:
            options = {"max_new_tokens": NEW_TOKENS, "do_sample": False}
            answers["written"] = model.generate(input_ids=ids, **options)
        tensors = {**inputs, **answers}
        save_file(
            {key: tensor.contiguous() for key, tensor in tensors.items()},
            folder / "expected.safetensors",
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
