"""Models that others' packages quantise: opened, asked, saved and opened again, on a CPU.

What is refused or goes wrong is shown on Llama too, with the same settings: then it is not ours.
"""

import json
import os
import subprocess
import sys
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    BartConfig,
    BartForConditionalGeneration,
    CompressedTensorsConfig,
    LlamaConfig,
    LlamaForCausalLM,
)

import hf_tformer
from hf_tformer import fast
from hf_tformer.fast import products
from hf_tformer.fast.eight_bits import eight_bit_function
from support.families import DECODER, ENCODER, FAMILIES, MIXTURE, SEQ2SEQ, WRITERS, random_rows
from support.hub_server import TOKEN, HubServer, online
from support.quantisers import AGAIN, ROWS, Scheme

peft = pytest.importorskip("peft")
pytestmark = pytest.mark.runtime

END = 2
TEXTS = [[*row, END] for row in random_rows([7, 8, 5, 6], seed=3)]
# Quantisers dictate sizes: groups of 64 (bitsandbytes) and of 128 (llm-compressor).
SIZES = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "eos_token_id": END,
}
LLAMA = {**SIZES, "vocab_size": 101, "num_hidden_layers": 2}
BART = {
    "d_model": 128,
    "encoder_ffn_dim": 256,
    "decoder_ffn_dim": 256,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "vocab_size": 101,
    "max_position_embeddings": 32,
}
TIED = {"tied": True, "untied": False}
OPENING = [name for name, row in ROWS.items() if row.opens]
SAVING = [name for name, row in ROWS.items() if row.saves]
FOUR_BIT = [name for name in ROWS if name.startswith(("bitsandbytes nf4", "bitsandbytes fp4"))]


def row_of(name):
    row = ROWS[name]
    pytest.importorskip(row.package)
    return row


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """(family, tied) → a folder of a model that knows TEXTS by heart: its answers have margins."""
    made = {}

    def folder(family, tied=True):
        if (family.name, tied) not in made:
            made[family.name, tied] = tmp_path_factory.mktemp(family.name)
            model = learnt(family, family.config(**sizes_of(family), tie_word_embeddings=tied))
            model.save_pretrained(made[family.name, tied])
        return made[family.name, tied]

    return folder


def sizes_of(family):
    return {**SIZES, "moe_intermediate_size": 128} if family is MIXTURE else SIZES


def prompts_of(family):
    """The beginning of what a decoder learnt by heart, or the source of it."""
    return TEXTS if family is SEQ2SEQ else [text[:3] for text in TEXTS]


def learnt(family, config, steps=80):
    torch.manual_seed(0)
    model = family.model_class(config).train()
    batch = family.training_batch(TEXTS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """Llama and BART: a fault that they have, too, is not ours."""
    found = {}
    for model in (
        LlamaForCausalLM(LlamaConfig(**LLAMA, initializer_range=0.1)),
        BartForConditionalGeneration(BartConfig(**BART)),
    ):
        name = model.config.model_type
        found[name] = tmp_path_factory.mktemp(name)
        model.save_pretrained(found[name])
    return found


def opened(family, folder):
    return family.auto.from_pretrained(folder, trust_remote_code=True)


@torch.no_grad()
def logits_of(family, model):
    return torch.cat(family.logits(model, TEXTS))


def written(family, model):
    """What it learnt by heart; an encoder finds the tokens at all places."""
    if family is ENCODER:
        return logits_of(family, model).argmax(-1).tolist()
    return family.generate(model, prompts_of(family), max_new_tokens=6, do_sample=False)


def assert_near(family, logits, expected, within):
    """Of a mixture, a token in ten may choose another expert, and then has another answer."""
    far = (logits - expected).abs().amax(-1) > within * expected.abs().max()
    assert far.float().mean() <= (0.1 if family is MIXTURE else 0)


def quantised_layers(model):
    """Those whose class, weights or scheme is another."""
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
        and (
            type(module) is not nn.Linear
            or type(module.weight) is not nn.Parameter
            or hasattr(module, "quantization_scheme")  # llm-compressor
        )
    ]


