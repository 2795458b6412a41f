"""Measure whether models trained with this package become as good as they should.

    python -m benchmarks.quality shakespeare         # minutes of a CPU
    python -m benchmarks.quality masked              # minutes of a CPU
    python -m benchmarks.quality multi30k            # tens of minutes; --steps 300 for a look
    python -m benchmarks.quality multi30k --full     # a GPU
    python -m benchmarks.quality t5                  # as multi30k

shakespeare: the decoder with nanoGPT's recipe for a CPU, whose README gives a validation loss of
1.88. masked: the encoder predicts hidden letters of the same text, beside ModernBERT and BERT of no
fewer parameters, on the same batches in the same steps. multi30k: German to English by the
functions of examples/train_translation.py, beside MarianMT's architecture of the same sizes, on the
same batches in the same steps; ours with --modern. t5: the same beside T5's architecture, which
ours is converted from before the first step.
"""

import argparse
import sys
from pathlib import Path

import torch
import transformers
from transformers import PreTrainedConfig, PreTrainedModel, set_seed
from transformers import get_cosine_with_min_lr_schedule_with_warmup as cosine_schedule

import hf_tformer

from .measure import ROOT
from .quality_translation import multi30k, show, t5

Batch = dict[str, torch.Tensor]
SHAKESPEARE_LOSS = 1.88
STEPS = 2000  # of shakespeare and masked
BLOCK, BATCH = 64, 12
DATA = {
    "shakespeare": "tinyshakespeare.txt",
    "masked": "tinyshakespeare.txt",
    "multi30k": "multi30k.train.de.gz",
    "t5": "multi30k.train.de.gz",
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    folder = ROOT.parent / "shared" / "data"
    parser.add_argument("task", choices=list(DATA), help="what to measure")
    parser.add_argument("--data", type=Path, default=folder, help="folder of the texts")
    parser.add_argument("--steps", type=int, help="fewer steps than the recipe has, for a look")
    parser.add_argument("--full", action="store_true", help="multi30k, t5: the size for a GPU")
    args = parser.parse_args(argv)
    if not (args.data / DATA[args.task]).is_file():
        print(f"skipped: {args.data} has no {DATA[args.task]}; --data names another folder")
        return 0
    tasks = {"shakespeare": shakespeare, "masked": masked, "multi30k": multi30k, "t5": t5}
    return tasks[args.task](args)


def shakespeare(args: argparse.Namespace) -> int:
    # The last token of a block is the first of the next: each of them is predicted once.
    letters, training, validation = read_blocks(args, BATCH, BLOCK + 1, stride=BLOCK)
    set_seed(1337)
    config = hf_tformer.TformerDecoderConfig(
        vocab_size=letters,
        hidden_size=128,
        intermediate_size=344,  # three matrices as large as the two of an ungated MLP of 512
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )
    batches = (
        [{"input_ids": ids, "labels": ids} for ids in part] for part in (training, validation)
    )
    curve = train(hf_tformer.TformerDecoderForCausalLM(config), *batches, least_rate=0.1)
    show({"validation loss": curve})
    loss = curve[max(curve)]
    print(f"{loss:.4f} after {len(training)} steps; nanoGPT: {SHAKESPEARE_LOSS}")
    return int(len(training) == STEPS and loss > SHAKESPEARE_LOSS)


def masked(args: argparse.Namespace) -> int:
    length, generator = 2 * BLOCK, torch.Generator().manual_seed(7)
    letters, training, validation = read_blocks(args, 2 * BATCH, length, stride=length)
    parts = [[hide(ids, letters, generator) for ids in part] for part in (training, validation)]
    curves, parameters = {}, {}
    for name, config in encoder_configs(letters + 1, length).items():
        set_seed(1337)
        model = transformers.AutoModelForMaskedLM.from_config(config)
        parameters[name] = model.num_parameters()
        print(f"{name}: {parameters[name]:,} parameters")
        curves[name] = train(model, *parts)
    show(curves)
    last = {name: curve[max(curve)] for name, curve in curves.items()}
    is_smallest = parameters["ours"] <= min(parameters.values())
    print("validation loss: " + ", ".join(f"{name} {loss:.4f}" for name, loss in last.items()))
    return int(len(training) == STEPS and not (is_smallest and last["ours"] <= min(last.values())))


def encoder_configs(vocab_size: int, length: int) -> dict[str, PreTrainedConfig]:
    sizes = {"vocab_size": vocab_size, "num_hidden_layers": 6, "num_attention_heads": 4}
    sizes["hidden_size"] = 128
    modern = {**sizes, "intermediate_size": 192}
    bert = {**sizes, "intermediate_size": 304, "max_position_embeddings": length}
    absent = dict.fromkeys(f"{name}_token_id" for name in ("pad", "bos", "eos", "cls", "sep"))
    return {
        "ours": hf_tformer.TformerEncoderConfig(**modern),
        "ModernBERT": transformers.ModernBertConfig(**modern, **absent),
        "BERT": transformers.BertConfig(**bert, pad_token_id=None),
    }


def read_blocks(
    args: argparse.Namespace, rows: int, length: int, stride: int
) -> tuple[int, list[torch.Tensor], list[torch.Tensor]]:
    """Return the number of letters, batches of random blocks, and the last tenth of the text."""
    text = (args.data / DATA[args.task]).read_text(encoding="utf-8")
    letters = sorted(set(text))
    ids = torch.tensor([letters.index(letter) for letter in text])
    border, steps = int(0.9 * len(ids)), args.steps or STEPS
    generator = torch.Generator().manual_seed(1337)
    places = torch.randint(border - length, (steps, rows), generator=generator)
    training = [torch.stack([ids[p : p + length] for p in row]) for row in places.tolist()]
    return len(letters), training, list(ids[border:].unfold(0, length, stride).split(8 * rows))


def hide(ids: torch.Tensor, mask: int, generator: torch.Generator) -> Batch:
    """Hide three of ten letters, and label them."""
    hidden = torch.rand(ids.shape, generator=generator) < 0.3
    return {"input_ids": ids.masked_fill(hidden, mask), "labels": ids.masked_fill(~hidden, -100)}


def train(
    model: PreTrainedModel, training: list[Batch], validation: list[Batch], least_rate: float = 0.0
) -> dict[int, float]:
    """Return the validation loss by step; one recipe for all, but for the last learning rate."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
    schedule = cosine_schedule(optimizer, 100, len(training), min_lr_rate=least_rate)
    curve = {}
    for step, batch in enumerate(training, 1):
        model.train()
        model(**batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % max(1, len(training) // 8) == 0:
            curve[step] = loss_on(validation, model)
    return curve


def loss_on(batches: list[Batch], model: PreTrainedModel) -> float:
    """Return the mean over all labels."""
    model.eval()
    total = count = 0
    with torch.no_grad():
        for batch in batches:
            labels = int((batch["labels"] != -100).sum())
            total, count = total + model(**batch).loss.item() * labels, count + labels
    return total / count


if __name__ == "__main__":
    sys.exit(main())
