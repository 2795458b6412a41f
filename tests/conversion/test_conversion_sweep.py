"""Every format in half precision, under other heads and with ids that no token has.

What an import says of itself is measured again beside it, on inputs that the proof does not use. A
difference beyond rounding is one that the import has explained. SEED chooses other weights.
"""

import os
from copy import deepcopy

import pytest
import torch
import transformers

import hf_tformer
from conversion import ConversionError, import_checkpoint
from conversion.engine.checkpoints import read_json
from support.converting import CASES, edit_config
from support.parity import randomise
from support.parity_encoder import CASES as ENCODERS

pytestmark = pytest.mark.slow
SEED = int(os.environ.get("SEED", "0"))
ALL = {**CASES, **ENCODERS}
EXACT = 1e-4  # of the largest number
REFUSALS = ("eos_token_id", "pad_token_id", "mask_token_id", "architectures", "scale_embedding")


def save(name, folder, dtype=torch.float32):
    case = deepcopy(ALL[name])
    model = randomise(case.build_one(case.their_classes, case.theirs), SEED)
    model.to(dtype).save_pretrained(folder)


def answers(folder, library):
    """Return the outputs of a folder in float32, opened by the class that it names."""
    (name,) = read_json(folder / "config.json")["architectures"]
    options = {"dtype": torch.float32, "attn_implementation": "eager"}
    model = getattr(library, name).from_pretrained(folder, **options).eval()
    rows = model.get_input_embeddings().num_embeddings
    generator = torch.Generator().manual_seed(SEED + 1)
    ids = torch.randint(5, rows, (1, 9), generator=generator)  # the first are special
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if model.config.is_encoder_decoder:  # the target may have fewer tokens
        rows = model.get_decoder().get_input_embeddings().num_embeddings
        inputs["decoder_input_ids"] = ids[:, :6] % rows
    with torch.no_grad():
        outputs = model(**inputs)
    names = ("start_logits", "logits", "last_hidden_state")
    return next(outputs[name] for name in names if outputs.get(name) is not None)


def assert_equal_or_explained(folder):
    """Import, and compare: equal, or with a sentence on what differs; or refused by a field."""
    try:
        done = import_checkpoint(folder / "theirs", folder / "ours")
    except ConversionError as error:
        if any(field in str(error) for field in REFUSALS):
            return
        raise
    edit_config(folder / "theirs", architectures=[done_class(done, folder)])
    theirs, ours = answers(folder / "theirs", transformers), answers(folder / "ours", hf_tformer)
    difference = (theirs - ours).abs().max().item()
    if difference > EXACT * max(1.0, theirs.abs().max().item()):
        assert any("rounding of its sinusoids" in part for part in done.left_out), difference
        assert done.difference > difference / 10


def done_class(done, folder):
    """Return the class of theirs that the import has read: its body where its head is absent."""
    (named,) = read_json(folder / "theirs" / "config.json")["architectures"]
    if not any(named in part and "holds no tensor" in part for part in done.left_out):
        return named
    config_class = type(transformers.AutoConfig.from_pretrained(folder / "theirs"))
    return transformers.AutoModel._model_mapping[config_class].__name__


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", ALL)
def test_half_precision_is_equal_or_explained(name, dtype, tmp_path):
    save(name, tmp_path / "theirs", dtype)
    assert_equal_or_explained(tmp_path)


@pytest.mark.parametrize("name", ALL)
def test_ids_beyond_the_vocabulary_are_dropped(name, tmp_path):
    save(name, tmp_path / "theirs")
    config = read_json(tmp_path / "theirs" / "config.json")
    beyond = {key: 10**6 for key in ("bos_token_id", "eos_token_id") if key in config}
    edit_config(tmp_path / "theirs", **beyond)
    assert_equal_or_explained(tmp_path)


@pytest.mark.parametrize("name", ENCODERS)
def test_a_body_under_the_name_of_a_head_is_imported_as_one(name, tmp_path):
    case = ENCODERS[name]
    config_class = case.their_classes[0]
    body = transformers.AutoModel._model_mapping[config_class]
    model = randomise(deepcopy(case).build_one((config_class, body), case.theirs), SEED)
    model.save_pretrained(tmp_path / "theirs")
    prefix = body.__name__.removesuffix("Model")
    edit_config(tmp_path / "theirs", architectures=[f"{prefix}ForTokenClassification"])
    assert_equal_or_explained(tmp_path)
