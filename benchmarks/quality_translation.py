"""The half of quality.py that trains translation models: see there."""

import argparse
import gzip
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import transformers
from transformers import PreTrainedModel, PreTrainedTokenizerBase, set_seed

from conversion import import_checkpoint
from hf_tformer import TformerSeq2SeqForConditionalGeneration

from .measure import ROOT

if TYPE_CHECKING:
    from dates import Pair

Build = Callable[[tuple[Any, Any, Any], PreTrainedTokenizerBase], PreTrainedModel]

# As options of examples/train_translation.py; of those that are given twice the last counts.
CPU = """
--hidden_size 128 --intermediate_size 512 --encoder_layers 2 --decoder_layers 2 --modern True
--dropout 0.1 --vocab_size 4000 --max_steps 600 --eval_steps 120 --learning_rate 1e-3
--per_device_train_batch_size 64 --eval_strategy steps --save_strategy no
"""
FULL = f"""{CPU}
--hidden_size 256 --intermediate_size 1024 --encoder_layers 4 --decoder_layers 4 --dropout 0.3
--vocab_size 8000 --max_steps 9000 --eval_steps 900 --per_device_train_batch_size 128
--generation_num_beams 5
"""


def multi30k(args: argparse.Namespace) -> int:
    return translate(args, {"ours": build_ours, "Marian's": build_marian})


def t5(args: argparse.Namespace) -> int:
    return translate(args, {"ours": build_t5_as_ours, "T5's": build_t5})


def translate(args: argparse.Namespace, builders: dict[str, Build]) -> int:
    """Train the models of all builders on the same batches, ours first, and compare them."""
    sys.path.append(str(ROOT / "examples"))
    from train_translation import make_trainer, parse_arguments, train_tokenizer
    from translation_pairs import as_dataset, encode

    recipe = FULL if args.full else CPU
    if args.steps:
        recipe += f"--max_steps {args.steps} --eval_steps {max(1, args.steps // 5)}"
    pairs = {split: read_split(args.data, split) for split in ("train", "val", "test_2016_flickr")}
    curves, bleu = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        options = parse_arguments([*recipe.split(), "--output_dir", folder])
        data, _, training = options
        sentences = [text for pair in pairs["train"] for text in pair[:2]]
        tokenizer = train_tokenizer(sentences, data.vocab_size)
        rows = {split: encode(as_dataset(pairs[split]), tokenizer) for split in pairs}
        rows["validation"] = rows.pop("val")
        for name, build in builders.items():
            model = build(options, tokenizer)
            trained = model.num_parameters(only_trainable=True)
            print(f"{name}: {trained / 1e6:.3f} M parameters to train")
            trainer = make_trainer(training, model, tokenizer, rows)
            curves[name] = curve_of(trainer)
            bleu[name] = trainer.predict(rows["test_2016_flickr"]).metrics["test_bleu"]
    show(curves)
    found = ", ".join(f"{name} {score:.2f}" for name, score in bleu.items())
    print(f"BLEU (sacreBLEU, test_2016_flickr): {found}")
    ours, theirs = (curve[max(curve)] for curve in curves.values())
    good = bleu["ours"] >= max(bleu.values()) and ours <= theirs
    print("ours is at least as good" if good else "ours is not as good")
    return int(not good)


def curve_of(trainer: Any) -> dict[int, float]:
    """Train, and return the validation loss by step; translations are not needed for it."""
    metrics, trainer.compute_metrics = trainer.compute_metrics, None
    trainer.args.predict_with_generate = False
    trainer.train()
    trainer.compute_metrics, trainer.args.predict_with_generate = metrics, True
    logged = trainer.state.log_history
    return {entry["step"]: entry["eval_loss"] for entry in logged if "eval_loss" in entry}


def show(curves: dict[str, dict[int, float]]) -> None:
    print(f"{'step':>8}" + "".join(f"{name:>18}" for name in curves))
    for step in next(iter(curves.values())):
        print(f"{step:8}" + "".join(f"{curve[step]:18.4f}" for curve in curves.values()))


def read_split(folder: Path, split: str) -> "list[Pair]":
    from dates import Pair

    sides = []
    for language in ("de", "en"):
        with gzip.open(folder / f"multi30k.{split}.{language}.gz", "rt", encoding="utf-8") as file:
            sides.append([line.strip() for line in file])
    return [Pair(*pair) for pair in zip(*sides, strict=True)]


def build_ours(options: tuple, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    from train_translation import build_model

    return build_model(*options, tokenizer, None)


def build_marian(options: tuple, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    data, sizes, training = options
    set_seed(training.seed)
    stacks = {}
    for stack in ("encoder", "decoder"):
        stacks[f"{stack}_layers"] = getattr(sizes, f"{stack}_layers")
        stacks[f"{stack}_attention_heads"] = sizes.num_attention_heads
        stacks[f"{stack}_ffn_dim"] = sizes.intermediate_size
    config = transformers.MarianConfig(
        vocab_size=len(tokenizer),
        d_model=sizes.hidden_size,
        dropout=sizes.dropout,
        scale_embedding=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        forced_eos_token_id=None,
        decoder_start_token_id=tokenizer.bos_token_id,
        **stacks,
    )
    return set_generation(transformers.MarianMTModel(config), data, training)


def set_generation(model: PreTrainedModel, data: Any, training: Any) -> PreTrainedModel:
    model.generation_config.max_new_tokens = data.max_length
    model.generation_config.num_beams = training.generation_num_beams
    return model


def build_t5(options: tuple, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    data, sizes, training = options
    set_seed(training.seed)
    config = transformers.T5Config(
        vocab_size=len(tokenizer),
        d_model=sizes.hidden_size,
        d_kv=sizes.hidden_size // sizes.num_attention_heads,
        d_ff=sizes.intermediate_size,
        num_layers=sizes.encoder_layers,
        num_decoder_layers=sizes.decoder_layers,
        num_heads=sizes.num_attention_heads,
        dropout_rate=sizes.dropout,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.bos_token_id,
    )
    return set_generation(transformers.T5ForConditionalGeneration(config), data, training)


def build_t5_as_ours(options: tuple, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Convert the T5 with its first weights: ours would draw others, for attention that is scaled
    and for a head that is not."""
    with tempfile.TemporaryDirectory() as folder:
        theirs, ours = Path(folder) / "theirs", Path(folder) / "ours"
        build_t5(options, tokenizer).save_pretrained(theirs)
        import_checkpoint(theirs, ours)
        return TformerSeq2SeqForConditionalGeneration.from_pretrained(ours)
