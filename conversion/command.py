"""The command `tformer convert`, also `tformer-convert` and `python -m conversion`."""

import argparse
import os
import sys
from collections.abc import Iterable
from typing import Any

from huggingface_hub import constants
from transformers.utils import logging

from hf_tformer.command_line import Parser
from hf_tformer.path_safety import printable

from .engine import listing
from .engine.destination import in_words
from .engine.errors import ConversionError
from .engine.exporting import export_checkpoint
from .engine.facts import matching
from .engine.importing import DTYPES, import_checkpoint
from .engine.nearest import no_format
from .engine.plain import parse_settings
from .engine.proof import verify
from .engine.refused import REFUSED
from .engine.registry import FORMATS
from .engine.request import Conversion
from .runtimes.card import in_sentences
from .runtimes.export import Export
from .runtimes.registry import RUNTIMES


def main(arguments: list[str] | None = None, prog: str = "tformer-convert") -> int:
    """Run one command; a failure is one sentence on stderr and the exit status 1."""
    options = build_parser(prog).parse_args(arguments)
    options.progress = not constants.HF_HUB_DISABLE_PROGRESS_BARS
    logging.disable_progress_bar()  # of loading the models that are compared
    try:
        print(options.run(options), flush=True)
    except BrokenPipeError:  # the reader has closed its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ConversionError, OSError) as error:
        print(printable(" ".join(f"{prog}: {error}".split())), file=sys.stderr)
        return 1
    return 0


def build_parser(prog: str) -> Parser:
    parser = Parser(prog=prog, description="Convert between our folders and other formats.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    importing = commands.add_parser("import", help="make a folder of ours from another format")
    importing.add_argument(
        "--format", type=format_to_read, metavar="FORMAT", help="the only format to accept"
    )
    importing.add_argument("--rules", metavar="FILE", help="Python file that describes SRC")
    importing.add_argument("--dtype", choices=DTYPES, help="dtype of the weights (default: SRC's)")
    importing.set_defaults(run=run_import)
    exporting = commands.add_parser("export", help="make another format from a folder of ours")
    exporting.add_argument(
        "--to",
        type=format_to_write,
        required=True,
        metavar="FORMAT",
        help="format or runtime to export to",
    )
    exporting.add_argument(
        "--dtype",
        metavar="DTYPE",
        help=f"{', '.join(DTYPES)} (default: SRC's); runtimes have their own, such as int8, q4_k_m",
    )
    exporting.set_defaults(run=run_export)
    verifying = commands.add_parser("verify", help="compare the logits of two folders")
    verifying.add_argument("first", metavar="A", help="folder or file")
    verifying.add_argument("second", metavar="B", help="folder or file")
    verifying.set_defaults(run=run_verify)
    for command in (importing, exporting):
        add_shared_options(command)
    for command in (importing, verifying):
        command.add_argument(
            "--set",
            action="append",
            dest="settings",
            metavar="NAME=VALUE",
            help="setting that a plain file lacks, by its name there; may be repeated",
        )
    add_listing(commands.add_parser("formats", help="list the formats and their models"))
    return parser


def format_to_read(name: str) -> str:
    return one_of(name, FORMATS)


def format_to_write(name: str) -> str:
    return one_of(name, [*FORMATS, *RUNTIMES])


def one_of(name: str, known: Iterable[str]) -> str:
    """Return the name if it is known, if only as what cannot convert; refuse a mistyped one."""
    if name in known or name in REFUSED:
        return name
    raise argparse.ArgumentTypeError(printable(no_format(name, known)))


def add_shared_options(command: Parser) -> None:
    command.add_argument("src", metavar="SRC", help="folder with config.json and weights, or file")
    command.add_argument("dst", metavar="DST", help="folder to make")
    command.add_argument(
        "--tokenizer", metavar="PATH", help="folder, tokenizer.json or Hub id (default: SRC's)"
    )
    command.add_argument(
        "--no-verify",
        action="store_true",
        help="skip the comparison of both models' logits, which loads them in float32, one "
        "after the other; without it, one shard (2 GB) is in memory at a time",
    )


def add_listing(command: Parser) -> None:
    command.add_argument(
        "words", metavar="WORD", nargs="*", help="word in a name, a model or a class"
    )
    layouts = command.add_mutually_exclusive_group()
    layouts.add_argument("--json", action="store_true", help="JSON output")
    layouts.add_argument("--markdown", action="store_true", help="Markdown output")
    command.set_defaults(run=list_formats)


def run_import(options: argparse.Namespace) -> str:
    return describe(
        import_checkpoint(
            options.src,
            options.dst,
            options.format,
            settings=parse_settings(options.settings),
            rules=options.rules,
            **shared_options(options),
        )
    )


def run_export(options: argparse.Namespace) -> str:
    done = export_checkpoint(options.src, options.dst, options.to, **shared_options(options))
    return describe_export(done) if isinstance(done, Export) else describe(done)


def shared_options(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "dtype": options.dtype,
        "verify": not options.no_verify,
        "tokenizer": options.tokenizer,
        "progress": options.progress,
    }


def describe(done: Conversion) -> str:
    proof = (
        "not verified: the logits of both models were not compared"
        if done.difference is None
        else f"largest difference of the {done.compared}: {done.difference:.1e}"
    )
    assumed = "".join(f"; assumed {name}={value}" for name, value in done.assumed.items())
    read_by = f"; {done.read_by}" if done.read_by else ""
    first = f"{done.folder}: {done.tensors} tensors, {done.format}; {proof}{assumed}{read_by}"
    omitted = (f"omitted: {part}" for part in done.left_out)
    disagreements = (f"does not agree: {sentence}" for sentence in done.disagreements)
    return "\n".join(map(printable, (first, *omitted, *disagreements)))


def describe_export(done: Export) -> str:
    first = (
        f"{done.folder}: {done.runtime.title}, {done.dtype}, {in_words(done.size)}, "
        f"{done.seconds:.0f} s; {in_sentences(done.proof, done.runtime.title)}"
    )
    disagreements = (f"does not agree: {sentence}" for sentence in done.disagreements)
    return "\n".join(map(printable, (first, *disagreements)))


def run_verify(options: argparse.Namespace) -> str:
    difference = verify(options.first, options.second, settings=parse_settings(options.settings))
    return f"largest difference of the logits: {difference:.1e}"


def list_formats(options: argparse.Namespace) -> str:
    found = matching(options.words)
    if options.json:
        return listing.as_json(found)
    if options.markdown:
        return listing.as_page(found)
    if options.words:
        return listing.as_blocks(found)
    return listing.as_lines(found)
