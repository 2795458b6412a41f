"""An encoder from scratch, on any text, trained to predict tokens that are hidden from it.

    python examples/train_encoder.py                       # Python's own manual, in minutes
    python examples/train_encoder.py --text book.txt --output book-encoder --report_to tensorboard
    python examples/train_encoder.py --resume              # continue an interrupted run

The folder that is written opens with AutoModelForMaskedLM and AutoTokenizer, and can be fine-tuned
for classification, tagging and sentence vectors (finetune_encoder.py, train_embeddings.py).
"""

import math
from argparse import Namespace
from typing import Any

from data import ENCODER_TOKENS, add_corpus_flags, iterate_documents, make_blocks, make_tokenizer
from program import Model, ProgramError, Tokenizer, Trainer, make_parser, refusing, run, share
from training import add_size_flags, add_training_flags, make_trainer, run_folder, save_and_publish

from hf_tformer.opening import open_pretrained

Blocks = list[list[int]]  # of token ids


def main() -> None:
    args = parse_arguments()
    with run_folder(args) as checkpoint:
        documents = list(iterate_documents(args))
        tokenizer = make_tokenizer(args, documents, checkpoint, **ENCODER_TOKENS)
        if tokenizer.mask_token_id is None:
            raise ProgramError(f"{args.tokenizer} has no mask token: choose another tokenizer")
        training, validation = make_blocks(args, documents, tokenizer)
        model = build_model(args, tokenizer, checkpoint)
        trainer = prepare_trainer(args, model, tokenizer, training, validation)
        if trainer.is_world_process_zero():
            print(
                f"{model.num_parameters() / 1e6:.1f} M parameters, {len(tokenizer)} tokens in the "
                f"vocabulary, {len(training)} blocks to train on, {len(validation)} to evaluate on"
            )
        trainer.train(resume_from_checkpoint=checkpoint)
        loss = trainer.evaluate()["eval_loss"]
        if not trainer.is_world_process_zero():
            return  # of several processes, the first one saves
        print(f"\nvalidation loss {loss:.3f}, perplexity of hidden tokens {math.exp(loss):.1f}")
        save_and_publish(args, trainer.model, tokenizer)
        print(f"\n{fill_one(trainer.model, tokenizer, validation[0])}")


def parse_arguments() -> Namespace:
    parser = make_parser(__doc__)
    add_corpus_flags(parser)
    add = add_size_flags(parser, "3/2").add_argument
    add("--hide", type=share, default=0.3, help="share of tokens that are hidden")
    add("--sliding_window", type=int, default=64, help="window of two layers in three, in tokens")
    add_training_flags(parser, "encoder", epochs=10)
    return parser.parse_args()


def build_model(args: Namespace, tokenizer: Tokenizer, checkpoint: str | None) -> Model:
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig, set_seed

    from hf_tformer import TformerEncoderConfig, TformerEncoderForMaskedLM

    set_seed(args.seed)
    if checkpoint:
        return TformerEncoderForMaskedLM(open_pretrained(AutoConfig, checkpoint))
    roles = ("pad", "bos", "eos", "cls", "sep", "mask")
    with refusing(ValueError, StrictDataclassError):
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
    return TformerEncoderForMaskedLM(config)


def prepare_trainer(
    args: Namespace, model: Model, tokenizer: Tokenizer, training: Blocks, validation: Blocks
) -> Trainer:
    from transformers import DataCollatorForLanguageModeling, default_data_collator

    hide = DataCollatorForLanguageModeling(tokenizer, mlm_probability=args.hide, seed=args.seed)
    # Tokens to evaluate on are hidden once, so that each evaluation is the same.
    hidden = hide([{"input_ids": block} for block in validation])
    pairs = zip(hidden["input_ids"], hidden["labels"], strict=True)

    def collate(examples: list[dict[str, Any]]) -> dict[str, Any]:
        return default_data_collator(examples) if "labels" in examples[0] else hide(examples)

    return make_trainer(
        args,
        model,
        tokenizer,
        {"prediction_loss_only": True},
        train_dataset=[{"input_ids": block} for block in training],
        eval_dataset=[{"input_ids": ids, "labels": labels} for ids, labels in pairs],
        data_collator=collate,
    )


def fill_one(model: Model, tokenizer: Tokenizer, block: list[int]) -> str:
    """Hide the middle token of a block, and describe what the model predicts there."""
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
