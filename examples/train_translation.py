"""A translation model from scratch, on pairs of sentences.

    python examples/train_translation.py     # dates in sixteen languages to ISO 8601, in minutes
    python examples/train_translation.py --source_file train.de --target_file train.en \\
        --validation_source_file val.de --validation_target_file val.en --output_dir de-en
    python examples/train_translation.py --dataset_name USER/PAIRS --source_column translation.de \\
        --target_column translation.en --output_dir de-en

The same command with `--resume_from_checkpoint last` continues an interrupted run. Besides its own
options, which come first, it takes all of transformers' Seq2SeqTrainingArguments:
`--report_to tensorboard`, `--push_to_hub`, `--bf16`, `--torch_compile`, ...
Under torchrun and `accelerate launch` it trains on many processes, with the losses of one. The
tokens of a data set, or of its folder, are files that are read where they are needed: give many
pairs in this way. The folder that is written opens with AutoModelForSeq2SeqLM and AutoTokenizer.
What it needs besides the package: `pip install '.[train]'` in the folder above this one.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from data import byte_level_bpe
from folders import refuse_unwritable
from program import Help, Model, ProgramError, Tokenizer, refusing, run
from scaled_trainer import ScaledTrainer

import hf_tformer
from hf_tformer.opening import open_pretrained
from hf_tformer.training import is_complete

try:
    from datasets import Dataset, disable_progress_bars
    from sacrebleu import corpus_bleu
    from translation_pairs import DataArguments, drop_long, encode, option, read_pairs, sentences_of
except ModuleNotFoundError as error:
    reason = f"{error.name} is missing: run `pip install 'hf-tformer[train]'`"
    raise SystemExit(f"train_translation.py: {reason}") from error

SPECIAL = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
SMALLEST_VOCABULARY = 256 + len(SPECIAL)  # every byte, and the special tokens

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
    "use_cpu": not torch.accelerator.is_available(),  # else processes would not be joined
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


@dataclass
class ModelArguments:
    _argument_group_name = "the model"

    hidden_size: int = option("width of the model", 128)
    intermediate_size: int = option("width of the MLPs", 512)
    encoder_layers: int = option("depth of the encoder", 2)
    decoder_layers: int = option("depth of the decoder", 2)
    num_attention_heads: int = option("attention heads of a layer", 4)
    norm_position: str = option("place of the norms: pre, or post as in the paper", "pre")
    dropout: float = option("dropout probability: 0.1 to 0.3 where data is scarce", 0.0)
    label_smoothing: float = option("label smoothing: 0.1 in the paper", 0.0)
    modern: bool = option(
        "rotary positions, RMSNorm, gated MLPs and norms of queries and keys: learns faster", False
    )
    paper_schedule: bool = option(
        "Adam and the learning rate of the paper, with --warmup_steps (4000 in the paper)", False
    )


@dataclass
class TrainingArguments(transformers.Seq2SeqTrainingArguments):
    _argument_group_name = "training, in transformers' own words"

    peak_flops: float | None = option(
        "FLOPs per second that a device can compute, for its utilisation; common GPUs are known"
    )


def main(
    argv: list[str] | None = None, callbacks: Iterable[transformers.TrainerCallback] = ()
) -> None:
    data, sizes, training = parse_arguments(argv)
    checkpoint = find_checkpoint(training)
    if training.disable_tqdm or training.process_index:
        disable_progress_bars()
        transformers.utils.logging.disable_progress_bar()
    with training.main_process_first():  # the others find what it stored
        pairs = read_pairs(data)
    tokenizer = make_tokenizer(data, pairs["train"], checkpoint, not training.disable_tqdm)
    model = build_model(data, sizes, training, tokenizer, checkpoint)
    with training.main_process_first():
        rows = {split: encode(pairs[split], tokenizer) for split in pairs}
        rows["train"] = drop_long(rows["train"], data.max_length)
    trainer = make_trainer(training, model, tokenizer, rows)
    for callback in callbacks:  # with --disable_tqdm, they say how it goes instead of Trainer
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.add_callback(callback)
    if trainer.is_world_process_zero():
        print(
            f"{model.num_parameters() / 1e6:.1f} M parameters, {len(tokenizer)} tokens, "
            f"{len(rows['train'])} pairs to train on, {len(rows['validation'])} to evaluate on"
        )
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_model()  # and pushes it, where --push_to_hub is given
    split = "test" if "test" in pairs else "validation"
    by_language = evaluate(trainer, split, pairs[split], rows[split])
    if trainer.is_world_process_zero():
        print("\n".join([*by_language, f"saved: {training.output_dir}"]))


def parse_arguments(
    argv: list[str] | None = None,
) -> tuple[DataArguments, ModelArguments, TrainingArguments]:
    classes = (DataArguments, ModelArguments, TrainingArguments)
    parser = transformers.HfArgumentParser(
        classes, description=__doc__, usage="%(prog)s [options]", formatter_class=Help
    )
    parser.set_defaults(**TRAINING_DEFAULTS)
    with refusing(ValueError, ImportError, RuntimeError):
        data, sizes, training = parser.parse_args_into_dataclasses(argv, look_for_args_file=False)
        if sizes.paper_schedule:
            schedule = hf_tformer.paper_training_arguments(sizes.hidden_size, training.warmup_steps)
            vars(training).update(schedule)
    if data.vocab_size < SMALLEST_VOCABULARY:
        raise ProgramError(
            f"--vocab_size is {data.vocab_size}: give at least {SMALLEST_VOCABULARY}, for every "
            "byte and the special tokens"
        )
    if data.number_of_dates < 1:
        raise ProgramError(f"--number_of_dates is {data.number_of_dates}: give at least 1")
    training.predict_with_generate = True
    return data, sizes, training


def find_checkpoint(training: TrainingArguments) -> str | None:
    """Return the checkpoint to resume from; refuse a folder that is in use or not writable."""
    folder, wanted = Path(training.output_dir), training.resume_from_checkpoint
    last = hf_tformer.last_complete_checkpoint(folder)
    if wanted is None and (last or (folder / "config.json").exists()):
        resume = "add --resume_from_checkpoint last to continue it, or " if last else ""
        raise ProgramError(f"{folder} holds a model already: {resume}choose another --output_dir")
    refuse_unwritable(folder, "--output_dir")
    if wanted is None:
        return None
    checkpoint = last if wanted == "last" else wanted
    if not checkpoint:
        raise ProgramError(
            f"{folder} holds no complete checkpoint: leave --resume_from_checkpoint out"
        )
    if not is_complete(Path(checkpoint)):
        raise ProgramError(f"{checkpoint} is not a complete checkpoint: give another, or last")
    return checkpoint


def make_tokenizer(
    data: DataArguments, pairs: Dataset, checkpoint: str | None, show_progress: bool
) -> Tokenizer:
    """Open that of the checkpoint, or train a new one on the pairs."""
    if checkpoint:
        return open_pretrained(transformers.AutoTokenizer, checkpoint)
    return train_tokenizer(sentences_of(pairs), data.vocab_size, show_progress)


def train_tokenizer(
    sentences: Iterable[str], vocab_size: int, show_progress: bool = True
) -> Tokenizer:
    """Train a byte-level BPE that spells numbers and closes each sentence."""
    from tokenizers.processors import TemplateProcessing

    options = {"single_digits": True, "show_progress": show_progress}
    bpe = byte_level_bpe(sentences, vocab_size, [*SPECIAL.values()], **options)
    end = SPECIAL["eos_token"]
    bpe.post_processor = TemplateProcessing(
        single=f"$A {end}", special_tokens=[(end, bpe.token_to_id(end))]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=bpe, model_input_names=["input_ids", "attention_mask"], **SPECIAL
    )


def build_model(
    data: DataArguments,
    sizes: ModelArguments,
    training: TrainingArguments,
    tokenizer: Tokenizer,
    checkpoint: str | None,
) -> Model:
    from huggingface_hub.errors import StrictDataclassError

    fields = model_fields(sizes)
    if checkpoint:
        before = open_pretrained(transformers.AutoConfig, checkpoint)
        for name, value in fields.items():
            if getattr(before, name, None) != value:
                raise ProgramError(
                    f"{name} is {value}, but {checkpoint} has {getattr(before, name, 'none')}: "
                    "give the same options as before, or another --output_dir"
                )
    transformers.set_seed(training.seed)
    with refusing(ValueError, StrictDataclassError):
        config = hf_tformer.TformerSeq2SeqConfig(
            vocab_size=len(tokenizer),
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            decoder_start_token_id=tokenizer.bos_token_id,
            **fields,
        )
    model = hf_tformer.TformerSeq2SeqForConditionalGeneration(config)
    # Saved, so that the model generates as it was evaluated here.
    model.generation_config.max_new_tokens = data.max_length
    model.generation_config.num_beams = training.generation_num_beams
    return model


def model_fields(sizes: ModelArguments) -> dict[str, Any]:
    """Return the options as fields of the configuration."""
    fields = dict(vars(sizes))
    del fields["paper_schedule"]
    if fields.pop("modern"):
        # A gated MLP has three matrices: of two thirds the width they are as large as two.
        fields |= {**MODERN, "intermediate_size": sizes.intermediate_size * 2 // 3}
    return fields


def make_trainer(
    training: TrainingArguments, model: Model, tokenizer: Tokenizer, rows: dict[str, Dataset]
) -> ScaledTrainer:
    # No such reporter, no such repository, no network.
    with refusing(ValueError, RuntimeError, ImportError, OSError):
        return ScaledTrainer(
            model=model,
            args=training,
            train_dataset=rows["train"],
            eval_dataset=rows["validation"],
            data_collator=transformers.DataCollatorForSeq2Seq(tokenizer, model=model),
            processing_class=tokenizer,
            compute_metrics=lambda result: score(
                decode(result.predictions, tokenizer), decode(result.label_ids, tokenizer)
            ),
        )


def decode(ids: Any, tokenizer: Tokenizer) -> list[str]:
    return tokenizer.batch_decode(ids.clip(min=tokenizer.pad_token_id), skip_special_tokens=True)


def score(answers: list[str], references: list[str]) -> dict[str, float]:
    return {
        "bleu": corpus_bleu(answers, [references]).score,
        "exact_match": share_equal(zip(answers, references, strict=True)),
    }


def share_equal(pairs: Iterable[tuple[str, str]]) -> float:
    equal = [left == right for left, right in pairs]
    return sum(equal) / len(equal)


def evaluate(trainer: ScaledTrainer, split: str, pairs: Dataset, rows: Dataset) -> list[str]:
    """Save the metrics of the finished model on pairs it has not seen, and describe each language,
    where that is known."""
    result = trainer.predict(rows, metric_key_prefix=split)
    trainer.log_metrics(split, result.metrics)
    trainer.save_metrics(split, result.metrics)
    answers = decode(result.predictions, trainer.processing_class)
    by_language = defaultdict(list)
    for pair, answer in zip(pairs, answers, strict=True):
        by_language[pair.get("language")].append((answer, pair["target"]))
    return [
        f"  {language}  {share_equal(found):6.1%} of {len(found)} exactly right"
        for language, found in sorted(by_language.items())
        if language
    ]


if __name__ == "__main__":
    run(main)
