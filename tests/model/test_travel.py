"""A saved folder runs for someone who never heard of this package: fresh process, offline, nothing
installed."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from transformers import AutoConfig

import hf_tformer
from hf_tformer.families import FAMILIES
from hf_tformer.testing import travel
from hf_tformer.testing.travel import expect_same, expect_same_elsewhere, start_reader
from support.families import DECODER, ENCODER, by_model_type, decoder_first
from support.leaves import ARCHITECTURES

pytestmark = pytest.mark.usefixtures("warm_python")


def write(folder, model_type, name, **fields):
    """Saves a random model with that head; beside its folder, in the file returned, its answers."""
    family = by_model_type[model_type]
    model = family.build(None, getattr(hf_tformer, name), **fields)
    return travel.write(folder, family, model)


@pytest.mark.parametrize("model_type", FAMILIES)
def test_every_head_runs_where_the_package_is_not_installed_and_saves_again(tmp_path, model_type):
    """One process reads the folders of all heads, a second one the folders that the first saved."""
    first, second = [], []
    for auto, name in FAMILIES[model_type].models.items():
        folder = tmp_path / f"first {auto}"
        answers = write(folder, model_type, name)
        first.append((folder, auto, answers, again := tmp_path / f"second {auto}"))
        second.append((again, auto, answers, tmp_path / f"third {auto}"))
    expect_same_elsewhere(tmp_path, *first)
    for folder, *_ in first:
        shutil.rmtree(folder)  # the second generation must stand alone
    expect_same_elsewhere(tmp_path, *second)


@pytest.mark.usefixtures("real_python")
def test_what_other_architectures_have_runs_where_the_package_is_not_installed(tmp_path):
    """One process reads them all, which imports everything itself."""
    cases = []
    for family in by_model_type.values():
        for name, fields in ARCHITECTURES[family.name].items():
            folder = tmp_path / f"{family.name} {name}"
            names = family.config_class.model_type, family.model_class.__name__
            answers = write(folder, *names, **fields)
            cases.append((folder, family.auto.__name__, answers, tmp_path / "again" / folder.name))
    expect_same_elsewhere(tmp_path, *cases)


@pytest.mark.parametrize("family", [DECODER, ENCODER], ids=["decoder", "encoder"])
def test_any_auto_class_of_the_map_opens_a_language_model(family, tmp_path):
    """A folder saved from one head still says how to open all the others."""
    folder, model_type = tmp_path / "saved", family.config_class.model_type
    answers = write(folder, model_type, family.model_class.__name__)
    auto_map = json.loads((folder / "config.json").read_text())["auto_map"]
    assert set(auto_map) == {"AutoConfig", *FAMILIES[model_type].models}
    assert all("--" not in reference for reference in auto_map.values())
    for reference in auto_map.values():
        assert (folder / (reference.split(".")[0] + ".py")).exists()
    saved = torch.load(answers, weights_only=True)
    torch.save({"inputs": saved["inputs"], "outputs": {}}, answers)
    autos = sorted(set(auto_map) - {"AutoConfig"})
    expect_same_elsewhere(tmp_path, *((folder, auto, answers, tmp_path / auto) for auto in autos))


def write_translator(folder):
    """A case without the place where to save again."""
    answers = write(folder, "tformer_seq2seq", "TformerSeq2SeqForConditionalGeneration")
    return folder, "AutoModelForSeq2SeqLM", answers


def test_the_name_of_the_folder_does_not_matter(tmp_path):
    folder, auto, answers = write_translator(tmp_path / "my model-v1.2 (final)")
    cases = ((place, auto, answers, tmp_path / "again") for place in (folder, "."))
    expect_same_elsewhere(tmp_path, *cases, cwd=folder)


def test_four_processes_may_open_a_folder_at_once(tmp_path):
    """They share one cache of modules, empty at first."""
    case = write_translator(tmp_path / "saved")
    start = [start_reader(tmp_path, (*case, tmp_path / f"{i}")) for i in range(4)]
    for reader in start:
        expect_same(reader)


def test_a_broken_flash_attention_package_disturbs_nobody(tmp_path):
    case = write_translator(tmp_path / "saved")
    broken = tmp_path / "broken" / "flash_attn"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('undefined symbol: _ZN2at4_ops')")
    installed = broken.parent / "flash_attn-2.8.3.dist-info"
    installed.mkdir()
    (installed / "top_level.txt").write_text("flash_attn\n")
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: flash_attn\nVersion: 2.8.3\n")
    expect_same_elsewhere(tmp_path, (*case, tmp_path / "again"), PYTHONPATH=str(broken.parent))


TOKENIZE = """
import sys
sys.modules["hf_tformer"] = None
from transformers import AutoConfig, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1], trust_remote_code=False)
config = AutoConfig.from_pretrained(sys.argv[1], trust_remote_code=True)
for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
    assert getattr(tokenizer, name) == getattr(config, name) is not None, name
