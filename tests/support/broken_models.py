"""A model that someone else wrote, in the manner of transformers 4, and ways to break it.

`FOREIGN` is sound: attention, masks and positions by hand, one file. Each of `BREAKAGES` replaces
one piece of it by what people really write; `EDITS` damages the folder around it.
"""

import importlib.util
import json

import torch
from safetensors.torch import load_file, save_file

FOREIGN = """
import math
import torch
from torch import nn
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast


class ForeignConfig(PretrainedConfig):
    model_type = "foreign"

    def __init__(self, vocab_size=61, hidden_size=16, num_hidden_layers=2, causal=True, **kwargs):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.causal = causal
        self.num_attention_heads = 2
        self.tie_word_embeddings = kwargs.pop("tie_word_embeddings", True)
        super().__init__(**kwargs)


class ForeignPositions(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size
        self.scale = nn.Parameter(torch.ones(1))
        self.register_buffer("inv_freq", self.frequencies(), persistent=False)

    def frequencies(self):
        return 1.0 / 100 ** (torch.arange(0, self.size, 2).float() / self.size)

    def forward(self, positions):
        angles = positions[..., None].float() * self.inv_freq.float()
        return self.scale * torch.cat((angles.sin(), angles.cos()), -1).to(self.scale.dtype)


class ForeignLayer(nn.Module):
    def __init__(self, config, index):
        super().__init__()
        self.index = index
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.out = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, states, mask, cache):
        query, key, value = (
            part.unflatten(-1, (2, -1)).transpose(1, 2) for part in self.qkv(states).chunk(3, -1)
        )
        if cache is not None:
            key, value = cache.update(key, value, self.index)
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        attended = scores.softmax(-1) @ value
        return states + self.out(attended.transpose(1, 2).flatten(2))


class ForeignPreTrainedModel(PreTrainedModel):
    config_class = ForeignConfig
    base_model_prefix = "model"

    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, ForeignPositions):
            module.inv_freq.data = module.frequencies()


class ForeignModel(ForeignPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.positions = ForeignPositions(config.hidden_size)
        self.layers = nn.ModuleList(
            ForeignLayer(config, index) for index in range(config.num_hidden_layers)
        )
        self.post_init()

    def forward(self, input_ids, attention_mask=None, position_ids=None, past_key_values=None,
                use_cache=None, cache=None, **kwargs):
        past_key_values = cache if past_key_values is None else past_key_values  # by either name
        past = 0 if past_key_values is None else past_key_values.get_seq_length()
        rows = past + torch.arange(input_ids.shape[1], device=input_ids.device)
        columns = torch.arange(past + input_ids.shape[1], device=input_ids.device)
        mask = torch.ones_like(rows[:, None] + columns, dtype=torch.bool)[None, None]
        if self.config.causal:
            mask = (columns <= rows[:, None])[None, None]
        if attention_mask is not None:
            mask = mask & attention_mask[:, None, None].bool()
        if position_ids is None:
            position_ids = rows[None]
        states = self.embed_tokens(input_ids) + self.positions(position_ids)
        for layer in self.layers:
            states = layer(states, mask, past_key_values)
        return BaseModelOutputWithPast(states, past_key_values)


class ForeignForCausalLM(ForeignPreTrainedModel, GenerationMixin):
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.model = ForeignModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def forward(self, input_ids, attention_mask=None, position_ids=None, past_key_values=None,
                use_cache=None, cache=None, **kwargs):
        past_key_values = cache if past_key_values is None else past_key_values
        outputs = self.model(input_ids, attention_mask, position_ids, past_key_values)
        logits = self.lm_head(outputs.last_hidden_state)
        return CausalLMOutputWithPast(None, logits, past_key_values)
"""
FILE = "modeling_foreign.py"
CONFIG = {
    "model_type": "foreign",
    "architectures": ["ForeignForCausalLM"],
    "pad_token_id": 0,
    "eos_token_id": 2,
    "tie_word_embeddings": True,
    "auto_map": {
        "AutoConfig": "modeling_foreign.ForeignConfig",
        "AutoModel": "modeling_foreign.ForeignModel",
        "AutoModelForCausalLM": "modeling_foreign.ForeignForCausalLM",
    },
}

