"""The programs of examples/ that train, adapt, run and show a model: at toy size, to their end, and
stopped by one sentence where something is wrong."""

import json
import runpy
import shutil
import sys
from pathlib import Path

import pytest
import torch
from folders import output_folder
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

import hf_tformer
from hf_tformer.atomic_folders import save_whole
from support.hub_server import HubServer, online
from support.listening import listening
from support.pages import commands
from support.programs import EXAMPLES, WORDS, Run, write_text

PROGRAMS = ("train_language_model", "finetune_lora", "generate", "attention_maps")
TINY = "--hidden_size 32 --num_hidden_layers 1 --num_attention_heads 4 --num_key_value_heads 2"
TRAIN = f"--vocab_size 300 --block_size 16 --batch_size 4 {TINY} --warmup_steps 0"


@pytest.fixture
def program(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    return Run(monkeypatch, capsys)


@pytest.fixture(scope="module")
def language_model(tmp_path_factory):
    """A folder as train_language_model.py leaves it, made once."""
    folder = tmp_path_factory.mktemp("lm")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        flags = f"--text words.txt --output model --max_steps 6 --save_steps 3 {TRAIN}"
        write_text(Path("words.txt"))
        patch.setattr(sys, "argv", [str(EXAMPLES / "train_language_model.py"), *flags.split()])
        runpy.run_path(sys.argv[0], run_name="__main__")
    return folder / "model"


@pytest.fixture(scope="module")
def translator(tmp_path_factory, language_model):
    """An encoder-decoder with a tokenizer that closes each text, as translators do."""
    from tokenizers.processors import TemplateProcessing

    folder = tmp_path_factory.mktemp("translator")
    tokenizer = AutoTokenizer.from_pretrained(language_model)
    tokenizer._tokenizer.post_processor = TemplateProcessing(
        single="$A <|endoftext|>", special_tokens=[("<|endoftext|>", 0)]
    )
    config = hf_tformer.TformerSeq2SeqConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=32,
        encoder_layers=1,
        decoder_layers=2,
        num_attention_heads=4,
        pad_token_id=0,
        eos_token_id=0,
        decoder_start_token_id=0,
    )
    torch.manual_seed(0)
    hf_tformer.TformerSeq2SeqForConditionalGeneration(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def translator_of_dates(tmp_path_factory):
    """A folder as train_translation.py leaves it."""
    import train_translation

    folder = tmp_path_factory.mktemp("dates") / "model"
    flags = "--number_of_dates 16 --vocab_size 300 --hidden_size 16 --intermediate_size 16"
    flags += " --encoder_layers 1 --decoder_layers 1 --num_attention_heads 2 --max_steps 1"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dates.HELD_OUT", 16)
        train_translation.main([*flags.split(), "--output_dir", str(folder)])
    return folder


def weights(folder, auto_class=AutoModelForCausalLM):
    return auto_class.from_pretrained(folder).state_dict()


# Training from scratch


def test_a_trained_folder_opens_with_the_auto_classes_and_its_text_comes_back(language_model):
    model = AutoModelForCausalLM.from_pretrained(language_model)
    tokenizer = AutoTokenizer.from_pretrained(language_model, trust_remote_code=False)
    assert type(model).__name__ == "TformerDecoderForCausalLM"
    assert model.config.vocab_size == len(tokenizer)
    assert model.config.eos_token_id == tokenizer.eos_token_id
    text = "the cat sat — 猫坐着\n\tnaïve"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_a_trained_folder_caches_and_writes_without_a_warning(language_model, translator_of_dates):
    for folder, auto_class in (
        (language_model, AutoModelForCausalLM),
        (translator_of_dates, AutoModelForSeq2SeqLM),
    ):
        model = auto_class.from_pretrained(folder)
        assert model.config.use_cache
        with listening() as said:
            tokens = model.generate(torch.tensor([[5, 6, 7]]), max_new_tokens=4, min_new_tokens=4)
        assert not said
        assert tokens.shape[1] <= 7


def test_a_number_of_heads_is_enough(program, tmp_path):
    write_text(tmp_path / "a.txt")
    sizes = TRAIN.partition("--num_attention_heads")[0]
    for heads, key_heads in ((2, 1), (1, 1)):
        flags = (
            f"--text a.txt --output m{heads} --max_steps 1 {sizes} --num_attention_heads {heads}"
        )
        program.works("train_language_model", flags)
        saved = json.loads((tmp_path / f"m{heads}" / "config.json").read_text())
        assert saved["num_key_value_heads"] == key_heads


def test_training_reports_the_perplexity_of_text_it_has_not_seen(program, tmp_path):
    """Words without order: their entropy is what the best model cannot go below."""
    write_text(tmp_path / "a.txt", 4000)
    flags = f"--text a.txt --output m --max_steps 60 --learning_rate 1e-2 {TRAIN} --dropout 0"
    out = program.works("train_language_model", flags)
    line = next(line for line in out.splitlines() if line.startswith("validation loss"))
    loss, perplexity = (float(part.split()[-1]) for part in line.split(","))
    assert perplexity == pytest.approx(torch.tensor(loss).exp().item(), rel=0.01)
    assert loss < 4.5 < torch.tensor(300.0).log()  # better than guessing
    assert out.rstrip().splitlines()[-1].startswith("The ")  # the sample


def test_an_interrupted_training_ends_where_an_uninterrupted_one_does(
    program, tmp_path, language_model
):
    write_text(tmp_path / "words.txt")
    again = tmp_path / "again"
    shutil.copytree(language_model / "checkpoint-3", again / "checkpoint-3")
    shutil.copytree(language_model / "checkpoint-3", again / "checkpoint-6.partial")  # killed
    # What a run begins with; its weights are not those of the checkpoint.
    files = shutil.ignore_patterns("checkpoint-*")
    shutil.copytree(language_model, again / "start", ignore=files)
    flags = f"--text words.txt --output again --max_steps 6 --save_steps 3 {TRAIN}"
    assert "--resume continues it" in program.refuses("train_language_model", flags)
    other = program.refuses("train_language_model", flags, "--resume --global_batch_size 8")
    assert "rows_per_step 4, and this one 8" in other
    program.works("train_language_model", flags, "--resume")
    torch.testing.assert_close(weights("again"), weights(language_model))
    assert not (again / "start").exists()


def test_the_manual_of_python_is_text_enough(program):
    """The default: no file, no network."""
    flags = "--output m --max_steps 1 --batch_size 2 --vocab_size 1000"
    out = program.works("train_language_model", flags, TINY)
    blocks = int(out.split(" blocks to train on")[0].split()[-1])
    assert blocks > 500
    assert (Path("m") / "config.json").exists()


def test_a_tokenizer_of_another_folder_can_be_used(program, tmp_path, language_model):
    write_text(tmp_path / "b.txt")
    flags = f"--text b.txt --output m --max_steps 1 {TRAIN} --tokenizer {language_model}"
    program.works("train_language_model", flags)
    one, other = (AutoTokenizer.from_pretrained(f).get_vocab() for f in ("m", language_model))
    assert one == other


def test_training_reports_to_tensorboard(program, tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "logs"))
    write_text(tmp_path / "b.txt")
    flags = f"--text b.txt --output m --max_steps 1 {TRAIN} --report_to tensorboard"
    program.works("train_language_model", flags)
    assert list((tmp_path / "logs").rglob("events.out.tfevents.*"))


