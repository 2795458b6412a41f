"""Nothing warns on loading, writing and training but what warns beside transformers' own models."""

import pytest
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    LlamaConfig,
    LlamaForCausalLM,
    MarianConfig,
    MarianMTModel,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    Trainer,
    TrainingArguments,
    default_data_collator,
)
from transformers.dynamic_module_utils import get_class_from_dynamic_module

from support.families import DECODERS, ENCODER, SEQ2SEQ, decoder_first
from support.listening import listening

IDS = torch.tensor([[5, 6, 7], [8, 9, 10]])
WAYS_TO_WRITE = {
    "greedy": {},
    "sampled": {"do_sample": True},
    "beams": {"num_beams": 3},
    "static cache": {"cache_implementation": "static"},
}


def build_theirs(family):
    sizes = {"vocab_size": 101, "pad_token_id": 0, "eos_token_id": 2, "tie_word_embeddings": True}
    if family is not SEQ2SEQ:
        sizes |= {"hidden_size": 36, "intermediate_size": 44, "num_hidden_layers": 1}
        sizes["num_attention_heads"] = 6
    if family in DECODERS:
        return LlamaForCausalLM(LlamaConfig(**sizes, num_key_value_heads=3))
    if family is ENCODER:
        return BertForMaskedLM(BertConfig(**sizes))
    for stack in ("encoder", "decoder"):
        sizes |= {f"{stack}_layers": 1, f"{stack}_ffn_dim": 44, f"{stack}_attention_heads": 6}
    sizes |= {"d_model": 36, "max_position_embeddings": 64, "decoder_start_token_id": 1}
    return MarianMTModel(MarianConfig(**sizes, forced_eos_token_id=2))


def said_on_use(family, model):
    with listening() as said:
        if family is ENCODER:
            model(input_ids=IDS, attention_mask=torch.ones_like(IDS))
            return said
        for options in WAYS_TO_WRITE.values():
            mask = torch.ones_like(IDS)
            model.generate(input_ids=IDS, attention_mask=mask, max_new_tokens=4, **options)
    return said


def said_in_trainer(family, folder):
    with listening() as said:
        train(family, folder)
        train(family, folder, resume_from_checkpoint=str(folder / "out" / "checkpoint-2"))
        model = family.auto.from_pretrained(folder / "trained")
    return said | said_on_use(family, model)


def train(family, folder, **resume):
    arguments = {
        "max_steps": 4,
        "save_steps": 2,
        "eval_strategy": "steps",
        "eval_steps": 2,
        "report_to": "none",
        "use_cpu": True,
        "dataloader_pin_memory": False,
        "disable_tqdm": True,
    }
    rows = [
        {"input_ids": row, "attention_mask": [1] * 3, "labels": row[::-1]} for row in IDS.tolist()
    ] * 2
    if family is not SEQ2SEQ:
        trainer_class, arguments = Trainer, TrainingArguments(folder / "out", **arguments)
    else:
        arguments |= {"predict_with_generate": True, "generation_max_length": 8}
        arguments = Seq2SeqTrainingArguments(folder / "out", **arguments)
        trainer_class = Seq2SeqTrainer
    trainer = trainer_class(
        model=family.auto.from_pretrained(folder),
        args=arguments,
        train_dataset=rows,
        eval_dataset=rows,
        data_collator=default_data_collator,
    )
    trainer.train(**resume)
    trainer.evaluate()
    trainer.save_model(folder / "trained")


@pytest.fixture
def folder(family, tmp_path):
    family.build().save_pretrained(tmp_path)
    return tmp_path


def test_loading_and_writing_are_silent(family, folder):
    with listening() as said:
        model = family.auto.from_pretrained(folder)
    assert not said | said_on_use(family, model)


def test_the_code_in_a_folder_is_silent_too(family, folder):
    with listening() as said:
        reference = family.build().config.auto_map[family.auto.__name__]
        model = get_class_from_dynamic_module(reference, str(folder)).from_pretrained(folder)
    assert type(model).__module__.startswith("transformers_modules")
    assert not said | said_on_use(family, model)


@decoder_first
def test_trainer_says_what_it_says_of_a_model_of_transformers(family, folder, tmp_path):
    build_theirs(family).save_pretrained(tmp_path / "theirs")
    assert said_in_trainer(family, folder) <= said_in_trainer(family, tmp_path / "theirs")


def test_a_loop_with_checkpointed_activations_says_only_what_is_old(family):
    """Where the call itself is deprecated, it says so of every model."""
    model = family.build().train()
    with listening() as said:
        enable = getattr(model, "activation_checkpointing_enable", None)
        (enable or model.gradient_checkpointing_enable)()
        model(**family.training_batch([[5, 6, 7], [8, 9]])).loss.backward()
    assert not said
