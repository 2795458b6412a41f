"""Each promise of hf_tformer.testing can be broken, and then says which one it is."""

import pytest
import torch
from torch import nn

import hf_tformer
from hf_tformer.model.attention import SelfAttention, rotate
from hf_tformer.model.modeling_decoder import TformerDecoderLayer
from hf_tformer.testing import BrokenPromiseError, DecoderPromises
from support.families import DECODER

Head, Model = hf_tformer.TformerDecoderForCausalLM, hf_tformer.TformerDecoderModel


def head_with(attention_class):
    """The decoder with other attention, and none of our files to save."""

    class OddLayer(TformerDecoderLayer):
        def __init__(self, config, layer_idx):
            super().__init__(config, layer_idx)
            self.self_attn = attention_class(config, layer_idx, is_causal=True)

    class OddModel(Model):
        layer_class = OddLayer
        _no_split_modules = ["OddLayer"]  # noqa: RUF012

    class OddHead(Head):
        _no_split_modules = ["OddLayer"]  # noqa: RUF012

        def post_init(self):
            self.model = OddModel(self.config)
            super().post_init()

    return OddHead


class Blind(SelfAttention):
    """It takes no notice of the mask."""

    def forward(self, hidden_states, attention_mask=None, *args, **kwargs):
        nothing = torch.zeros(1, 1, 1, 1)
        return super().forward(hidden_states, nothing, *args, **kwargs)


class Forgetful(SelfAttention):
    """It sees the tokens of this call alone."""

    def forward(self, hidden_states, mask=None, position_embeddings=None, cache=None, **kwargs):
        if cache is not None:
            cache.update(*self.project_key_value(hidden_states), self.layer_idx)
        if mask is not None:
            mask = mask[..., : hidden_states.shape[1]]
        return super().forward(hidden_states, mask, position_embeddings, None, **kwargs)


class Looking(SelfAttention):
    """It asks a tensor for its value."""

    def project_query(self, hidden_states):
        factor = 2.0 if hidden_states.sum().item() > 0 else 1.0
        return super().project_query(hidden_states) * factor


class Silent(SelfAttention):
    """It has a parameter that it does not use, and one that cancels out."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.unused = nn.Parameter(torch.zeros(3))


class Computing(SelfAttention):
    """It computes a tensor while it is built."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.register_buffer("table", torch.arange(3.0), persistent=False)

    def project_query(self, hidden_states):
        return super().project_query(hidden_states) * (1 + self.table[1])


class Sharper(SelfAttention):
    """With one backend it does something else."""

    def project_query(self, hidden_states):
        factor = 2.0 if self.config._attn_implementation == "sdpa" else 1.0
        return super().project_query(hidden_states) * factor


class Random(SelfAttention):
    """It draws numbers of its own in training."""

    def project_query(self, hidden_states):
        noise = torch.randn(()).item() if self.training else 0.0
        return super().project_query(hidden_states) * (1 + noise)