BAD_TRAINING = {
    "no file": ("--text nowhere.txt", "there is no file nowhere.txt"),
    "empty": ("--text empty.txt", "empty.txt is empty"),
    "not text": ("--text binary.txt", "binary.txt is not UTF-8 text"),
    "too little": ("--text short.txt --block_size 64", "--block_size 64 needs two blocks"),
    "no data set": ("--dataset nobody/nothing", "the data set nobody/nothing cannot be loaded"),
    "two sources": ("--text short.txt --dataset a/b", "not allowed with argument"),
    "no tokenizer": ("--text short.txt --tokenizer ./no", "there is no folder ./no"),
    "sizes": (f"--text words.txt {TRAIN} --hidden_size 33", "hidden_size (33) is not divisible"),
    "vocabulary": ("--vocab_size 100", "100 is too small: give at least 260"),
    "share": ("--validation 2", "give one between 0 and 1"),
    "reporter": (f"--text words.txt {TRAIN} --report_to nobody", "nobody is not supported"),
    "nothing to resume": ("--resume", "has no complete checkpoint to resume from"),
    "batches": (
        f"--text words.txt {TRAIN} --global_batch_size 8 --gradient_accumulation_steps 2",
        "--gradient_accumulation_steps follows from --global_batch_size and --batch_size",
    ),
    "too few rows": (f"--text words.txt {TRAIN} --global_batch_size 999", "fewer rows per step"),
    "layout": (f"--text words.txt {TRAIN} --shard 2", "take 2 processes, and there are 1"),
    "no tokens": ("--tokens nowhere", "nowhere holds no tokens"),
    "two texts": ("--tokens nowhere --text words.txt", "leave out --text and --dataset"),
}


