"""The text that a model learns its language from: read, tokenised, cut into blocks."""

import argparse
from collections.abc import Iterator

from data import iterate_dataset, iterate_json_lines, read_text
from program import ProgramError, at_least, share

from hf_tformer.opening import open_pretrained

END = "<|endoftext|>"
SMALLEST_VOCABULARY = 260  # every byte, the end, and what else is special


def add_corpus_flags(parser: argparse.ArgumentParser) -> None:
    data = add_document_flags(parser)
    data.add_argument("--block_size", type=at_least(2), default=128, help="tokens per block")
    data.add_argument("--validation", type=share, default=0.05, help="share of blocks kept back")


def add_document_flags(parser: argparse.ArgumentParser):
    data = parser.add_argument_group("the text (default: the manual that comes with Python)")
    source = data.add_mutually_exclusive_group()
    source.add_argument(
        "--text", nargs="+", help="UTF-8 files: each one document, or each line of a .jsonl"
    )
    source.add_argument("--dataset", help="a data set on the Hub; its training split is read")
    data.add_argument("--dataset_config", help="which configuration of it")
    data.add_argument("--column", default="text", help="the column that holds the text")
    data.add_argument("--tokenizer", help="use the tokenizer of this folder or repository")
    data.add_argument("--vocab_size", type=at_least(SMALLEST_VOCABULARY), default=4096)
    return data


def read_documents(args) -> list[str]:
    return list(iterate_documents(args))


def iterate_documents(args, *, streaming: bool = False) -> Iterator[str]:
    """One document after the other, which need not fit into memory together."""
    if args.text:
        for path in args.text:
            if path.endswith(".jsonl"):
                yield from iterate_json_lines(path, args.column)
            else:
                yield read_text(path)
    elif args.dataset:
        yield from iterate_dataset(
            args.dataset, args.dataset_config, args.column, streaming=streaming
        )
    else:
        yield from read_manual()


def read_manual():
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise ProgramError("this Python came without its manual: give --text FILE") from error
    return topics.values()


def make_tokenizer(args, documents, checkpoint, **special_tokens):
    from transformers import AutoTokenizer

    if checkpoint or args.tokenizer:
        tokenizer = open_pretrained(AutoTokenizer, checkpoint or args.tokenizer)
        if tokenizer.eos_token_id is None:
            raise ProgramError(f"{args.tokenizer} has no end token: choose another tokenizer")
        return tokenizer
    return train_tokenizer(documents, args.vocab_size, special_tokens)


def train_tokenizer(documents, vocab_size, special_tokens):
    """Byte-level BPE: any text can be written with it, and comes back as it was.

    `special_tokens` by their role (mask_token=...) come after the end.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END, *special_tokens.values()],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    bpe.train_from_iterator(documents, trainer, length=len(documents))
    roles = {"bos_token": END, "eos_token": END, "pad_token": END, **special_tokens}
    return PreTrainedTokenizerFast(tokenizer_object=bpe, **roles)


def make_blocks(args, documents, tokenizer):
    """All documents in one row, each closed by the end token, cut into blocks of ids.

    Those to learn from, and those to measure by.
    """
    from tqdm import tqdm

    ids = []
    for document in tqdm(documents, desc="Tokenizing", unit="document"):
        ids += tokenizer(document, add_special_tokens=False, verbose=False)["input_ids"]
        ids.append(tokenizer.eos_token_id)
    size = args.block_size
    blocks = [ids[start : start + size] for start in range(0, len(ids) - size + 1, size)]
    kept = max(1, round(args.validation * len(blocks)))
    if len(blocks) <= kept:
        raise ProgramError(
            f"the text has {len(ids)} tokens, and --block_size {size} needs two blocks, one to "
            "learn from and one to measure by: give more text or smaller blocks"
        )
    return blocks[:-kept], blocks[-kept:]
