"""Does what is trained with this code become as good as it should?

    python -m benchmarks.quality shakespeare         # minutes of a CPU
    python -m benchmarks.quality masked              # minutes of a CPU
    python -m benchmarks.quality multi30k            # tens of minutes; --steps 300 for a look
    python -m benchmarks.quality multi30k --full     # a GPU
    python -m benchmarks.quality t5                  # as multi30k

shakespeare: the decoder with nanoGPT's recipe for a CPU, whose README gives a validation loss of
1.88. masked: the encoder finds hidden letters of the same text, beside ModernBERT and BERT of no
fewer parameters, from the same batches in the same steps. multi30k: German to English by the
functions of examples/train_translation.py, beside MarianMT's architecture of the same sizes, from
the same batches in the same steps; ours in its modern form. t5: the same beside T5's architecture,
which ours is converted from before the first step.
"""

import argparse
import gzip
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHAKESPEARE_LOSS = 1.88
BLOCK, BATCH = 64, 12
DATA = {
    "shakespeare": "tinyshakespeare.txt",
    "masked": "tinyshakespeare.txt",
    "multi30k": "multi30k.train.de.gz",
    "t5": "multi30k.train.de.gz",
}
CPU = {
    "hidden_size": 128,
    "intermediate_size": 512,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "modern": True,
    "dropout": 0.1,
    "vocab_size": 4000,
    "max_steps": 600,
    "eval_steps": 120,
    "learning_rate": 1e-3,
    "per_device_train_batch_size": 64,
}
FULL = {
    **CPU,
    "hidden_size": 256,
    "intermediate_size": 1024,
    "encoder_layers": 4,
    "decoder_layers": 4,
    "dropout": 0.3,
    "vocab_size": 8000,
    "max_steps": 9000,
    "eval_steps": 900,
    "per_device_train_batch_size": 128,
    "generation_num_beams": 5,
}


def main(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=list(DATA))
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--steps", type=int, help="fewer than the recipe has, for a look")
    parser.add_argument("--full", action="store_true", help="multi30k, t5: at the size for a GPU")
    args = parser.parse_args(argv)
    if not (args.data / DATA[args.task]).is_file():
        print(f"skipped: {args.data} has no {DATA[args.task]}; --data names another folder")
        return 0
    tasks = {"shakespeare": shakespeare, "masked": masked, "multi30k": multi30k, "t5": t5}
    return tasks[args.task](args)