@pytest.mark.parametrize("tied", TIED.values(), ids=TIED)
@pytest.mark.parametrize("name", OPENING)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_quantised_model_answers_and_the_one_that_it_saves_gives_the_same_bits(
    family, name, tied, folders, tmp_path
):
    row, plain = row_of(name), opened(family, folders(family, tied))
    model = row.open(family.auto, folders(family, tied))
    layers = [layer for layer in quantised_layers(model) if ".experts." not in layer]
    assert layers == [
        layer
        for layer, module in plain.named_modules()
        if type(module) is nn.Linear and module is not plain.get_output_embeddings()
    ]
    if row.saves:
        model.save_pretrained(tmp_path / "saved")
    expected, logits = logits_of(family, plain), logits_of(family, model)
    assert_near(family, logits, expected, row.within)
    with fast.disabled():
        assert torch.equal(logits_of(family, model), logits)
    if row.writes(family):
        assert row.within > 0.03 or written(family, model) == written(family, plain)
        with fast.disabled():
            plainly = written(family, model)
        assert written(family, model) == plainly
    if row.saves and family is MIXTURE and isinstance(row, Scheme):  # experts are saved one by one
        folder, options = tmp_path / "saved", {"output_loading_info": True}
        _, report = family.auto.from_pretrained(folder, trust_remote_code=True, **options)
        assert any("experts" in key for key in report["missing_keys"])
    elif row.saves:
        again = opened(family, tmp_path / "saved")
        again.save_pretrained(tmp_path / "again", save_original_format=False)
        for loaded in (again, opened(family, tmp_path / "again")):
            assert torch.equal(logits_of(family, loaded), logits)
    else:
        with pytest.raises(Exception, match=row.words):
            model.save_pretrained(tmp_path / "refused")


# Eight bits of a model in bfloat16, which are multiplied as they are


def in_eight_bits(family, folder):
    settings = row_of("torchao `Int8WeightOnlyConfig`").settings()
    options = {"dtype": torch.bfloat16, "quantization_config": settings}
    return family.auto.from_pretrained(folder, **options).eval()


@pytest.fixture
def numbers_of_tokens(monkeypatch):
    """For how many tokens at a time functions of such weights were made."""
    made = []

    def make(weight, bias, tokens):
        made.append(tokens)
        return eight_bit_function(weight, bias, tokens)

    monkeypatch.setattr(products, "eight_bit_function", make)
    return made


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_eight_bits_of_a_bfloat16_model_are_multiplied_as_they_are(
    family, has_bias, numbers_of_tokens, tmp_path
):
    """Less than twice as far from what these weights give in float32 as torchao's own way."""
    family.build(**SIZES, attention_bias=has_bias, mlp_bias=has_bias).save_pretrained(tmp_path)
    model, exact = in_eight_bits(family, tmp_path), opened(family, tmp_path)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            is_plain = type(weight) is nn.Parameter
            exact.get_parameter(name).copy_(weight if is_plain else weight.dequantize(torch.float))
        (expected,), (found,) = (family.logits(m, TEXTS[:1]) for m in (exact, model))
        assert numbers_of_tokens
        with fast.disabled():
            (plain,) = family.logits(model, TEXTS[:1])
    assert (found - expected).norm() < 2 * (plain - expected).norm()


@pytest.mark.parametrize("family", WRITERS, ids=lambda family: family.name)
@pytest.mark.parametrize("texts", [1, 4])
@pytest.mark.parametrize("beams", [1, 3])
def test_texts_are_written_with_eight_bits(family, texts, beams, folders, numbers_of_tokens):
    model = in_eight_bits(family, folders(family))
    options = {"max_new_tokens": 6, "do_sample": False, "num_beams": beams}
    prompts = prompts_of(family)[:texts]
    found = family.generate(model, prompts, **options)
    assert texts * beams in numbers_of_tokens
    with fast.disabled():
        assert found == family.generate(model, prompts, **options)


