"""A language model from scratch, on any text.

    python examples/train_language_model.py                       # Python's own manual, in minutes
    python examples/train_language_model.py --text book.txt --output book-model
    python examples/train_language_model.py --dataset roneneldan/TinyStories --report_to tensorboard
    python examples/train_language_model.py --resume              # go on where it was interrupted

The text is cut into blocks of equal length, the last of which are kept to measure the model by.
The folder that is written opens with AutoModelForCausalLM and AutoTokenizer.
"""

import argparse
import math

from corpus import END, add_corpus_flags, make_blocks, make_tokenizer, read_documents
from folders import checkpoint_to_resume, output_folder, publish_folder, save_whole
from program import ProgramError, run
from training import add_training_flags, training_arguments

from hf_tformer.opening import open_pretrained


def main():
    args = parse_arguments()
    with output_folder(args.output, args.resume):
        train(args)


def train(args):
    checkpoint = checkpoint_to_resume(args.output) if args.resume else None
    documents = read_documents(args)
    tokenizer = make_tokenizer(args, documents, checkpoint)
    training, validation = make_blocks(args, documents, tokenizer)
    training, validation = with_labels(training), with_labels(validation)
    model = build_model(args, tokenizer, checkpoint)
    trainer = make_trainer(args, model, tokenizer, training, validation)
    if trainer.is_world_process_zero():
        print(
            f"{model.num_parameters() / 1e6:.1f} M parameters, {len(tokenizer)} tokens in the "
            f"vocabulary, {len(training)} blocks to learn from, {len(validation)} to measure by"
        )
    trainer.train(resume_from_checkpoint=checkpoint)
    loss = trainer.evaluate()["eval_loss"]
    if not trainer.is_world_process_zero():
        return  # of several processes, the first one saves
    print(f"\nvalidation loss {loss:.3f}, perplexity {math.exp(loss):.1f}")
    save_whole(args.output, trainer.model, tokenizer)
    print(f"saved: {args.output}\n\n{write_sample(args, trainer.model, tokenizer)}")
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
    parser.add_argument("--prompt", default="The ", help="how the sample at the end begins")
    return parser.parse_args()


def with_labels(blocks):
    return [{"input_ids": block, "labels": block} for block in blocks]


def build_model(args, tokenizer, checkpoint):
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig, set_seed

    from hf_tformer import TformerDecoderConfig, TformerDecoderForCausalLM

    set_seed(args.seed)
    if checkpoint:
        return TformerDecoderForCausalLM(open_pretrained(AutoConfig, checkpoint))
    heads, key_heads = args.num_attention_heads, args.num_key_value_heads
    if key_heads is None:
        key_heads = heads if heads % 2 else heads // 2
    try:
        config = TformerDecoderConfig(
            vocab_size=len(tokenizer),
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
    return TformerDecoderForCausalLM(config)


def make_trainer(args, model, tokenizer, training, validation):
    from transformers import Trainer, default_data_collator

    # use_cache is what Trainer writes into the configuration; no step makes a cache.
    arguments = training_arguments(args, prediction_loss_only=True, use_cache=True)
    try:
        return Trainer(
            model=model,
            args=arguments,
            train_dataset=training,
            eval_dataset=validation,
            data_collator=default_data_collator,
            processing_class=tokenizer,
        )
    except (ValueError, RuntimeError, ImportError) as error:  # no such reporter
        raise ProgramError(str(error)) from error


def write_sample(args, model, tokenizer):
    inputs = tokenizer(args.prompt or END, return_tensors="pt", return_token_type_ids=False)
    settings = {"do_sample": True, "temperature": 0.8, "top_k": 50}
    tokens = model.eval().generate(**inputs.to(model.device), max_new_tokens=100, **settings)
    return tokenizer.decode(tokens[0], skip_special_tokens=True)


if __name__ == "__main__":
    run(main)