@pytest.mark.parametrize(("flags", "sentence"), BAD_TRAINING.values(), ids=BAD_TRAINING)
def test_training_refuses_in_one_sentence_and_writes_nothing(program, tmp_path, flags, sentence):
    write_text(tmp_path / "words.txt")
    (tmp_path / "empty.txt").write_text(" \n")
    (tmp_path / "short.txt").write_text("the cat")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    before = sorted(tmp_path.rglob("*"))
    assert sentence in program.refuses("train_language_model", flags, "--output m")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_that_holds_a_model_or_cannot_be_written_to_is_left_alone(
    program, tmp_path, language_model
):
    before = {path: path.stat().st_mtime_ns for path in language_model.rglob("*")}
    refused = program.refuses("train_language_model", f"--output {language_model}")
    assert "holds a model already" in refused
    assert {path: path.stat().st_mtime_ns for path in language_model.rglob("*")} == before
    (tmp_path / "file").write_text("")
    refused = program.refuses("train_language_model", "--output file/m")
    assert "file/m cannot be written to (Not a directory)" in refused


# Adapters


def test_adapters_are_trained_saved_and_open_with_peft_and_with_generate(
    program, tmp_path, language_model
):
    from peft import AutoPeftModelForCausalLM

    write_text(tmp_path / "b.txt", seed=1)
    flags = "--text b.txt --output l --max_steps 3 --max_length 16 --learning_rate 1e-2"
    out = program.works("finetune_lora", language_model, flags)
    assert 'AutoPeftModelForCausalLM.from_pretrained("l")' in out
    assert not list(Path("l").glob("*.bin"))
    model = AutoPeftModelForCausalLM.from_pretrained("l").eval()
    assert sorted(model.peft_config["default"].target_modules) == [
        *("down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj")
    ]
    ids = torch.tensor([[5, 6, 7]])
    adapted = model(ids).logits
    with model.disable_adapter():
        assert (model(ids).logits - adapted).abs().max() > 1e-4
    inputs = AutoTokenizer.from_pretrained("l")("the cat", return_tensors="pt")
    tokens = model.generate(input_ids=inputs["input_ids"], max_new_tokens=8, do_sample=False)
    out = program.works("generate", "l", "the cat", "--max_new_tokens 8")
    assert out.strip() == AutoTokenizer.from_pretrained("l").decode(tokens[0]).strip()


def test_merged_adapters_are_a_model_like_any_other(program, tmp_path, language_model):
    lines = [f"{WORDS[i]} {WORDS[i + 1]}\t{WORDS[i + 2]}" for i in range(12)]
    (tmp_path / "p.tsv").write_text("\n".join(lines))
    flags = "--pairs p.tsv --max_steps 3 --learning_rate 1e-2 --seed 1"
    program.works("finetune_lora", language_model, flags, "--output apart")
    out = program.works("finetune_lora", language_model, flags, "--output whole --merge")
    assert 'AutoModelForCausalLM.from_pretrained("whole"' in out
    assert not (tmp_path / "whole" / "adapter_config.json").exists()
    from peft import AutoPeftModelForCausalLM

    apart = AutoPeftModelForCausalLM.from_pretrained("apart").merge_and_unload().state_dict()
    whole = weights("whole")
    assert whole.keys() == weights(language_model).keys()
    torch.testing.assert_close(whole, {name: apart[name] for name in whole})
    changed = "model.layers.0.self_attn.q_proj.weight"
    assert not torch.equal(whole[changed], weights(language_model)[changed])


