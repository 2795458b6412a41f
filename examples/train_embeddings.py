"""Sentence vectors from an encoder: texts that mean the same come to lie beside each other.

    python examples/train_embeddings.py                         # dates, whatever the language
    python examples/train_embeddings.py encoder --data pairs.tsv --columns question answer

Two columns of a .tsv or .csv, or two fields of a .jsonl, hold texts that mean the same. It is
measured how often the vector nearest to that of a text, among those of all second texts kept back,
is that of its partner. Without a MODEL a small encoder is made and learns from nothing else.

The folder that is written opens with SentenceTransformer(folder, trust_remote_code=True). Needs
sentence-transformers: pip install 'hf-tformer[train,sentences]'.
"""

import argparse
import tempfile
from pathlib import Path

from corpus import train_tokenizer
from data import read_pairs
from dates import same_dates
from folders import output_folder
from program import ProgramError, at_least, positive, run, share

from hf_tformer.atomic_folders import save_whole

SPECIAL = {"mask_token": "<mask>", "pad_token": "<pad>", "cls_token": "<cls>"}


def main():
    args = parse_arguments()
    try:
        import sentence_transformers  # noqa: F401 (asked for before anything is written)
    except ModuleNotFoundError as error:
        reason = "vectors need sentence-transformers: run `pip install 'hf-tformer[sentences]'`"
        raise ProgramError(reason) from error
    with output_folder(args.output):
        train(args)


def train(args):
    if args.data:
        pairs = read_pairs(args.data, args.columns)
    else:
        pairs = same_dates(args.number_of_dates, args.seed)
    kept = max(2, round(args.validation * len(pairs)))
    if len(pairs) <= kept:
        raise ProgramError(f"there are {len(pairs)} pairs, and {kept} are kept back: give more")
    training, validation = pairs[kept:], pairs[:kept]
    model = build_model(args, training)
    print(f"{len(training)} pairs to learn from, {kept} to measure by")
    before = share_found(model, validation)
    trainer = make_trainer(args, model, training)
    trainer.train()
    if not trainer.is_world_process_zero():
        return  # of several processes, the first one saves
    print(
        f"\nnearest is the partner: {before:.1%} before, {share_found(model, validation):.1%} now"
    )
    save_whole(args.output, model)
    print(f"saved: {args.output}")


def parse_arguments():
    parser = argparse.ArgumentParser(
        usage="%(prog)s [MODEL] [options]  (--help lists them)",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", nargs="?", help="a folder or repository of an encoder")
    data = parser.add_argument_group("what to learn from (default: dates in sixteen languages)")
    data.add_argument("--data", help="a .tsv, .csv or .jsonl file of pairs")
    data.add_argument("--columns", nargs=2, default=["source", "target"], metavar="NAME")
    data.add_argument("--number_of_dates", type=at_least(4), default=12000)
    data.add_argument("--max_length", type=at_least(2), default=128, help="tokens; longer is cut")
    data.add_argument("--validation", type=share, default=0.05, help="share of pairs kept back")

    training = parser.add_argument_group("training")
    training.add_argument("--output", type=Path, default=Path("embeddings"))
    training.add_argument("--epochs", type=positive, default=3)
    training.add_argument("--max_steps", type=int, default=-1, help="instead of --epochs")
    training.add_argument(
        "--batch_size", type=at_least(2), default=64, help="pairs, of which each learns from all"
    )
    training.add_argument("--learning_rate", type=positive, default=1e-3)
    training.add_argument("--seed", type=int, default=0)
    training.add_argument("--report_to", default="none", help="tensorboard, trackio, wandb, ...")
    return parser.parse_args()


def build_model(args, pairs):
    """An encoder, and the mean of its tokens as the vector of a text."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    with tempfile.TemporaryDirectory() as made:
        source = args.model or new_encoder(args, pairs, made)
        try:
            encoder = Transformer(source, max_seq_length=args.max_length)
        except (OSError, ValueError, KeyError) as error:
            raise ProgramError(f"{source} cannot be opened as an encoder: {error}") from error
    return SentenceTransformer(modules=[encoder, Pooling(encoder.get_embedding_dimension())])


def new_encoder(args, pairs, folder):
    from transformers import set_seed

    from hf_tformer import TformerEncoderConfig, TformerEncoderModel

    set_seed(args.seed)
    tokenizer = train_tokenizer([text for pair in pairs for text in pair], 1000, SPECIAL)
    config = TformerEncoderConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        sliding_window=16,
        pad_token_id=tokenizer.pad_token_id,
    )
    TformerEncoderModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_trainer(args, model, pairs):
    import torch
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    first, second = zip(*pairs, strict=True)
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(args.output),
        num_train_epochs=args.epochs,
        max_steps=args.max_steps,
        per_device_train_batch_size=args.batch_size,
        learning_rate=args.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=50,
        logging_steps=50,
        save_strategy="no",
        seed=args.seed,
        report_to=args.report_to,
        dataloader_pin_memory=torch.accelerator.is_available(),
        use_cpu=not torch.accelerator.is_available(),
    )
    return SentenceTransformerTrainer(
        model=model,
        args=arguments,
        train_dataset=Dataset.from_dict({"first": first, "second": second}),
        loss=MultipleNegativesRankingLoss(model),
    )


def share_found(model, pairs):
    """How often the second text whose vector is nearest to that of the first is its partner."""
    texts = list(zip(*pairs, strict=True))
    first, second = (
        model.encode(list(column), convert_to_tensor=True, normalize_embeddings=True)
        for column in texts
    )
    nearest = (first @ second.T).argmax(-1).tolist()
    return sum(texts[1][n] == own for n, own in zip(nearest, texts[1], strict=True)) / len(pairs)


if __name__ == "__main__":
    run(main)
