"""What the programs that train with Trainer share, from the options to the finished folder."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from folders import no_checkpoint, output_folder, publish_folder
from program import Model, Tokenizer, Trainer, at_least, positive, refusing

from hf_tformer.atomic_folders import Savable, save_whole

if TYPE_CHECKING:
    from transformers import TrainingArguments

    from hf_tformer import TformerEncoderConfig


def add_training_flags(
    parser: ArgumentParser,
    output: str,
    *,
    epochs: float,
    learning_rate: float = 1e-3,
    batch_size: int = 16,
    warmup_steps: int = 50,
) -> None:
    add = parser.add_argument_group("training").add_argument
    count = at_least(1)
    add("--output", type=Path, default=Path(output), help="folder to write")
    add("--resume", action="store_true", help="continuation of an interrupted run, with its sizes")
    add("--epochs", type=positive, default=epochs, help="passes over the data")
    add("--max_steps", type=int, default=-1, help="steps (default: those of --epochs)")
    add("--batch_size", type=count, default=batch_size, help="examples per device and step")
    add("--gradient_accumulation_steps", type=count, default=1, help="batches in a step")
    add("--learning_rate", type=positive, default=learning_rate, help="highest learning rate")
    add("--warmup_steps", type=at_least(0), default=warmup_steps, help="steps until it is reached")
    add("--save_steps", type=count, default=200, help="steps between checkpoints, and evaluations")
    add("--seed", type=int, default=0, help="seed of all random numbers")
    add("--bf16", action="store_true", help="half precision on an accelerator")
    add("--report_to", default="none", help="tracker: tensorboard, trackio, wandb, ...")
    add("--push_to_hub", metavar="USER/NAME", help="repository to publish the result in")


def add_size_flags(parser: ArgumentParser, intermediate_share: str) -> Any:
    """Add the options of a model's size, and return their group."""
    group = parser.add_argument_group("the model")
    add, share = group.add_argument, intermediate_share
    add("--hidden_size", type=int, default=256, help="width of the model")
    add("--num_hidden_layers", type=int, default=4, help="number of layers")
    add("--num_attention_heads", type=int, default=8, help="attention heads of a layer")
    add(
        "--intermediate_size", type=int, help=f"width of the MLPs (default: {share} of the model's)"
    )
    add("--dropout", type=float, default=0.1, help="dropout probability")
    return group


@contextmanager
def run_folder(args: Namespace) -> Iterator[str | None]:
    """Make the folder to write, and yield the checkpoint that an interrupted run resumes from."""
    from hf_tformer import last_complete_checkpoint

    with output_folder(args.output, args.resume):
        checkpoint = last_complete_checkpoint(args.output) if args.resume else None
        if args.resume and checkpoint is None:
            raise no_checkpoint(args.output)
        yield checkpoint


def save_and_publish(args: Namespace, *parts: Savable) -> None:
    save_whole(args.output, *parts)
    print(f"saved: {args.output}")
    if args.push_to_hub:
        publish_folder(args.output, args.push_to_hub)


def make_trainer(
    args: Namespace, model: Model, tokenizer: Tokenizer, others: dict[str, Any], **parts: Any
) -> Trainer:
    """`others` are further arguments of training, `parts` what else the Trainer is made of."""
    from transformers import Trainer, TrainingArguments

    arguments = training_arguments(args, TrainingArguments, **others)
    with refusing(ValueError, RuntimeError, ImportError):  # no such reporter
        return Trainer(model=model, args=arguments, processing_class=tokenizer, **parts)


def training_arguments(
    args: Namespace, kind: "type[TrainingArguments]", **others: Any
) -> "TrainingArguments":
    """Return the options as arguments of Trainer; `others` replace what is chosen here."""
    import torch

    fields = {
        "output_dir": str(args.output),
        "num_train_epochs": args.epochs,
        "max_steps": args.max_steps,
        "per_device_train_batch_size": args.batch_size,
        "per_device_eval_batch_size": args.batch_size,
        "gradient_accumulation_steps": args.gradient_accumulation_steps,
        "learning_rate": args.learning_rate,
        "lr_scheduler_type": "cosine",
        "warmup_steps": args.warmup_steps,
        "weight_decay": 0.1,
        "adam_beta2": 0.95,
        "logging_steps": min(25, args.save_steps),
        "eval_strategy": "steps",
        "eval_steps": args.save_steps,
        "save_steps": args.save_steps,
        "save_total_limit": 2,
        "bf16": args.bf16,
        "seed": args.seed,
        "report_to": args.report_to,
        "dataloader_pin_memory": torch.accelerator.is_available(),
        "use_cpu": not torch.accelerator.is_available(),  # else processes would not be joined
        "ddp_find_unused_parameters": False,  # there are none
    }
    with refusing(ValueError, RuntimeError, ImportError):  # no such device, no such reporter
        return kind(**{**fields, **others})


def small_encoder_config(tokenizer: Tokenizer, **fields: Any) -> "TformerEncoderConfig":
    """Return the configuration of an encoder that learns a task in minutes on a CPU."""
    from hf_tformer import TformerEncoderConfig

    return TformerEncoderConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        sliding_window=16,
        pad_token_id=tokenizer.pad_token_id,
        **fields,
    )
