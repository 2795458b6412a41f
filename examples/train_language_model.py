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
from pathlib import Path

from data import read_dataset, read_text
from folders import checkpoint_to_resume, output_folder, publish_folder, save_whole
from program import ProgramError, at_least, positive, run, share

from hf_tformer.opening import open_pretrained

END = "<|endoftext|>"
SMALLEST_VOCABULARY = 257  # every byte, and the end


def main():
    args = parse_arguments()
    with output_folder(args.output, args.resume):
        train(args)


def train(args):
    checkpoint = checkpoint_to_resume(args.output) if args.resume else None
    documents = read_documents(args)
    tokenizer = make_tokenizer(args, documents, checkpoint)
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
    data = parser.add_argument_group("the text (default: the manual that comes with Python)")
    source = data.add_mutually_exclusive_group()
    source.add_argument("--text", nargs="+", help="text files in UTF-8, each one document")
    source.add_argument("--dataset", help="a data set on the Hub; its training split is read")
    data.add_argument("--dataset_config", help="which configuration of it")
    data.add_argument("--column", default="text", help="the column that holds the text")
    data.add_argument("--tokenizer", help="use the tokenizer of this folder or repository")
    data.add_argument("--vocab_size", type=at_least(SMALLEST_VOCABULARY), default=4096)
    data.add_argument("--block_size", type=at_least(2), default=128, help="tokens per block")
    data.add_argument("--validation", type=share, default=0.05, help="share of blocks kept back")

    sizes = parser.add_argument_group("the model")
    sizes.add_argument("--hidden_size", type=int, default=256)
    sizes.add_argument("--num_hidden_layers", type=int, default=4)
    sizes.add_argument("--num_attention_heads", type=int, default=8)
    sizes.add_argument(
        "--num_key_value_heads", type=int, help="default: half of the heads, all of an odd number"
    )
    sizes.add_argument("--intermediate_size", type=int, help="default: 8/3 of the hidden size")
    sizes.add_argument("--dropout", type=float, default=0.1)

    training = parser.add_argument_group("training")
    training.add_argument("--output", type=Path, default=Path("language-model"))
    training.add_argument("--resume", action="store_true", help="sizes come from the checkpoint")
    training.add_argument("--epochs", type=positive, default=5)
    training.add_argument("--max_steps", type=int, default=-1, help="instead of --epochs")
    training.add_argument(
        "--batch_size", type=at_least(1), default=16, help="blocks per device and step"
    )
    training.add_argument("--gradient_accumulation_steps", type=at_least(1), default=1)
    training.add_argument("--learning_rate", type=positive, default=1e-3)
    training.add_argument("--warmup_steps", type=at_least(0), default=50)
    training.add_argument(
        "--save_steps", type=at_least(1), default=200, help="and measure, each so often"
    )
    training.add_argument("--seed", type=int, default=0)
    training.add_argument("--bf16", action="store_true", help="half precision on an accelerator")
    training.add_argument("--report_to", default="none", help="tensorboard, trackio, wandb, ...")
    training.add_argument("--push_to_hub", metavar="USER/NAME", help="publish it when it is done")
    training.add_argument("--prompt", default="The ", help="how the sample at the end begins")
    return parser.parse_args()


def read_documents(args):
    if args.text:
        return [read_text(path) for path in args.text]
    if args.dataset:
        return [row[0] for row in read_dataset(args.dataset, args.dataset_config, [args.column])]
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise ProgramError("this Python came without its manual: give --text FILE") from error
    return list(topics.values())


def make_tokenizer(args, documents, checkpoint):
    from transformers import AutoTokenizer

    if checkpoint or args.tokenizer:
        tokenizer = open_pretrained(AutoTokenizer, checkpoint or args.tokenizer)
        if tokenizer.eos_token_id is None:
            raise ProgramError(f"{args.tokenizer} has no end token: choose another tokenizer")
        return tokenizer
    return train_tokenizer(documents, args.vocab_size)


def train_tokenizer(documents, vocab_size):
    """Byte-level BPE: any text can be written with it, and comes back as it was."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    bpe.train_from_iterator(documents, trainer, length=len(documents))
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token=END, eos_token=END, pad_token=END
    )


def make_blocks(args, documents, tokenizer):
    """All documents in one row, each closed by the end token, cut into blocks."""
    from tqdm import tqdm

    ids = []
    for document in tqdm(documents, desc="Tokenizing", unit="document"):
        ids += tokenizer(document, add_special_tokens=False, verbose=False)["input_ids"]
        ids.append(tokenizer.eos_token_id)
    size = args.block_size
    blocks = [ids[start : start + size] for start in range(0, len(ids) - size + 1, size)]
    kept = max(1, round(args.validation * len(blocks)))
    if len(blocks) <= kept:
        raise ProgramError(
            f"the text has {len(ids)} tokens, and --block_size {size} needs two blocks, one to "
            "learn from and one to measure by: give more text or smaller blocks"
        )
    rows = [{"input_ids": block, "labels": block} for block in blocks]
    return rows[:-kept], rows[-kept:]


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
    import torch
    from transformers import Trainer, TrainingArguments, default_data_collator

    try:
        arguments = TrainingArguments(
            output_dir=str(args.output),
            num_train_epochs=args.epochs,
            max_steps=args.max_steps,
            per_device_train_batch_size=args.batch_size,
            per_device_eval_batch_size=args.batch_size,
            gradient_accumulation_steps=args.gradient_accumulation_steps,
            learning_rate=args.learning_rate,
            lr_scheduler_type="cosine",
            warmup_steps=args.warmup_steps,
            weight_decay=0.1,
            adam_beta2=0.95,
            logging_steps=min(25, args.save_steps),
            eval_strategy="steps",
            eval_steps=args.save_steps,
            save_steps=args.save_steps,
            save_total_limit=2,
            prediction_loss_only=True,
            bf16=args.bf16,
            seed=args.seed,
            report_to=args.report_to,
            dataloader_pin_memory=torch.accelerator.is_available(),
            use_cpu=not torch.accelerator.is_available(),  # unsaid, processes would not be joined
            ddp_find_unused_parameters=False,  # there are none
            use_cache=True,  # what Trainer writes into the configuration; no step makes a cache
        )
        return Trainer(
            model=model,
            args=arguments,
            train_dataset=training,
            eval_dataset=validation,
            data_collator=default_data_collator,
            processing_class=tokenizer,
        )
    except (ValueError, RuntimeError, ImportError) as error:  # no such device, no such reporter
        raise ProgramError(str(error)) from error


def write_sample(args, model, tokenizer):
    inputs = tokenizer(args.prompt or END, return_tensors="pt", return_token_type_ids=False)
    settings = {"do_sample": True, "temperature": 0.8, "top_k": 50}
    tokens = model.eval().generate(**inputs.to(model.device), max_new_tokens=100, **settings)
    return tokenizer.decode(tokens[0], skip_special_tokens=True)


if __name__ == "__main__":
    run(main)