def test_only_what_follows_the_prompt_is_learned(language_model):
    module = runpy.run_path(str(EXAMPLES / "finetune_lora.py"))
    tokenizer = AutoTokenizer.from_pretrained(language_model)
    row = module["answer"](tokenizer, "the cat", " sat", 50)
    learned = [token for token in row["labels"] if token != -100]
    assert tokenizer.decode(learned) == " sat<|endoftext|>"
    assert tokenizer.decode(row["input_ids"]) == "the cat sat<|endoftext|>"
    assert row["input_ids"][-len(learned) :] == learned


@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl"])
def test_an_encoder_decoder_is_adapted_on_pairs(program, tmp_path, translator, suffix):
    pairs = [(f"{WORDS[i]} {WORDS[i + 1]}", WORDS[i + 2]) for i in range(8)]
    if suffix == "jsonl":
        lines = [json.dumps({"de": source, "en": target}) for source, target in pairs]
    else:
        comma = {"tsv": "\t", "csv": ","}[suffix]
        lines = [comma.join(("nr", "de", "en")), *(comma.join(("1", *pair)) for pair in pairs)]
    (tmp_path / f"p.{suffix}").write_text("\n".join(lines))
    flags = f"--pairs p.{suffix} --columns de en --max_steps 2 --targets all-linear --output l"
    program.works("finetune_lora", translator, flags, "--merge --learning_rate 1e-2")
    before, after = (weights(f, AutoModelForSeq2SeqLM) for f in (translator, "l"))
    moved = {name for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert any("cross_attn.q_proj" in name for name in moved)
    assert any("encoder" in name for name in moved)
    assert not any("embed" in name or "lm_head" in name for name in moved)


def test_interrupted_adapters_are_resumed(program, tmp_path, language_model):
    write_text(tmp_path / "b.txt", seed=1)
    flags = f"{language_model} --text b.txt --max_length 16 --max_steps 4 --save_steps 2".split()
    program.works("finetune_lora", *flags, "--output one")
    shutil.copytree("one/checkpoint-2", "two/checkpoint-2")
    program.works("finetune_lora", *flags, "--output two --resume")
    one, two = (Path(f, "adapter_model.safetensors").read_bytes() for f in ("one", "two"))
    assert one == two


BAD_ADAPTERS = {
    "no model": ("./nowhere", "--text words.txt", "there is no folder ./nowhere"),
    "unknown repository": ("nobody/nothing", "--text words.txt", "no folder nobody/nothing, and"),
    "no file": ("MODEL", "--text nowhere.txt", "there is no file nowhere.txt"),
    "too little": ("MODEL", "--text short.txt", "fewer than one block of 128"),
    "three columns": ("MODEL", "--pairs three.tsv", "row 2 of three.tsv has 3 columns"),
    "wrong columns": ("MODEL", "--pairs p.jsonl --columns a c", "has no column c: choose among"),
    "numbers": ("MODEL", "--pairs p.jsonl --columns a b", "column b of p.jsonl is not text"),
    "not JSON": ("MODEL", "--pairs bad.jsonl", "line 1 of bad.jsonl is not JSON"),
    "target": ("MODEL", "--text words.txt --targets query", "--targets query: no layer has this"),
    "no data": ("MODEL", "--rank 4", "--text --pairs --dataset is required"),
    "no room": ("MODEL", "--pairs two.tsv --max_length 2", "give a larger --max_length"),
    "adapters": ("ADAPTERS", "--text words.txt", "give the whole model that --merge saves"),
    "text for a translator": ("TRANSLATOR", "--text words.txt", "give --pairs, not --text"),
}


@pytest.mark.parametrize(("model", "flags", "sentence"), BAD_ADAPTERS.values(), ids=BAD_ADAPTERS)
def test_adapting_refuses_in_one_sentence_and_writes_nothing(
    program, tmp_path, language_model, translator, model, flags, sentence
):
    write_text(tmp_path / "words.txt")
    (tmp_path / "short.txt").write_text("the cat")
    (tmp_path / "two.tsv").write_text("the cat sat on a mat\tand ran")
    (tmp_path / "three.tsv").write_text("a\tb\na\tb\tc\n")
    (tmp_path / "p.jsonl").write_text('{"a": "x", "b": 1}\n')
    (tmp_path / "bad.jsonl").write_text("{a: x}\n")
    if model == "ADAPTERS":
        flags_of_first = "--text words.txt --max_steps 1 --max_length 16 --output ADAPTERS"
        program.works("finetune_lora", language_model, flags_of_first)
    model = {"MODEL": language_model, "TRANSLATOR": translator}.get(model, model)
    before = sorted(tmp_path.rglob("*"))
    assert sentence in program.refuses("finetune_lora", model, flags, "--output m")
    assert sorted(tmp_path.rglob("*")) == before


# Generation


def test_generation_prints_the_prompt_and_what_the_model_adds(program, language_model):
    out = program.works("generate", language_model, "the cat", "--max_new_tokens 12")
    model = AutoModelForCausalLM.from_pretrained(language_model)
    tokenizer = AutoTokenizer.from_pretrained(language_model)
    inputs = tokenizer("the cat", return_tensors="pt", return_token_type_ids=False)
    tokens = model.generate(**inputs, max_new_tokens=12, do_sample=False)
    assert out.strip() == tokenizer.decode(tokens[0], skip_special_tokens=True).strip()


def test_sampling_follows_its_seed(program, language_model):
    ask = ["generate", language_model, "the cat", "--temperature 1.5 --top_k 200 --top_p 0.99"]
    one, again, other = (program.works(*ask, f"--seed {seed}") for seed in (1, 1, 2))
    assert one == again != other


def test_a_chat_template_makes_the_prompt_what_the_user_says(program, tmp_path, language_model):
    shutil.copytree(language_model, tmp_path / "chat")
    tokenizer = AutoTokenizer.from_pretrained("chat")
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m.role }}: {{ m.content }} bird{% endfor %}"
    )
    tokenizer.save_pretrained("chat")
    short = "--max_new_tokens 12"
    raw = program.works("generate", language_model, "user: the cat bird", short)
    asked = program.works("generate", "chat", "the cat", short)
    assert asked.strip() == raw.strip().removeprefix("user: the cat bird").strip()
    plain = program.works("generate", "chat", "the cat", f"{short} --raw")
    assert plain == program.works("generate", language_model, "the cat", short)


