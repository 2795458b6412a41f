"""Fine-tuning by low-rank adapters (LoRA): a decoder on a text, or either family on pairs.

    python examples/finetune_lora.py my-model --text poems.txt --output poems
    python examples/finetune_lora.py my-translator --pairs letters.tsv --output letters --merge

A pair is what is read and what is to be written: two columns of a .tsv or .csv, or two fields of a
.jsonl or of a data set on the Hub. Without --merge the folder holds the adapters alone, a few
per cent of the model's size; with it a model like the one before, that needs no PEFT to be opened.
"""

import argparse
from pathlib import Path

from data import read_dataset, read_pairs, read_text
from folders import checkpoint_to_resume, output_folder, publish_folder
from program import ProgramError, at_least, positive, run

from hf_tformer.atomic_folders import save_whole
from hf_tformer.opening import open_model

ADAPTERS = """\
saved: {folder}, the adapters of {base}; to load them:

    import hf_tformer
    from peft import {auto}
    model = {auto}.from_pretrained("{folder}")
    model = model.merge_and_unload()  # optional: as fast as before, and saved as a whole"""
MERGED = """\
saved: {folder}, a whole model; to load it:

    from transformers import {auto}
    model = {auto}.from_pretrained("{folder}", trust_remote_code=True)"""


def main():
    args = parse_arguments()
    with output_folder(args.output, args.resume):
        train(args)


