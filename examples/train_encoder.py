"""An encoder from scratch, on any text: it learns to say which tokens were hidden from it.

    python examples/train_encoder.py                       # Python's own manual, in minutes
    python examples/train_encoder.py --text book.txt --output book-encoder --report_to tensorboard
    python examples/train_encoder.py --resume              # go on where it was interrupted

The folder that is written opens with AutoModelForMaskedLM and AutoTokenizer; what it has learned
serves classification, tagging and sentence vectors (finetune_encoder.py, train_embeddings.py).
"""

import argparse
import math

from corpus import add_corpus_flags, make_blocks, make_tokenizer, read_documents
from folders import checkpoint_to_resume, output_folder, publish_folder
from program import ProgramError, run, share
from training import add_training_flags, training_arguments

from hf_tformer.atomic_folders import save_whole
from hf_tformer.opening import open_pretrained

# What stands in front of a text, at its end, between two, and in the place of a hidden token.
SPECIAL = {"mask_token": "<mask>", "pad_token": "<pad>", "cls_token": "<cls>"}


def main():
    args = parse_arguments()
    with output_folder(args.output, args.resume):
        train(args)


def train(args):
    checkpoint = checkpoint_to_resume(args.output) if args.resume else None
    documents = read_documents(args)
    tokenizer = make_tokenizer(args, documents, checkpoint, **SPECIAL)
    if tokenizer.mask_token_id is None:
        raise ProgramError(f"{args.tokenizer} has no mask token: choose another tokenizer")
    training, validation = make_blocks(args, documents, tokenizer)
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
    print(f"\nvalidation loss {loss:.3f}, perplexity of hidden tokens {math.exp(loss):.1f}")
    save_whole(args.output, trainer.model, tokenizer)
    print(f"saved: {args.output}\n\n{fill_one(trainer.model, tokenizer, validation[0])}")
    if args.push_to_hub:
        print(publish_folder(args.output, args.push_to_hub).url)


def parse_arguments():
    parser = argparse.ArgumentParser(
        usage="%(prog)s [options]  (--help lists them)",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_corpus_flags(parser)
    parser.add_argument("--hide", type=share, default=0.3, help="share of tokens that are hidden")

    sizes = parser.add_argument_group("the model")
    sizes.add_argument("--hidden_size", type=int, default=256)
    sizes.add_argument("--num_hidden_layers", type=int, default=4)
    sizes.add_argument("--num_attention_heads", type=int, default=8)
    sizes.add_argument("--intermediate_size", type=int, help="default: 3/2 of the hidden size")
    sizes.add_argument("--sliding_window", type=int, default=64, help="of two layers in three")
    sizes.add_argument("--dropout", type=float, default=0.1)
    add_training_flags(parser, "encoder", epochs=10, learning_rate=1e-3)
    return parser.parse_args()


def build_model(args, tokenizer, checkpoint):
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig, set_seed

    from hf_tformer import TformerEncoderConfig, TformerEncoderForMaskedLM

    set_seed(args.seed)
    if checkpoint:
        return TformerEncoderForMaskedLM(open_pretrained(AutoConfig, checkpoint))
    roles = ("pad", "bos", "eos", "cls", "sep", "mask")
    try:
        config = TformerEncoderConfig(
            vocab_size=len(tokenizer),
            hidden_size=args.hidden_size,
            intermediate_size=args.intermediate_size or args.hidden_size * 3 // 2,
            num_hidden_layers=args.num_hidden_layers,
            num_attention_heads=args.num_attention_heads,
            sliding_window=args.sliding_window,
            dropout=args.dropout,
            **{f"{role}_token_id": getattr(tokenizer, f"{role}_token_id") for role in roles},
        )
    except (ValueError, StrictDataclassError) as error:
        raise ProgramError(str(error)) from error
    return TformerEncoderForMaskedLM(config)


def make_trainer(args, model, tokenizer, training, validation):
    from transformers import DataCollatorForLanguageModeling, Trainer, default_data_collator

    hide = DataCollatorForLanguageModeling(tokenizer, mlm_probability=args.hide, seed=args.seed)
    # What is measured by is hidden once: each measurement asks the same.
    hidden = hide([{"input_ids": block} for block in validation])
    columns = ("input_ids", "labels")
    rows = [
        dict(zip(columns, row, strict=True)) for row in zip(*map(hidden.get, columns), strict=True)
    ]

    def collate(rows):
        return default_data_collator(rows) if "labels" in rows[0] else hide(rows)

    arguments = training_arguments(args, prediction_loss_only=True)
    try:
        return Trainer(
            model=model,
            args=arguments,
            train_dataset=[{"input_ids": block} for block in training],
            eval_dataset=rows,
            data_collator=collate,
            processing_class=tokenizer,
        )
    except (ValueError, RuntimeError, ImportError) as error:  # no such reporter
        raise ProgramError(str(error)) from error


def fill_one(model, tokenizer, block):
    """The middle token of a block, hidden, and what the model takes it for."""
    import torch

    ids = torch.tensor([block], device=model.device)
    place = len(block) // 2
    ids[0, place] = tokenizer.mask_token_id
    with torch.no_grad():
        scores = model.eval()(input_ids=ids).logits[0, place].softmax(-1)
    best = scores.topk(3)
    guesses = ", ".join(
        f"{tokenizer.decode([token])!r} {share:.0%}"
        for token, share in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    )
    nearby = tokenizer.decode(ids[0, max(0, place - 12) : place + 12])
    return f"{nearby}\n{tokenizer.mask_token} was {tokenizer.decode([block[place]])!r}: {guesses}"


if __name__ == "__main__":
    run(main)
