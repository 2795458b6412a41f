"""A translation model from scratch, on pairs of sentences.

    python examples/train_translation.py     # dates in sixteen languages to ISO 8601, in minutes
    python examples/train_translation.py --source_file train.de --target_file train.en \\
        --validation_source_file val.de --validation_target_file val.en --output_dir de-en
    python examples/train_translation.py --dataset_name USER/PAIRS --source_column translation.de \\
        --target_column translation.en --output_dir de-en

The same command with `--resume_from_checkpoint last` goes on where it was interrupted. Besides its
own options, which come first, it takes all of transformers' Seq2SeqTrainingArguments:
`--report_to tensorboard`, `--push_to_hub`, `--bf16`, `--torch_compile`, ...
Under torchrun and `accelerate launch` it trains on many processes, with the losses of one. The
tokens of a data set, or of its folder, are files that are read where they are needed: give many
pairs in this way. The folder that is written opens with AutoModelForSeq2SeqLM and AutoTokenizer.
What it needs besides the package: `pip install '.[train]'` in the folder above this one.
"""

import argparse
import copy
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import torch
from data import read_text
from program import ProgramError, run
from scaled_trainer import ScaledTrainer
from tqdm import tqdm
from transformers import DataCollatorForSeq2Seq, HfArgumentParser, Seq2SeqTrainingArguments

from hf_tformer import last_complete_checkpoint, paper_training_arguments
from hf_tformer.opening import first_line, open_pretrained
from hf_tformer.training import is_complete

try:
    from datasets import Dataset, Features, Sequence, Value, disable_progress_bars, load_dataset
    from datasets.utils import are_progress_bars_disabled
    from dates import Pair, date_pairs
    from sacrebleu import corpus_bleu
except ModuleNotFoundError as error:
    reason = f"{error.name} is missing: run `pip install 'hf-tformer[train]'`"
    raise SystemExit(f"train_translation.py: {reason}") from error

SPECIAL = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
SMALLEST_VOCABULARY = 256 + len(SPECIAL)  # every byte, and the special tokens
VALIDATION_SHARE = 0.05  # of the pairs, where no others are given to measure by

# What a small model from scratch needs other than transformers' defaults.
TRAINING_DEFAULTS = {
    "output_dir": "translation-model",
    "per_device_train_batch_size": 128,
    "per_device_eval_batch_size": 256,
    "learning_rate": 3e-3,
    "lr_scheduler_type": "cosine",
    "warmup_steps": 0.1,
    "adam_beta2": 0.98,
    "logging_steps": 20,
    "eval_strategy": "epoch",
    "save_strategy": "epoch",
    "save_total_limit": 2,
    "generation_num_beams": 1,
    "use_cpu": not torch.accelerator.is_available(),  # unsaid, processes would not be joined
    "ddp_find_unused_parameters": False,  # there are none
    "use_cache": True,  # what Trainer writes into the configuration; no training step makes a cache
}


# The encoder-decoder as one would build it today; the configuration's defaults are the paper's.
MODERN = {
    "position_embedding_type": "rotary",
    "norm_type": "rmsnorm",
    "qk_norm": True,
    "mlp_type": "gated",
    "hidden_act": "silu",
    "initializer": "normal",
}


def option(help, default=None):
    return field(default=default, metadata={"help": help})


@dataclass
class DataArguments:
    _argument_group_name = "the pairs (without a file or a data set: dates, made on the spot)"

    source_file: str | None = option("sentences to translate, UTF-8, one a line")
    target_file: str | None = option("their translations, line by line")
    validation_source_file: str | None = option("to measure by; without it, the last 5 %%")
    validation_target_file: str | None = option("their translations")
    test_source_file: str | None = option("to measure the finished model by")
    test_target_file: str | None = option("their translations")
    dataset_name: str | None = option("a data set on the Hub, or its folder, instead of files")
    dataset_config_name: str | None = option("which configuration of it")
    source_column: str = option("its sentences; nested ones as in translation.de", "source")
    target_column: str = option("their translations", "target")
    number_of_dates: int = option("how many dates to learn from", 40_000)
    vocab_size: int = option("tokens of the BPE that both sides share", 1000)
    max_length: int = option("in tokens: longer pairs are not learned from, nor written", 128)


