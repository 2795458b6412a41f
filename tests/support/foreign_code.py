"""Folders with code of others, in the manner of years in which each release brought its own.

The code is written here. Each kind is a decoder whose layout of tensors no class of transformers
has; it runs in today's transformers.
"""

import importlib.util
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

VOCAB, WIDTH, INNER, LAYERS, HEADS = 97, 24, 20, 2, 6

CONFIGURATION = """
from transformers import PretrainedConfig


class {name}Config(PretrainedConfig):
    model_type = "{kind}"

    def __init__(self, vocab_size=97, hidden_size=24, intermediate_size=20, num_hidden_layers=2,
                 num_attention_heads=6, {more}rms_norm_eps=1e-6, **kwargs):
        self.vocab_size, self.hidden_size = vocab_size, hidden_size
        self.intermediate_size, self.num_hidden_layers = intermediate_size, num_hidden_layers
        self.num_attention_heads, self.rms_norm_eps = num_attention_heads, rms_norm_eps
        {assigned}
        super().__init__(**kwargs)
"""

MODELING = """
import math
import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast
{imports}


class Norm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

{attention}

class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        size, inner, eps = config.hidden_size, config.intermediate_size, config.rms_norm_eps
        self.{attn} = Attention(config)
        self.{mlp} = nn.Module()
        self.{mlp}.{gate} = nn.Linear(size, inner, bias=False)
        self.{mlp}.{up} = nn.Linear(size, inner, bias=False)
        self.{mlp}.{down} = nn.Linear(inner, size, bias=False)
        self.{norm1}, self.{norm2} = Norm(size, eps), Norm(size, eps)

    def forward(self, x):
        x = x + self.{attn}(self.{norm1}(x))
        h = self.{norm2}(x)
        h = nn.functional.silu(self.{mlp}.{gate}(h)) * self.{mlp}.{up}(h)
        return x + self.{mlp}.{down}(h)


class {name}PreTrainedModel(PreTrainedModel):
    config_class = {name}Config
    base_model_prefix = "model"

    def _init_weights(self, module):
        pass


class {name}Model({name}PreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.{table} = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([Layer(config) for _ in range(config.num_hidden_layers)])
        self.norm = Norm(config.hidden_size, config.rms_norm_eps)
        self.post_init()

    def forward(self, input_ids):
        x = self.{table}(input_ids)
        states = [x]
        for layer in self.layers:
            x = layer(x)
            states.append(x)
        states[-1] = self.norm(x)
        return states


class {name}ForCausalLM({name}PreTrainedModel, GenerationMixin):
    def __init__(self, config):
        super().__init__(config)
        self.model = {name}Model(config)
        self.{head} = {head_class}
        self.post_init()

    def get_input_embeddings(self):
        return self.model.{table}

    def prepare_inputs_for_generation(self, input_ids, **kwargs):
        return {{"input_ids": input_ids}}

    def forward(self, input_ids, output_hidden_states=False, return_dict=True, **kwargs):
        states = self.model(input_ids)
        logits = self.{head}(states[-1])
        kept = tuple(states) if output_hidden_states else None
        return CausalLMOutputWithPast(logits=logits, hidden_states=kept)
"""

GROUPED = """
def turned(x, angles):
    half = torch.cat((-x[..., x.shape[-1] // 2:], x[..., : x.shape[-1] // 2]), dim=-1)
    return x * angles.cos() + half * angles.sin()


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads, self.groups = config.num_attention_heads, config.num_key_value_heads
        self.size = config.hidden_size // self.heads
        rows = (self.heads + 2 * self.groups) * self.size
        self.wqkv = nn.Linear(config.hidden_size, rows, bias=False)
        self.wo = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, x):
        batch, length, _ = x.shape
        share = self.heads // self.groups
        rows = self.wqkv(x).view(batch, length, self.groups, share + 2, self.size)
        q, k, v = rows[..., :share, :], rows[..., share:-1, :], rows[..., -1:, :]
        q = q.reshape(batch, length, self.heads, self.size).transpose(1, 2)
        k, v = (t.expand_as(rows[..., :share, :]).reshape(q.transpose(1, 2).shape).transpose(1, 2)
                for t in (k, v))
        dims = torch.arange(0, self.size, 2) / self.size
        angles = torch.arange(length)[:, None] / 10000.0 ** dims
        angles = torch.cat((angles, angles), dim=-1)
        q, k = turned(q, angles), turned(k, angles)
        out = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(out.transpose(1, 2).reshape(batch, length, -1))
"""

