"""What train_language_model.py needs to run on one process and on many: flags, and its folder."""

import argparse
import contextlib
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from program import ProgramError, at_least, positive

from hf_tformer.atomic_folders import folder_within
from hf_tformer.opening import open_pretrained

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

    from hf_tformer.scale import Launch, Layout, Settings

START = "start"  # in the folder of a run: its first weights, its configuration, its tokenizer


def add_scale_flags(parser: argparse.ArgumentParser) -> None:
    scale = parser.add_argument_group("many processes, under torchrun or accelerate launch")
    scale.add_argument(
        "--tokens", type=Path, help="the text, as a folder that prepare_tokens.py wrote"
    )
    scale.add_argument(
        "--replicate", type=at_least(1), help="copies of the model; default: what is left over"
    )
    scale.add_argument("--shard", type=at_least(1), help="shards of each copy (FSDP2)")
    scale.add_argument("--tensor", type=at_least(1), help="parts of each layer (tensor parallel)")
    scale.add_argument(
        "--global_batch_size",
        type=at_least(1),
        help="rows per step, of all processes together; a process takes --batch_size at once",
    )
    scale.add_argument(
        "--vocab_multiple",
        type=at_least(1),
        default=1,
        help="round the size of the vocabulary up to a multiple, for equal shards",
    )
    scale.add_argument("--activation_checkpointing", action="store_true", help="less memory")
    scale.add_argument("--compile", action="store_true", help="each layer, by torch.compile")
    scale.add_argument("--max_grad_norm", type=positive, default=1.0)
    scale.add_argument("--workers", type=at_least(0), default=0, help="that load rows, per process")
    scale.add_argument("--log_steps", type=at_least(1), default=25)
    scale.add_argument(
        "--save_in_background", action="store_true", help="train on while a checkpoint is written"
    )
    scale.add_argument(
        "--peak_flops", type=positive, help="of a device in a second; known of common GPUs"
    )


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """What the library refuses is a sentence of the program."""
    from hf_tformer.scale import CheckpointError, TokensError, TrainingError
    from hf_tformer.scale.together import TogetherError

    try:
        yield
    except (CheckpointError, TogetherError, TokensError, TrainingError) as error:
        raise ProgramError(str(error)) from error


def read_layout(args: argparse.Namespace) -> "tuple[Launch, Layout]":
    from hf_tformer.scale import choose_layout, read_launch

    launch = read_launch()
    return launch, choose_layout(launch, args.replicate, args.shard, args.tensor)


def read_tokens(args: argparse.Namespace, source: Path | None) -> tuple:
    """The tokenizer, the rows to learn from and those to measure by, of a folder of tokens."""
    from transformers import AutoTokenizer

    from hf_tformer.scale import TokenRows
    from hf_tformer.scale.tokens import VALIDATION

    if args.text or args.dataset:
        raise ProgramError("--tokens are a text already: leave --text and --dataset away")
    training = TokenRows(args.tokens, args.block_size)
    if not (args.tokens / VALIDATION).exists():
        raise ProgramError(
            f"{args.tokens} has no documents to measure by: prepare it with --validation"
        )
    tokenizer = open_pretrained(AutoTokenizer, str(source or args.tokens))
    training.refuse_other(tokenizer)
    return tokenizer, training, TokenRows(args.tokens / VALIDATION, args.block_size)


def goes_on(args: argparse.Namespace) -> bool:
    """Told to, or started again by torchrun after a process had died."""
    return args.resume or int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def checkpoint_of_run(args: argparse.Namespace) -> Path | None:
    """The one to go on from. A run that died before its first one begins anew."""
    from hf_tformer.scale import last_checkpoint

    if not goes_on(args):
        return None
    checkpoint = last_checkpoint(args.output)
    if checkpoint is None and args.resume:
        raise ProgramError(
            f"{args.output} has no complete checkpoint to resume from: leave --resume away"
        )
    return checkpoint


def folder_to_open(output: Path) -> Path:
    """Where configuration and tokenizer of a run lie: a run that ended left them with its model."""
    return output / START if (output / START).exists() else output


def make_settings(
    args: argparse.Namespace, launch: "Launch", layout: "Layout", rows: int
) -> "Settings":
    from hf_tformer.scale import RowOrder, Settings

    rows_per_step = choose_rows_per_step(args, layout)
    steps_per_epoch = RowOrder(rows, rows_per_step, args.seed).steps_per_epoch
    return Settings(
        steps=args.max_steps if args.max_steps > 0 else math.ceil(args.epochs * steps_per_epoch),
        rows_per_step=rows_per_step,
        batch_size=args.batch_size,
        learning_rate=args.learning_rate,
        warmup_steps=args.warmup_steps,
        max_grad_norm=args.max_grad_norm,
        seed=args.seed,
        bf16=args.bf16 or launch.bf16,
        workers=args.workers,
        log_steps=min(args.log_steps, args.save_steps),
        save_steps=args.save_steps,
        saves_in_background=args.save_in_background,
    )


def choose_rows_per_step(args: argparse.Namespace, layout: "Layout") -> int:
    from hf_tformer.scale import rows_of_each

    if args.global_batch_size is None:
        return args.batch_size * args.gradient_accumulation_steps * layout.data_size
    if args.gradient_accumulation_steps > 1:
        raise ProgramError(
            "--gradient_accumulation_steps follows from --global_batch_size and --batch_size: "
            "leave it away"
        )
    rows_of_each(args.global_batch_size, layout)
    return args.global_batch_size


def write_start(
    args: argparse.Namespace, config: "PreTrainedConfig", tokenizer: "PreTrainedTokenizerBase"
) -> None:
    """The first weights, which are the same for every layout."""
    from transformers import set_seed

    from hf_tformer import TformerDecoderForCausalLM

    set_seed(args.seed)
    model = TformerDecoderForCausalLM(config)
    with folder_within(args.output) as saving:
        model.save_pretrained(saving)
        tokenizer.save_pretrained(saving)
        shutil.rmtree(args.output / START, ignore_errors=True)
        saving.rename(args.output / START)


def open_model(
    args: argparse.Namespace, launch: "Launch", layout: "Layout", bf16: bool
) -> "PreTrainedModel":
    """The model as this process holds it."""
    from hf_tformer import TformerDecoderForCausalLM
    from hf_tformer.scale import choose_device, compile_layers

    device = choose_device(launch)
    folder = folder_to_open(args.output)
    model = layout.open(TformerDecoderForCausalLM, folder, device, bf16)
    if args.activation_checkpointing or launch.activation_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    if args.compile or launch.compile:
        compile_layers(model)
    return model


def save_end(output: Path, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase") -> None:
    """The whole model in one folder; what the run began with is no longer needed."""
    from hf_tformer.scale import save_folder
    from hf_tformer.scale.together import first_alone

    save_folder(model, output, tokenizer)
    first_alone(lambda: shutil.rmtree(output / START, ignore_errors=True))