def test_an_encoder_decoder_answers_each_line_with_one(program, tmp_path, translator, monkeypatch):
    lines = ["the cat", "", "a dog ran to a tree", "sun"]
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n")
    flags = "--max_new_tokens 6 --num_beams 3"
    answers = program.works("generate", translator, "--file in.txt", flags).split("\n")
    assert len(answers) == 5  # and the last newline
    assert answers[1] == ""
    for i in (0, 2, 3):  # in a batch as alone
        assert answers[i] + "\n" == program.works("generate", translator, lines[i], flags)


def test_the_text_may_come_from_standard_input(program, language_model, monkeypatch):
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO("the cat\n"))
    piped = program.works("generate", language_model, "--max_new_tokens 5")
    assert piped == program.works("generate", language_model, "the cat", "--max_new_tokens 5")


@pytest.mark.parametrize(
    ("model", "arguments", "sentence"),
    [
        ("./nowhere", ["hi"], "there is no folder ./nowhere"),
        ("nobody/nothing", ["hi"], "there is no folder nobody/nothing, and the Hub"),
        ("MODEL", [" "], "there is no text"),
        ("MODEL", ["hi", "--file also.txt"], "leave one of them out"),
        ("MODEL", ["--file nowhere.txt"], "there is no file nowhere.txt"),
        ("MODEL", ["hi", "--num_beams 4"], "leave --num_beams"),
        ("MODEL", ["hi", "--temperature -1"], "-1 is not positive"),
        ("MODEL", ["hi", "--device nonsense"], "--device nonsense cannot be used"),
    ],
)
def test_generation_refuses_in_one_sentence(program, language_model, model, arguments, sentence):
    model = language_model if model == "MODEL" else model
    assert sentence in program.refuses("generate", model, *arguments)


def test_a_damaged_folder_is_refused_in_one_sentence(program, tmp_path, language_model):
    shutil.copytree(language_model, tmp_path / "bad")
    (tmp_path / "bad" / "model.safetensors").write_bytes(b"\0" * 100)
    assert "cannot be opened" in program.refuses("generate", "bad", "hi")
    (tmp_path / "bad" / "config.json").write_text("{")
    assert "cannot be opened" in program.refuses("generate", "bad", "hi")


