"""Sentence vectors from an encoder: texts that mean the same get vectors that are close.

    python examples/train_embeddings.py                         # dates, whatever the language
    python examples/train_embeddings.py encoder --data pairs.tsv --columns question answer

Two columns of a .tsv or .csv, or two fields of a .jsonl, hold texts that mean the same. Evaluated
is how often the vector nearest to that of a text, among those of all second texts kept back, is
that of its partner. Without a MODEL a small encoder is made and trained on nothing else.

The folder that is written opens with SentenceTransformer(folder, trust_remote_code=True). Needs
sentence-transformers: pip install 'hf-tformer[train,sentences]'.
"""

import tempfile
from argparse import Namespace
from typing import TYPE_CHECKING

from data import ENCODER_TOKENS, read_pairs, train_tokenizer
from dates import same_dates
from program import ProgramError, at_least, make_parser, run, share
from training import (
    add_training_flags,
    run_folder,
    save_and_publish,
    small_encoder_config,
    training_arguments,
)

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer

Pairs = list[tuple[str, ...]]


def main() -> None:
    args = parse_arguments()
    try:
        import sentence_transformers  # noqa: F401 (asked for before anything is written)
    except ModuleNotFoundError as error:
        reason = "vectors need sentence-transformers: run `pip install 'hf-tformer[sentences]'`"
        raise ProgramError(reason) from error
    with run_folder(args) as checkpoint:
        if args.batch_size < 2:
            raise ProgramError("--batch_size is 1: pairs are told apart within a batch, give more")
        if args.data:
            pairs = read_pairs(args.data, args.columns)
        else:
            pairs = same_dates(args.number_of_dates, args.seed)
        kept = max(2, round(args.validation * len(pairs)))
        if len(pairs) <= kept:
            raise ProgramError(f"there are {len(pairs)} pairs, and {kept} are kept back: give more")
        training, validation = pairs[kept:], pairs[:kept]
        model = build_model(args, training)
        print(f"{len(training)} pairs to train on, {kept} to evaluate on")
        before = share_found(model, validation)
        trainer = make_trainer(args, model, training)
        trainer.train(resume_from_checkpoint=checkpoint)
        if not trainer.is_world_process_zero():
            return  # of several processes, the first one saves
        now = share_found(model, validation)
        print(f"\nnearest is the partner: {before:.1%} before, {now:.1%} now")
        save_and_publish(args, model)


def parse_arguments() -> Namespace:
    parser = make_parser(__doc__, "[MODEL] [options]")
    parser.add_argument("model", nargs="?", help="folder or repository of an encoder")
    add = parser.add_argument_group("the data (default: dates in sixteen languages)").add_argument
    add("--data", help="a .tsv, .csv or .jsonl file of pairs")
    add("--columns", nargs=2, default=["source", "target"], metavar="NAME", help="names of columns")
    add("--number_of_dates", type=at_least(4), default=12000, help="number of dates to draw")
    add("--max_length", type=at_least(2), default=128, help="tokens that longer texts are cut to")
    add("--validation", type=share, default=0.05, help="share of pairs kept for evaluation")
    add_training_flags(parser, "embeddings", epochs=3, batch_size=64)
    return parser.parse_args()


def build_model(args: Namespace, pairs: Pairs) -> "SentenceTransformer":
    """Open or make an encoder; the vector of a text is the mean of its tokens."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    with tempfile.TemporaryDirectory() as folder:
        if not args.model:
            save_small_encoder(args, pairs, folder)
        source = args.model or folder
        try:
            encoder = Transformer(source, max_seq_length=args.max_length)
        except (OSError, ValueError, KeyError) as error:
            raise ProgramError(f"{source} cannot be opened as an encoder: {error}") from error
    return SentenceTransformer(modules=[encoder, Pooling(encoder.get_embedding_dimension())])


def save_small_encoder(args: Namespace, pairs: Pairs, folder: str) -> None:
    from transformers import set_seed

    from hf_tformer import TformerEncoderModel

    set_seed(args.seed)
    texts = [text for pair in pairs for text in pair]
    tokenizer = train_tokenizer(texts, 1000, ENCODER_TOKENS)
    TformerEncoderModel(small_encoder_config(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def make_trainer(
    args: Namespace, model: "SentenceTransformer", pairs: Pairs
) -> "SentenceTransformerTrainer":
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    first, second = zip(*pairs, strict=True)
    return SentenceTransformerTrainer(
        model=model,
        args=training_arguments(
            args,
            SentenceTransformerTrainingArguments,
            weight_decay=0.0,
            adam_beta2=0.999,
            eval_strategy="no",
        ),
        train_dataset=Dataset.from_dict({"first": first, "second": second}),
        loss=MultipleNegativesRankingLoss(model),
    )


def share_found(model: "SentenceTransformer", pairs: Pairs) -> float:
    """Return how often the partner of a first text has the nearest vector of all second ones."""
    texts = list(zip(*pairs, strict=True))
    first, second = (
        model.encode(list(column), convert_to_tensor=True, normalize_embeddings=True)
        for column in texts
    )
    nearest = (first @ second.T).argmax(-1).tolist()
    return sum(texts[1][n] == own for n, own in zip(nearest, texts[1], strict=True)) / len(pairs)


if __name__ == "__main__":
    run(main)