class Counting(SelfAttention):
    """What it does depends on how often it was trained."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.calls = 0

    def project_query(self, hidden_states):
        self.calls += self.training
        return super().project_query(hidden_states) * (1 + self.calls)


class Hidden(SelfAttention):
    """Nobody gets to see its weights."""

    def forward(self, *args, **kwargs):
        return super().forward(*args, **kwargs)[0], None


class Unprojected(SelfAttention):
    """Its projections are read, and not called: no adapter is heard."""

    def project_query(self, hidden_states):
        query = hidden_states @ self.q_proj.weight.T
        return query.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)


class Unshifted(Head):
    """Neither Trainer nor the auto_map of its configuration knows this name."""


class Summed(Head):
    """The loss is not the mean."""

    def __init__(self, config):
        super().__init__(config)
        mean = self.loss_function
        self.loss_function = lambda **kwargs: 2 * mean(**kwargs)


class Uncounted(Head):
    """The loss is not told how many labels the whole batch has."""

    def forward(self, *args, num_items_in_batch=None, **kwargs):
        return super().forward(*args, **kwargs)


class Untied(Head):
    _tied_weights_keys = None


class Unnamed(Head):
    _no_split_modules = ("SomebodyElsesLayer",)


class Placed(Head):
    """Positions are places, whatever the caller says."""

    def forward(self, input_ids=None, attention_mask=None, position_ids=None, **kwargs):
        past = kwargs.get("past_key_values")
        start = 0 if past is None else past.get_seq_length()
        places = start + torch.arange(input_ids.shape[1])[None]
        return super().forward(input_ids, attention_mask, places, **kwargs)


class Repeating(Head):
    """Of a text beside a cache, generate gives it all tokens again."""

    def prepare_inputs_for_generation(self, input_ids, *args, **kwargs):
        inputs = super().prepare_inputs_for_generation(input_ids, *args, **kwargs)
        return {**inputs, "input_ids": inputs["input_ids"].clamp(max=50)}


BROKEN = {
    "padding": (head_with(Blind), {"side": "left"}),
    "packing": (Placed, {}),
    "causality": (head_with(Blind), {}),
    "cached_steps": (head_with(Forgetful), {"cache": "dynamic", "chunk": 4}),
    "caches": (head_with(Forgetful), {"beams": 1}),
    "generate": (Repeating, {}),
    "backends": (head_with(Sharper), {"backend": "sdpa"}),
    "compile": (head_with(Looking), {}),
    "loss": (head_with(Silent), {}),
    "loss, not the mean": (Summed, {}),
    "accumulation": (Uncounted, {}),
    "saved": (head_with(Computing), {}),
    "ties": (Untied, {}),
    "resize": (Untied, {}),
    "sharding": (Unnamed, {}),
    "checkpointing": (head_with(Random), {}),
    "outputs": (head_with(Hidden), {}),
    "smoothing": (Unshifted, {}),
    "peft": (head_with(Unprojected), {}),
    "trainer": (head_with(Counting), {}),
    "travels": (Unshifted, {}),
}
SECONDS = ("compile", "travels")  # each takes some
FIXTURES = {"backends": ("monkeypatch",), "check": ("tmp_path",)}
WITH_FOLDER = ("saved", "ties", "resize", "smoothing", "peft", "trainer", "travels", "check")


def quiet_attention(query, key, value, mask, scaling):
    """A softmax with a place for nothing: a head that finds nothing adds nothing."""
    scores = query @ key.transpose(-1, -2) * scaling + mask
    nothing = torch.zeros_like(scores[..., :1])
    weights = torch.cat((nothing, scores), dim=-1).softmax(-1)[..., 1:]
    return weights @ value, weights


class QuietAttention(SelfAttention):
    """A function in plain torch takes the place of the backends."""

    def forward(
        self,
        hidden_states,
        attention_mask=None,
        position_embeddings=None,
        past_key_values=None,
        **kwargs,
    ):
        query = self.project_query(hidden_states)
        key, value = self.project_key_value(hidden_states)
        if position_embeddings is not None:
            query, key = rotate(query, key, *position_embeddings)
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        key = key.repeat_interleave(self.num_key_value_groups, dim=1)
        value = value.repeat_interleave(self.num_key_value_groups, dim=1)
        output, weights = quiet_attention(query, key, value, attention_mask, self.scaling)
        return self.project_output(output.transpose(1, 2), hidden_states.shape[:-1]), weights


class QuietHead(head_with(QuietAttention)):
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = False


class TestOtherSizes(DecoderPromises):
    """An untied model with other heads keeps them, too."""

    model_class = Head
    fields = {  # noqa: RUF012
        "tie_word_embeddings": False,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 127,
        "sliding_window": 3,
    }
    test_travels = test_check = test_compile = test_trainer = None


class TestAnAttentionFunctionOfOnesOwn(DecoderPromises):
    """It keeps what can be asked of a class that has no folder."""

    model_class = QuietHead
    test_travels = test_check = test_compile = test_smoothing = None


def promises_of(head, **said):
    return type("TestOdd", (DecoderPromises,), {"model_class": head, **said})()


def ask(promises, name, request, given):
    needed = ("tmp_path",) if name in WITH_FOLDER else FIXTURES.get(name, ())
    fixtures = {fixture: request.getfixturevalue(fixture) for fixture in needed}
    getattr(promises, f"test_{name}")(**given, **fixtures)


@pytest.mark.usefixtures("warm_python")
@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=[pytest.mark.slow] * (c in SECONDS)) for c in BROKEN]
)
def test_a_promise_that_is_broken_is_named_with_its_sentence(case, request):
    head, given = BROKEN[case]
    name = case.partition(",")[0]
    with pytest.raises(BrokenPromiseError) as broken:
        ask(promises_of(head), name, request, given)
    told = " ".join(str(broken.value).split())
    assert told.startswith(f"{name} is broken. ")
    sentence = getattr(DecoderPromises, f"test_{name}").__doc__.split("\n\n")[0]
    assert " ".join(sentence.split()) in told
    assert broken.value.__cause__ is not None


def test_every_promise_is_broken_by_some_model():
    """check is: tests/check/test_checking.py has folders with every fault."""
    names = [name for name in dir(DecoderPromises) if name.startswith("test_")]
    wanted = {name.removeprefix("test_") for name in names} - {"waived", "check"}
    assert wanted == {case.partition(",")[0] for case in BROKEN}


def test_what_is_waived_is_skipped_with_its_reason(request):
    waived = {"causality": "it reads to both sides"}
    with pytest.raises(pytest.skip.Exception, match="waived: it reads to both sides"):
        ask(promises_of(head_with(Blind), waived=waived), "causality", request, {})
    promises_of(Head, waived=waived).test_waived()


@pytest.mark.parametrize(
    ("waived", "words"),
    [
        ({"pading": "it is left out"}, r"waived names \['pading'\]: choose from accumulation, "),
        ({"padding": " "}, r"no reason for \['padding'\]"),
    ],
)
def test_what_is_waived_is_a_promise_and_has_a_reason(waived, words):
    with pytest.raises(AssertionError, match=words):
        promises_of(Head, waived=waived).test_waived()


def test_a_backend_that_a_model_does_not_support_is_named(request):
    head = type("Eager", (Head,), {"_supports_sdpa": False, "_supports_flash_attn": False})
    for backend in ("sdpa", "flash_attention_2"):
        with pytest.raises(pytest.skip.Exception, match=f"that {backend} cannot serve it"):
            ask(promises_of(head), "backends", request, {"backend": backend})


def test_fields_and_random_values_may_be_chosen():
    class Positive(DecoderPromises):
        model_class = Head
        fields = {"qk_norm": True, "hidden_size": 40}  # noqa: RUF012

        def randomise(self, model):
            for parameter in model.parameters():
                nn.init.constant_(parameter, 0.5)
            return model

    model = Positive().build(vocab_size=103)
    assert (model.config.hidden_size, model.config.vocab_size) == (40, 103)
    assert model.config.qk_norm
    assert all((p == 0.5).all() for p in model.parameters())
    assert DECODER.sizes["hidden_size"] == 36
