"""A picture of attention: which token attends to which, in every layer and head.

    python examples/attention_maps.py my-model "The cat sat" --output heads.png
    python examples/attention_maps.py my-translator "Guten Tag"

Works with a decoder, an encoder, and an encoder-decoder, which is shown as it generates. The values
of `attention_maps` can be computed with; `tformer view` shows single heads and numbers without a
program of your own.
"""

from argparse import Namespace
from importlib.util import find_spec
from pathlib import Path

from program import ProgramError, make_parser, run

from hf_tformer import attention_maps
from hf_tformer.opening import open_model


def main() -> None:
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
        print(f"{name}: {layers} layers of {heads} heads, {rows} tokens attend to {columns}")
    picture = maps.get("cross", next(iter(maps.values()))).draw()
    try:
        picture.savefig(args.output, dpi=150)
    except (OSError, ValueError) as error:  # no such folder; no such kind of picture
        raise ProgramError(f"the picture {args.output} cannot be written: {error}") from error
    print(args.output)


def parse_arguments() -> Namespace:
    parser = make_parser(__doc__, "MODEL PROMPT [options]")
    parser.add_argument("model", help="folder, or a repository such as user/name")
    parser.add_argument("prompt", help="text that the model attends to")
    parser.add_argument("--output", type=Path, default=Path("attention.png"), help="picture file")
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
