"""`tformer view`: the attention of a model that reads a text, as tables or as a picture."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..command_line import Parser
from ..opening import OpeningError, open_model
from .attention import AttentionMap, attention_maps

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class ViewError(Exception):
    """Why there is nothing to see, in one sentence."""


def build_parser(prog: str) -> Parser:
    parser = Parser(
        prog=prog,
        description="Show which token looks at which, for every layer and head. An encoder-decoder "
        "is shown writing --target, or what it would write by itself.",
    )
    parser.add_argument("source", metavar="FOLDER_OR_REPO", help="a model folder, or user/name")
    parser.add_argument("text", metavar="TEXT", nargs="+", help="what the model reads")
    parser.add_argument("--target", help="what an encoder-decoder writes (default: what it would)")
    parser.add_argument(
        "--kind", help="encoder, decoder or cross (default: cross, else what there is)"
    )
    parser.add_argument("--layers", type=int, nargs="+", help="from 0 (default: all)")
    parser.add_argument("--heads", type=int, nargs="+", help="from 0 (default: all)")
    parser.add_argument("--output", type=Path, metavar="PICTURE", help="draw; print no tables")
    parser.add_argument("--revision", help="branch, tag or commit of a repository")
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
    model, tokenizer = open_model(args.source, args.revision, writes=False)
    maps = attention_maps(model, model_inputs(model, tokenizer, args), tokenizer)
    chosen = choose_map(maps, args.kind)
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


def refuse_place(picture: Path | None) -> None:
    """Before a model is loaded."""
    if picture is not None and picture.is_dir():
        raise ViewError(f"--output {picture} is a folder: name a file, such as heads.png")
    if picture is not None and not picture.absolute().parent.is_dir():
        raise ViewError(f"there is no folder {picture.parent} for the picture: make it first")


def model_inputs(
    model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", args: argparse.Namespace
) -> "dict[str, torch.Tensor]":
    text = " ".join(args.text)
    inputs = dict(tokenizer(text, return_tensors="pt", return_token_type_ids=False))
    if not inputs["input_ids"].numel():
        raise ViewError("the text is empty: give some")
    if not model.config.is_encoder_decoder:
        return inputs
    if args.target is None:
        written = model.generate(**inputs, max_new_tokens=40, do_sample=False)
    else:
        labels = tokenizer(text_target=args.target, return_tensors="pt")["input_ids"]
        written = model.prepare_decoder_input_ids_from_labels(labels)
    return {**inputs, "decoder_input_ids": written}


def choose_map(maps: dict[str, AttentionMap], kind: str | None) -> AttentionMap:
    kind = kind or ("cross" if "cross" in maps else next(iter(maps)))
    if kind not in maps:
        raise ViewError(f"--kind {kind}: this model has {', '.join(maps)}")
    return maps[kind]
