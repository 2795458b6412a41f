"""lm-evaluation-harness asks our folders, with the code they bring: its likelihoods are those that
the model gives, and its texts those of generate()."""

import json
import sys

import pytest
import torch

from support.elsewhere import DECODER, ENCODER, SEQ2SEQ, run, trained_tokenizer, write

pytestmark = pytest.mark.runtime

ROWS = [
    ("the cat sat on the", " mat"),
    ("to be or not", " to be"),
    ("a rose is", " a rose is a rose"),
    ("the dog", " ate the food"),
    ("the", " question"),
]
TASK = """\
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: rows.jsonl}}
test_split: train
output_type: {kind}
doc_to_text: "{{{{text}}}}"
doc_to_target: "{{{{target}}}}"
"""
TASKS = {
    "sentences": ("loglikelihood", "metric_list: [{metric: perplexity}]"),
    "answers": (
        "generate_until",
        'generation_kwargs: {until: ["never"], max_gen_toks: 9}\n'
        "metric_list: [{metric: exact_match}]",
    ),
}
# As its users write it, in a process that cannot import this package.
ASK = """
import json, sys
from pathlib import Path

sys.modules["hf_tformer"] = None
import lm_eval
from lm_eval.tasks import TaskManager

found = {}
for folder, options in json.loads(sys.argv[1]).items():
    arguments = f"pretrained={folder},trust_remote_code=True,dtype=float32{options}"
    try:
        samples = lm_eval.simple_evaluate(
            "hf", model_args=arguments, tasks=["sentences", "answers"], batch_size=3, device="cpu",
            task_manager=TaskManager(include_path="tasks"), bootstrap_iters=0,
        )["samples"]
    except ValueError as error:
        found[folder] = str(error)
        continue
    found[folder] = {
        task: [row["filtered_resps"][0] for row in sorted(rows, key=lambda row: row["doc_id"])]
        for task, rows in samples.items()
    }
Path("found.json").write_text(json.dumps(found))
"""


@torch.no_grad()
def expected_of(model, text, target):
    """The likelihood of a target after a text, whether it would be written, and what is written."""
    tokenizer = trained_tokenizer()
    before, after = (tokenizer(x, return_tensors="pt").input_ids for x in (text, target))
    if model.config.is_encoder_decoder:
        inputs = {"input_ids": before, "labels": after}
        logits, skipped = model(**inputs).logits, 1
    else:
        whole = tokenizer(text + target, return_tensors="pt").input_ids
        after = whole[:, before.shape[1] :]
        logits = model(whole).logits[:, before.shape[1] - 1 : -1]
        skipped = before.shape[1]
    scores = logits.log_softmax(-1)
    total = scores.gather(-1, after[..., None]).sum().item()
    written = model.generate(before, max_new_tokens=9, do_sample=False)[0, skipped:]
    is_greedy = bool((scores.argmax(-1) == after).all())
    return total, is_greedy, tokenizer.decode(written, skip_special_tokens=True)


def test_its_numbers_are_those_of_the_model(tmp_path):
    pytest.importorskip("lm_eval", reason="lm_eval is not installed")
    (tmp_path / "tasks").mkdir()
    for name, (kind, rest) in TASKS.items():
        text = TASK.format(name=name, kind=kind) + rest
        (tmp_path / "tasks" / f"{name}.yaml").write_text(text)
    lines = (json.dumps({"text": text, "target": target}) for text, target in ROWS)
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    models = {
        "decoder": write(tmp_path / "decoder", DECODER),
        "seq2seq": write(tmp_path / "seq2seq", SEQ2SEQ),
    }
    write(tmp_path / "encoder", ENCODER)
    folders = {"decoder": "", "seq2seq": ",backend=seq2seq", "encoder": ""}
    run([sys.executable, "-c", ASK, json.dumps(folders)], tmp_path)
    found = json.loads((tmp_path / "found.json").read_text())
    assert "Unrecognized configuration class" in found.pop("encoder")
    for folder, model in models.items():
        rows = zip(ROWS, found[folder]["sentences"], found[folder]["answers"], strict=True)
        for row, (likelihood, is_greedy), answer in rows:
            total, would_be_written, text = expected_of(model, *row)
            assert likelihood == pytest.approx(total, rel=1e-4)
            assert is_greedy == would_be_written
            # Of an encoder-decoder it wants as many tokens more as the source has.
            assert answer.strip().startswith(text.strip())
