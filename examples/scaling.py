"""What train_language_model.py needs to run on one process and on many: options, and its folder."""

import math
import os
import shutil
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from folders import no_checkpoint
from program import Model, ProgramError, Tokenizer, at_least, positive

from hf_tformer.atomic_folders import folder_within
from hf_tformer.opening import open_pretrained

if TYPE_CHECKING:
    from accelerate.tracking import GeneralTracker
    from transformers import PreTrainedConfig

    from hf_tformer.scale import Launch, Layout, Settings, TokenRows

START = "start"  # in the folder of a run: its first weights, its configuration, its tokenizer
FORMATS = {
    "loss": "loss {:.6f}",
    "eval_loss": "validation loss {:.6f}",
    "perplexity": "perplexity {:.1f}",
    "grad_norm": "gradient norm {:.4f}",
    "learning_rate": "learning rate {:.3g}",
    "tokens_per_second": "{:,.0f} tokens/s",
    "mfu": "MFU {:.1%}",
    "memory": "{:,.0f} MB",
    "seconds": "{:,.0f} s",
}


def add_scale_flags(parser: ArgumentParser) -> None:
    group = parser.add_argument_group("many processes, under torchrun or accelerate launch")
    add, count = group.add_argument, at_least(1)
    add("--tokens", type=Path, help="folder of a text that prepare_tokens.py wrote")
    add("--replicate", type=count, help="copies of the model (default: as many as processes allow)")
    add("--shard", type=count, help="shards of each copy (FSDP2)")
    add("--tensor", type=count, help="parts of each layer (tensor parallel)")
    add("--global_batch_size", type=count, help="sequences per step, of all processes together")
    add("--vocab_multiple", type=count, default=1, help="divisor of the vocabulary's size")
    add("--activation_checkpointing", action="store_true", help="less memory, more computation")
    add("--compile", action="store_true", help="torch.compile for each layer")
    add("--max_grad_norm", type=positive, default=1.0, help="norm that gradients are clipped to")
    add("--workers", type=at_least(0), default=0, help="processes that load data, per process")
    add("--log_steps", type=count, default=25, help="steps between lines of the log")
    add("--save_in_background", action="store_true", help="checkpoints written while steps go on")
    add("--peak_flops", type=positive, help="FLOP/s of a device (default: known of common GPUs)")


def read_tokens(args: Namespace, source: Path | None) -> "tuple[Tokenizer, TokenRows, TokenRows]":
    """Open a folder of tokens: the tokenizer, the blocks to train on and those to evaluate on."""
    from transformers import AutoTokenizer

    from hf_tformer.scale import TokenRows
    from hf_tformer.scale.tokens import VALIDATION

    if args.text or args.dataset:
        raise ProgramError("--tokens are a text already: leave out --text and --dataset")
    training = TokenRows(args.tokens, args.block_size)
    if not (args.tokens / VALIDATION).exists():
        raise ProgramError(
            f"{args.tokens} has no documents to evaluate on: prepare it with --validation"
        )
    tokenizer = open_pretrained(AutoTokenizer, str(source or args.tokens))
    training.refuse_other(tokenizer)
    return tokenizer, training, TokenRows(args.tokens / VALIDATION, args.block_size)


def is_resumed(args: Namespace) -> bool:
    """True with --resume, and where torchrun starts again after a process had died."""
    return args.resume or int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def checkpoint_of_run(args: Namespace) -> Path | None:
    """Return the one to resume from. A run that died before its first one begins anew."""
    from hf_tformer.scale import last_checkpoint

    if not is_resumed(args):
        return None
    checkpoint = last_checkpoint(args.output)
    if checkpoint is None and args.resume:
        raise no_checkpoint(args.output)
    return checkpoint


def folder_to_open(output: Path) -> Path:
    """Return where configuration and tokenizer are: a run that ended saved them with its model."""
    return output / START if (output / START).exists() else output


def make_settings(args: Namespace, launch: "Launch", layout: "Layout", rows: int) -> "Settings":
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