ALIBI = """
class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads, self.size = config.num_attention_heads, config.hidden_size
        self.W_pack = nn.Linear(self.size, 3 * self.size, bias=False)
        self.o_proj = nn.Linear(self.size, self.size, bias=False)
        # alibi: the slopes of four heads, then every other one of those of eight
        slopes = [2.0 ** -(2 * i) for i in range(1, 5)] + [2.0 ** -1, 2.0 ** -3]
        self.register_buffer("slopes", torch.tensor(slopes).view(-1, 1, 1), persistent=False)

    def forward(self, x):
        batch, length, _ = x.shape
        parts = self.W_pack(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        places = torch.arange(length)
        far = places[None, :] - places[:, None]
        scores = parts[0] @ parts[1].transpose(-1, -2) / math.sqrt(parts.shape[-1])
        scores = (scores + self.slopes * far).masked_fill(far > 0, -math.inf)
        out = scores.softmax(-1) @ parts[2]
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, -1))


class NormHead(nn.Module):
    def __init__(self, size, rows):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(rows, size))

    def forward(self, x):
        return nn.functional.linear(x, nn.functional.normalize(self.weight))
"""

LINEAR_HEAD = "nn.Linear(config.hidden_size, config.vocab_size, bias=False)"
LLAMA_NAMES = {
    "attn": "self_attn",
    "mlp": "mlp",
    "gate": "gate_proj",
    "up": "up_proj",
    "down": "down_proj",
    "norm1": "input_layernorm",
    "norm2": "post_attention_layernorm",
    "table": "embed_tokens",
    "head": "lm_head",
}
INTERNLM2_NAMES = {
    "attn": "attention",
    "mlp": "feed_forward",
    "gate": "w1",
    "up": "w3",
    "down": "w2",
    "norm1": "attention_norm",
    "norm2": "ffn_norm",
    "table": "tok_embeddings",
    "head": "output",
}
KINDS = {
    "internlm2": ("InternLM2", INTERNLM2_NAMES, GROUPED, LINEAR_HEAD),
    "baichuan": ("Baichuan", LLAMA_NAMES, ALIBI, "NormHead(config.hidden_size, config.vocab_size)"),
    "own_kind": ("Own", LLAMA_NAMES, ALIBI, LINEAR_HEAD),
}


def foreign_folder(kind: str, folder: Path, imports: str = "") -> Path:
    """Write a folder of a kind with random weights, which the code makes.

    `imports` are those of an earlier year, put in place of today's afterwards.
    """
    name, names, attention, head_class = KINDS[kind]
    more = "num_key_value_heads=3, bias=False, " if kind == "internlm2" else ""
    kept = "self.num_key_value_heads = num_key_value_heads" if more else "pass"
    folder.mkdir(parents=True)
    configuration = CONFIGURATION.format(name=name, kind=kind, more=more, assigned=kept)
    parts = {"name": name, "attention": attention, "head_class": head_class, **names}
    own = f"from .configuration_{kind} import {name}Config"
    source = MODELING.format(imports=own, **parts)
    (folder / f"configuration_{kind}.py").write_text(configuration)
    (folder / f"modeling_{kind}.py").write_text(source)
    write_weights(folder, kind, name)
    aged = MODELING.format(imports=imports or own, **parts)
    (folder / f"modeling_{kind}.py").write_text(aged)
    config = {
        "model_type": kind,
        "architectures": [f"{name}ForCausalLM"],
        "auto_map": {
            "AutoConfig": f"configuration_{kind}.{name}Config",
            "AutoModelForCausalLM": f"modeling_{kind}.{name}ForCausalLM",
        },
        "max_position_embeddings": 64,
        "tie_word_embeddings": False,
        "eos_token_id": None,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def write_weights(folder: Path, kind: str, name: str) -> None:
    package = f"foreign_{kind}_{id(folder)}"
    for module in ("", f".configuration_{kind}", f".modeling_{kind}"):
        place = folder / f"{module[1:] or '__init__'}.py"
        spec = importlib.util.spec_from_file_location(package + module, place)
        if not module:
            spec = importlib.machinery.ModuleSpec(package, None, is_package=True)
        sys.modules[package + module] = importlib.util.module_from_spec(spec)
        if module:
            spec.loader.exec_module(sys.modules[package + module])
    configuration = sys.modules[f"{package}.configuration_{kind}"]
    modeling = sys.modules[f"{package}.modeling_{kind}"]
    model = getattr(modeling, f"{name}ForCausalLM")(getattr(configuration, f"{name}Config")())
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(noise * 0.3 + (parameter.ndim == 1))
    save_file(dict(model.state_dict()), folder / "model.safetensors", {"format": "pt"})
