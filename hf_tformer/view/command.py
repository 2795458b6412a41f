"""`tformer view`: the attention of a model that reads a text, as tables, a picture or a page."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..command_line import Parser
from ..opening import OpeningError, open_model
from .attention import AttentionMap, AttentionMaps, attention_maps

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class ViewError(Exception):
    """Why there is nothing to see, in one sentence."""


def build_parser(prog: str) -> Parser:
    parser = Parser(
        prog=prog,
        description="Show which token looks at which, for every layer and head of any transformers "
        "model. An encoder-decoder is shown writing --target, or what it would write by itself.",
    )
    parser.add_argument("source", metavar="FOLDER_OR_REPO", help="a model folder, or user/name")
    parser.add_argument("text", metavar="TEXT", nargs="+", help="what the model reads")
    written = parser.add_mutually_exclusive_group()
    written.add_argument("--target", help="what an encoder-decoder writes (default: what it would)")
    written.add_argument(
        "--generate", action="store_true", help="let a decoder go on, and show its steps"
    )
    parser.add_argument("--new-tokens", type=int, default=40, help="to write (default: 40)")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="a page, attention.html, or a picture, heads.png; print no tables",
    )
    page = parser.add_argument_group("a page only")
    page.add_argument("--also", metavar="TEXT", action="append", default=[], help="one more text")
    page.add_argument(
        "--beside", metavar="FOLDER_OR_REPO", help="a second model, on the same texts"
    )
    tables = parser.add_argument_group("tables and pictures only")
    tables.add_argument(
        "--kind", help="encoder, decoder or cross (default: cross, else what there is)"
    )
    tables.add_argument("--layers", type=int, nargs="+", help="from 0 (default: all)")
    tables.add_argument("--heads", type=int, nargs="+", help="from 0 (default: all)")
    parser.add_argument("--revision", help="branch, tag or commit of a repository")
    parser.add_argument(
        "--trust-remote-code", action="store_true", help="run the code that the folder brings"
    )
    return parser


def main(arguments: list[str] | None = None, prog: str = "tformer view") -> int:
    """The exit status is 1 where there is nothing to see."""
    args = build_parser(prog).parse_args(arguments)
    try:
        show(args)
    except (ViewError, OpeningError) as error:
        print("error:", " ".join(str(error).split()), file=sys.stderr)
        return 1
    return 0


def show(args: argparse.Namespace) -> None:
    refuse_place(args.output)
    is_page = args.output is not None and args.output.suffix.lower() in (".html", ".htm")
    refuse_flags(args, is_page)
    if is_page:
        return save_page(args)
    model, tokenizer = opened(args.source, args)
    chosen = choose_map(maps_of(model, tokenizer, " ".join(args.text), args), args.kind)
    try:
        shown = (chosen.draw if args.output else chosen.as_text)(args.layers, args.heads)
    except (ValueError, ImportError) as error:  # a head that is not there; no matplotlib
        raise ViewError(str(error)) from error
    if args.output is None:
        print(shown)
        return
    try:
        shown.savefig(args.output, dpi=150)
    except (OSError, ValueError) as error:  # no permission; no such kind of picture
        raise ViewError(f"the picture {args.output} cannot be written: {error}") from error
    print(args.output)


def save_page(args: argparse.Namespace) -> None:
    entries = []
    for source in (args.source, args.beside):
        if source is None:
            continue
        model, tokenizer = opened(source, args)
        for text in (" ".join(args.text), *args.also):
            entries.append(maps_of(model, tokenizer, text, args))
            entries[-1].title = Path(source).name or source
    try:
        entries[0].save_html(args.output, *entries[1:])
    except OSError as error:
        raise ViewError(f"the page {args.output} cannot be written: {error}") from error
    print(args.output)


def opened(source: str, args: argparse.Namespace) -> tuple:
    revision = args.revision if source == args.source else None
    return open_model(source, revision, writes=args.generate, trusts=args.trust_remote_code)


def refuse_flags(args: argparse.Namespace, is_page: bool) -> None:
    """Before a model is loaded: what has no part in what is asked for."""
    page, tables = ("also", "beside"), ("kind", "layers", "heads")
    for name in tables if is_page else page:
        if getattr(args, name):
            remedy = "it shows all of them" if is_page else "name a page, as in -o attention.html"
            place = "a page" if is_page else "tables and pictures"
            raise ViewError(f"--{name} has no meaning for {place}: {remedy}")
    if args.new_tokens < 1:
        raise ViewError(f"--new-tokens is {args.new_tokens}: at least one token is written")


def refuse_place(output: Path | None) -> None:
    """Before a model is loaded."""
    if output is not None and output.is_dir():
        raise ViewError(f"--output {output} is a folder: name a file, such as attention.html")
    if output is not None and not output.absolute().parent.is_dir():
        raise ViewError(f"there is no folder {output.parent} for {output.name}: make it first")


def maps_of(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    text: str,
    args: argparse.Namespace,
) -> AttentionMaps:
    inputs, written_from = model_inputs(model, tokenizer, text, args)
    try:
        return attention_maps(model, inputs, tokenizer, written_from)
    except ValueError as error:  # a model that returns no weights
        raise ViewError(str(error)) from error


def model_inputs(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    text: str,
    args: argparse.Namespace,
) -> "tuple[dict[str, torch.Tensor], int | None]":
    """What the model is called with, and where what it wrote begins."""
    inputs = dict(tokenizer(text, return_tensors="pt", return_token_type_ids=False))
    if not inputs["input_ids"].numel():
        raise ViewError("the text is empty: give some")
    writing = {"max_new_tokens": args.new_tokens, "do_sample": False}
    if not model.config.is_encoder_decoder:
        if args.target is not None:
            raise ViewError("--target is what an encoder-decoder writes: give --generate, or none")
        if not args.generate:
            return inputs, None
        written = model.generate(**inputs, **writing)
        return {"input_ids": written}, inputs["input_ids"].shape[1]
    if args.target is None:
        written = model.generate(**inputs, **writing)
        return {**inputs, "decoder_input_ids": written}, 1
    labels = tokenizer(text_target=args.target, return_tensors="pt")["input_ids"]
    if not labels.numel():
        raise ViewError("--target is empty: give some, or leave it out")
    shifted = model.prepare_decoder_input_ids_from_labels(labels)
    return {**inputs, "decoder_input_ids": shifted}, None


def choose_map(maps: AttentionMaps, kind: str | None) -> AttentionMap:
    kind = kind or ("cross" if "cross" in maps else next(iter(maps)))
    if kind not in maps:
        raise ViewError(f"--kind {kind}: this model has {', '.join(maps)}")
    return maps[kind]
