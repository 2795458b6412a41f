"""A language model from scratch, on any text, on one process or many.

    python examples/train_language_model.py                       # Python's own manual, in minutes
    python examples/train_language_model.py --text book.txt --output book-model
    python examples/train_language_model.py --dataset roneneldan/TinyStories --report_to tensorboard
    python examples/train_language_model.py --resume              # continue an interrupted run
    torchrun --nproc-per-node 4 examples/train_language_model.py --tokens my-tokens --shard 4
    accelerate launch --config_file examples/accelerate/fsdp2.yaml examples/train_language_model.py

The text is cut into blocks of equal length, the last of which are kept for evaluation. The folder
that is written opens with AutoModelForCausalLM and AutoTokenizer. A run that torchrun starts again
after a failure resumes from its last checkpoint.
"""

import math
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import scaling
from data import END, add_corpus_flags, iterate_documents, make_blocks, make_tokenizer
from folders import output_folder, publish_folder
from program import Tokenizer, make_parser, refusing, run
from training import add_size_flags, add_training_flags

from hf_tformer.opening import open_pretrained

if TYPE_CHECKING:
    from hf_tformer import TformerDecoderConfig
    from hf_tformer.scale import Launch, Layout


def main() -> None:
    args = parse_arguments()
    from hf_tformer import scale
    from hf_tformer.scale.together import TogetherError

    with refusing(scale.CheckpointError, scale.TokensError, scale.TrainingError, TogetherError):
        launch = scale.read_launch()
        layout = scale.choose_layout(launch, args.replicate, args.shard, args.tensor)
        with output_folder(args.output, scaling.is_resumed(args)):
            with scale.joined_processes(scale.choose_device(launch)):
                train(args, launch, layout)
            if scale.process_rank() == 0:
                show_and_publish(args, layout)


def train(args: Namespace, launch: "Launch", layout: "Layout") -> None:
    from hf_tformer.scale import Meter, process_rank
    from hf_tformer.scale import train as train_model
    from hf_tformer.scale.together import first_alone

    checkpoint = scaling.checkpoint_of_run(args)
    source = scaling.folder_to_open(args.output) if checkpoint else None
    tokenizer, training, validation = read_data(args, source)
    config = make_config(args, tokenizer, source)
    layout.refuse(config)
    settings = scaling.make_settings(args, launch, layout, len(training))
    is_first = process_rank() == 0
    report = scaling.Reporter(args.report_to, args.output, is_first)
    if not checkpoint:
        first_alone(lambda: scaling.write_start(args, config, tokenizer))
    model = scaling.open_model(args, launch, layout, settings.bf16)
    if is_first:
        print(
            f"{model.num_parameters() / 1e6:.1f} M parameters, {len(tokenizer)} tokens in the "
            f"vocabulary, {len(training)} blocks to train on, {len(validation)} to evaluate on"
        )
    length = len(training[0]["input_ids"])
    meter = Meter(config, length, model.device, layout.processes, args.peak_flops)
    places = {"folder": args.output, "checkpoint": checkpoint}
    loss = train_model(
        model, training, validation, layout, settings, report=report, meter=meter, **places
    )
    report.close()
    scaling.save_end(args.output, model, tokenizer)
    if is_first:
        print(f"\nvalidation loss {loss:.3f}, perplexity {math.exp(loss):.1f}")
        print(f"saved: {args.output}")


def show_and_publish(args: Namespace, layout: "Layout") -> None:
    """Do what the first process does alone in the end."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    if layout.is_whole:
        model = AutoModelForCausalLM.from_pretrained(args.output).eval()
        tokenizer = AutoTokenizer.from_pretrained(args.output)
        inputs = tokenizer(args.prompt or END, return_tensors="pt", return_token_type_ids=False)
        settings = {"do_sample": True, "temperature": 0.8, "top_k": 50}
        tokens = model.generate(**inputs, max_new_tokens=100, **settings)
        print(f"\n{tokenizer.decode(tokens[0], skip_special_tokens=True)}")
    else:  # more than one process may be able to hold
        print(
            f'\npython examples/generate.py {args.output} "{args.prompt}" shows what it generates'
        )
    if args.push_to_hub:
        publish_folder(args.output, args.push_to_hub)


def parse_arguments() -> Namespace:
    parser = make_parser(__doc__)
    add_corpus_flags(parser)
    add = add_size_flags(parser, "8/3").add_argument
    add("--num_key_value_heads", type=int, help="key heads (default: half of the heads, if even)")
    add_training_flags(parser, "language-model", epochs=5)
    scaling.add_scale_flags(parser)
    parser.add_argument("--prompt", default="The ", help="beginning of the sample at the end")
    return parser.parse_args()


def read_data(args: Namespace, source: Path | None) -> tuple[Tokenizer, Any, Any]:
    """Return the tokenizer, the blocks to train on, and those to evaluate on."""
    if args.tokens:
        return scaling.read_tokens(args, source)
    documents = list(iterate_documents(args))
    tokenizer = make_tokenizer(args, documents, str(source) if source else None)
    training, validation = make_blocks(args, documents, tokenizer)
    return tokenizer, with_labels(training), with_labels(validation)


def with_labels(blocks: list[list[int]]) -> list[dict[str, Any]]:
    import torch

    tensors = map(torch.tensor, blocks)
    return [{"input_ids": block, "labels": block} for block in tensors]


def make_config(
    args: Namespace, tokenizer: Tokenizer, source: Path | None
) -> "TformerDecoderConfig":
    """Return that of the run which is resumed, or one of the given sizes."""
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig

    from hf_tformer import TformerDecoderConfig

    if source:
        return open_pretrained(AutoConfig, str(source))
    heads, key_heads = args.num_attention_heads, args.num_key_value_heads
    if key_heads is None:
        key_heads = heads if heads % 2 else heads // 2
    with refusing(ValueError, StrictDataclassError):
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


if __name__ == "__main__":
    run(main)
