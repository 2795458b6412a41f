"""A language model from scratch, on any text, on one process or many.

    python examples/train_language_model.py                       # Python's own manual, in minutes
    python examples/train_language_model.py --text book.txt --output book-model
    python examples/train_language_model.py --dataset roneneldan/TinyStories --report_to tensorboard
    python examples/train_language_model.py --resume              # go on where it was interrupted
    torchrun --nproc-per-node 4 examples/train_language_model.py --tokens my-tokens --shard 4
    accelerate launch --config_file examples/accelerate/fsdp2.yaml examples/train_language_model.py

The text is cut into rows of equal length, the last of which are kept to measure the model by.
The folder that is written opens with AutoModelForCausalLM and AutoTokenizer. A run that torchrun
starts again after a failure goes on from its last checkpoint.
"""

import argparse
import math

from corpus import END, add_corpus_flags, make_blocks, make_tokenizer, read_documents
from folders import output_folder, publish_folder
from program import ProgramError, run
from reporting import Reporter
from scaling import (
    add_scale_flags,
    checkpoint_of_run,
    folder_to_open,
    goes_on,
    make_settings,
    open_model,
    read_layout,
    read_tokens,
    refusals,
    save_end,
    write_start,
)
from training import add_training_flags

from hf_tformer.opening import open_pretrained


def main():
    args = parse_arguments()
    with refusals():
        from hf_tformer.scale import choose_device, joined_processes, process_rank

        launch, layout = read_layout(args)
        with output_folder(args.output, goes_on(args)):
            with joined_processes(choose_device(launch)):
                train(args, launch, layout)
            if process_rank() == 0:
                show_and_publish(args, layout)


def train(args, launch, layout):
    from hf_tformer.scale import Meter, process_rank
    from hf_tformer.scale import train as train_model
    from hf_tformer.scale.together import first_alone

    checkpoint = checkpoint_of_run(args)
    source = folder_to_open(args.output) if checkpoint else None
    tokenizer, training, validation = read_rows(args, source)
    config = make_config(args, tokenizer, source)
    layout.refuse(config)
    settings = make_settings(args, launch, layout, len(training))
    is_first = process_rank() == 0
    report = Reporter(args.report_to, args.output, is_first)
    if not checkpoint:
        first_alone(lambda: write_start(args, config, tokenizer))
    model = open_model(args, launch, layout, settings.bf16)
    if is_first:
        print(
            f"{model.num_parameters() / 1e6:.1f} M parameters, {len(tokenizer)} tokens in the "
            f"vocabulary, {len(training)} blocks to learn from, {len(validation)} to measure by"
        )
    row_length = len(training[0]["input_ids"])
    meter = Meter(config, row_length, model.device, layout.processes, args.peak_flops)
    places = {"folder": args.output, "checkpoint": checkpoint}
    loss = train_model(
        model, training, validation, layout, settings, report=report, meter=meter, **places
    )
    report.close()
    save_end(args.output, model, tokenizer)
    if is_first:
        print(f"\nvalidation loss {loss:.3f}, perplexity {math.exp(loss):.1f}")
        print(f"saved: {args.output}")


def show_and_publish(args, layout):
    """What one process does alone in the end."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if layout.is_whole:
        model = AutoModelForCausalLM.from_pretrained(args.output)
        tokenizer = AutoTokenizer.from_pretrained(args.output)
        print(f"\n{write_sample(args, model, tokenizer)}")
    else:  # more than one process may be able to hold
        print(f'\npython examples/generate.py {args.output} "{args.prompt}" shows what it writes')
    if args.push_to_hub:
        print(publish_folder(args.output, args.push_to_hub).url)


def parse_arguments():
    parser = argparse.ArgumentParser(
        usage="%(prog)s [options]  (--help lists them)",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_corpus_flags(parser)

    sizes = parser.add_argument_group("the model")
    sizes.add_argument("--hidden_size", type=int, default=256)
    sizes.add_argument("--num_hidden_layers", type=int, default=4)
    sizes.add_argument("--num_attention_heads", type=int, default=8)
    sizes.add_argument(
        "--num_key_value_heads", type=int, help="default: half of the heads, all of an odd number"
    )
    sizes.add_argument("--intermediate_size", type=int, help="default: 8/3 of the hidden size")
    sizes.add_argument("--dropout", type=float, default=0.1)

    add_training_flags(parser, "language-model", epochs=5, learning_rate=1e-3)
    add_scale_flags(parser)
    parser.add_argument("--prompt", default="The ", help="how the sample at the end begins")
    return parser.parse_args()


def read_rows(args, source):
    """The tokenizer, the rows to learn from, and those to measure by."""
    if args.tokens:
        return read_tokens(args, source)
    documents = read_documents(args)
    tokenizer = make_tokenizer(args, documents, source and str(source))
    training, validation = make_blocks(args, documents, tokenizer)
    return tokenizer, with_labels(training), with_labels(validation)


def with_labels(blocks):
    import torch

    tensors = map(torch.tensor, blocks)
    return [{"input_ids": block, "labels": block} for block in tensors]


def make_config(args, tokenizer, source):
    """That of the run which goes on; else the flags say the sizes."""
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig

    from hf_tformer import TformerDecoderConfig

    if source:
        return open_pretrained(AutoConfig, str(source))
    heads, key_heads = args.num_attention_heads, args.num_key_value_heads
    if key_heads is None:
        key_heads = heads if heads % 2 else heads // 2
    try:
        return TformerDecoderConfig(
            vocab_size=math.ceil(len(tokenizer) / args.vocab_multiple) * args.vocab_multiple,
            hidden_size=args.hidden_size,
            intermediate_size=args.intermediate_size or round(args.hidden_size * 8 / 3 / 32) * 32,
            num_hidden_layers=args.num_hidden_layers,
            num_attention_heads=heads,
            num_key_value_heads=key_heads,
            dropout=args.dropout,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    except (ValueError, StrictDataclassError) as error:
        raise ProgramError(str(error)) from error


def write_sample(args, model, tokenizer):
    inputs = tokenizer(args.prompt or END, return_tensors="pt", return_token_type_ids=False)
    settings = {"do_sample": True, "temperature": 0.8, "top_k": 50}
    tokens = model.eval().generate(**inputs.to(model.device), max_new_tokens=100, **settings)
    return tokenizer.decode(tokens[0], skip_special_tokens=True)


if __name__ == "__main__":
    run(main)
