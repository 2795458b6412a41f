"""The lessons of examples/variants: their promises, their formulas, their programs."""

import atexit
import functools
import re
import shlex
import subprocess
import sys
from contextlib import ExitStack
from functools import cached_property

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM
from variants.lessons import FAMILIES, HERE, lesson

import hf_tformer
from hf_tformer.new import write_new
from hf_tformer.testing import DecoderPromises, Seq2SeqPromises
from hf_tformer.testing.families import randomise
from hf_tformer.testing.travel import expect_same_elsewhere
from support.new_models import slow

pytestmark = pytest.mark.usefixtures("warm_python")

STACK = ExitStack()
atexit.register(STACK.close)
LINES = 60  # of a lesson's own
CLOSE = {"rtol": 1e-4, "atol": 1e-6}


@functools.cache
def package_of(name):
    return STACK.enter_context(lesson(name))


def head_of(name):
    package = package_of(name)
    return next(getattr(package, each) for each in package.__all__ if "For" in each)


class Additive(Seq2SeqPromises):
    waived = {"backends": "its scores are no products, which is all that backends compute"}

    @cached_property
    def model_class(self):
        return head_of("additive")


class Predictive(Seq2SeqPromises):
    waived = {"backends": "weights change after the softmax, which no backend lets them"}
    fields = {"alignment_window": 2}

    @cached_property
    def model_class(self):
        return head_of("local")


class Monotonic(Predictive):
    fields = {"alignment_window": 2, "alignment": "monotonic"}


class Talking(DecoderPromises):
    waived = {"backends": "heads are mixed around the softmax, which no backend does"}

    @cached_property
    def model_class(self):
        return head_of("talking")


class TestAdditive(Additive):
    test_compile = slow(Additive.test_compile)
    test_check = slow(Additive.test_check)


class TestPredictive(Predictive):
    test_compile = slow(Predictive.test_compile)
    test_check = slow(Predictive.test_check)
    test_travels = slow(Predictive.test_travels)
    test_trainer = slow(Predictive.test_trainer)


class TestMonotonic(Monotonic):
    test_compile = slow(Monotonic.test_compile)
    test_check = slow(Monotonic.test_check)
    test_travels = slow(Monotonic.test_travels)
    test_trainer = slow(Monotonic.test_trainer)
    test_smoothing = slow(Monotonic.test_smoothing)


class TestTalking(Talking):
    test_compile = slow(Talking.test_compile)


# What each computes


def spell_out(config, scores, visible):
    """One softmax for each row, over the keys that it sees."""
    return scores.masked_fill(~visible, float("-inf")).softmax(-1)


