"""The text that a model is trained on: read, tokenized, cut into blocks."""

import argparse
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from data import iterate_dataset, iterate_json_lines, read_text
from program import ProgramError, at_least, share

from hf_tformer.opening import open_pretrained

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

END = "<|endoftext|>"
# What stands before a sequence, after it, and in the place of a hidden token.
ENCODER_TOKENS = {"mask_token": "<mask>", "pad_token": "<pad>", "cls_token": "<cls>"}
SMALLEST_VOCABULARY = 260  # every byte, the end, and the other special tokens


def add_corpus_flags(parser: argparse.ArgumentParser) -> None:
    add = add_document_flags(parser).add_argument
    add("--block_size", type=at_least(2), default=128, help="tokens per block")
    add("--validation", type=share, default=0.05, help="share of blocks kept for evaluation")


def add_document_flags(parser: argparse.ArgumentParser) -> Any:
    """Add the options that name a text, and return their group."""
    data = parser.add_argument_group("the text (default: the manual that comes with Python)")
    source = data.add_mutually_exclusive_group()
    source.add_argument(
        "--text", nargs="+", help="UTF-8 files: each one document, or each line of a .jsonl"
    )
    source.add_argument("--dataset", help="data set on the Hub, whose training split is read")
    data.add_argument("--dataset_config", help="name of its configuration")
    data.add_argument("--column", default="text", help="name of the column that holds the text")
    data.add_argument(
        "--tokenizer", help="folder or repository of the tokenizer (default: a new one)"
    )
    size = at_least(SMALLEST_VOCABULARY)
    data.add_argument("--vocab_size", type=size, default=4096, help="tokens of a new tokenizer")
    return data


def iterate_documents(args: argparse.Namespace, *, streaming: bool = False) -> Iterator[str]:
    """Yield one document after the other; all of them need not fit into memory."""
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
        try:
            from pydoc_data.topics import topics
        except ImportError as error:
            raise ProgramError("this Python came without its manual: give --text FILE") from error
        yield from topics.values()


def make_tokenizer(
    args: argparse.Namespace, documents: Collection[str], checkpoint: str | None, **roles: str
) -> "PreTrainedTokenizerBase":
    from transformers import AutoTokenizer

    source = checkpoint or args.tokenizer
    if not source:
        return train_tokenizer(documents, args.vocab_size, roles)
    tokenizer = open_pretrained(AutoTokenizer, source)
    if tokenizer.eos_token_id is None:
        raise ProgramError(f"{source} has no end token: choose another tokenizer")
    return tokenizer


def train_tokenizer(
    documents: Collection[str], vocab_size: int, special_tokens: dict[str, str]
) -> "PreTrainedTokenizerBase":
    """Train a byte-level BPE; `special_tokens` by their role (mask_token=...) follow the end."""
    from transformers import PreTrainedTokenizerFast

    bpe = byte_level_bpe(documents, vocab_size, [END, *special_tokens.values()])
    roles = {"bos_token": END, "eos_token": END, "pad_token": END, **special_tokens}
    return PreTrainedTokenizerFast(tokenizer_object=bpe, **roles)


def byte_level_bpe(
    texts: Iterable[str], vocab_size: int, special_tokens: list[str], *, single_digits: bool = False
) -> "Tokenizer":
    """Train a BPE over bytes: it encodes any text, and decodes it as it was.

    With `single_digits` numbers are spelled, and text is normalized to composed characters first.
    """
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if single_digits:
        bpe.normalizer = normalizers.NFC()
        digits = pre_tokenizers.Digits(individual_digits=True)
        bpe.pre_tokenizer = pre_tokenizers.Sequence([digits, bpe.pre_tokenizer])
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=special_tokens,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    bpe.train_from_iterator(texts, trainer)
    return bpe


def make_blocks(
    args: argparse.Namespace, documents: Collection[str], tokenizer: "PreTrainedTokenizerBase"
) -> tuple[list[list[int]], list[list[int]]]:
    """Join all documents, each closed by the end token, and cut their ids into blocks.

    Returns those to train on, and those to evaluate on.
    """
    from tqdm import tqdm

    ids = []
    for document in tqdm(documents, desc="Tokenizing", unit="document"):
        ids += tokenizer(document, add_special_tokens=False, verbose=False)["input_ids"]
        ids.append(tokenizer.eos_token_id)
    size = args.block_size
    blocks = cut(ids, size)
    kept = max(1, round(args.validation * len(blocks)))
    if len(blocks) <= kept:
        raise ProgramError(
            f"the text has {len(ids)} tokens, and --block_size {size} needs two blocks, one to "
            "train on and one to evaluate on: give more text or smaller blocks"
        )
    return blocks[:-kept], blocks[-kept:]


def cut(ids: list[int], size: int) -> list[list[int]]:
    """Cut token ids into blocks of equal length, without the rest at the end."""
    return [ids[start : start + size] for start in range(0, len(ids) - size + 1, size)]
