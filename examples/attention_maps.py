"""A picture of attention: which token looks at which, in every layer and head.

    python examples/attention_maps.py my-model "The cat sat" --output heads.png
    python examples/attention_maps.py my-translator "Guten Tag"

Works with a decoder, an encoder, and an encoder-decoder, which is shown writing its answer. What
`attention_maps` returns is yours to compute with; to look at single heads, or at numbers, without
a program of your own: `tformer view --help`.
"""

import argparse
from importlib.util import find_spec
from pathlib import Path

from program import ProgramError, run

from hf_tformer import attention_maps
from hf_tformer.opening import open_model


def main():
    args = parse_arguments()
    if find_spec("matplotlib") is None:
        raise ProgramError("a picture needs matplotlib: run `pip install 'hf-tformer[viz]'`")
    model, tokenizer = open_model(args.model, writes=False)
    inputs = dict(tokenizer(args.prompt, return_tensors="pt", return_token_type_ids=False))
    if not inputs["input_ids"].numel():
        raise ProgramError("the prompt is empty: give some text")
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = model.generate(**inputs, max_new_tokens=40)
    maps = attention_maps(model, inputs, tokenizer)
    for name, one in maps.items():
        layers, heads, rows, columns = one.weights.shape
        print(f"{name}: {layers} layers of {heads} heads, {rows} tokens look at {columns}")
    picture = maps.get("cross", next(iter(maps.values()))).draw()
    try:
        picture.savefig(args.output, dpi=150)
    except (OSError, ValueError) as error:  # no such folder; no such kind of picture
        raise ProgramError(f"the picture {args.output} cannot be written: {error}") from error
    print(args.output)


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="a folder, or a repository such as user/name")
    parser.add_argument("prompt", help="what the model reads")
    parser.add_argument("--output", type=Path, default=Path("attention.png"), help="the picture")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