def shakespeare(args):
    import torch
    from transformers import Trainer, TrainingArguments, default_data_collator, set_seed

    from hf_tformer import TformerDecoderConfig, TformerDecoderForCausalLM

    text = (args.data / "tinyshakespeare.txt").read_text(encoding="utf-8")
    letters = sorted(set(text))
    ids = torch.tensor([letters.index(letter) for letter in text])
    border, steps = int(0.9 * len(ids)), args.steps or 2000
    set_seed(1337)
    # Random places for training, and the whole of the rest, block by block, to measure by.
    places = torch.randint(border - BLOCK, (steps * BATCH,)).tolist()
    rows = {
        "train": [ids[place : place + BLOCK + 1] for place in places],
        "validation": list(ids[border:].unfold(0, BLOCK + 1, BLOCK)),
    }
    config = TformerDecoderConfig(
        vocab_size=len(letters),
        hidden_size=128,
        intermediate_size=344,  # three matrices as large as the two of a plain MLP of 512
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            max_steps=steps,
            per_device_train_batch_size=BATCH,
            per_device_eval_batch_size=256,
            learning_rate=1e-3,
            lr_scheduler_type="cosine_with_min_lr",
            lr_scheduler_kwargs={"min_lr": 1e-4},
            warmup_steps=100,
            adam_beta2=0.99,
            weight_decay=0.1,
            eval_strategy="steps",
            eval_steps=max(1, steps // 8),
            logging_steps=max(1, steps // 8),
            save_strategy="no",
            prediction_loss_only=True,
            report_to="none",
            seed=1337,
        )
        trainer = Trainer(
            model=TformerDecoderForCausalLM(config),
            args=arguments,
            train_dataset=labelled(rows["train"]),
            eval_dataset=labelled(rows["validation"]),
            data_collator=default_data_collator,
        )
        trainer.train()
    curve = curve_of(trainer)
    show({"validation loss": curve})
    loss = curve[max(curve)]
    print(f"{loss:.4f} after {steps} steps; nanoGPT: {SHAKESPEARE_LOSS}")
    return int(steps == 2000 and loss > SHAKESPEARE_LOSS)


def masked(args):
    import torch
    from transformers import (
        BertConfig,
        BertForMaskedLM,
        ModernBertConfig,
        ModernBertForMaskedLM,
        set_seed,
    )

    from hf_tformer import TformerEncoderConfig, TformerEncoderForMaskedLM

    text = (args.data / "tinyshakespeare.txt").read_text(encoding="utf-8")
    letters = sorted(set(text))
    ids = torch.tensor([letters.index(letter) for letter in text])
    border, steps, length, batch = int(0.9 * len(ids)), args.steps or 2000, 2 * BLOCK, 2 * BATCH
    generator = torch.Generator().manual_seed(1337)
    places = torch.randint(border - length, (steps, batch), generator=generator)
    training = [torch.stack([ids[p : p + length] for p in row]) for row in places.tolist()]
    training = [hide(rows, len(letters), generator) for rows in training]
    blocks = ids[border:].unfold(0, length, length).split(8 * batch)
    validation = [hide(rows, len(letters), generator) for rows in blocks]

    sizes = {"vocab_size": len(letters) + 1, "num_hidden_layers": 6, "num_attention_heads": 4}
    nobody = dict.fromkeys(f"{name}_token_id" for name in ("pad", "bos", "eos", "cls", "sep"))
    modern = {**sizes, "hidden_size": 128, "intermediate_size": 192}
    models = {
        "ours": lambda: TformerEncoderForMaskedLM(TformerEncoderConfig(**modern)),
        "ModernBERT": lambda: ModernBertForMaskedLM(ModernBertConfig(**modern, **nobody)),
        "BERT": lambda: BertForMaskedLM(
            BertConfig(
                **sizes,
                hidden_size=128,
                intermediate_size=304,
                max_position_embeddings=length,
                pad_token_id=None,
            )
        ),
    }
    curves, parameters = {}, {}
    for name, build in models.items():
        set_seed(1337)
        model = build()
        parameters[name] = model.num_parameters()
        print(f"{name}: {parameters[name]:,} parameters")
        curves[name] = learn(model, training, validation, max(1, steps // 8))
    show(curves)
    last = {name: curve[max(curve)] for name, curve in curves.items()}
    is_smallest = parameters["ours"] <= min(parameters.values())
    print("validation loss: " + ", ".join(f"{name} {loss:.4f}" for name, loss in last.items()))
    return int(steps == 2000 and not (is_smallest and last["ours"] <= min(last.values())))


def hide(rows, mask, generator):
    """The letters with three of ten hidden, and labels where they are."""
    import torch

    hidden = torch.rand(rows.shape, generator=generator) < 0.3
    return {"input_ids": rows.masked_fill(hidden, mask), "labels": rows.masked_fill(~hidden, -100)}


def learn(model, training, validation, every):
    """Step → validation loss; one recipe for all."""
    import torch
    from transformers import get_cosine_schedule_with_warmup

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
    schedule = get_cosine_schedule_with_warmup(optimizer, 100, len(training))
    curve = {}
    for step, rows in enumerate(training, 1):
        model.train()
        model(**rows).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % every == 0:
            curve[step] = masked_loss(model, validation)
    return curve


def masked_loss(model, validation):
    import torch

    model.eval()
    total = count = 0
    with torch.no_grad():
        for rows in validation:
            found = int((rows["labels"] != -100).sum())
            total, count = total + model(**rows).loss.item() * found, count + found
    return total / count


def labelled(rows):
    return [{"input_ids": row, "labels": row} for row in rows]


def curve_of(trainer):
    """step → validation loss"""
    logged = trainer.state.log_history
    return {entry["step"]: entry["eval_loss"] for entry in logged if "eval_loss" in entry}


def show(curves):
    print(f"{'step':>8}" + "".join(f"{name:>18}" for name in curves))
    for step in next(iter(curves.values())):
        print(f"{step:8}" + "".join(f"{curve[step]:18.4f}" for curve in curves.values()))


def multi30k(args):
    return translate(args, {"ours": build_ours, "Marian's": build_marian})


def t5(args):
    return translate(args, {"ours": build_t5_as_ours, "T5's": build_t5})


def translate(args, builders):
    """`builders` are by name, ours before the one that it is compared with."""
    sys.path.append(str(ROOT / "examples"))
    from train_translation import (
        as_dataset,
        encode,
        make_trainer,
        parse_arguments,
        train_tokenizer,
    )

    recipe = dict(FULL if args.full else CPU)
    if args.steps:
        recipe |= {"max_steps": args.steps, "eval_steps": max(1, args.steps // 5)}
    options = [word for name, value in recipe.items() for word in (f"--{name}", str(value))]
    pairs = {split: read_split(args.data, split) for split in ("train", "val", "test_2016_flickr")}
    curves, bleu = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        always = ("--output_dir", folder, "--eval_strategy", "steps", "--save_strategy", "no")
        data, sizes, training = parse_arguments([*options, *always])
        sentences = [text for pair in pairs["train"] for text in pair[:2]]
        tokenizer = train_tokenizer(sentences, data.vocab_size)
        rows = {split: encode(as_dataset(pairs[split]), tokenizer) for split in pairs}
        rows["validation"] = rows.pop("val")
        for name, build in builders.items():
            model = build(data, sizes, training, tokenizer)
            trained = model.num_parameters(only_trainable=True)
            print(f"{name}: {trained / 1e6:.3f} M parameters to train")
            trainer = make_trainer(training, model, tokenizer, rows)
            trainer.compute_metrics, metrics = None, trainer.compute_metrics
            trainer.args.predict_with_generate = False  # while it learns, the loss is enough
            trainer.train()
            curves[name] = curve_of(trainer)
            trainer.compute_metrics, trainer.args.predict_with_generate = metrics, True
            bleu[name] = trainer.predict(rows["test_2016_flickr"]).metrics["test_bleu"]
    show(curves)
    print(
        "BLEU (sacreBLEU, test_2016_flickr): " + ", ".join(f"{n} {b:.2f}" for n, b in bleu.items())
    )
    ours, theirs = (curve[max(curve)] for curve in curves.values())
    good = bleu["ours"] >= max(bleu.values()) and ours <= theirs
    print("ours is at least as good" if good else "ours is not as good")
    return int(not good)


def read_split(folder, split):
    from dates import Pair

    sides = []
    for language in ("de", "en"):
        with gzip.open(folder / f"multi30k.{split}.{language}.gz", "rt", encoding="utf-8") as file:
            sides.append([line.strip() for line in file])
    return [Pair(*pair) for pair in zip(*sides, strict=True)]


def build_ours(data, sizes, training, tokenizer):
    from train_translation import build_model

    return build_model(data, sizes, training, tokenizer, None)


def build_marian(data, sizes, training, tokenizer):
    from transformers import MarianConfig, MarianMTModel, set_seed

    set_seed(training.seed)
    stacks = {}
    for stack in ("encoder", "decoder"):
        stacks[f"{stack}_layers"] = getattr(sizes, f"{stack}_layers")
        stacks[f"{stack}_attention_heads"] = sizes.num_attention_heads
        stacks[f"{stack}_ffn_dim"] = sizes.intermediate_size
    config = MarianConfig(
        vocab_size=len(tokenizer),
        d_model=sizes.hidden_size,
        dropout=sizes.dropout,
        scale_embedding=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        forced_eos_token_id=None,
        decoder_start_token_id=tokenizer.bos_token_id,
        **stacks,
    )
    return ready_to_write(MarianMTModel(config), data, training)


def ready_to_write(model, data, training):
    model.generation_config.max_new_tokens = data.max_length
    model.generation_config.num_beams = training.generation_num_beams
    return model


def build_t5(data, sizes, training, tokenizer):
    from transformers import T5Config, T5ForConditionalGeneration, set_seed

    set_seed(training.seed)
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=sizes.hidden_size,
        d_kv=sizes.hidden_size // sizes.num_attention_heads,
        d_ff=sizes.intermediate_size,
        num_layers=sizes.encoder_layers,
        num_decoder_layers=sizes.decoder_layers,
        num_heads=sizes.num_attention_heads,
        dropout_rate=sizes.dropout,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.bos_token_id,
    )
    return ready_to_write(T5ForConditionalGeneration(config), data, training)


def build_t5_as_ours(data, sizes, training, tokenizer):
    """The model above with its first weights, converted: ours would draw others, for attention that
    is scaled and for a head that is not."""
    from conversion import import_checkpoint
    from hf_tformer import TformerSeq2SeqForConditionalGeneration

    with tempfile.TemporaryDirectory() as folder:
        theirs, ours = Path(folder) / "theirs", Path(folder) / "ours"
        build_t5(data, sizes, training, tokenizer).save_pretrained(theirs)
        import_checkpoint(theirs, ours)
        return TformerSeq2SeqForConditionalGeneration.from_pretrained(ours)


if __name__ == "__main__":
    sys.exit(main())
