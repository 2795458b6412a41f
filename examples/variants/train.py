"""Three lessons about attention: trains a small model of one beside plain attention, in a minute.

    python examples/variants/train.py additive

Prints how many tokens each writes rightly on rows that none has seen, saves the lesson's model in a
folder that opens anywhere, and draws what it looks at. The lessons are described in README.md.
"""

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

import torch
from lessons import lesson
from tasks import (
    PAD,
    SIZE,
    draw_rows,
    make_tokenizer,
    prompt_and_answer,
    prompts,
    share_of_right_tokens,
    source_and_target,
)

sys.path.append(str(Path(__file__).parents[1]))  # the programs beside this folder
from folders import output_folder
from program import ProgramError, at_least, run

from hf_tformer import (
    TformerDecoderForCausalLM,
    TformerSeq2SeqForConditionalGeneration,
    attention_maps,
)
from hf_tformer.atomic_folders import save_whole

SIZES = {"vocab_size": SIZE, "hidden_size": 64, "intermediate_size": 128, "pad_token_id": PAD}
SEQ2SEQ = {"encoder_layers": 1, "decoder_layers": 1, "num_attention_heads": 2, **SIZES}
SEQ2SEQ |= {"norm_position": "pre", "dropout": 0.0}
DECODER = {"num_hidden_layers": 1, "num_attention_heads": 16, "head_dim": 2, **SIZES}
DECODER |= {"position_embedding_type": "sinusoidal", "scale_embedding": True}
DECODER |= {"num_key_value_heads": None}


class Lesson(NamedTuple):
    package: str  # the folder beside this file
    task: str
    lengths: tuple[int, int]  # of the rows to learn from
    steps: int
    fields: dict  # what only the lesson's model has
    sizes: dict  # what all models have
    others: dict  # name → fields of a plain model
    longer: int | None = None  # further rows to write are so long


PLAIN = {"scaled dot product": {}}
LUONG = {**PLAIN, "dot product without scale": {"attention_scale": 1.0}}
MONOTONIC = {"alignment": "monotonic", "alignment_window": 1}
PREDICTIVE = {"alignment": "predictive", "alignment_window": 3}
TURNED = {**SEQ2SEQ, "position_embedding_type": "rotary"}
LESSONS = {
    "additive": Lesson("additive", "reversal", (4, 10), 400, {}, SEQ2SEQ, LUONG),
    "local-m": Lesson("local", "copy of few letters", (6, 12), 800, MONOTONIC, TURNED, PLAIN, 24),
    "local-p": Lesson("local", "reversal", (12, 12), 150, PREDICTIVE, SEQ2SEQ, PLAIN),
    "talking": Lesson("talking", "reversal", (12, 12), 500, {}, DECODER, PLAIN),
}


def main():
    args = parse_arguments()
    chosen = LESSONS[args.lesson]
    args.output = args.output or Path(f"lesson-{args.lesson}")
    with output_folder(args.output), lesson(chosen.package) as package:
        own_class = next(getattr(package, name) for name in package.__all__ if "For" in name)
        print(f"{chosen.task}, {args.steps or chosen.steps} steps; tokens written rightly:")
        model = train(own_class, chosen, chosen.fields, args)
        print(f"  {args.lesson:26} {describe(model, chosen)}", flush=True)
        for name, fields in chosen.others.items():
            plain = train(plain_class(own_class), chosen, fields, args)
            print(f"  {name:26} {describe(plain, chosen)}", flush=True)
        save_whole(args.output, model, make_tokenizer())
    draw(model, chosen, args.output / "attention.png")
    print(f"{args.output} holds the model; what it looks at is in attention.png there")


def plain_class(own_class):
    plain = (TformerDecoderForCausalLM, TformerSeq2SeqForConditionalGeneration)
    return plain[own_class.config_class.is_encoder_decoder]


def train(model_class, chosen, fields, args):
    torch.manual_seed(args.seed)
    model = model_class(model_class.config_class(**{**chosen.sizes, **fields})).train()
    batch = source_and_target if model.config.is_encoder_decoder else prompt_and_answer
    generator = torch.Generator().manual_seed(args.seed)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98))
    steps = args.steps or chosen.steps
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, steps, pct_start=0.1)
    for _ in range(steps):
        rows = draw_rows(chosen.task, 32, chosen.lengths, generator)
        model(**batch(rows)).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    return model.eval()


def describe(model, chosen):
    generator = torch.Generator().manual_seed(10**6)  # rows that none has seen
    rows = draw_rows(chosen.task, 200, chosen.lengths, generator)
    found = f"{share_of_right_tokens(model, rows):6.1%}"
    if chosen.longer is None:
        return found
    rows = draw_rows(chosen.task, 200, (chosen.longer, chosen.longer), generator)
    return f"{found}, of rows of {chosen.longer} {share_of_right_tokens(model, rows):6.1%}"


def draw(model, chosen, picture):
    """The attention of two heads, as the model writes the answer to one row."""
    length = chosen.lengths[1]
    rows = draw_rows(chosen.task, 1, (length, length), torch.Generator().manual_seed(0))
    given = prompts(rows, model.config.is_encoder_decoder)
    written = model.generate(**given, max_new_tokens=length + 1, do_sample=False)
    if model.config.is_encoder_decoder:
        inputs = {**given, "decoder_input_ids": written}
    else:
        inputs = {"input_ids": written}
    maps = attention_maps(model, inputs, make_tokenizer())
    try:
        maps.get("cross", maps["decoder"]).draw(heads=(0, 1)).savefig(picture)
    except ImportError as error:
        raise ProgramError(str(error)) from error


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("lesson", choices=LESSONS)
    parser.add_argument("--output", type=Path, help="the folder (default: lesson- and its name)")
    parser.add_argument("--steps", type=at_least(11), help="of training (default: the lesson's)")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