@dataclass
class ModelArguments:
    _argument_group_name = "the model"

    hidden_size: int = option("width", 128)
    intermediate_size: int = option("width of the MLPs", 512)
    encoder_layers: int = option("depth of the encoder", 2)
    decoder_layers: int = option("depth of the decoder", 2)
    num_attention_heads: int = option("heads", 4)
    norm_position: str = option("pre, or post as in the paper", "pre")
    dropout: float = option("0.1 to 0.3 where data is scarce", 0.0)
    label_smoothing: float = option("0.1 in the paper", 0.0)
    modern: bool = option(
        "rotary positions, RMSNorm, gated MLPs and norms of queries and keys: learns faster", False
    )
    paper_schedule: bool = option(
        "Adam and the learning rate of the paper, with --warmup_steps (4000 in the paper)", False
    )


@dataclass
class TrainingArguments(Seq2SeqTrainingArguments):
    _argument_group_name = "training, in transformers' own words"

    peak_flops: float | None = option(
        "what a device computes, FLOPs per second, for its utilisation; common GPUs are known"
    )


def main(argv=None):
    data, sizes, training = parse_arguments(argv)
    checkpoint = find_checkpoint(training)
    if training.disable_tqdm or training.process_index:
        disable_progress_bars()
    with training.main_process_first():  # the others find what it stored
        pairs = read_pairs(data)
    tokenizer = make_tokenizer(data, pairs["train"], checkpoint)
    model = build_model(data, sizes, training, tokenizer, checkpoint)
    with training.main_process_first():
        rows = {split: encode(pairs[split], tokenizer) for split in pairs}
        rows["train"] = leave_out_long(rows["train"], data.max_length)
    trainer = make_trainer(training, model, tokenizer, rows)
    if trainer.is_world_process_zero():
        print(
            f"{model.num_parameters() / 1e6:.1f} M parameters, {len(tokenizer)} tokens, "
            f"{len(rows['train'])} pairs to learn from, {len(rows['validation'])} to measure by"
        )
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model()  # and pushes it, where --push_to_hub is given
    split = "test" if "test" in pairs else "validation"
    by_language = measure(trainer, split, pairs[split], rows[split])
    if trainer.is_world_process_zero():
        print("\n".join([*by_language, f"saved: {training.output_dir}"]))