def parse_arguments():
    parser = argparse.ArgumentParser(
        usage="%(prog)s MODEL (--text FILE | --pairs FILE | --dataset NAME) [options]  "
        "(--help lists them)",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", help="a folder, or a repository such as user/name")
    parser.add_argument("--revision", help="a branch, tag or commit of a repository")
    data = parser.add_argument_group("what to learn from")
    source = data.add_mutually_exclusive_group(required=True)
    source.add_argument("--text", help="a text file in UTF-8, for a decoder")
    source.add_argument("--pairs", help="a .tsv, .csv or .jsonl file")
    source.add_argument("--dataset", help="pairs of a data set on the Hub, its training split")
    data.add_argument("--dataset_config", help="which configuration of it")
    data.add_argument("--columns", nargs=2, default=["source", "target"], metavar="NAME")
    data.add_argument("--max_length", type=at_least(2), default=128, help="tokens; longer is cut")

    lora = parser.add_argument_group("the adapters")
    lora.add_argument(
        "--targets",
        nargs="+",
        help="names of layers, or all-linear (default: every projection of attention and MLP)",
    )
    lora.add_argument("--rank", type=at_least(1), default=8)
    lora.add_argument("--alpha", type=at_least(1), default=16)
    lora.add_argument("--dropout", type=float, default=0.05)
    lora.add_argument("--merge", action="store_true", help="save a whole model")

    training = parser.add_argument_group("training")
    training.add_argument("--output", type=Path, default=Path("lora"))
    training.add_argument("--resume", action="store_true", help="go on where it was interrupted")
    training.add_argument("--epochs", type=positive, default=3)
    training.add_argument("--max_steps", type=int, default=-1, help="instead of --epochs")
    training.add_argument("--batch_size", type=at_least(1), default=8, help="rows per device")
    training.add_argument("--gradient_accumulation_steps", type=at_least(1), default=1)
    training.add_argument("--learning_rate", type=positive, default=2e-4)
    training.add_argument("--warmup_steps", type=at_least(0), default=10)
    training.add_argument("--save_steps", type=at_least(1), default=200)
    training.add_argument("--seed", type=int, default=0)
    training.add_argument("--bf16", action="store_true", help="half precision on an accelerator")
    training.add_argument("--report_to", default="none", help="tensorboard, trackio, wandb, ...")
    training.add_argument("--push_to_hub", metavar="USER/NAME", help="publish it when it is done")
    return parser.parse_args()


def train(args):
    checkpoint = checkpoint_to_resume(args.output) if args.resume else None
    data = read_text(args.text) if args.text else read_all_pairs(args)
    model, tokenizer = open_model(args.model, args.revision)
    rows = make_rows(args, model, tokenizer, data)
    model = add_adapters(args, model)
    trainer = make_trainer(args, model, tokenizer, rows)
    if trainer.is_world_process_zero():
        model.print_trainable_parameters()
    trainer.train(resume_from_checkpoint=checkpoint)
    if not trainer.is_world_process_zero():
        return  # of several processes, the first one saves
    model = trainer.model.merge_and_unload() if args.merge else trainer.model
    save_whole(args.output, model, tokenizer)
    print("\n" + how_to_load(args, model))
    if args.push_to_hub:
        push(args, model, tokenizer)


def read_all_pairs(args):
    if args.pairs:
        return read_pairs(args.pairs, args.columns)
    return read_dataset(args.dataset, args.dataset_config, args.columns)


def make_rows(args, model, tokenizer, data):
    """Training rows: blocks of a text, or a pair each."""
    if tokenizer.pad_token_id is None or tokenizer.eos_token_id is None:
        raise ProgramError(f"the tokenizer of {args.model} lacks a padding or an end token")
    if model.config.is_encoder_decoder:
        if args.text:
            raise ProgramError(f"{args.model} is an encoder-decoder: give --pairs, not --text")
        return [translation(tokenizer, *pair, args.max_length) for pair in data]
    if args.text:
        return blocks(tokenizer, data, args.max_length)
    rows = [answer(tokenizer, *pair, args.max_length) for pair in data]
    rows = [row for row in rows if set(row["labels"]) != {-100}]
    if not rows:
        raise ProgramError("no pair has room for its target: give a larger --max_length")
    return rows


def translation(tokenizer, source, target, length):
    options = {"truncation": True, "max_length": length}
    return {
        "input_ids": tokenizer(source, **options)["input_ids"],
        "labels": tokenizer(text_target=target, **options)["input_ids"],
    }


def answer(tokenizer, source, target, length):
    """A prompt and what is to follow it; only what follows is learned."""
    prompt = tokenizer(source)["input_ids"]
    target = tokenizer(target, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    return {
        "input_ids": (prompt + target)[:length],
        "labels": ([-100] * len(prompt) + target)[:length],
    }


def blocks(tokenizer, text, length):
    """The text in pieces of equal length; what is left over at its end is too short to learn."""
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    pieces = [ids[start : start + length] for start in range(0, len(ids) - length + 1, length)]
    if not pieces:
        raise ProgramError(
            f"the text has {len(ids)} tokens, fewer than one block of {length}: give more text or "
            "a smaller --max_length"
        )
    return [{"input_ids": piece, "labels": piece} for piece in pieces]


def add_adapters(args, model):
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise ProgramError("adapters need PEFT: run `pip install 'hf-tformer[train]'`") from error
    from transformers import set_seed

    from hf_tformer.registration import PROJECTIONS

    if getattr(model, "peft_config", None):
        raise ProgramError(f"{args.model} holds adapters: give the whole model that --merge saves")

    there = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    targets = args.targets or sorted(PROJECTIONS & there)
    missing = sorted(set(targets) - there - {"all-linear"})
    if missing:
        raise ProgramError(
            f"--targets {missing[0]}: no layer has this name; choose among "
            f"{', '.join(sorted(PROJECTIONS & there))} or all-linear"
        )
    set_seed(args.seed)
    config = LoraConfig(
        task_type="SEQ_2_SEQ_LM" if model.config.is_encoder_decoder else "CAUSAL_LM",
        target_modules="all-linear" if "all-linear" in targets else targets,
        r=args.rank,
        lora_alpha=args.alpha,
        lora_dropout=args.dropout,
    )
    return get_peft_model(model, config)


def make_trainer(args, model, tokenizer, rows):
    import torch
    from transformers import DataCollatorForSeq2Seq, Trainer, TrainingArguments

    try:
        arguments = TrainingArguments(
            output_dir=str(args.output),
            num_train_epochs=args.epochs,
            max_steps=args.max_steps,
            per_device_train_batch_size=args.batch_size,
            gradient_accumulation_steps=args.gradient_accumulation_steps,
            learning_rate=args.learning_rate,
            lr_scheduler_type="cosine",
            warmup_steps=args.warmup_steps,
            logging_steps=min(10, args.save_steps),
            save_steps=args.save_steps,
            save_total_limit=2,
            label_names=["labels"],  # beneath the adapters Trainer does not find them
            bf16=args.bf16,
            seed=args.seed,
            report_to=args.report_to,
            dataloader_pin_memory=torch.accelerator.is_available(),
            use_cpu=not torch.accelerator.is_available(),  # unsaid, processes would not be joined
            ddp_find_unused_parameters=False,  # there are none
            use_cache=True,  # what Trainer writes into the configuration; no step makes a cache
        )
        return Trainer(
            model=model,
            args=arguments,
            train_dataset=rows,
            data_collator=DataCollatorForSeq2Seq(tokenizer),  # pads the labels of a decoder too
            processing_class=tokenizer,
        )
    except (ValueError, RuntimeError, ImportError) as error:  # no such device, no such reporter
        raise ProgramError(str(error)) from error


def how_to_load(args, model):
    kind = "Seq2SeqLM" if model.config.is_encoder_decoder else "CausalLM"
    if args.merge:
        return MERGED.format(folder=args.output, auto=f"AutoModelFor{kind}")
    return ADAPTERS.format(folder=args.output, base=args.model, auto=f"AutoPeftModelFor{kind}")


def push(args, model, tokenizer):
    if args.merge:
        print(publish_folder(args.output, args.push_to_hub).url)
        return
    from huggingface_hub.errors import HfHubHTTPError

    try:
        print(model.push_to_hub(args.push_to_hub))
        tokenizer.push_to_hub(args.push_to_hub)
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise ProgramError(f"{args.output} is saved, but not published: {error}") from error


if __name__ == "__main__":
    run(main)
