"""What others wrap around a model: PEFT, TRL, Accelerate, data-parallel and sharded processes."""

import math
import subprocess
import sys

import pytest
import torch
from datasets import Dataset
from peft import IA3Config, LoraConfig, PeftModel, get_peft_model
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import AutoModelForCausalLM
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

from support.families import (
    DECODER,
    ENCODER,
    FAMILIES,
    SEQ2SEQ,
    by_writers,
    decoder_first,
    random_rows,
)
from support.paths import ROOT
from support.training import ROWS, TARGETS, tokenizer, train

pytestmark = pytest.mark.usefixtures("warm_python")


NAMED = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# PEFT has no task for masked language models: it wraps them as they are.
TASK = {"decoder": "CAUSAL_LM", "seq2seq": "SEQ_2_SEQ_LM", "encoder": None}
TASK["mixture"] = TASK["decoder"]
FINITE = {"rtol": 1e-4, "atol": 1e-5}


# PEFT


def adapted(family, model, **options):
    return get_peft_model(model, LoraConfig(task_type=TASK[family.name], r=3, **options))


def logits_of(family, model):
    rows = random_rows([7, 4], seed=3)
    return torch.cat(family.logits(model.eval(), rows))


@pytest.mark.parametrize(
    "targets",
    [
        pytest.param(NAMED, marks=pytest.mark.slow),
        "all-linear",
        pytest.param(None, marks=pytest.mark.slow),
    ],
    ids=["named", "all", "none"],
)
def test_adapters_train_save_reload_and_merge_without_changing_an_answer(family, targets, tmp_path):
    # gated, so that all seven names exist
    family.build(mlp_type="gated").save_pretrained(tmp_path / "base")

    def base():
        return family.auto.from_pretrained(tmp_path / "base")

    before = logits_of(family, base())
    model = adapted(family, base(), target_modules=targets)
    train(family, model, tmp_path, max_steps=3, label_names=["labels"])
    after = logits_of(family, model)
    assert (after - before).abs().max() > 1e-2
    model.save_pretrained(tmp_path / "adapters")
    again = PeftModel.from_pretrained(base(), tmp_path / "adapters")
    torch.testing.assert_close(logits_of(family, again), after, **FINITE)
    again.merge_and_unload().save_pretrained(tmp_path / "merged")
    merged = family.auto.from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(logits_of(family, merged), after, **FINITE)
    assert merged.state_dict().keys() == base().state_dict().keys()


@by_writers
@pytest.mark.parametrize("targets", [["v_proj", "down_proj"], ["embed_tokens"], ["lm_head"]])
def test_adapters_are_heard_in_texts_as_in_scores(family, targets):
    rows, options = random_rows([5, 7], seed=3), {"max_new_tokens": 12, "do_sample": False}
    apart = {"tie_word_embeddings": False}  # an adapter on a shared table is merged twice
    if family is SEQ2SEQ:
        apart["share_encoder_decoder_embeddings"] = False
    model = family.build(**apart)
    plain = family.generate(model, rows, **options)
    model = adapted(
        family, model, target_modules=targets, init_lora_weights=False, lora_alpha=64
    ).eval()
    scores = logits_of(family, model)
    with torch.no_grad():
        torch.testing.assert_close(logits_of(family, model), scores, **FINITE)
    text = family.generate(model, rows, **options)
    assert text != plain
    assert family.generate(model.merge_and_unload(), rows, **options) == text


@pytest.mark.parametrize("tie", [True, False], ids=["tied", "untied"])
def test_all_linear_means_every_projection_but_the_head(family, tie):
    model = adapted(
        family,
        family.build(mlp_type="gated", tie_word_embeddings=tie),
        target_modules="all-linear",
    )
    changed = {name.split(".lora_A")[0] for name, _ in model.named_parameters() if "lora_A" in name}
    linear = {
        name.removesuffix(".base_layer")
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and "lora_" not in name
    }
    assert linear - changed == {"base_model.model.lm_head"}
    of_the_head = {"dense"} if family is ENCODER else set()
    assert {name.rpartition(".")[2] for name in changed} == {*NAMED, *of_the_head}


def test_without_targets_adapters_sit_where_they_sit_in_llama(family):
    model = adapted(family, family.build(mlp_type="gated"))
    assert model.peft_config["default"].target_modules == {"q_proj", "v_proj"}
    scaled = get_peft_model(family.build(mlp_type="gated"), IA3Config())
    assert scaled.peft_config["default"].target_modules == {"k_proj", "v_proj", "down_proj"}
    assert scaled.peft_config["default"].feedforward_modules == {"down_proj"}


@pytest.mark.parametrize(
    "imports",
    [
        "import hf_tformer; from transformers import AutoModel; from peft import LoraConfig",
        "import peft, hf_tformer",
    ],
)
def test_peft_knows_the_families_in_every_order_of_imports(imports):
    code = f"""
{imports}
from peft.utils.constants import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING as targets
from transformers import AutoConfig
print(*targets["tformer_decoder"], *targets["tformer_seq2seq"], *targets["tformer_encoder"])
print(AutoConfig.for_model("tformer_decoder").model_type)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout.split() == [*("q_proj", "v_proj") * 3, "tformer_decoder"], run.stderr


def test_a_head_that_is_adapted_too_is_trained_and_merged(family, tmp_path):
    """The loss reads the head's weight where that is all there is to it; here it is not."""
    model = adapted(
        family, family.build(tie_word_embeddings=False), target_modules=["q_proj", "lm_head"]
    )
    train(family, model, tmp_path, max_steps=3, label_names=["labels"])
    assert model.base_model.model.lm_head.lora_B["default"].weight.abs().max() > 0
    after = logits_of(family, model)
    torch.testing.assert_close(logits_of(family, model.merge_and_unload()), after, **FINITE)