class Help(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    pass


def parse_arguments(argv=None):
    classes = (DataArguments, ModelArguments, TrainingArguments)
    parser = HfArgumentParser(
        classes, description=__doc__, usage="%(prog)s [options]", formatter_class=Help
    )
    parser.set_defaults(**TRAINING_DEFAULTS)
    try:
        data, sizes, training = parser.parse_args_into_dataclasses(argv, look_for_args_file=False)
        if sizes.paper_schedule:
            schedule = paper_training_arguments(sizes.hidden_size, training.warmup_steps)
            vars(training).update(schedule)
    except (ValueError, ImportError, RuntimeError) as error:
        raise ProgramError(str(error)) from error
    if data.vocab_size < SMALLEST_VOCABULARY:
        raise ProgramError(
            f"--vocab_size is {data.vocab_size}: give at least {SMALLEST_VOCABULARY}, for every "
            "byte and the special tokens"
        )
    if data.number_of_dates < 1:
        raise ProgramError(f"--number_of_dates is {data.number_of_dates}: give at least 1")
    training.predict_with_generate = True
    return data, sizes, training


def find_checkpoint(training):
    """The checkpoint to go on from, or None; a folder that is in use or closed is refused."""
    folder, wanted = Path(training.output_dir), training.resume_from_checkpoint
    last = last_complete_checkpoint(folder)
    if wanted is None and (last or (folder / "config.json").exists()):
        go_on = "add --resume_from_checkpoint last to go on with it, or " if last else ""
        raise ProgramError(f"{folder} holds a model already: {go_on}choose another --output_dir")
    refuse_unwritable(folder)
    if wanted is None:
        return None
    checkpoint = last if wanted == "last" else wanted
    if not checkpoint:
        raise ProgramError(
            f"{folder} holds no complete checkpoint: leave --resume_from_checkpoint away"
        )
    if not is_complete(Path(checkpoint)):
        raise ProgramError(f"{checkpoint} is not a complete checkpoint: give another, or last")
    return checkpoint


def refuse_unwritable(folder):
    """Before hours of training; where the folder is yet to be made, what is to hold it counts."""
    place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        tempfile.TemporaryFile(dir=place).close()
    except OSError as error:
        raise ProgramError(
            f"{folder} cannot be written to ({error.strerror}): choose another --output_dir"
        ) from error


def read_pairs(data):
    """Pairs to train with, to validate with, and, where there are any, to test with."""
    if data.dataset_name:
        splits = read_dataset(data)
    elif any(value for name, value in vars(data).items() if name.endswith("_file")):
        splits = read_files(data)
    else:
        splits = date_pairs(data.number_of_dates)
        return {split: as_dataset(splits[split]) for split in splits}
    if "validation" not in splits:
        kept = max(1, round(VALIDATION_SHARE * len(splits["train"])))
        first = len(splits["train"]) - kept
        splits["validation"] = splits["train"].select(range(first, first + kept))
        splits["train"] = splits["train"].select(range(first))
    if not len(splits["train"]):
        raise ProgramError("there is a single pair, and one is needed to measure by: give more")
    return splits


def as_dataset(pairs):
    return Dataset.from_dict(
        {name: [getattr(pair, name) for pair in pairs] for name in Pair._fields}
    )


def read_files(data):
    splits = {}
    for split, prefix in (("train", ""), ("validation", "validation_"), ("test", "test_")):
        names = f"{prefix}source_file", f"{prefix}target_file"
        source, target = (getattr(data, name) for name in names)
        if bool(source) != bool(target):
            given, missing = names if source else reversed(names)
            raise ProgramError(f"--{given} is given without --{missing}: give both")
        if source:
            splits[split] = read_parallel_files(source, target)
    if "train" not in splits:
        raise ProgramError("there is nothing to learn from: give --source_file and --target_file")
    return splits


def read_parallel_files(*paths):
    # Not splitlines(): it also cuts at characters that occur inside of sentences, U+2028 for one.
    sides = [read_text(path).removesuffix("\n").split("\n") for path in paths]
    if len(sides[0]) != len(sides[1]):
        counts = ", ".join(
            f"{path} has {len(lines)} lines" for path, lines in zip(paths, sides, strict=True)
        )
        raise ProgramError(f"{counts}: line n of one has to be the translation of line n")
    for path, lines in zip(paths, sides, strict=True):
        for number, line in enumerate(lines, 1):
            if not line.strip():
                raise ProgramError(
                    f"line {number} of {path} is empty: remove it and the one it belongs to"
                )
    pairs = zip(*sides, strict=True)
    return as_dataset([Pair(source.strip(), target.strip()) for source, target in pairs])


def read_dataset(data):
    name = data.dataset_name
    try:
        loaded = load_dataset(name, data.dataset_config_name).flatten()
    except Exception as error:  # each loader has its own errors; none of them is ours
        raise ProgramError(f"the data set {name} cannot be loaded: {first_line(error)}") from error
    if "train" not in loaded:
        raise ProgramError(f"the data set {name} has no split train, only {', '.join(loaded)}")
    kept = [split for split in ("train", "validation", "test") if split in loaded]
    return {split: pick_columns(name, split, loaded[split], data) for split in kept}


def pick_columns(name, split, rows, data):
    columns = data.source_column, data.target_column
    for column in columns:
        if column not in rows.column_names:
            raise ProgramError(
                f"the data set {name} has no column {column}: choose --source_column and "
                f"--target_column among {', '.join(rows.column_names)}"
            )
        texts = tqdm(rows[column], f"Reading {column}", disable=are_progress_bars_disabled())
        for number, text in enumerate(texts):
            if not isinstance(text, str) or not text.strip():
                raise ProgramError(
                    f"row {number} of {column} in the split {split} of {name} is {text!r}: it has "
                    "to be a sentence"
                )
    sides = dict(zip(columns, ("source", "target"), strict=True))
    return rows.select_columns([*columns]).rename_columns(sides)


def make_tokenizer(data, pairs, checkpoint):
    """The one of the checkpoint, or a new one, of what is to be learned from."""
    if checkpoint:
        from transformers import AutoTokenizer

        return open_pretrained(AutoTokenizer, checkpoint)
    return train_tokenizer(sentences_of(pairs), data.vocab_size)


def sentences_of(pairs):
    for batch in pairs.iter(1000):
        for pair in zip(batch["source"], batch["target"], strict=True):
            yield from pair


def train_tokenizer(sentences, vocab_size):
    """Byte-level BPE, which can write any text; digits stay single, numbers are spelled."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.normalizer = normalizers.NFC()
    digits = pre_tokenizers.Digits(individual_digits=True)
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [digits, pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[*SPECIAL.values()],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    bpe.train_from_iterator(sentences, trainer)
    end = SPECIAL["eos_token"]
    bpe.post_processor = TemplateProcessing(
        single=f"$A {end}", special_tokens=[(end, bpe.token_to_id(end))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, model_input_names=["input_ids", "attention_mask"], **SPECIAL
    )


def build_model(data, sizes, training, tokenizer, checkpoint):
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig, set_seed

    from hf_tformer import TformerSeq2SeqConfig, TformerSeq2SeqForConditionalGeneration

    fields = model_fields(sizes)
    if checkpoint:
        before = open_pretrained(AutoConfig, checkpoint)
        for name, value in fields.items():
            if getattr(before, name, None) != value:
                raise ProgramError(
                    f"{name} is {value}, but {checkpoint} has {getattr(before, name, 'none')}: "
                    "give the same options as before, or another --output_dir"
                )
    set_seed(training.seed)
    try:
        config = TformerSeq2SeqConfig(
            vocab_size=len(tokenizer),
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            decoder_start_token_id=tokenizer.bos_token_id,
            **fields,
        )
    except (ValueError, StrictDataclassError) as error:
        raise ProgramError(str(error)) from error
    model = TformerSeq2SeqForConditionalGeneration(config)
    # Whoever opens the model later writes as it was measured here.
    model.generation_config.max_new_tokens = data.max_length
    model.generation_config.num_beams = training.generation_num_beams
    return model


def model_fields(sizes):
    """The options as fields of the configuration."""
    fields = dict(vars(sizes))
    del fields["paper_schedule"]
    if fields.pop("modern"):
        # A gated MLP has three matrices: of two thirds the width they are as large as two.
        fields |= {**MODERN, "intermediate_size": sizes.intermediate_size * 2 // 3}
    return fields


def encode(pairs, tokenizer):
    """The ids of each pair. Those of a data set lie in a file; others are few enough for memory."""

    def tokenise(batch):
        sources, targets = (tokenizer(batch[side])["input_ids"] for side in ("source", "target"))
        return {"input_ids": sources, "labels": targets}

    ids = Sequence(Value("int32"))
    return pairs.map(
        tokenise,
        batched=True,
        remove_columns=pairs.column_names,
        features=Features({"input_ids": ids, "labels": ids}),
        desc="Tokenizing",
    )


def leave_out_long(rows, max_length):
    def is_short(sources, targets):
        return [max(map(len, pair)) <= max_length for pair in zip(sources, targets, strict=True)]

    columns = ["input_ids", "labels"]
    kept = rows.filter(is_short, batched=True, input_columns=columns, desc="Leaving out long pairs")
    if not len(kept):
        raise ProgramError(f"every pair has more than --max_length {max_length} tokens: raise it")
    if len(kept) < len(rows):
        print(f"{len(rows) - len(kept)} pairs longer than {max_length} tokens are left out")
    return kept


class Trainer(ScaledTrainer):
    """Measures each pair once: several processes fill their last batches up with the first pairs
    again, and Seq2SeqTrainer would count these."""

    def evaluation_loop(self, *args, **kwargs):
        self.gather_function = self.accelerator.gather_for_metrics
        return super().evaluation_loop(*args, **kwargs)

    def prediction_step(self, *args, **kwargs):
        before = copy.deepcopy(self.model.generation_config)
        result = super().prediction_step(*args, **kwargs)
        # It now holds every default of transformers, which would be saved, and contradict ours.
        self.model.generation_config = before
        return result


def make_trainer(training, model, tokenizer, rows):
    try:
        return Trainer(
            model=model,
            args=training,
            train_dataset=rows["train"],
            eval_dataset=rows["validation"],
            data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
            processing_class=tokenizer,
            compute_metrics=lambda result: score(
                decode(result.predictions, tokenizer), decode(result.label_ids, tokenizer)
            ),
        )
    except (ValueError, RuntimeError, ImportError, OSError) as error:
        raise ProgramError(first_line(error)) from error  # no such reporter, no such repository


def decode(ids, tokenizer):
    ids = [[max(token, tokenizer.pad_token_id) for token in row] for row in ids.tolist()]
    return tokenizer.batch_decode(ids, skip_special_tokens=True)


def score(answers, references):
    return {
        "bleu": corpus_bleu(answers, [references]).score,
        "exact_match": share(zip(answers, references, strict=True)),
    }


def share(pairs):
    """How many are equal, of one."""
    equal = [left == right for left, right in pairs]
    return sum(equal) / len(equal)


def measure(trainer, split, pairs, rows):
    """Writes how the finished model does on pairs it has not seen; a line of text for each
    language, where that is known."""
    result = trainer.predict(rows, metric_key_prefix=split)
    trainer.log_metrics(split, result.metrics)
    trainer.save_metrics(split, result.metrics)
    answers = decode(result.predictions, trainer.processing_class)
    by_language = defaultdict(list)
    for pair, answer in zip(pairs, answers, strict=True):
        by_language[pair.get("language")].append((answer, pair["target"]))
    return [
        f"  {language}  {share(found):6.1%} of {len(found)} exactly right"
        for language, found in sorted(by_language.items())
        if language
    ]


if __name__ == "__main__":
    run(main)
