"""Text as token shards: tokenised once, then read by any number of training processes.

    python examples/prepare_tokens.py                             # Python's own manual, in seconds
    python examples/prepare_tokens.py --text book.txt news.jsonl --output my-tokens
    python examples/prepare_tokens.py --dataset HuggingFaceFW/fineweb --streaming \\
        --dataset_config sample-10BT --tokenizer Qwen/Qwen3-0.6B --validation 2000
    torchrun --nproc-per-node 4 examples/train_language_model.py --tokens my-tokens

Documents are read and written one after the other, so memory does not limit how many there are. All
processor cores take part, as threads of the tokenizer; `RAYON_NUM_THREADS=4` leaves some to others.
The folder appears when it is whole. A run that was interrupted leaves none and is started again.
"""

import argparse
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from corpus import add_document_flags, iterate_documents, make_tokenizer
from program import ProgramError, at_least, run

from hf_tformer.scale import TokensError, write_tokens
from hf_tformer.scale.preparing import refuse_place


def main():
    args = parse_arguments()
    try:
        written = prepare(args)
    except (TokensError, OSError) as error:
        raise ProgramError(str(error)) from error
    parts = [f"{part.tokens:,} tokens of {part.documents:,} documents" for part in written.values()]
    told = zip(parts, ("to learn from", "to measure by"), strict=False)
    print(f"saved: {args.output}, {', '.join(' '.join(words) for words in told)}")


def parse_arguments():
    parser = argparse.ArgumentParser(
        usage="%(prog)s [options]  (--help lists them)",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    data = add_document_flags(parser)
    data.add_argument("--streaming", action="store_true", help="do not store the data set here")
    data.add_argument(
        "--tokenizer_documents",
        type=at_least(1),
        default=100_000,
        help="how many documents, from the first, a new tokenizer is made of",
    )
    tokens = parser.add_argument_group("the tokens")
    tokens.add_argument("--output", type=Path, default=Path("tokens"), help="a new folder")
    tokens.add_argument("--shard_tokens", type=int, default=100_000_000, help="tokens in a file")
    tokens.add_argument(
        "--validation",
        type=float,
        default=0.05,
        help="documents kept back to measure by: a share below 1, or how many",
    )
    tokens.add_argument("--seed", type=int, default=0, help="chooses them")
    return parser.parse_args()


def prepare(args):
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
    """A bar of documents, with the tokens per second."""
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