# TRL


def trl_options(tmp_path, **options):
    return {
        "output_dir": tmp_path,
        "max_steps": 3,
        "per_device_train_batch_size": 8,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
        "gradient_checkpointing": False,
        **options,
    }


@pytest.mark.parametrize("packing", [False, True], ids=["padded", "packed"])
def test_sft_trainer_starts_from_the_models_own_loss_and_lowers_it(tmp_path, packing):
    """TRL projects the last hidden states itself, so it must find the same head and scale."""
    model = DECODER.build(logit_scale=0.5)
    expected = model(**DECODER.training_batch(ROWS)).loss.item()
    options = trl_options(tmp_path, packing=packing, max_length=64, shuffle_dataset=False)
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(**options),
        train_dataset=Dataset.from_list([{"input_ids": row} for row in ROWS]),
        processing_class=tokenizer(),
    )
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 3
    assert losses[0] == pytest.approx(expected, rel=1e-3)
    assert losses[-1] < losses[0]
    assert {"entropy", "mean_token_accuracy"} <= trainer.state.log_history[0].keys()


def join(row):
    return " ".join(map(str, row))


def test_dpo_trainer_starts_undecided_and_learns_to_prefer(tmp_path):
    rows = random_rows([5] * 8, seed=1)
    chosen, rejected = random_rows([4] * 8, seed=2), random_rows([4] * 8, seed=3)
    texts = [
        # a blank after the prompt: it must end where a token ends
        {"prompt": f"{join(prompt)} ", "chosen": join(better), "rejected": join(worse)}
        for prompt, better, worse in zip(rows, chosen, rejected, strict=True)
    ]
    words = tokenizer()
    words._tokenizer.pre_tokenizer = WhitespaceSplit()
    DECODER.build().save_pretrained(tmp_path / "model")
    trainer = DPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(tmp_path / "model"),
        args=DPOConfig(**trl_options(tmp_path)),
        train_dataset=Dataset.from_list(texts),
        processing_class=words,
    )
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 3
    assert losses[0] == pytest.approx(math.log(2), rel=1e-4)
    assert losses[-1] < losses[0]
    assert trainer.state.log_history[2]["rewards/margins"] > 0
    start = AutoModelForCausalLM.from_pretrained(tmp_path / "model").state_dict()
    torch.testing.assert_close(trainer.ref_model.state_dict(), start)


# Accelerate

LOOP = """
import sys, torch, hf_tformer
from accelerate import Accelerator
folder, auto = sys.argv[1:]
saved = torch.load(folder + "/batch.pt", weights_only=True)
model = getattr(__import__("transformers"), auto).from_pretrained(folder).train()
accelerator = Accelerator(cpu=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
model, optimizer = accelerator.prepare(model, optimizer)
losses = []
for _ in range(3):
    loss = model(**saved["inputs"]).loss
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
weights = accelerator.get_state_dict(model)
torch.save({"losses": losses, "weights": weights}, folder + "/accelerate.pt")
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder per family: the batch, and what one process makes of it in three steps."""
    folders = {}
    for family in FAMILIES:
        torch.manual_seed(0)
        folder = folders[family.name] = tmp_path_factory.mktemp(family.name)
        model = family.build(mlp_type="gated", qk_norm=True)
        model.save_pretrained(folder)
        batch = family.training_batch(ROWS, TARGETS)
        torch.save({"inputs": batch}, folder / "batch.pt")
        optimizer = torch.optim.SGD(model.train().parameters(), lr=0.1, momentum=0.9)
        losses = []
        for _ in range(3):
            loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        torch.save({"losses": losses, "weights": model.state_dict()}, folder / "expected.pt")
    return folders


def start(tmp_path, script, command, *arguments):
    path = tmp_path / "script.py"
    path.write_text(script)
    run = subprocess.run(
        [sys.executable, "-m", *command, str(path), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
    )
    assert run.returncode == 0, run.stderr[-3000:]


def assert_same_training(folder, name):
    expected, found = (torch.load(folder / f"{n}.pt") for n in ("expected", name))
    assert found["losses"] == pytest.approx(expected["losses"], rel=1e-4)
    assert found["losses"][-1] < found["losses"][0]
    torch.testing.assert_close(found["weights"], expected["weights"], rtol=1e-3, atol=1e-4)


@decoder_first
def test_accelerate_launch_runs_a_loop_of_ones_own(family, trained, tmp_path):
    folder = trained[family.name]
    launch = "accelerate.commands.launch --cpu --num_processes 1 --num_machines 1"
    launch += " --mixed_precision no --dynamo_backend no --num_cpu_threads_per_process 1"
    start(tmp_path, LOOP, launch.split(), str(folder), family.auto.__name__)
    assert_same_training(folder, "accelerate")
