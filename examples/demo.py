"""Both families in one minute: build, save, open elsewhere through the Auto classes, generate.

    python examples/demo.py [--output demo_output]

The models are untrained, so their words mean nothing; what counts is that a second process, which
cannot import this package, reads the two folders and writes the same tokens.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

READER = """
import sys
sys.modules["hf_tformer"] = None  # whatever is installed here, this process cannot import it
import torch, transformers
auto_class, folder, *ids = sys.argv[1:]
model = getattr(transformers, auto_class).from_pretrained(folder, trust_remote_code=True)
prompt = torch.tensor([[int(i) for i in ids]])
print(*model.generate(prompt, max_new_tokens=12, do_sample=False)[0].tolist())
"""


def build_models():
    from hf_tformer import (
        TformerDecoderConfig,
        TformerDecoderForCausalLM,
        TformerSeq2SeqConfig,
        TformerSeq2SeqForConditionalGeneration,
    )

    decoder = TformerDecoderForCausalLM(TformerDecoderConfig(vocab_size=8000))
    seq2seq = TformerSeq2SeqForConditionalGeneration(TformerSeq2SeqConfig(vocab_size=8000))
    return {"AutoModelForCausalLM": decoder, "AutoModelForSeq2SeqLM": seq2seq}


def generate_here(model, prompt):
    import torch

    tokens = model.eval().generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False)
    return tokens[0].tolist()


def generate_elsewhere(auto_class, folder, prompt):
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": ""}
    command = [sys.executable, "-c", READER, auto_class, str(folder), *map(str, prompt)]
    run = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=folder.parent
    )
    if run.returncode:
        raise SystemExit(f"the folder {folder} could not be opened elsewhere:\n{run.stderr}")
    return [int(token) for token in run.stdout.split()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--output", type=Path, default=Path("demo_output"), help="where the folders go"
    )
    output = parser.parse_args().output.resolve()
    prompt = [11, 42, 7, 1999, 5]
    started = time.time()
    for auto_class, model in build_models().items():
        folder = output / model.config.model_type
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder)
        files = sorted(path.name for path in folder.iterdir())
        print(f"\n{type(model).__name__}: {model.num_parameters() / 1e6:.1f} M parameters")
        print(f"  saved with its code   {folder}\n                        {', '.join(files)}")
        here, elsewhere = (
            generate_here(model, prompt),
            generate_elsewhere(auto_class, folder, prompt),
        )
        print(f"  tokens here           {here}\n  tokens elsewhere      {elsewhere}")
        if here != elsewhere:
            raise SystemExit("they differ: this is a fault, please report it")
        print(f"  the same, through {auto_class}.from_pretrained(..., trust_remote_code=True)")
    print(f"\nDone in {time.time() - started:.0f} s. Next: the blocks of README.md, one per task.")


if __name__ == "__main__":
    main()
