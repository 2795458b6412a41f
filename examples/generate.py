"""Text from a model of a folder or a repository.

    python examples/generate.py my-model "Once upon a time" --temperature 0.8 --top_p 0.95
    python examples/generate.py my-translator --file letters.de --num_beams 5
    cat question.txt | python examples/generate.py user/name --revision 1f2e3d4

A decoder continues its prompt and shows each word as it comes; where the tokenizer has a chat
template, the prompt is what the user says. An encoder-decoder answers each line with one line. With
this package installed no code of a repository runs, so there is nothing to trust.
"""

import argparse
import sys

from data import read_text
from program import ProgramError, at_least, positive, run, share

from hf_tformer.opening import open_model


def main():
    args = parse_arguments()
    text = find_text(args)
    model, tokenizer = open_model(args.model, args.revision)
    settings = choose_settings(args, model)
    prepare(args, model)
    if model.config.is_encoder_decoder:
        answer_lines(model, tokenizer, text, settings, args.batch_size)
    else:
        continue_text(model, tokenizer, text, settings, raw=args.raw)


def parse_arguments():
    parser = argparse.ArgumentParser(
        usage="%(prog)s MODEL [TEXT] [options]  (--help lists them)",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", help="a folder, or a repository such as user/name")
    parser.add_argument("text", nargs="?", help="the prompt, or the text to translate")
    parser.add_argument("--file", help="read it from a file (default: from standard input)")
    parser.add_argument("--revision", help="a branch, tag or commit of a repository")
    parser.add_argument("--max_new_tokens", type=at_least(1), default=200)
    parser.add_argument(
        "--num_beams", type=at_least(1), help="beam search; default 4 for translation"
    )
    parser.add_argument(
        "--temperature", type=positive, help="sample, sharper below 1, wilder above"
    )
    parser.add_argument("--top_k", type=at_least(1), help="sample from the k likeliest tokens")
    parser.add_argument("--top_p", type=share, help="sample from the likeliest that add up to p")
    parser.add_argument("--repetition_penalty", type=positive, help="above 1: repeat less")
    parser.add_argument("--seed", type=int, help="sample the same text again")
    parser.add_argument("--raw", action="store_true", help="continue the text, ignore the template")
    parser.add_argument(
        "--batch_size", type=at_least(1), default=8, help="lines translated at once"
    )
    parser.add_argument(
        "--device", help="cuda, cpu, ... (default: the accelerator if there is one)"
    )
    return parser.parse_args()


def find_text(args):
    if args.text is not None and args.file:
        raise ProgramError("both a text and --file are given: leave one of them away")
    text = read_text(args.file) if args.file else args.text
    text = sys.stdin.read() if text is None else text
    if not text.strip():
        raise ProgramError("there is no text: give it as an argument, by --file or on stdin")
    return text.rstrip("\n")


def choose_settings(args, model):
    """The arguments of generate(); what is not given stays as the model's folder says."""
    from transformers import GenerationConfig

    chosen = {
        name: value
        for name in ("num_beams", "temperature", "top_k", "top_p", "repetition_penalty")
        if (value := getattr(args, name)) is not None
    }
    chosen["do_sample"] = any(name in chosen for name in ("temperature", "top_k", "top_p"))
    if model.config.is_encoder_decoder and not chosen["do_sample"]:
        chosen.setdefault("num_beams", 4)
    if not model.config.is_encoder_decoder and chosen.get("num_beams", 1) > 1:
        raise ProgramError("a decoder is streamed, and beams come all at once: leave --num_beams")
    chosen["max_new_tokens"] = args.max_new_tokens
    try:
        GenerationConfig(**chosen).validate(strict=True)
    except ValueError as error:
        raise ProgramError(f"these settings do not go together: {error}") from error
    return chosen


def prepare(args, model):
    """The random numbers, and the device."""
    import torch
    from transformers import set_seed

    if args.seed is not None:
        set_seed(args.seed)
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    try:
        model.to(args.device or accelerator or "cpu").eval()
    except (RuntimeError, AssertionError) as error:
        raise ProgramError(f"--device {args.device} cannot be used: {error}") from error


def continue_text(model, tokenizer, text, settings, raw=False):
    from transformers import TextStreamer

    chat = bool(tokenizer.chat_template) and not raw
    if chat:
        text = tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], tokenize=False, add_generation_prompt=True
        )
    # A template writes its own special tokens.
    inputs = tokenizer(
        text, return_tensors="pt", return_token_type_ids=False, add_special_tokens=not chat
    )
    streamer = TextStreamer(tokenizer, skip_prompt=chat, skip_special_tokens=True)
    model.generate(**inputs.to(model.device), streamer=streamer, **settings)


def answer_lines(model, tokenizer, text, settings, batch_size):
    lines = text.split("\n")
    for start in range(0, len(lines), batch_size):
        batch = lines[start : start + batch_size]
        inputs = tokenizer(
            batch, return_tensors="pt", padding=True, return_token_type_ids=False
        ).to(model.device)
        tokens = model.generate(**inputs, **settings)
        answers = tokenizer.batch_decode(tokens, skip_special_tokens=True)
        for line, answer in zip(batch, answers, strict=True):
            print(answer.replace("\n", " ") if line.strip() else "", flush=True)


if __name__ == "__main__":
    run(main)
