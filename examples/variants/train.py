"""Three lessons about attention: train a small model of one beside plain attention, in a minute.

    python examples/variants/train.py additive

Prints the share of tokens that each generates rightly for sequences that none has seen, saves the
lesson's model in a folder that opens anywhere, and draws its attention. README.md describes the
lessons.
"""

import sys
from argparse import Namespace
from pathlib import Path
from typing import NamedTuple

import torch
from lessons import lesson
from tasks import PAD, SIZE, draw_pairs, make_tokenizer, prompts, share_right, training_batch

sys.path.append(str(Path(__file__).parents[1]))  # the programs beside this folder
from folders import output_folder
from program import at_least, make_parser, refusing, run
from transformers import PreTrainedModel

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
    lengths: tuple[int, int]  # of the sequences to train on
    steps: int
    fields: dict  # of the lesson's model alone
    sizes: dict  # of all models
    others: dict  # name → fields of a plain model
    longer: int | None = None  # length of further sequences to evaluate on


PLAIN = {"scaled dot product": {}}
LUONG = {**PLAIN, "dot product without scale": {"attention_scale": 1.0}}
MONOTONIC = {"alignment": "monotonic", "alignment_window": 1}
PREDICTIVE = {"alignment": "predictive", "alignment_window": 3}
ROTARY = {**SEQ2SEQ, "position_embedding_type": "rotary"}
LESSONS = {
    "additive": Lesson("additive", "reversal", (4, 10), 400, {}, SEQ2SEQ, LUONG),
    "local-m": Lesson("local", "copy of few letters", (6, 12), 800, MONOTONIC, ROTARY, PLAIN, 24),
    "local-p": Lesson("local", "reversal", (12, 12), 150, PREDICTIVE, SEQ2SEQ, PLAIN),
    "talking": Lesson("talking", "reversal", (12, 12), 500, {}, DECODER, PLAIN),
}


def main() -> None:
    args = parse_arguments()
    chosen = LESSONS[args.lesson]
    args.output = args.output or Path(f"lesson-{args.lesson}")
    with output_folder(args.output), lesson(chosen.package) as package:
        own_class = next(getattr(package, name) for name in package.__all__ if "For" in name)
        print(f"{chosen.task}, {args.steps or chosen.steps} steps; tokens generated rightly:")
        model = train(own_class, chosen, chosen.fields, args)
        print(f"  {args.lesson:26} {describe(model, chosen)}", flush=True)
        for name, fields in chosen.others.items():
            plain = train(plain_class(own_class), chosen, fields, args)
            print(f"  {name:26} {describe(plain, chosen)}", flush=True)
        save_whole(args.output, model, make_tokenizer())
    draw(model, chosen, args.output / "attention.png")
    print(f"{args.output} holds the model, and its attention as attention.png")


def plain_class(own_class: type) -> type:
    plain = (TformerDecoderForCausalLM, TformerSeq2SeqForConditionalGeneration)
    return plain[own_class.config_class.is_encoder_decoder]


def train(model_class: type, chosen: Lesson, fields: dict, args: Namespace) -> PreTrainedModel:
    torch.manual_seed(args.seed)
    model = model_class(model_class.config_class(**{**chosen.sizes, **fields})).train()
    generator = torch.Generator().manual_seed(args.seed)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98))
    steps = args.steps or chosen.steps
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, steps, pct_start=0.1)
    for _ in range(steps):
        pairs = draw_pairs(chosen.task, 32, chosen.lengths, generator)
        model(**training_batch(pairs, model.config.is_encoder_decoder)).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
    return model.eval()


def describe(model: PreTrainedModel, chosen: Lesson) -> str:
    generator = torch.Generator().manual_seed(10**6)  # sequences that none has seen
    pairs = draw_pairs(chosen.task, 200, chosen.lengths, generator)
    found = f"{share_right(model, pairs):6.1%}"
    if chosen.longer is None:
        return found
    pairs = draw_pairs(chosen.task, 200, (chosen.longer, chosen.longer), generator)
    return f"{found}, of sequences of {chosen.longer} {share_right(model, pairs):6.1%}"


def draw(model: PreTrainedModel, chosen: Lesson, picture: Path) -> None:
    """Draw the attention of two heads while the model answers one sequence."""
    length = chosen.lengths[1]
    pairs = draw_pairs(chosen.task, 1, (length, length), torch.Generator().manual_seed(0))
    given = prompts(pairs, model.config.is_encoder_decoder)
    generated = model.generate(**given, max_new_tokens=length + 1, do_sample=False)
    inputs = {"input_ids": generated}
    if model.config.is_encoder_decoder:
        inputs = {**given, "decoder_input_ids": generated}
    maps = attention_maps(model, inputs, make_tokenizer())
    with refusing(ImportError):
        maps.get("cross", maps["decoder"]).draw(heads=(0, 1)).savefig(picture)


def parse_arguments() -> Namespace:
    parser = make_parser(__doc__, "LESSON [options]")
    parser.add_argument("lesson", choices=LESSONS, help="lesson to train")
    parser.add_argument("--output", type=Path, help="folder to write (default: lesson-LESSON)")
    parser.add_argument("--steps", type=at_least(11), help="training steps (default: the lesson's)")
    parser.add_argument("--seed", type=int, default=0, help="seed of all random numbers")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
