"""The whole road in minutes: train, save, open elsewhere, use.

    python examples/demo.py [--output demo_output] [options of train_translation.py]

A small encoder-decoder learns to translate the dates of sixteen languages to ISO 8601. The saved
folder is then opened by a second process, which cannot import this package and has no network, and
translates dates that it has never seen in any language.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import train_translation
from dates import date_pairs
from program import make_parser, run
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hf_tformer import attention_maps, last_complete_checkpoint
from hf_tformer.opening import open_model

TRAINING = "--eval_strategy steps --eval_steps 100 --save_strategy steps --disable_tqdm true"
SHOWN = 10
READER = """
import json, sys
sys.modules["hf_tformer"] = None  # whatever is installed here, this process cannot import it
sources, answers = json.load(sys.stdin), []
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
model = AutoModelForSeq2SeqLM.from_pretrained(sys.argv[1], trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1], trust_remote_code=False)
for start in range(0, len(sources), 250):
    batch = tokenizer(sources[start : start + 250], padding=True, return_tensors="pt")
    answers += tokenizer.batch_decode(model.generate(**batch), skip_special_tokens=True)
json.dump(answers, sys.stdout)
"""


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo_output"), help="folder to write")
    args, others = parser.parse_known_args()
    folder, started = args.output / "dates", time.time()
    learning = [*TRAINING.split(), *others, "--output_dir", str(folder)]
    train_translation.main(learning, callbacks=[AnswersAsItLearns()])

    print("\nOpened elsewhere, without this package, by AutoModelForSeq2SeqLM and AutoTokenizer:")
    pairs = date_pairs(0)["test"]
    answers = answer_elsewhere(folder, [pair.source for pair in pairs])
    for pair, answer in list(zip(pairs, answers, strict=True))[:SHOWN]:
        mark = "" if answer == pair.target else f"  wrong: {pair.target}"
        print(f"  {pair.language}  {answer}  {pair.source}{mark}")
    targets = [pair.target for pair in pairs]
    right = train_translation.share_equal(zip(answers, targets, strict=True))
    print(f"{right:.1%} of {len(pairs)} dates that it had never seen are exactly right.\n")

    draw_loss(folder, args.output / "loss.png")
    spanish = next(pair.source for pair in pairs if pair.language == "es")
    draw_attention(folder, spanish, args.output / "attention.png")
    print(
        f"the model, its code and its tokenizer   {folder}\n"
        f"how the loss fell                       {args.output / 'loss.png'}\n"
        f"which letters it attends to             {args.output / 'attention.png'}\n\n"
        f"Done in {time.time() - started:.0f} s. Next: examples/train_translation.py on sentences "
        f"of your own (--help), `tformer check {folder}`, and README.md."
    )


class AnswersAsItLearns(TrainerCallback):
    """Write a line whenever the model is evaluated, with its answer to a date that is new to it."""

    def __init__(self) -> None:
        self.started = time.time()
        pairs = date_pairs(0)["validation"]
        self.pair = next(pair for pair in pairs if pair.language == "en")

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **given: Any
    ) -> None:
        model, tokenizer = given["model"], given["processing_class"]
        inputs = tokenizer(self.pair.source, return_tensors="pt").to(model.device)
        [answer] = tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True)
        mark = "" if answer == self.pair.target else f"  (wrong: {self.pair.target})"
        print(
            f"step {state.global_step:3} of {state.max_steps}, "
            f"{time.time() - self.started:3.0f} s, loss {given['metrics']['eval_loss']:.4f}: "
            f"{self.pair.source} → {answer}{mark}",
            flush=True,
        )


def answer_elsewhere(folder: Path, sources: list[str]) -> list[str]:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": ""}
    reader = subprocess.run(
        [sys.executable, "-c", READER, folder.resolve()],
        input=json.dumps(sources),
        capture_output=True,
        text=True,
        env=environment,
    )
    if reader.returncode:
        raise SystemExit(f"the folder {folder} could not be opened elsewhere:\n{reader.stderr}")
    return json.loads(reader.stdout)


def draw_loss(folder: Path, picture: Path) -> None:
    import matplotlib.pyplot as plt

    state = Path(last_complete_checkpoint(folder)) / "trainer_state.json"
    history = json.loads(state.read_text(encoding="utf-8"))["log_history"]
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for name, label in (("loss", "dates trained on"), ("eval_loss", "dates held out")):
        points = [(entry["step"], entry[name]) for entry in history if name in entry]
        axes.plot(*zip(*points, strict=True), marker=".", label=label)
    axes.set(xlabel="step", ylabel="cross entropy per token", yscale="log")
    axes.legend()
    figure.savefig(picture, dpi=150)


def draw_attention(folder: Path, sentence: str, picture: Path) -> None:
    """Draw the attention of the last layer to the sentence: a row for each generated token."""
    model, tokenizer = open_model(str(folder))
    inputs = tokenizer(sentence, return_tensors="pt")
    generated = model.generate(**inputs)
    cross = attention_maps(model, {**inputs, "decoder_input_ids": generated}, tokenizer)["cross"]
    cross.draw(layers=[len(cross.weights) - 1]).savefig(picture, dpi=150)


if __name__ == "__main__":
    run(main)