# name → (piece of FOREIGN, what it is replaced by, name of the finding, part of its detail)
BREAKAGES = {
    "a buffer is not recomputed": (
        "module.inv_freq.data = module.frequencies()",
        "pass",
        "buffers",
        "garbage after loading: model.positions.inv_freq",
    ),
    "a table is cast with the weights": (
        "return 1.0 / 100 ** (torch.arange(0, self.size, 2).float() / self.size)",
        "return (1.0 / 100 ** (torch.arange(0, self.size, 2) / self.size)).to(self.dtype())\n\n"
        "    def dtype(self):\n        return self.scale.dtype",
        "buffers",
        "bfloat16 beside bfloat16 weights",
    ),
    "a tensor is no buffer": (
        'self.register_buffer("inv_freq", self.frequencies(), persistent=False)',
        "self.inv_freq = self.frequencies()",
        "buffers",
        "inv_freq have no values",
    ),
    "initialising overwrites what was loaded": (
        "module.inv_freq.data = module.frequencies()",
        "module.inv_freq.data = module.frequencies()\n            module.scale.data.normal_()",
        "parameters",
        "positions.scale differ after save and load",
    ),
    "the tie is not declared": (
        '_tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}',
        "pass",
        "ties",
        "tie_word_embeddings is True, but the output projection is not tied",
    ),
    "the padding mask is ignored": (
        "if attention_mask is not None:",
        "if False:",
        "padded rows",
        "padded on the left are not answered as they are alone",
    ),
    "later tokens are seen": ("if self.config.causal:", "if False:", "causality", "later token"),
    "positions begin anew beside a cache": (
        "            position_ids = rows[None]\n",
        "            position_ids = rows[None]\n        position_ids = position_ids * 0 + "
        "torch.arange(input_ids.shape[1])\n",
        "cache",
        "logits of a step beside a cache are not those of one pass",
    ),
    "a masked row is all infinity": (
        "torch.finfo(scores.dtype).min",
        'float("-inf")',
        "masked rows",
        "NaN or infinity",
    ),
    "generate is missing": (
        "ForeignPreTrainedModel, GenerationMixin)",
        "ForeignPreTrainedModel)",
        "generation",
        "generate() is missing",
    ),
    "importing it ends the process": (
        "from torch import nn\n",
        "from torch import nn\nimport os\n\nos._exit(3)\n",
        "loads: AutoConfig",
        "the process died (exit status 3)",
    ),
    "importing it raises": (
        "from torch import nn\n",
        "from torch import nn\nnn.Gone\n",
        "loads: AutoModelForCausalLM",
        "has no attribute 'Gone'",
    ),
    "it downloads while it loads": (
        "from torch import nn\n",
        "from torch import nn\nimport socket\nsocket.create_connection(('192.0.2.1', 80))\n",
        "loads: AutoConfig",
        "reaches for the network",
    ),
}

# What is wrong in the files, found without running them: a change of the code, and where it shows.
CODE = {
    "import einops\n": ("absolute imports", "fail", "modeling_foreign.py:1: einops has to be"),
    "try:\n    import flash_attn\nexcept ImportError:\n    pass\n": (
        *("absolute imports", "warn"),
        "modeling_foreign.py:2: flash_attn is optional",
    ),
    "from .gone import x\n": ("relative imports", "fail", "gone.py is missing"),
    "from . import gone\n": ("relative imports", "fail", "modeling_foreign.py:1"),
    "from .deep.gone import x\n": ("relative imports", "fail", "one flat folder"),
    "from ..gone import x\n": ("relative imports", "fail", "one flat folder"),
    '"""\nfrom .example import x\n"""\n': ("relative imports", "fail", "line of a docstring"),
    "if x\n": ("syntax", "fail", "modeling_foreign.py:1"),
    "import requests\n": ("safety", "fail", "network: modeling_foreign.py:1 requests"),
    "from urllib.request import urlopen\n": ("safety", "fail", "network: "),
    "import subprocess\n": ("safety", "fail", "subprocess: modeling_foreign.py:1"),
    "import os as o\no.system('ls')\n": ("safety", "fail", "modeling_foreign.py:2 os.system"),
    "eval('1')\n": ("safety", "fail", "eval: modeling_foreign.py:1 eval"),
    "import pickle\n": ("safety", "fail", "pickle: modeling_foreign.py:1 pickle"),
    "import torch as t\nt.load('x')\n": ("safety", "fail", "modeling_foreign.py:2 torch.load"),
    "f(trust_remote_code=True)\n": ("safety", "fail", "foreign code: modeling_foreign.py:1"),
    "__import__('os')\n": ("safety", "fail", "hidden import: modeling_foreign.py:1"),
    "open('x', 'w')\n": (
        "safety",
        "fail",
        "file writes: modeling_foreign.py:1 open(…) with mode 'w'",
    ),
    "import torch\ntorch.load = 1\n": ("safety", "fail", "tampering: modeling_foreign.py:2"),
    "import os\nos.environ['A'] = '1'\n": ("safety", "warn", "environment: modeling_foreign.py:2"),
    "import torch\ntorch.backends.cudnn.benchmark = True\n": ("safety", "warn", "global flags: "),
    "import torch\ntorch.set_default_dtype(None)\n": ("safety", "warn", "torch.set_default_dtype"),
    "open('x')\n": ("safety", "warn", "file reads: modeling_foreign.py:1 open(…) with mode 'r'"),
    "import glob\n": ("safety", "warn", "file reads: modeling_foreign.py:1 glob"),
    "getattr(1, x)\n": ("safety", "warn", "computed names: modeling_foreign.py:1"),
    "import frobnicate\n": ("safety", "warn", "unknown: modeling_foreign.py:1 frobnicate"),
}
HARMLESS = """import re
import torch
model = torch.nn.Linear(1, 1).eval()
pattern = re.compile("x")
compiled = getattr(pattern, "pattern")
"""


def write_foreign(folder, old="", new="", **config):
    """The sound model in a folder, or one with a piece replaced."""
    assert old in FOREIGN, f"FOREIGN has no {old!r} to break"
    folder.mkdir()
    (folder / FILE).write_text(FOREIGN)
    model = build(folder, config)
    state = {
        name: tensor for name, tensor in model.state_dict().items() if name != "lm_head.weight"
    }
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / FILE).write_text(FOREIGN.replace(old, new) if old else FOREIGN)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    return folder


def build(folder, config):
    """The sound model with random weights, made without any Auto class."""
    spec = importlib.util.spec_from_file_location("foreign_model", folder / FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.ForeignForCausalLM(module.ForeignConfig(causal=config.get("causal", True)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    return model


def edit_json(path, **changes):
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**content, **changes}))


def edit_weights(path, change):
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def prepend(path, text):
    path.write_text(text + path.read_text())
