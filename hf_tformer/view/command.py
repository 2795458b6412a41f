"""`tformer view`: show the attention of a model as tables, a picture or a page."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..command_line import Parser, print_error
from ..opening import OpeningError, open_model
from .attention import AttentionMap, AttentionMaps, attention_maps

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    Opened = tuple[PreTrainedModel, PreTrainedTokenizerBase]

# Endings of the files that are written; matplotlib draws the pictures.
PAGES = {".html", ".htm"}
PICTURES = {".png", ".svg", ".pdf", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".gif", ".eps"}


class ViewError(Exception):
    """A sentence that says why there is nothing to show."""


def build_parser(prog: str) -> Parser:
    parser = Parser(
        prog=prog,
        description="Show which token attends to which, for every layer and head of any model of "
        "transformers. An encoder-decoder is shown with --target, or with what it generates.",
    )
    parser.add_source()
    add = parser.add_argument
    add("text", metavar="TEXT", nargs="+", help="input of the model")
    generated = parser.add_mutually_exclusive_group()
    help = "output of an encoder-decoder (default: what it generates)"
    generated.add_argument("--target", metavar="TEXT", help=help)
    help = "let a decoder continue its input, and show these steps, too"
    generated.add_argument("--generate", action="store_true", help=help)
    add("--new-tokens", type=int, default=40, help="tokens to generate (default: 40)")
    help = "page (attention.html) or picture (heads.png) to write instead of tables"
    add("-o", "--output", type=Path, metavar="FILE", help=help)
    add("--trust-remote-code", action="store_true", help="run the code that the folder brings")
    add = parser.add_argument_group("a page only").add_argument
    add("--also", metavar="TEXT", action="append", default=[], help="another input of the model")
    add("--beside", metavar="FOLDER_OR_REPO", help="second model, shown with the same inputs")
    add = parser.add_argument_group("tables and pictures only").add_argument
    add("--kind", help="encoder, decoder or cross (default: cross, where there is one)")
    add("--layers", type=int, nargs="+", help="numbers of layers, from 0 (default: all)")
    add("--heads", type=int, nargs="+", help="numbers of heads, from 0 (default: all)")
    return parser


def main(arguments: list[str] | None = None, prog: str = "tformer view") -> int:
    """Return the exit status: 1 where there is nothing to show."""
    args = build_parser(prog).parse_args(arguments)
    try:
        show(args)
    except (ViewError, OpeningError) as error:
        return print_error(error)
    return 0


def show(args: argparse.Namespace) -> None:
    refuse_place(args.output)
    is_page = args.output is not None and args.output.suffix.lower() in PAGES
    refuse_flags(args, is_page)
    if is_page:
        return save_page(args)
    maps = maps_of(opened(args.source, args), " ".join(args.text), args)
    chosen = choose_map(maps, args.kind)
    try:
        shown = (chosen.draw if args.output else chosen.as_text)(args.layers, args.heads)
    except (ValueError, ImportError) as error:  # a head that is not there; no matplotlib
        raise ViewError(str(error)) from error
    if isinstance(shown, str):
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
        model = opened(source, args)
        for text in (" ".join(args.text), *args.also):
            entries.append(maps_of(model, text, args))
            entries[-1].title = Path(source).name or source
    try:
        entries[0].save_html(args.output, *entries[1:])
    except (OSError, ValueError) as error:  # no permission; weights that are NaN
        raise ViewError(f"the page {args.output} cannot be written: {error}") from error
    print(args.output)


def opened(source: str, args: argparse.Namespace) -> "Opened":
    revision = args.revision if source == args.source else None
    return open_model(source, revision, writes=args.generate, trusts=args.trust_remote_code)


def refuse_flags(args: argparse.Namespace, is_page: bool) -> None:
    """Refuse options that have no effect on this kind of output, before a model is loaded."""
    page, tables = ("also", "beside"), ("kind", "layers", "heads")
    for name in tables if is_page else page:
        if getattr(args, name):
            remedy = "it shows all of them" if is_page else "name a page, as in -o attention.html"
            place = "a page" if is_page else "tables and pictures"
            raise ViewError(f"--{name} has no meaning for {place}: {remedy}")
    if args.new_tokens < 1:
        raise ViewError(f"--new-tokens is {args.new_tokens}: choose 1 or more")


def refuse_place(output: Path | None) -> None:
    """Refuse an output that cannot be written, before a model is loaded."""
    if output is None:
        return
    if output.is_dir():
        raise ViewError(f"--output {output} is a folder: name a file, such as attention.html")
    if output.suffix.lower() not in PAGES | PICTURES:
        raise ViewError(
            f"--output {output} is neither a page nor a picture: end its name with .html for a "
            "page, or with .png, .svg or .pdf for a picture"
        )
    if not output.absolute().parent.is_dir():
        raise ViewError(f"there is no folder {output.parent} for {output.name}: make it first")


def maps_of(opened: "Opened", text: str, args: argparse.Namespace) -> AttentionMaps:
    model, tokenizer = opened
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
    """Return the arguments of the model, and the index of its first generated token."""
    inputs = dict(tokenizer(text, return_tensors="pt", return_token_type_ids=False))
    if not inputs["input_ids"].numel():
        raise ViewError("the text is empty: give some")
    writing = {"max_new_tokens": args.new_tokens, "do_sample": False}
    if not model.config.is_encoder_decoder:
        if args.target is not None:
            raise ViewError("--target is for an encoder-decoder: give --generate, or neither")
        if not args.generate:
            return inputs, None
        written = model.generate(**inputs, **writing)
        return {"input_ids": written}, inputs["input_ids"].shape[1]
    if args.target is None:
        written = model.generate(**inputs, **writing)
        return {**inputs, "decoder_input_ids": written}, 1
    labels = tokenizer(text_target=args.target, return_tensors="pt")["input_ids"]
    if not labels.numel():
        raise ViewError("--target is empty: give some, or omit it")
    shifted = model.prepare_decoder_input_ids_from_labels(labels)
    return {**inputs, "decoder_input_ids": shifted}, None


def choose_map(maps: AttentionMaps, kind: str | None) -> AttentionMap:
    kind = kind or ("cross" if "cross" in maps else next(iter(maps)))
    if kind not in maps:
        raise ViewError(f"--kind {kind}: this model has {', '.join(maps)}")
    return maps[kind]
