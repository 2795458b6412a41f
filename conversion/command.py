"""The command `tformer convert`, also `tformer-convert` and `python -m conversion`."""

import argparse
import os
import sys

from huggingface_hub import constants
from transformers.utils import logging

from hf_tformer.command_line import Parser
from hf_tformer.path_safety import printable

from .engine import listing
from .engine.conversion import Conversion
from .engine.convert import DTYPES, import_checkpoint
from .engine.destination import in_words
from .engine.errors import ConversionError
from .engine.exporting import export_checkpoint
from .engine.facts import matching
from .engine.plain import parse_settings
from .engine.proof import verify
from .engine.registry import FORMATS
from .runtimes.card import in_sentences
from .runtimes.export import Export
from .runtimes.registry import RUNTIMES


def main(arguments: list[str] | None = None, prog: str = "tformer-convert") -> int:
    """Runs one command; a failure is one sentence on stderr and the exit status 1."""
    options = build_parser(prog).parse_args(arguments)
    options.progress = not constants.HF_HUB_DISABLE_PROGRESS_BARS
    logging.disable_progress_bar()  # those of loading, in the comparison
    try:
        print(options.run(options), flush=True)
    except BrokenPipeError:  # whoever reads has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ConversionError, OSError) as error:
        print(printable(" ".join(f"{prog}: {error}".split())), file=sys.stderr)
        return 1
    return 0


def build_parser(prog: str) -> Parser:
    parser = Parser(prog=prog, description="Between our folders and the formats of others.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    importing = commands.add_parser("import", help="a folder of another format becomes one of ours")
    importing.add_argument("--format", choices=FORMATS, help="refuse a folder of any other")
    importing.add_argument("--rules", metavar="FILE", help="a Python file that describes SRC")
    importing.add_argument("--dtype", choices=DTYPES, help="round to it; else as in SRC")
    importing.set_defaults(run=run_import)
    exporting = commands.add_parser("export", help="a folder of ours becomes one of another format")
    exporting.add_argument("--to", choices=[*FORMATS, *RUNTIMES], required=True, metavar="FORMAT")
    exporting.add_argument(
        "--dtype",
        metavar="DTYPE",
        help=f"{', '.join(DTYPES)} (else as in SRC); runtimes have their own, such as int8",
    )
    exporting.set_defaults(run=run_export)
    for command in (importing, exporting):
        command.add_argument(
            "src", metavar="SRC", help="folder with config.json and weights, or file"
        )
        command.add_argument("dst", metavar="DST", help="folder to make")
        command.add_argument(
            "--tokenizer", metavar="PATH", help="folder, tokenizer.json or Hub id; else that of SRC"
        )
        command.add_argument(
            "--no-verify",
            action="store_true",
            help="skip the comparison of both models' logits, which loads them in float32, one "
            "after the other; without it, one shard (2 GB) is in memory at a time",
        )

    verifying = commands.add_parser("verify", help="compare the logits of two folders")
    verifying.add_argument("first", metavar="A")
    verifying.add_argument("second", metavar="B")
    verifying.set_defaults(run=run_verify)
    for command in (importing, verifying):
        command.add_argument(
            "--set",
            action="append",
            dest="settings",
            metavar="NAME=VALUE",
            help="what a plain file does not say, by its name there; may be repeated",
        )
    formats = commands.add_parser("formats", help="the formats, and the models that they hold")
    formats.add_argument("words", metavar="WORD", nargs="*", help="of a name, a model or a class")
    shapes = formats.add_mutually_exclusive_group()
    shapes.add_argument("--json", action="store_true", help="for a program")
    shapes.add_argument("--markdown", action="store_true", help="for a page")
    formats.set_defaults(run=list_formats)
    return parser


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
    return describe_export(done) if options.to in RUNTIMES else describe(done)


def shared_options(options: argparse.Namespace) -> dict[str, object]:
    return {
        "dtype": options.dtype,
        "verify": not options.no_verify,
        "tokenizer": options.tokenizer,
        "progress": options.progress,
    }


def describe(done: Conversion) -> str:
    proof = (
        "not verified: nobody has compared the logits of both models"
        if done.difference is None
        else f"largest difference of the {done.compared}: {done.difference:.1e}"
    )
    assumed = "".join(f"; assumed {name}={value}" for name, value in done.assumed.items())
    told = f"{done.folder}: {done.tensors} tensors, {done.format}; {proof}{assumed}"
    left_out = (f"left out: {words}" for words in done.left_out)
    disagreements = (f"does not agree: {words}" for words in done.disagreements)
    return "\n".join(map(printable, (told, *left_out, *disagreements)))


def describe_export(done: Export) -> str:
    told = (
        f"{done.folder}: {done.runtime.title}, {done.dtype}, {in_words(done.size)}, "
        f"{done.seconds:.0f} s; {in_sentences(done.proof, done.runtime.title)}"
    )
    disagreements = (f"does not agree: {words}" for words in done.disagreements)
    return "\n".join(map(printable, (told, *disagreements)))


def run_verify(options: argparse.Namespace) -> str:
    difference = verify(options.first, options.second, settings=parse_settings(options.settings))
    return f"largest difference of the logits: {difference:.1e}"


def list_formats(options: argparse.Namespace) -> str:
    forms = matching(options.words)
    if options.json:
        return listing.as_json(forms)
    if options.markdown:
        return listing.as_page(forms)
    if options.words:
        return listing.as_blocks(forms)
    return listing.as_lines(forms)