assert len(tokenizer) <= config.vocab_size
print(tokenizer("to be or not").input_ids)
"""


def test_a_tokenizer_saved_beside_the_model_needs_no_trust(family, tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.BPE(unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["<pad>", "<s>", "</s>", "<unk>"]
    words.train_from_iterator(
        ["to be or not to be"] * 9, trainers.BpeTrainer(special_tokens=special)
    )
    names = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), special, strict=True))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, **names)
    ids = {f"{name}_id": tokenizer.convert_tokens_to_ids(word) for name, word in names.items()}
    del ids["unk_token_id"]
    family.build(**ids).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    environment = {**os.environ, "HF_MODULES_CACHE": str(tmp_path / "modules")}
    run = subprocess.run(
        [sys.executable, "-c", TOKENIZE, str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert run.stdout.strip() == str(tokenizer("to be or not").input_ids), run.stderr[-2000:]


TRAIN = """
import json, sys, torch, transformers
steps, folder, resume = int(sys.argv[1]), sys.argv[2], sys.argv[3]
if resume != "no":
    sys.modules["hf_tformer"] = None  # the checkpoint's own code goes on with the training
torch.set_num_threads(1)
transformers.set_seed(1)
rows = torch.load(sys.argv[4], weights_only=True)
auto = getattr(transformers, sys.argv[5])
model = auto.from_pretrained(sys.argv[6] if resume == "no" else resume, trust_remote_code=True)
arguments = transformers.TrainingArguments(
    folder, max_steps=steps, per_device_train_batch_size=2, learning_rate=0.01, logging_steps=1,
    save_steps=3, report_to="none", use_cpu=True, disable_tqdm=True, lr_scheduler_type="constant",
)
trainer = transformers.Trainer(model=model, args=arguments, train_dataset=rows)
trainer.train(resume_from_checkpoint=None if resume == "no" else resume)
losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
print(json.dumps([float(loss) for loss in losses]))
"""


@decoder_first
def test_a_checkpoint_of_trainer_goes_on_elsewhere_as_if_never_interrupted(family, tmp_path):
    family.build(dropout=0.1).save_pretrained(tmp_path / "start")
    ids = torch.randint(3, 101, (12, 7))
    torch.save([{"input_ids": row, "labels": row} for row in ids], tmp_path / "rows.pt")

    def train(steps, resume="no"):
        command = [sys.executable, "-c", TRAIN, str(steps), str(tmp_path / f"run-{resume != 'no'}")]
        command += [str(resume), str(tmp_path / "rows.pt")]
        command += [family.auto.__name__, str(tmp_path / "start")]
        environment = {**os.environ, "HF_MODULES_CACHE": str(tmp_path / "modules")}
        run = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
        assert run.returncode == 0, run.stderr[-3000:]
        return json.loads(run.stdout.strip().splitlines()[-1])

    whole = train(6)
    checkpoint = tmp_path / "run-False" / "checkpoint-3"
    code = {path.name for path in checkpoint.glob("*.py")}
    assert code == {path.name for path in (tmp_path / "start").glob("*.py")}
    assert train(6, resume=checkpoint) == whole


def test_where_the_package_is_installed_no_trust_is_needed(family, tmp_path):
    family.build().save_pretrained(tmp_path)
    assert isinstance(AutoConfig.from_pretrained(tmp_path), family.config_class)