# The Hub


def test_what_is_trained_is_published_and_generates_from_there(program, tmp_path, monkeypatch):
    write_text(tmp_path / "a.txt")
    with HubServer() as server:
        online(monkeypatch, server, tmp_path / "home")
        flags = f"--text a.txt --output m --max_steps 1 {TRAIN} --push_to_hub user/words"
        assert "user/words" in program.works("train_language_model", flags).splitlines()[-1]
        flags = "--text a.txt --output l --max_steps 1 --max_length 16 --push_to_hub user/lora"
        program.works("finetune_lora", "user/words", flags)
        short = "--max_new_tokens 6"
        here = program.works("generate", "m", "the cat", short)
        assert program.works("generate", "user/words", "the cat", short) == here
        assert program.works("generate", "user/lora", "the cat", short) == program.works(
            "generate", "l", "the cat", short
        )
        refused = program.refuses("generate", "user/wards", "the cat")
        assert "user/wards cannot be opened" in refused
        refused = program.refuses("generate", "user/words", "the cat", "--revision nowhere")
        assert "user/words cannot be opened" in refused


def test_what_cannot_be_published_is_saved_all_the_same(program, tmp_path, language_model):
    write_text(tmp_path / "a.txt")
    flags = "--text a.txt --max_steps 1 --max_length 16 --push_to_hub user/name"
    program.refuses("finetune_lora", language_model, f"{flags} --output l")
    assert (tmp_path / "l" / "adapter_model.safetensors").exists()
    program.refuses("finetune_lora", language_model, f"{flags} --output m --merge")
    assert weights("m").keys() == weights(language_model).keys()


# Pictures of attention


def test_a_picture_of_every_head_is_written(program, language_model, translator):
    out = program.works("attention_maps", language_model, "the cat sat", "--output a.png")
    assert out.startswith("decoder: 1 layers of 4 heads")
    out = program.works("attention_maps", translator, "the cat")
    assert "cross: 2 layers of 4 heads" in out
    for name in ("a.png", "attention.png"):
        assert Path(name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([""], "the prompt is empty"),
        (["the", "--output no/where.png"], "the picture no/where.png cannot be written"),
        (["the", "--output a.nonsense"], "cannot be written"),
    ],
)
def test_a_picture_that_cannot_be_made_is_refused(
    program, tmp_path, language_model, arguments, sentence
):
    assert sentence in program.refuses("attention_maps", language_model, *arguments)
    assert not list(tmp_path.iterdir())


def test_a_missing_matplotlib_is_named_before_the_model_is_opened(program, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    refused = program.refuses("attention_maps", "no-such-model", "the cat")
    assert "a picture needs matplotlib: run `pip install 'hf-tformer[viz]'`" in refused


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_is_given(program, name):
    status, out, _ = program(name, "--help")
    assert status == 0
    assert f"examples/{name}.py" in out


def test_the_commands_of_the_pages_are_understood(monkeypatch):
    lines = [words for _, *words in commands("python") if Path(words[0]).stem in PROGRAMS]
    assert {Path(program).stem for program, *_ in lines} == set(PROGRAMS)
    for program, *words in lines:
        monkeypatch.setattr(sys, "argv", [program, *words])
        runpy.run_path(str(EXAMPLES.parent / program))["parse_arguments"]()


# What the programs share


def test_a_save_that_breaks_off_leaves_no_model_behind(tmp_path, language_model):
    class Broken:
        def save_pretrained(self, folder):
            (Path(folder) / "tokenizer.json").write_text("{")
            raise OSError("No space left on device")

    model = AutoModelForCausalLM.from_pretrained(language_model)
    with pytest.raises(OSError, match="No space"):
        save_whole(tmp_path, model, Broken())
    assert not list(tmp_path.iterdir())
    save_whole(tmp_path, model)
    assert AutoModelForCausalLM.from_pretrained(tmp_path).num_parameters() == model.num_parameters()


def test_a_folder_made_for_nothing_is_removed_and_one_that_was_there_stays(tmp_path):
    (tmp_path / "old").mkdir()
    for name in ("new", "old"):
        with pytest.raises(RuntimeError), output_folder(tmp_path / name):
            raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