def test_eight_bits_keep_their_kernel_where_steps_are_compiled(folders, numbers_of_tokens):
    model = in_eight_bits(DECODER, folders(DECODER))
    fast.enable(compiled=True)
    try:
        found = DECODER.generate(model, [TEXTS[0][:3]], max_new_tokens=6, do_sample=False)
    finally:
        fast.enable()
    assert 1 in numbers_of_tokens
    assert found == DECODER.generate(model, [TEXTS[0][:3]], max_new_tokens=6, do_sample=False)


@pytest.mark.parametrize(
    ("changes", "length"), [({"intermediate_size": 264}, 5), ({"head_dim": 26}, 5), ({}, 17)]
)
def test_eight_bits_are_left_to_torchao_where_the_kernel_would_err_or_be_slow(
    changes, length, numbers_of_tokens, tmp_path
):
    """It reads beyond rows that are no multiple of 16 numbers."""
    DECODER.build(**{**SIZES, **changes}).save_pretrained(tmp_path)
    model = in_eight_bits(DECODER, tmp_path)
    with torch.no_grad():
        model(torch.arange(3, 3 + length)[None])
    assert not numbers_of_tokens


# What is theirs


@pytest.mark.parametrize("kind", ["llama", *(family.name for family in FAMILIES)])
@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if not row.opens])
def test_what_a_quantiser_refuses_it_refuses_for_llama_too(name, kind, folders, theirs):
    row = row_of(name)
    family = next((family for family in FAMILIES if family.name == kind), DECODER)
    with pytest.raises(Exception, match=row.words):
        row.open(family.auto, theirs.get(kind) or folders(family))


@pytest.mark.parametrize("name", [name for name in OPENING if name not in SAVING])
def test_what_cannot_be_saved_cannot_be_saved_of_llama_either(name, theirs, tmp_path):
    row = row_of(name)
    with pytest.raises(Exception, match=row.words):
        row.open(AutoModelForCausalLM, theirs["llama"]).save_pretrained(tmp_path)


@pytest.mark.parametrize("name", [name for name in SAVING if AGAIN in ROWS[name].remark])
def test_llama_too_is_saved_a_second_time_only_as_it_is_in_memory(name, theirs, tmp_path):
    row_of(name).open(AutoModelForCausalLM, theirs["llama"]).save_pretrained(tmp_path / "first")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "first")
    with pytest.raises(NotImplementedError):
        again.save_pretrained(tmp_path / "second")
    again.save_pretrained(tmp_path / "second", save_original_format=False)


def packs_weights_while_it_answers():
    """bitsandbytes does on such a processor, and does not restore all when it saves."""
    return pytest.importorskip("bitsandbytes").functional.has_avx512bf16()


@pytest.mark.parametrize("name", FOUR_BIT)
def test_the_scales_of_a_lone_4_bit_layer_change_when_it_has_answered(name):
    bitsandbytes = pytest.importorskip("bitsandbytes")
    settings = ROWS[name].settings()
    layer = bitsandbytes.nn.Linear4bit(
        128,
        64,
        compress_statistics=settings.bnb_4bit_use_double_quant,
        quant_type=settings.bnb_4bit_quant_type,
    ).to("cpu")
    before = {name: tensor.clone() for name, tensor in layer.eval().state_dict().items()}
    layer(torch.ones(1, 128))
    after = layer.state_dict()
    assert torch.equal(after["weight"], before["weight"])
    scales = before["weight.absmax"], after["weight.absmax"].float()
    kept = scales[0].shape == scales[1].shape and torch.equal(*scales)
    if "double" in name:  # the scales are quantised themselves: their own may be others, too
        kept = kept and torch.equal(before["weight.nested_absmax"], after["weight.nested_absmax"])
    assert kept != packs_weights_while_it_answers()


@pytest.mark.parametrize("kind", ["llama", *(family.name for family in FAMILIES)])
def test_a_4_bit_model_that_is_saved_after_an_answer_is_another_as_llama_is(
    kind, folders, theirs, tmp_path
):
    family = next((family for family in FAMILIES if family.name == kind), DECODER)
    row = row_of("bitsandbytes nf4")
    model = row.open(family.auto, theirs.get(kind) or folders(family))
    logits = logits_of(family, model)
    model.save_pretrained(tmp_path)
    changed = not torch.equal(logits_of(family, opened(family, tmp_path)), logits)
    assert changed == packs_weights_while_it_answers()


