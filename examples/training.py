"""The flags of training that the programs of this folder share, and what they mean to Trainer."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from program import ProgramError, at_least, positive

if TYPE_CHECKING:
    from transformers import TrainingArguments


def add_training_flags(
    parser: argparse.ArgumentParser, output: str, epochs: float, learning_rate: float
) -> None:
    training = parser.add_argument_group("training")
    training.add_argument("--output", type=Path, default=Path(output))
    training.add_argument("--resume", action="store_true", help="sizes come from the checkpoint")
    training.add_argument("--epochs", type=positive, default=epochs)
    training.add_argument("--max_steps", type=int, default=-1, help="instead of --epochs")
    training.add_argument(
        "--batch_size", type=at_least(1), default=16, help="rows per device and step"
    )
    training.add_argument("--gradient_accumulation_steps", type=at_least(1), default=1)
    training.add_argument("--learning_rate", type=positive, default=learning_rate)
    training.add_argument("--warmup_steps", type=at_least(0), default=50)
    training.add_argument(
        "--save_steps", type=at_least(1), default=200, help="and measure, each so often"
    )
    training.add_argument("--seed", type=int, default=0)
    training.add_argument("--bf16", action="store_true", help="half precision on an accelerator")
    training.add_argument("--report_to", default="none", help="tensorboard, trackio, wandb, ...")
    training.add_argument("--push_to_hub", metavar="USER/NAME", help="publish it when it is done")


def training_arguments(args: argparse.Namespace, **others: object) -> "TrainingArguments":
    import torch
    from transformers import TrainingArguments

    try:
        return TrainingArguments(
            output_dir=str(args.output),
            num_train_epochs=args.epochs,
            max_steps=args.max_steps,
            per_device_train_batch_size=args.batch_size,
            per_device_eval_batch_size=args.batch_size,
            gradient_accumulation_steps=args.gradient_accumulation_steps,
            learning_rate=args.learning_rate,
            lr_scheduler_type="cosine",
            warmup_steps=args.warmup_steps,
            weight_decay=0.1,
            adam_beta2=0.95,
            logging_steps=min(25, args.save_steps),
            eval_strategy="steps",
            eval_steps=args.save_steps,
            save_steps=args.save_steps,
            save_total_limit=2,
            bf16=args.bf16,
            seed=args.seed,
            report_to=args.report_to,
            dataloader_pin_memory=torch.accelerator.is_available(),
            use_cpu=not torch.accelerator.is_available(),  # unsaid, processes would not be joined
            ddp_find_unused_parameters=False,  # there are none
            **others,
        )
    except (ValueError, RuntimeError, ImportError) as error:  # no such device, no such reporter
        raise ProgramError(str(error)) from error
