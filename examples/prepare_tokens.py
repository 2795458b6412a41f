"""A text as token shards: tokenized once, then read by any number of training processes.

    python examples/prepare_tokens.py                             # Python's own manual, in seconds
    python examples/prepare_tokens.py --text book.txt news.jsonl --output my-tokens
    python examples/prepare_tokens.py --dataset HuggingFaceFW/fineweb --streaming \\
        --dataset_config sample-10BT --tokenizer Qwen/Qwen3-0.6B --validation 2000
    torchrun --nproc-per-node 4 examples/train_language_model.py --tokens my-tokens

Documents are read and written one after the other, so memory does not limit how many there are. All
processor cores take part, as threads of the tokenizer; `RAYON_NUM_THREADS=4` leaves some to others.
The folder appears when it is whole. A run that was interrupted leaves none and is started again.
"""

import itertools
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from data import add_document_flags, iterate_documents, make_tokenizer
from program import ProgramError, at_least, make_parser, refusing, run

from hf_tformer.scale import TokensError, write_tokens
from hf_tformer.scale.preparing import About, refuse_place


def main() -> None:
    args = parse_arguments()
    with refusing(TokensError, OSError):
        written = prepare(args)
    parts = [f"{part.tokens:,} tokens of {part.documents:,} documents" for part in written.values()]
    pairs = zip(parts, ("to train on", "to evaluate on"), strict=False)
    print(f"saved: {args.output}, {', '.join(map(' '.join, pairs))}")


def parse_arguments() -> Namespace:
    parser = make_parser(__doc__)
    add = add_document_flags(parser).add_argument
    sample = "documents, from the first, that a new tokenizer is trained on"
    add("--streaming", action="store_true", help="data set read over the network, not stored here")
    add("--tokenizer_documents", type=at_least(1), default=100_000, help=sample)
    add = parser.add_argument_group("the tokens").add_argument
    kept = "documents kept for evaluation: a share below 1, or their number"
    add("--output", type=Path, default=Path("tokens"), help="new folder to write")
    add("--shard_tokens", type=int, default=100_000_000, help="tokens in a file")
    add("--validation", type=float, default=0.05, help=kept)
    add("--seed", type=int, default=0, help="seed of their choice")
    return parser.parse_args()


def prepare(args: Namespace) -> dict[str, About]:
    refuse_place(args.output)
    if args.streaming and not args.dataset:
        raise ProgramError("--streaming reads a data set from the Hub: give --dataset, too")
    sample = []
    if not args.tokenizer:
        documents = iterate_documents(args, streaming=args.streaming)
        sample = list(itertools.islice(documents, args.tokenizer_documents))
    tokenizer = make_tokenizer(args, sample, None)
    del sample
    with progress() as report:
        return write_tokens(
            iterate_documents(args, streaming=args.streaming),
            tokenizer,
            args.output,
            shard_tokens=args.shard_tokens,
            validation=args.validation,
            seed=args.seed,
            report=report,
        )


@contextmanager
def progress() -> Iterator[Callable[[int, int], None]]:
    """Show a bar of documents, with the tokens per second."""
    from tqdm import tqdm

    total = 0
    with tqdm(desc="Tokenizing", unit="document") as bar:

        def report(documents: int, tokens: int) -> None:
            nonlocal total
            total += tokens
            bar.set_postfix_str(f"{total / bar.format_dict['elapsed']:,.0f} tokens/s")
            bar.update(documents)

        yield report


if __name__ == "__main__":
    run(main)