@pytest.mark.parametrize("kind", ["bart", "seq2seq"])
def test_llm_compressor_lets_an_encoder_decoder_write_once_it_is_opened_dequantised(
    kind, folders, theirs, tmp_path
):
    model = row_of("llm-compressor W8A16").open(SEQ2SEQ.auto, theirs.get(kind) or folders(SEQ2SEQ))
    with pytest.raises((AttributeError, KeyError)):  # its hooks turn outputs into plain dicts
        written(SEQ2SEQ, model)
    logits = logits_of(SEQ2SEQ, model)
    model.save_pretrained(tmp_path)
    again = SEQ2SEQ.auto.from_pretrained(
        tmp_path,
        trust_remote_code=True,
        quantization_config=CompressedTensorsConfig(dequantize=True),
    )
    torch.testing.assert_close(logits_of(SEQ2SEQ, again), logits, rtol=1e-4, atol=1e-4)
    assert all(written(SEQ2SEQ, again))


# Elsewhere, and in training

# A process that cannot import the package quantises a folder and opens what another quantised.
READER = """
import json, sys, torch, transformers
sys.modules["hf_tformer"] = None
transformers.logging.set_verbosity_error()
for auto, plain, saved, answers in json.loads(sys.argv[1]):
    load = getattr(transformers, auto).from_pretrained
    settings = json.load(open(saved + "/config.json"))["quantization_config"]
    given = torch.load(answers)
    for folder, options in ((plain, {"quantization_config": settings}), (saved, {})):
        model = load(folder, trust_remote_code=True, **options)
        assert type(model).__module__.startswith("transformers_modules"), type(model)
        with torch.no_grad():
            assert torch.equal(model(**given["inputs"]).logits, given["logits"]), (saved, options)
        if "tokens" in given:
            tokens = model.generate(given["prompt"], max_new_tokens=6, do_sample=False)
            assert torch.equal(tokens, given["tokens"]), (saved, options)
print("same")
"""


def test_a_folder_is_quantised_and_opened_where_the_package_is_not(folders, tmp_path):
    cases = []
    names = [name for name in SAVING if ROWS[name].package in ("torchao", "bitsandbytes")]
    for family in FAMILIES:
        for name in names:
            saved = tmp_path / f"{family.name} {len(cases)}"
            model = row_of(name).open(family.auto, folders(family))
            model.save_pretrained(saved)
            ids = torch.tensor([text[:6] for text in TEXTS])
            inputs = {"input_ids": ids, **family.target(ids)}
            with torch.no_grad():
                given = {"inputs": inputs, "logits": model(**inputs).logits}
            if model.can_generate():
                tokens = model.generate(ids, max_new_tokens=6, do_sample=False)
                given |= {"prompt": ids, "tokens": tokens}
            torch.save(given, saved.with_suffix(".pt"))
            paths = (folders(family), saved, saved.with_suffix(".pt"))
            cases.append((family.auto.__name__, *map(str, paths)))
    run = subprocess.run(
        [sys.executable, "-c", READER, json.dumps(cases)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "HF_MODULES_CACHE": str(tmp_path / "modules"), "HF_HUB_OFFLINE": "1"},
    )
    assert run.stdout.strip().endswith("same"), run.stderr[-3000:]


TRAINED = {
    "bitsandbytes nf4, double": True,
    "bitsandbytes 8-bit": True,
    "torchao `Int8WeightOnlyConfig`": False,  # dequantize() is not implemented
}


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_adapters_learn_on_a_quantised_model_and_merge_into_it_dequantised(
    family, name, folders, tmp_path
):
    def base():
        return row_of(name).open(family.auto, folders(family))

    model = adapted(base())
    batch = family.training_batch(random_rows([8, 9, 6, 7], seed=11))
    losses = [trained_once(model, batch) for _ in range(6)]
    assert losses[-1] < 0.9 * losses[0]
    expected = logits_of(family, model.eval())
    model.save_pretrained(tmp_path / "adapters")
    again = peft.PeftModel.from_pretrained(base(), tmp_path / "adapters")
    assert torch.equal(logits_of(family, again), expected)
    if not TRAINED[name]:
        with pytest.raises(NotImplementedError, match="no implementation of `dequantize`"):
            base().dequantize()
        return
    merged = peft.PeftModel.from_pretrained(base().dequantize(), tmp_path / "adapters")
    merged = merged.merge_and_unload()
    merged.save_pretrained(tmp_path / "merged")
    logits = logits_of(family, opened(family, tmp_path / "merged"))
    assert_near(family, logits, expected, 0.02)
    assert "quantization_config" not in json.loads((tmp_path / "merged/config.json").read_text())