def projected(attention, states, kind):
    """[batch, seq, hidden] → [batch, heads, seq, head_dim]; key heads are repeated."""
    config = attention.config
    out = getattr(attention, f"{kind}_proj")(states).unflatten(-1, (-1, config.head_dim))
    return out.transpose(1, 2).repeat_interleave(config.num_attention_heads // out.shape[2], 1)


def look(model, rows, targets, side):
    """The layer's attention to its source, what it was given, and its weights."""
    given, attention = {}, model.get_decoder().layers[0].cross_attn
    hook = attention.register_forward_pre_hook(
        lambda module, args, kwargs: given.update(target=args[0], source=args[1]), with_kwargs=True
    )
    width = max(map(len, rows))
    blank = [[0] * (width - len(row)) for row in rows]
    pairs = list(zip(rows, blank, strict=True))
    ids = torch.tensor([b + r if side == "left" else r + b for r, b in pairs])
    output = model(
        input_ids=ids,
        attention_mask=(ids != 0).long(),
        decoder_input_ids=targets,
        output_attentions=True,
    )
    hook.remove()
    return attention, given["target"], given["source"], ids != 0, output.cross_attentions[0]


ROWS = [[5, 9, 4, 7, 11, 6, 8], [4, 8, 3], [6]]
TARGETS = torch.tensor([[1, 9, 4, 12, 6], [1, 3, 5, 7, 9], [1, 4, 4, 4, 4]])


@torch.no_grad()
def test_additive_scores_are_the_sum_of_the_tanh_of_each_dimension():
    model = Additive().build()
    attention, target, source, visible, weights = look(model, ROWS, TARGETS, "right")
    query, key = projected(attention, target, "q"), projected(attention, source, "k")
    scores = torch.zeros(*query.shape[:3], key.shape[2])
    for head, v in enumerate(attention.v):
        for h, factor in enumerate(v):
            pairs = query[:, head, :, None, h] + key[:, head, None, :, h]
            scores[:, head] += factor * torch.tanh(pairs)
    expected = spell_out(model.config, scores, visible[:, None, None])
    torch.testing.assert_close(weights, expected, **CLOSE)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", [Monotonic, Predictive], ids=["local-m", "local-p"])
@torch.no_grad()
def test_local_weights_are_those_around_a_place_that_is_counted_in_real_tokens(kind, side):
    window = 2
    model = kind().build()
    attention, target, source, visible, weights = look(model, ROWS, TARGETS, side)
    query, key = projected(attention, target, "q"), projected(attention, source, "k")
    scores = query @ key.transpose(-1, -2) / model.config.head_dim**0.5
    hides = 0
    for row, ids in enumerate(ROWS):
        places = range(len(ids))
        kept = scores[row][..., visible[row]]
        for t in range(TARGETS.shape[1]):
            for head in range(model.config.num_attention_heads):
                if kind is Monotonic:
                    p, sharpness = min(t, len(ids) - 1), 0
                else:
                    inner = torch.tanh(attention.w_p(target[row, t]))
                    p = len(ids) * torch.sigmoid(attention.v_p(inner)[head])
                    sharpness = 1 / (2 * (window / 2) ** 2)
                far = torch.tensor([abs(s - p) for s in places])
                expected = spell_out(model.config, kept[head, t], far <= window)
                expected = expected * torch.exp(-(far**2) * sharpness)
                found = weights[row, head, t]
                torch.testing.assert_close(found[visible[row]], expected, **CLOSE)
                assert not found[~visible[row]].any()
                hides += (far > window).sum()
    assert hides  # a window that sees all would prove nothing


@torch.no_grad()
def test_local_attention_counts_a_target_that_is_padded_on_the_left_from_its_first_token():
    model = Monotonic().build()
    source = torch.tensor([ROWS[0]])
    target = TARGETS[:1]
    padded = torch.cat((torch.zeros(1, 3, dtype=torch.long), target), 1)
    expected = model(input_ids=source, decoder_input_ids=target).logits
    mask = torch.tensor([[0] * 3 + [1] * 5])
    found = model(input_ids=source, decoder_input_ids=padded, decoder_attention_mask=mask).logits
    torch.testing.assert_close(found[:, 3:], expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_heads_talk_before_and_after_the_softmax():
    model = Talking().build(position_embedding_type="none")
    attention, given = model.get_decoder().layers[0].self_attn, {}
    attention.register_forward_pre_hook(lambda module, args: given.update(states=args[0]))
    attention.register_forward_hook(lambda module, args, output: given.update(output=output[0]))
    ids = TARGETS[:1]
    weights = model(input_ids=ids, output_attentions=True).attentions[0][0]
    query, key, value = (projected(attention, given["states"], kind)[0] for kind in "qkv")
    scores = query @ key.transpose(-1, -2) / model.config.head_dim**0.5
    heads, earlier = range(len(scores)), torch.ones(5, 5, dtype=torch.bool).tril()
    mixed = [sum(attention.mix_scores[h, g] * scores[g] for g in heads) for h in heads]
    soft = [spell_out(model.config, each, earlier) for each in mixed]
    torch.testing.assert_close(weights, torch.stack(soft), **CLOSE)
    mixed = [sum(attention.mix_weights[h, g] * soft[g] for g in heads) for h in heads]
    heads_of_token = (torch.stack(mixed) @ value).transpose(0, 1).flatten(1)
    torch.testing.assert_close(given["output"][0], attention.o_proj(heads_of_token), **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("fields", [{}, {"score_bias": "alibi"}, {"sliding_window": 3}])
def test_heads_that_have_not_learned_to_talk_are_those_of_the_decoder(fields):
    talking = Talking().build(**fields)
    fresh = head_of("talking")(talking.config)
    plain = hf_tformer.TformerDecoderForCausalLM(
        hf_tformer.TformerDecoderConfig(**{**Talking().family.sizes, **fields})
    )
    learned = randomise(plain).state_dict()
    missing = fresh.load_state_dict(learned, strict=False).missing_keys
    assert {name.split(".")[-1] for name in missing} == {"mix_scores", "mix_weights"}
    torch.testing.assert_close(
        fresh.eval()(TARGETS).logits, plain.eval()(TARGETS).logits, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("kind", [Additive, Monotonic, Predictive, Talking])
@torch.no_grad()
def test_a_lesson_answers_in_half_precision(kind):
    model, ids = kind().build(), torch.tensor([ROWS[0]])
    given = {"input_ids": ids, **kind().family.target(TARGETS[:1])}
    expected = model(**given).logits
    found = model.to(torch.bfloat16)(**given).logits
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=0.1 * float(expected.std()))


# What they refuse, and how they are built


@pytest.mark.parametrize("name", FAMILIES)
def test_a_backend_that_cannot_compute_a_lesson_is_refused_by_name(name):
    config = package_of(name).__dict__[f"{name.capitalize()}Config"]
    for backend, words in (("sdpa", "scaled_dot_product"), ("flex_attention", "flex_attention")):
        with pytest.raises(ValueError, match=words):
            head_of(name)(config(attn_implementation=backend))
    model = head_of(name)(config(hidden_size=16, intermediate_size=16))
    assert model.config._attn_implementation == "eager"


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("local", "alignment", "diagonal"),
        ("local", "alignment_window", 0),
        ("talking", "attn_logit_softcapping", 5.0),
    ],
)
def test_a_field_that_a_lesson_cannot_have_is_refused_by_name(name, field, value):
    config = package_of(name).__dict__[f"{name.capitalize()}Config"]
    with pytest.raises(ValueError, match=f"{field} is {value!r}"):
        config(**{field: value})


@pytest.mark.parametrize("kind", [Additive, Predictive, Talking])
def test_no_process_is_given_a_part_of_the_heads_alone(kind):
    model = kind().build()
    changed = "self_attn" if kind is Talking else "cross_attn"
    assert not [name for name in model._tp_plan if changed in name]
    assert [name for name in model._tp_plan if "mlp" in name]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_lesson_is_short_beside_what_tformer_new_writes(name, tmp_path):
    write_new(tmp_path / "begun", FAMILIES[name], name.capitalize())
    own = []
    for kind in ("configuration", "modeling"):
        file = f"{kind}_{name}.py"
        begun = (tmp_path / "begun" / file).read_text().splitlines()
        lines = (HERE / name / file).read_text().splitlines()
        own += [line for line in lines if line.strip() and line not in begun]
    assert len(own) <= LINES, "\n".join(own)


# The program, and the page


PAGE = (HERE / "README.md").read_text(encoding="utf-8")


def blocks(kind):
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.S)


