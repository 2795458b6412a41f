"""Fine-tuning by low-rank adapters (LoRA): a decoder on a text, or either family on pairs.

    python examples/finetune_lora.py my-model --text poems.txt --output poems
    python examples/finetune_lora.py my-translator --pairs letters.tsv --output letters --merge

A pair is a source and its target: two columns of a .tsv or .csv, or two fields of a .jsonl or of a
data set on the Hub. Without --merge the folder holds the adapters alone, a few per cent of the
model's size; with it a model like the one before, which opens without PEFT.
"""

from argparse import Namespace

from data import cut, open_dataset, pick_columns, read_pairs, read_text
from folders import publish_folder
from program import Model, ProgramError, Tokenizer, Trainer, at_least, make_parser, run
from training import add_training_flags, make_trainer, run_folder

from hf_tformer.atomic_folders import save_whole
from hf_tformer.opening import open_model

Row = dict[str, list[int]]
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


def main() -> None:
    args = parse_arguments()
    with run_folder(args) as checkpoint:
        data = read_text(args.text) if args.text else read_all_pairs(args)
        model, tokenizer = open_model(args.model, args.revision)
        rows = make_rows(args, model, tokenizer, data)
        model = add_adapters(args, model)
        trainer = prepare_trainer(args, model, tokenizer, rows)
        if trainer.is_world_process_zero():
            model.print_trainable_parameters()
        trainer.train(resume_from_checkpoint=checkpoint)
        if not trainer.is_world_process_zero():
            return  # of several processes, the first one saves
        model = trainer.model.merge_and_unload() if args.merge else trainer.model
        save_whole(args.output, model, tokenizer)
        print("\n" + how_to_load(args, model))
        if args.push_to_hub and args.merge:
            publish_folder(args.output, args.push_to_hub)
        elif args.push_to_hub:
            push_adapters(args, model, tokenizer)


def parse_arguments() -> Namespace:
    usage = "MODEL (--text FILE | --pairs FILE | --dataset NAME) [options]"
    parser = make_parser(__doc__, usage)
    parser.add_argument("model", help="folder, or a repository such as user/name")
    parser.add_argument("--revision", help="branch, tag or commit of a repository")
    data = parser.add_argument_group("the data")
    source = data.add_mutually_exclusive_group(required=True)
    source.add_argument("--text", help="text file in UTF-8, for a decoder")
    source.add_argument("--pairs", help="a .tsv, .csv or .jsonl file")
    source.add_argument("--dataset", help="data set on the Hub with pairs in its training split")
    add = data.add_argument
    add("--dataset_config", help="name of its configuration")
    add("--columns", nargs=2, default=["source", "target"], metavar="NAME", help="names of columns")
    add("--max_length", type=at_least(2), default=128, help="tokens that longer texts are cut to")

    add = parser.add_argument_group("the adapters").add_argument
    add("--targets", nargs="+", help="names of layers, or all-linear (default: all projections)")
    add("--rank", type=at_least(1), default=8, help="rank of the adapters")
    add("--alpha", type=at_least(1), default=16, help="scale of the adapters")
    add("--dropout", type=float, default=0.05, help="dropout probability")
    add("--merge", action="store_true", help="a whole model in the folder, not adapters")
    add_training_flags(parser, "lora", epochs=3, learning_rate=2e-4, batch_size=8, warmup_steps=10)
    return parser.parse_args()


def read_all_pairs(args: Namespace) -> list[tuple[str, ...]]:
    if args.pairs:
        return read_pairs(args.pairs, args.columns)
    rows = open_dataset(args.dataset, args.dataset_config, split="train")
    return pick_columns(args.dataset, rows, args.columns)


def make_rows(
    args: Namespace, model: Model, tokenizer: Tokenizer, data: str | list[tuple[str, ...]]
) -> list[Row]:
    """Tokenize blocks of a text, or each pair."""
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


def translation(tokenizer: Tokenizer, source: str, target: str, length: int) -> Row:
    options = {"truncation": True, "max_length": length}
    return {
        "input_ids": tokenizer(source, **options)["input_ids"],
        "labels": tokenizer(text_target=target, **options)["input_ids"],
    }


def answer(tokenizer: Tokenizer, source: str, target: str, length: int) -> Row:
    """Join a prompt and its continuation; only the continuation is trained on."""
    prompt = tokenizer(source)["input_ids"]
    target = tokenizer(target, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    return {
        "input_ids": (prompt + target)[:length],
        "labels": ([-100] * len(prompt) + target)[:length],
    }


def blocks(tokenizer: Tokenizer, text: str, length: int) -> list[Row]:
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    if len(ids) < length:
        raise ProgramError(
            f"the text has {len(ids)} tokens, fewer than one block of {length}: give more text or "
            "a smaller --max_length"
        )
    return [{"input_ids": block, "labels": block} for block in cut(ids, length)]


def add_adapters(args: Namespace, model: Model) -> Model:
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


def prepare_trainer(
    args: Namespace, model: Model, tokenizer: Tokenizer, rows: list[Row]
) -> Trainer:
    from transformers import DataCollatorForSeq2Seq

    others = {
        "weight_decay": 0.0,
        "adam_beta2": 0.999,
        "eval_strategy": "no",
        "logging_steps": min(10, args.save_steps),
        "label_names": ["labels"],  # beneath the adapters Trainer does not find them
        "use_cache": True,  # what Trainer writes into the configuration; no step makes a cache
    }
    collator = DataCollatorForSeq2Seq(tokenizer)  # pads the labels of a decoder too
    return make_trainer(args, model, tokenizer, others, train_dataset=rows, data_collator=collator)


def how_to_load(args: Namespace, model: Model) -> str:
    kind = "Seq2SeqLM" if model.config.is_encoder_decoder else "CausalLM"
    if args.merge:
        return MERGED.format(folder=args.output, auto=f"AutoModelFor{kind}")
    return ADAPTERS.format(folder=args.output, base=args.model, auto=f"AutoPeftModelFor{kind}")


def push_adapters(args: Namespace, model: Model, tokenizer: Tokenizer) -> None:
    from huggingface_hub.errors import HfHubHTTPError

    try:
        print(model.push_to_hub(args.push_to_hub))
        tokenizer.push_to_hub(args.push_to_hub)
    except (HfHubHTTPError, OSError, ValueError) as error:
        raise ProgramError(f"{args.output} is saved, but not published: {error}") from error


if __name__ == "__main__":
    run(main)