def adapted(model):
    model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
    return peft.get_peft_model(model, peft.LoraConfig(r=3, target_modules="all-linear"))


def trained_once(model, batch):
    model.train()
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2)
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


@pytest.mark.parametrize("kind", ["llama", "decoder"])
def test_after_an_answer_a_4_bit_model_passes_no_gradients_as_llama_does_not(kind, folders, theirs):
    row = row_of("bitsandbytes nf4")
    model = adapted(row.open(DECODER.auto, theirs.get(kind) or folders(DECODER)))
    batch = DECODER.training_batch(TEXTS)
    trained_once(model, batch)  # else all of lora_B are zero
    before = gradients(model, batch)
    with torch.no_grad():
        model.eval()(**batch)
    after = gradients(model.train(), batch)
    share = max((x - after[n]).abs().max() / x.abs().max() for n, x in before.items())
    assert (share > 0.3) == packs_weights_while_it_answers()


def gradients(model, batch):
    model.zero_grad()
    model(**batch).loss.backward()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("name", ["bitsandbytes nf4", "bitsandbytes 8-bit"])
@pytest.mark.parametrize("family", WRITERS, ids=lambda family: family.name)
def test_the_loss_calls_a_head_that_is_quantised(family, name, folders):
    pytest.importorskip("bitsandbytes")
    settings = ROWS[name].settings()
    settings.llm_int8_skip_modules = ["none of them"]
    folder = folders(family, tied=False)
    model = family.auto.from_pretrained(
        folder, quantization_config=settings, trust_remote_code=True
    ).train()
    assert "lm_head" in quantised_layers(model)
    batch = family.training_batch(TEXTS)
    lean, full = model(**batch), model(**batch, return_logits=True)
    torch.testing.assert_close(lean.loss, full.loss)
    logits, labels = family.shifted(full.logits, batch["labels"])
    expected = nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
    torch.testing.assert_close(lean.loss, expected, rtol=1e-3, atol=1e-4)


def test_a_quantised_folder_passes_the_check_and_is_published(folders, tmp_path, monkeypatch):
    row_of("bitsandbytes nf4").open(DECODER.auto, folders(DECODER)).save_pretrained(tmp_path / "it")
    findings = hf_tformer.check(tmp_path / "it")
    assert not [finding for finding in findings if finding.verdict == "fail"]
    with HubServer() as hub:
        online(monkeypatch, hub, tmp_path / "home")
        hf_tformer.publish(tmp_path / "it", "user/it", token=TOKEN)  # and opens what arrived
        card = hub.files("user/it")["README.md"].decode()
    assert "with weights quantised by bitsandbytes" in card


@pytest.mark.parametrize("kind", ["llama", "decoder"])
def test_4_bits_of_bitsandbytes_need_layers_of_64_in_and_32_out_as_those_of_llama_do(
    kind, tmp_path
):
    torch.manual_seed(0)
    sizes = {**SIZES, "hidden_size": 96, "vocab_size": 101}
    if kind == "llama":
        model = LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=1))
    else:
        model = DECODER.model_class(DECODER.config(**sizes))
    model.save_pretrained(tmp_path)
    quantised = row_of("bitsandbytes nf4").open(DECODER.auto, tmp_path)
    refuses = packs_weights_while_it_answers()
    with pytest.raises((AssertionError, RuntimeError)) if refuses else nullcontext():
        logits_of(DECODER, quantised)