def commands():
    return [shlex.split(line) for code in blocks("bash") for line in code.splitlines()]


def train(words, folder, *more):
    program = str(HERE.parents[1] / words[1])
    command = [sys.executable, program, *words[2:], *more, "--output", str(folder)]
    return run(command, folder.parent)


def run(command, folder):
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_the_page_names_each_lesson_once():
    found = [words[-1] for words in commands()]
    assert sorted(found) == ["additive", "local-m", "local-p", "talking"]


@pytest.mark.parametrize(
    ("lesson", "said", "code"),
    [
        (1, r"local-m +\d+\.\d%, of sequences of 24 +\d+\.\d%", "modeling_local.py"),
        (-1, r"talking +\d+\.\d%\n", "modeling_talking.py"),
    ],
    ids=["local-m", "talking"],
)
def test_a_lesson_is_trained_saved_and_drawn(lesson, said, code, tmp_path):
    out = train(commands()[lesson], tmp_path / "out", "--steps", "11")
    assert re.search(said, out)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {code, "model.safetensors", "tokenizer.json", "attention.png"} <= names


@pytest.mark.slow
@pytest.mark.parametrize("words", commands(), ids=lambda words: words[-1])
def test_a_command_of_the_page_shows_what_it_says_and_its_model_opens_elsewhere(words, tmp_path):
    folder = tmp_path / f"lesson-{words[-1]}"
    out = train(words, folder)
    shares = [float(line.split("%")[-2].split()[-1]) for line in out.splitlines() if "%" in line]
    assert shares[0] >= 80
    assert shares[0] >= max(shares[1:])
    auto = AutoModelForCausalLM if words[-1] == "talking" else AutoModelForSeq2SeqLM
    model = auto.from_pretrained(folder, trust_remote_code=True).eval()
    ids = torch.tensor([ROWS[0]])
    inputs = {"input_ids": ids}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = TARGETS[:1]
    prompt = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    saved = {
        "inputs": inputs,
        "outputs": {"logits": model(**inputs).logits.detach()},
        "prompt": prompt,
        "tokens": model.generate(**prompt, max_new_tokens=6, do_sample=False),
    }
    torch.save(saved, tmp_path / "answers.pt")
    case = (folder, auto.__name__, tmp_path / "answers.pt", tmp_path / "saved again")
    expect_same_elsewhere(tmp_path, case)
    for code in blocks("python"):
        if f'"{folder.name}"' in code:
            assert "s r e m r o f s n a r t" in run([sys.executable, "-c", code], tmp_path)