def choose_rows_per_step(args: Namespace, layout: "Layout") -> int:
    from hf_tformer.scale import rows_of_each

    if args.global_batch_size is None:
        return args.batch_size * args.gradient_accumulation_steps * layout.data_size
    if args.gradient_accumulation_steps > 1:
        raise ProgramError(
            "--gradient_accumulation_steps follows from --global_batch_size and --batch_size: "
            "leave it out"
        )
    rows_of_each(args.global_batch_size, layout)
    return args.global_batch_size


def write_start(args: Namespace, config: "PreTrainedConfig", tokenizer: Tokenizer) -> None:
    """Save the first weights, which are the same for every layout."""
    from transformers import set_seed

    from hf_tformer import TformerDecoderForCausalLM

    set_seed(args.seed)
    model = TformerDecoderForCausalLM(config)
    with folder_within(args.output) as saving:
        model.save_pretrained(saving)
        tokenizer.save_pretrained(saving)
        shutil.rmtree(args.output / START, ignore_errors=True)
        saving.rename(args.output / START)


def open_model(args: Namespace, launch: "Launch", layout: "Layout", bf16: bool) -> Model:
    """Open the part of the model that this process holds."""
    from hf_tformer import TformerDecoderForCausalLM
    from hf_tformer.scale import choose_device, compile_layers
    from hf_tformer.training import enable_activation_checkpointing

    device = choose_device(launch)
    folder = folder_to_open(args.output)
    model = layout.open(TformerDecoderForCausalLM, folder, device, bf16)
    if args.activation_checkpointing or launch.activation_checkpointing:
        enable_activation_checkpointing(model)
    if args.compile or launch.compile:
        compile_layers(model)
    return model


def save_end(output: Path, model: Model, tokenizer: Tokenizer) -> None:
    """Save the whole model in one folder; what the run began with is no longer needed."""
    from hf_tformer.scale import save_folder
    from hf_tformer.scale.together import first_alone

    save_folder(model, output, tokenizer)
    first_alone(lambda: shutil.rmtree(output / START, ignore_errors=True))


class Reporter:
    """Prints each figure and sends it on, in the first process; the others are silent.

    `name` is a tracker of `accelerate.tracking`, or none. The files of tensorboard are in
    `folder/runs`, or in TENSORBOARD_LOGGING_DIR.
    """

    def __init__(self, name: str, folder: Path, is_first: bool):
        self.is_first = is_first
        self.tracker = None if name == "none" else make_tracker(name, folder)

    def __call__(self, step: int, figures: dict[str, float]) -> None:
        if "eval_loss" in figures:
            figures = {**figures, "perplexity": math.exp(figures["eval_loss"])}
        if self.is_first:
            scaled = {**figures, "memory": figures.get("memory", 0) / 1e6}
            shown = (FORMATS[name].format(scaled[name]) for name in FORMATS if name in figures)
            print(f"step {step}: {', '.join(shown)}", flush=True)
        if self.tracker:
            self.tracker.log(figures, step=step)

    def close(self) -> None:
        if self.tracker:
            self.tracker.finish()


def make_tracker(name: str, folder: Path) -> "GeneralTracker":
    from accelerate import PartialState
    from accelerate.tracking import LOGGER_TYPE_TO_CLASS, get_available_trackers

    known = [str(tracker) for tracker in get_available_trackers()]
    if name not in known:
        raise ProgramError(
            f"--report_to {name} is not supported: give none, or what is installed here of "
            f"accelerate's trackers: {', '.join(known) or 'nothing is'}"
        )
    PartialState()  # by which trackers find out who is the first process
    tracker_class, options = LOGGER_TYPE_TO_CLASS[name], {}
    if tracker_class.requires_logging_directory:
        options["logging_dir"] = os.environ.get("TENSORBOARD_LOGGING_DIR", str(folder / "runs"))
    tracker = tracker_class(folder.name, **options)
    tracker.start()
    return tracker
