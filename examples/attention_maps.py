"""A picture of attention: which token looks at which.

    python examples/attention_maps.py my-model "The cat sat" --output heads.png --layers 0 3
    python examples/attention_maps.py my-translator "Guten Tag" --kind cross --text

Works with a decoder and with an encoder-decoder, from a folder or a repository. An encoder-decoder
is shown writing --target, or what it would write by itself.
"""

import argparse
from pathlib import Path

from hf_tformer.programs import ProgramError, open_model, run


def main():
    args = parse_arguments()
    if not args.text and args.output.is_dir():
        raise ProgramError(f"--output {args.output} is a folder: name a file, such as heads.png")
    if not args.text and not args.output.absolute().parent.is_dir():
        raise ProgramError(
            f"there is no folder {args.output.parent} for the picture: make it first"
        )
    model, tokenizer = open_model(args.model, args.revision)
    attention = choose_map(look(model, tokenizer, args.prompt, args.target), args.kind)
    try:
        shown = (attention.as_text if args.text else attention.draw)(args.layers, args.heads)
    except (ValueError, ImportError) as error:  # a head that is not there; no matplotlib
        raise ProgramError(str(error)) from error
    if args.text:
        print(shown)
    else:
        save_picture(shown, args.output)


def parse_arguments():
    parser = argparse.ArgumentParser(
        usage="%(prog)s MODEL PROMPT [options]  (--help lists them)",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", help="a folder, or a repository such as user/name")
    parser.add_argument("prompt", help="what the model reads")
    parser.add_argument("--target", help="what an encoder-decoder writes (default: what it would)")
    parser.add_argument("--kind", help="encoder, decoder or cross (default: cross, else decoder)")
    parser.add_argument("--layers", type=int, nargs="+", help="from 0 (default: all)")
    parser.add_argument("--heads", type=int, nargs="+", help="from 0 (default: all)")
    parser.add_argument("--output", type=Path, default=Path("attention.png"), help="the picture")
    parser.add_argument("--text", action="store_true", help="print tables, draw nothing")
    parser.add_argument("--revision", help="a branch, tag or commit of a repository")
    return parser.parse_args()


def look(model, tokenizer, prompt, target):
    """Every kind of attention that the model has, by name."""
    from hf_tformer import attention_maps

    inputs = dict(tokenizer(prompt, return_tensors="pt", return_token_type_ids=False))
    if not inputs["input_ids"].numel():
        raise ProgramError("the prompt is empty: give some text")
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = read_target(model, tokenizer, inputs, target)
    return attention_maps(model, inputs, tokenizer)


def read_target(model, tokenizer, inputs, target):
    """What the decoder reads while it writes the target."""
    if target is None:
        return model.generate(**inputs, max_new_tokens=40, do_sample=False)
    ids = tokenizer(text_target=target, return_tensors="pt")["input_ids"]
    return model.prepare_decoder_input_ids_from_labels(ids)


def choose_map(maps, kind):
    kind = kind or ("cross" if "cross" in maps else "decoder")
    if kind not in maps:
        raise ProgramError(f"--kind {kind}: this model has {', '.join(maps)}")
    return maps[kind]


def save_picture(figure, path):
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:  # no permission; no such kind of picture
        raise ProgramError(f"the picture {path} cannot be written: {error}") from error
    print(path)


if __name__ == "__main__":
    run(main)
