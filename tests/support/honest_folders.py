"""Model folders as honest people write them: `tformer check` may ask to read, but not fail, them.

Each entry is file → content, in the manner of what is on the Hub, in words of our own.
"""

MAMBA = {
    "configuration_ssm.py": '''
"""A state space model."""
import math
from typing import Optional, Union

from transformers.configuration_utils import PretrainedConfig
from transformers.utils import logging

logger = logging.get_logger(__name__)


class SsmConfig(PretrainedConfig):
    model_type = "ssm"
    keys_to_ignore_at_inference = ["past_key_values"]

    def __init__(self, d_model=64, time_step_rank: Union[int, str] = "auto", **kwargs):
        self.d_model = d_model
        rank = math.ceil(d_model / 16)
        self.time_step_rank = rank if time_step_rank == "auto" else time_step_rank
        if "layers" in kwargs:
            logger.warning("`layers` is deprecated")
        for key in ("hidden_size", "num_hidden_layers"):
            setattr(self, key, kwargs.pop(key, None))
        super().__init__(**kwargs)
''',
    "modeling_ssm.py": """
from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, Optional, Tuple

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn
from torch.nn import CrossEntropyLoss
from transformers.activations import ACT2FN
from transformers.modeling_utils import PreTrainedModel
from transformers.utils import ModelOutput, logging
from transformers.utils.import_utils import is_causal_conv1d_available, is_mamba_ssm_available

from .configuration_ssm import SsmConfig

logger = logging.get_logger(__name__)

if is_mamba_ssm_available():
    from mamba_ssm.ops.selective_scan_interface import mamba_inner_fn, selective_scan_fn
    from mamba_ssm.ops.triton.selective_state_update import selective_state_update
else:
    selective_state_update, selective_scan_fn, mamba_inner_fn = None, None, None

try:
    from causal_conv1d import causal_conv1d_fn, causal_conv1d_update
except ImportError:
    causal_conv1d_fn = causal_conv1d_update = None

is_fast_path_available = all((selective_state_update, selective_scan_fn, causal_conv1d_fn))


class SsmCache:
    def __init__(self, config, batch_size, dtype=torch.float16, device: Optional[str] = None):
        self.states = {
            i: torch.zeros(batch_size, config.d_model, device=device, dtype=dtype)
            for i in range(config.num_hidden_layers)
        }


class SsmMixer(nn.Module):
    def __init__(self, config: SsmConfig, layer_idx: int):
        super().__init__()
        self.act = ACT2FN[config.hidden_act]
        A = torch.arange(1, 17, dtype=torch.float32)[None, :].expand(config.d_model, -1)
        self.A_log = nn.Parameter(torch.log(A.contiguous()))
        self.in_proj = nn.Linear(config.d_model, config.d_model * 2, bias=False)
        if not is_fast_path_available:
            logger.warning_once("The fast path is not available: pip install mamba-ssm")

    def forward(self, hidden_states, cache_params: SsmCache | None = None):
        x, gate = self.in_proj(hidden_states).chunk(2, dim=-1)
        if "cuda" in self.A_log.device.type and selective_scan_fn is not None:
            return selective_scan_fn(x, gate)
        if cache_params is not None:
            cache_params.states[0].copy_(x[:, -1])
        return F.softplus(x) * self.act(gate) * torch.exp(-torch.exp(self.A_log.float())).sum()


@dataclass
class SsmOutput(ModelOutput):
    last_hidden_state: torch.FloatTensor | None = None
    cache_params: Optional[SsmCache] = None


class SsmModel(PreTrainedModel):
    config_class = SsmConfig
    _no_split_modules = ["SsmMixer"]

    def __init__(self, config):
        super().__init__(config)
        self.layers = nn.ModuleList([SsmMixer(config, i) for i in range(config.num_hidden_layers)])
        self.gradient_checkpointing = False
        self.post_init()

    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=math.sqrt(0.02))

    def forward(self, input_ids=None, **kwargs) -> Tuple | SsmOutput:
        for layer in self.layers:
            if self.gradient_checkpointing and self.training:
                x = self._gradient_checkpointing_func(layer.__call__, input_ids)
            else:
                x = torch.utils.checkpoint.checkpoint(layer, input_ids, use_reentrant=False)
        return SsmOutput(last_hidden_state=x)
""",
}

ENCODER = {
    "modeling_encoder.py": """
import copy
import math
import os
import warnings
from contextlib import nullcontext
from typing import List, Optional, Tuple, Union

import torch
from einops import rearrange, repeat
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.modeling_attn_mask_utils import _prepare_4d_attention_mask
from transformers.modeling_outputs import BaseModelOutput, MaskedLMOutput
from transformers.utils import is_flash_attn_2_available, logging

try:
    from flash_attn import flash_attn_varlen_qkvpacked_func
    from flash_attn.bert_padding import pad_input, unpad_input
    from flash_attn.layers.rotary import RotaryEmbedding as FlashRotary
except ImportError:
    flash_attn_varlen_qkvpacked_func, pad_input, unpad_input = None, None, None
    FlashRotary = object

logger = logging.get_logger(__name__)
_CHECKPOINT_FOR_DOC = "someone/encoder"


@torch.jit.script
def gelu_fused(x: torch.Tensor) -> torch.Tensor:
    return x * 0.5 * (1.0 + torch.erf(x / 1.41421))


@torch.compile(dynamic=True)
def compiled_mlp(x, w):
    return torch.nn.functional.gelu(x @ w)


def rotate_half(x):
    x = rearrange(x, "... (d r) -> ... d r", r=2)
    x1, x2 = x.unbind(dim=-1)
    return rearrange(torch.stack((-x2, x1), dim=-1), "... d r -> ... (d r)")


class EncoderConfig(PretrainedConfig):
    model_type = "an-encoder"
    attribute_map = {"hidden_size": "d"}

    def __init__(self, d=8, **kwargs):
        self.d = d
        super().__init__(**kwargs)


class Unpad(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, indices):
        ctx.save_for_backward(indices)
        return torch.gather(hidden, 0, indices)

    @staticmethod
    def backward(ctx, grad):
        (indices,) = ctx.saved_tensors
        return torch.zeros_like(grad).scatter_(0, indices, grad), None


class EncoderModel(PreTrainedModel):
    config_class = EncoderConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True

    def __init__(self, config: EncoderConfig):
        super().__init__(config)
        self.config = config
        self.register_buffer("inv_freq", 1.0 / (1e4 ** torch.arange(0, 8, 2).float()), False)
        self.use_flash = is_flash_attn_2_available() and unpad_input is not None
        self.mlp = getattr(nn, "Linear")(config.d, config.d)
        if os.environ.get("ENCODER_DEBUG", "0") == "1":
            warnings.warn("debugging", stacklevel=2)
        self.post_init()

    @property
    def dummy_inputs(self):
        return {"input_ids": torch.ones(1, 1)}

    @classmethod
    def from_pretrained(cls, name, *args, **kwargs):
        return super().from_pretrained(name, *args, **kwargs)

    def forward(self, input_ids, attention_mask: Optional[torch.Tensor] = None, **kwargs):
        context = torch.no_grad() if not self.training else nullcontext()
        with context, torch.autocast(device_type=input_ids.device.type, enabled=False):
            h = self.mlp(input_ids.float())
        mask = _prepare_4d_attention_mask(attention_mask, h.dtype)
        with torch.backends.cuda.sdp_kernel(enable_math=True):
            h = torch.nn.functional.scaled_dot_product_attention(h, h, h, attn_mask=mask)
        assert h.shape[-1] == self.config.d, f"{h.shape} of {self.__class__.__name__}"
        return BaseModelOutput(last_hidden_state=copy.deepcopy(repeat(h, "b s d -> b s d")))


EncoderConfig.register_for_auto_class()
EncoderModel.register_for_auto_class("AutoModel")
""",
}

TOKENIZER = {
    "tokenization_words.py": '''
# coding=utf-8
# Copyright 2024 Someone. Licensed under the Apache License.
"""Tokenization classes."""
import base64
import collections
import json
import os
import re
import unicodedata
from functools import lru_cache
from shutil import copyfile
from typing import Any, Dict, List, Optional, Tuple

import regex
import sentencepiece as spm
from transformers.tokenization_utils import AddedToken, PreTrainedTokenizer
from transformers.utils import logging

logger = logging.get_logger(__name__)
VOCAB_FILES_NAMES = {"vocab_file": "spiece.model", "merges_file": "merges.txt"}
PATTERN = re.compile(r"[^\\W\\d_]+|\\d")


@lru_cache()
def bytes_to_unicode():
    return {b: chr(b) for b in range(256)}


def load_vocab(path):
    vocab = collections.OrderedDict()
    with open(path, "r", encoding="utf-8") as reader:
        for index, token in enumerate(reader.readlines()):
            vocab[token.rstrip("\\n")] = index
    return vocab


def load_ranks(path: str) -> Dict[bytes, int]:
    with open(path, "rb") as f:
        lines = (line.split() for line in f.read().splitlines() if line)
        return {base64.b64decode(token): int(rank) for token, rank in lines}


class WordsTokenizer(PreTrainedTokenizer):
    vocab_files_names = VOCAB_FILES_NAMES
    model_input_names = ["input_ids", "attention_mask"]

    def __init__(self, vocab_file, merges_file=None, unk_token="<unk>", sp_model_kwargs=None, **kw):
        self.sp_model_kwargs = {} if sp_model_kwargs is None else sp_model_kwargs
        self.vocab_file = vocab_file
        self.sp_model = spm.SentencePieceProcessor(**self.sp_model_kwargs)
        self.sp_model.Load(vocab_file)
        if merges_file and not os.path.isfile(merges_file):
            raise ValueError(f"no {merges_file}: AutoTokenizer.from_pretrained(PATH) finds it")
        with open(merges_file, encoding="utf-8") as handle:
            self.ranks = json.load(handle)
        unk_token = AddedToken(unk_token) if isinstance(unk_token, str) else unk_token
        super().__init__(unk_token=unk_token, **kw)

    def __getstate__(self):
        state = self.__dict__.copy()
        state["sp_model"] = None
        return state

    def __setstate__(self, d):
        self.__dict__ = d
        self.sp_model = spm.SentencePieceProcessor(**self.sp_model_kwargs)

    @property
    def vocab_size(self):
        return self.sp_model.get_piece_size()

    def get_vocab(self):
        vocab = {self.convert_ids_to_tokens(i): i for i in range(self.vocab_size)}
        vocab.update(self.added_tokens_encoder)
        return vocab

    def _tokenize(self, text: str) -> List[str]:
        text = unicodedata.normalize("NFKC", text)
        return [t for t in regex.findall(r"\\p{L}+", text) if PATTERN.match(t)]

    def save_vocabulary(self, save_directory, filename_prefix: Optional[str] = None) -> Tuple[str]:
        if not os.path.isdir(save_directory):
            logger.error(f"{save_directory} should be a directory")
            os.makedirs(save_directory, exist_ok=True)
        out = os.path.join(save_directory, (filename_prefix or "") + "spiece.model")
        if os.path.isfile(self.vocab_file):
            copyfile(self.vocab_file, out)
        with open(out, "wb") as fi:
            fi.write(self.sp_model.serialized_model_proto())
        with open(out, "w", encoding="utf-8") as f:
            f.write(json.dumps(self.ranks, ensure_ascii=False))
        return (out,)
''',
}
VISION = {
    "image_processing_patches.py": """
import math
from functools import partial, reduce
from typing import Dict, List, Optional, Union

import numpy as np
import PIL
import torch
from packaging import version
from PIL import Image, ImageOps
from transformers import AutoImageProcessor
from transformers.image_processing_utils import BaseImageProcessor, BatchFeature
from transformers.image_transforms import convert_to_rgb, normalize, rescale, resize
from transformers.image_utils import (
    IMAGENET_STANDARD_MEAN, ChannelDimension, ImageInput, PILImageResampling,
    make_list_of_images, to_numpy_array,
)
from transformers.processing_utils import ProcessorMixin
from transformers.utils import TensorType, is_torch_available, is_vision_available

if version.parse(version.parse(PIL.__version__).base_version) >= version.parse("9.1.0"):
    BICUBIC = PIL.Image.Resampling.BICUBIC
else:
    BICUBIC = PIL.Image.BICUBIC


def square(image: Image.Image, background=(0, 0, 0)) -> Image.Image:
    width, height = image.size
    result = Image.new(image.mode, (max(width, height),) * 2, background)
    result.paste(ImageOps.exif_transpose(image), ((result.width - width) // 2, 0))
    return result


class PatchProcessor(BaseImageProcessor):
    model_input_names = ["pixel_values"]

    def __init__(self, size=None, resample=PILImageResampling.BICUBIC, **kwargs):
        super().__init__(**kwargs)
        self.size = size or {"height": 8, "width": 8}

    def preprocess(self, images: ImageInput, return_tensors: Union[str, TensorType] = None):
        images = [to_numpy_array(convert_to_rgb(i)) for i in make_list_of_images(images)]
        steps = [partial(rescale, scale=1 / 255), partial(normalize, mean=0.5, std=0.5)]
        images = [reduce(lambda x, f: f(image=x), steps, image) for image in images]
        patches = np.stack(images).astype(np.float32).transpose(0, 3, 1, 2)
        grid = np.mgrid[0:2, 0:2] if hasattr(np, "mgrid") else np.zeros((2, 2))
        return BatchFeature(data={"pixel_values": patches}, tensor_type=return_tensors)


class PatchesProcessor(ProcessorMixin):
    attributes = ["image_processor", "tokenizer"]
    image_processor_class = "AutoImageProcessor"
    tokenizer_class = "AutoTokenizer"

    def __call__(self, text=None, images=None, **kwargs):
        return BatchFeature({**self.image_processor(images), **self.tokenizer(text)})


AutoImageProcessor.register("PatchProcessor", PatchProcessor)
""",
}

GENERATE = {
    "custom_generate/generate.py": '''
import torch
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList
from transformers.generation.utils import GenerateDecoderOnlyOutput

from .helper import pick


def generate(model, input_ids, generation_config=None, logits_processor=None, left_padding=None,
             **kwargs):
    """Greedy, with a look at how sure the model is."""
    config = generation_config or model.generation_config
    cur_length = input_ids.shape[1]
    while cur_length < config.max_length:
        with torch.inference_mode():
            logits = model(input_ids).logits
        token = pick(logits[:, -1].float(), temperature=getattr(config, "temperature", 1.0))
        input_ids = torch.cat((input_ids, token[:, None]), dim=1)
        cur_length += 1
        if (token == config.eos_token_id).all():
            break
    return input_ids
''',
    "custom_generate/helper.py": """
import torch


def pick(logits, temperature=1.0):
    probs = torch.softmax(logits / temperature, dim=-1)
    return torch.multinomial(probs, 1)[:, 0] if temperature else logits.argmax(-1)
""",
    "custom_generate/requirements.txt": "torch\n",
}

SENTENCES = {
    "modules.json": '[{"idx": 0, "name": "0", "path": "", "type": "custom_st.Transformer"},'
    ' {"idx": 1, "name": "1", "type": "sentence_transformers.models.Pooling"}]',
    "custom_st.py": """
import json
import logging
import os
from io import BytesIO
from typing import Any, Dict, List, Literal, Optional, Union

import torch
from torch import nn
from transformers import AutoConfig, AutoModel, AutoTokenizer

logger = logging.getLogger(__name__)


class Transformer(nn.Module):
    save_in_root: bool = True

    def __init__(self, model_name_or_path: str, max_seq_length: int = None, **kwargs: Any) -> None:
        super().__init__()
        self.config_keys = ["max_seq_length"]
        self.default_task: Literal["query", "eval"] = "query"
        config = AutoConfig.from_pretrained(model_name_or_path, **kwargs)
        self.auto_model = AutoModel.from_pretrained(model_name_or_path, config=config)
        self.tokenizer = AutoTokenizer.from_pretrained(model_name_or_path)
        self.max_seq_length = max_seq_length

    def forward(self, features: Dict[str, torch.Tensor], task: Optional[str] = None):
        output = self.auto_model(**features, return_dict=False)
        features.update({"token_embeddings": output[0]})
        return features

    def tokenize(self, texts: Union[List[str], List[dict]]) -> Dict[str, torch.Tensor]:
        return self.tokenizer([s.strip() for s in texts], padding=True, return_tensors="pt")

    def save(self, output_path: str, safe_serialization: bool = True) -> None:
        self.auto_model.save_pretrained(output_path, safe_serialization=safe_serialization)
        with open(os.path.join(output_path, "sentence_bert_config.json"), "w") as fOut:
            json.dump({k: getattr(self, k) for k in self.config_keys}, fOut, indent=2)

    @classmethod
    def load(cls, input_path: str) -> "Transformer":
        with open(os.path.join(input_path, "sentence_bert_config.json")) as fIn:
            return cls(model_name_or_path=input_path, **json.load(fIn))
""",
}

QUANTISED = {
    "modeling_quantised.py": """
import importlib.metadata
import math

import torch
import torch.nn as nn
from torch.nn.parameter import Parameter
from transformers import PreTrainedModel

try:
    import triton
    import triton.language as tl

    HAS_TRITON = True
except Exception:
    HAS_TRITON = False

if HAS_TRITON:

    @triton.jit
    def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
        pid = tl.program_id(axis=0)
        offsets = pid * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)

    def add(x, y):
        out = torch.empty_like(x)
        grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)
        add_kernel[grid](x, y, out, x.numel(), BLOCK=1024)
        return out


class W8A16Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inp: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor):
        ctx.shape = inp.size()
        out = inp.view(-1, inp.size(-1)).mm(weight.to(scale.dtype).mul_(scale[:, None]).t())
        return out.view(*(ctx.shape[:-1] + (weight.size(0),)))


class QuantisedLinear(nn.Module):
    def __init__(self, bits: int, weight=None, *args, **kwargs):
        super().__init__()
        shape = torch.Size([4, 4])
        self.weight = Parameter(torch.empty(shape, dtype=torch.int8), requires_grad=False)
        self.register_buffer("scale", torch.ones(4, dtype=torch.float16))
        if weight is not None:
            peak = weight.abs().max(dim=-1).values
            self.scale.copy_(peak / (2 ** (bits - 1) - 1))
            self.weight.data = torch.round(weight / self.scale[:, None]).to(torch.int8)

    def forward(self, input):
        return W8A16Linear.apply(input, self.weight, self.scale)


def quantise(model: PreTrainedModel, bits: int):
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear):
            parent = model.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], QuantisedLinear(bits, module.weight))
    torch.cuda.empty_cache()
    return model
""",
}

CHAT = {
    "modeling_chat.py": '''
""" A chat model in the manner of 2023. """
import copy
import math
import re
import sys
import warnings
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn
from torch.nn import BCEWithLogitsLoss, CrossEntropyLoss, LayerNorm, MSELoss
from torch.nn.utils import skip_init
from transformers.generation.logits_process import LogitsProcessor
from transformers.generation.utils import GenerationConfig, LogitsProcessorList
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_utils import PreTrainedModel
from transformers.pytorch_utils import ALL_LAYERNORM_LAYERS
from transformers.utils import (
    add_start_docstrings_to_model_forward, is_flash_attn_greater_or_equal_2_10,
    is_torch_fx_available, replace_return_docstrings,
)

from .configuration_chat import ChatConfig

if is_torch_fx_available():
    wrapped = torch.fx.wrap(copy.copy)

if sys.platform != "darwin":
    torch._C._jit_set_profiling_mode(False)
    torch._C._jit_override_can_fuse_on_cpu(True)

CHAT_INPUTS_DOCSTRING = r"""
    Args:
        input_ids: see [`AutoTokenizer`]. Files are kept below ~/.cache/huggingface.
"""


class InvalidScoreLogitsProcessor(LogitsProcessor):
    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor):
        if torch.isnan(scores).any() or torch.isinf(scores).any():
            scores.zero_()
            scores[..., 5] = 5e4
        return scores


class ChatRMSNorm(nn.Module):
    def __init__(self, hidden_size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))

    def extra_repr(self):
        return f"{tuple(self.weight.shape)}"


ALL_LAYERNORM_LAYERS.append(ChatRMSNorm)


class ChatModel(PreTrainedModel):
    config_class = ChatConfig

    def __init__(self, config, device=None):
        super().__init__(config)
        init_method = skip_init if config.empty_init else (lambda cls, *a, **k: cls(*a, **k))
        self.norm = init_method(LayerNorm, config.hidden_size)
        self.attn_class = {"eager": nn.Identity, "sdpa": nn.Identity}[config._attn_implementation]
        self.max_cache = config.max_cache

    @add_start_docstrings_to_model_forward(CHAT_INPUTS_DOCSTRING)
    @replace_return_docstrings(output_type=CausalLMOutputWithPast, config_class="ChatConfig")
    def forward(self, input_ids: torch.LongTensor = None, labels=None, return_dict=None, **kwargs):
        loss = None
        lm_logits = self.norm(input_ids.float())
        if labels is not None:
            shift = lm_logits[..., :-1, :].contiguous()
            loss = CrossEntropyLoss(ignore_index=-100)(shift.view(-1, 4), labels[..., 1:].view(-1))
        return CausalLMOutputWithPast(loss=loss, logits=lm_logits)

    @torch.inference_mode()
    def chat(self, tokenizer, query: str, history: List[Dict] = None, logits_processor=None, **kw):
        history = history or []
        logits_processor = logits_processor or LogitsProcessorList()
        logits_processor.append(InvalidScoreLogitsProcessor())
        inputs = tokenizer.build_chat_input(query, history=history, role="user").to(self.device)
        outputs = self.generate(**inputs, logits_processor=logits_processor, **kw)
        response = tokenizer.decode(outputs.tolist()[0][len(inputs["input_ids"][0]):-1])
        return re.sub(r"\\[\\[.*\\]\\]", "", response).strip(), history

    def quantize(self, bits: int, device=None):
        if bits == 0:
            return self
        from .quantization import quantize

        return quantize(self, bits)
''',
    "quantization.py": "def quantize(model, bits):\n    return model.half() if bits else model\n",
    "configuration_chat.py": """
from transformers import PretrainedConfig


class ChatConfig(PretrainedConfig):
    model_type = "chat"

    def __init__(self, hidden_size=8, empty_init=True, max_cache=4, rope_scaling=None, **kwargs):
        self.hidden_size = hidden_size
        self.empty_init = empty_init
        self.max_cache = max_cache
        self._rope_scaling_validation(rope_scaling)
        super().__init__(tie_word_embeddings=kwargs.pop("tie_word_embeddings", False), **kwargs)

    def _rope_scaling_validation(self, value):
        if value is not None and value.get("type") not in ["linear", "dynamic"]:
            raise ValueError(f"got {value}")
""",
}

MODERN = {
    "modeling_modern.py": """
from collections.abc import Callable
from typing import Optional, TypedDict, Unpack

import torch
from torch import nn
from transformers import GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.activations import ACT2FN
from transformers.cache_utils import Cache, DynamicCache
from transformers.integrations import use_kernel_forward_from_hub
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask
from transformers.modeling_flash_attention_utils import FlashAttentionKwargs
from transformers.modeling_layers import (
    GenericForSequenceClassification, GradientCheckpointingLayer,
)
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS, dynamic_rope_update
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import (
    LlamaMLP, LlamaRMSNorm, apply_rotary_pos_emb, eager_attention_forward, rotate_half,
)
from transformers.processing_utils import Unpack as Unpacked
from transformers.utils import TransformersKwargs, auto_docstring, can_return_tuple
from transformers.utils.generic import check_model_inputs


class ModernConfig(PreTrainedConfig):
    model_type = "modern"
    base_model_tp_plan = {"layers.*.self_attn.q_proj": "colwise"}


class ModernRotary(nn.Module):
    inv_freq: torch.Tensor

    def __init__(self, config: ModernConfig, device=None):
        super().__init__()
        self.rope_type = config.rope_parameters["rope_type"]
        rope_init_fn: Callable = self.compute_default
        if self.rope_type != "default":
            rope_init_fn = ROPE_INIT_FUNCTIONS[self.rope_type]
        inv_freq, self.attention_scaling = rope_init_fn(config, device)
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    @staticmethod
    def compute_default(config: ModernConfig = None, device: Optional["torch.device"] = None):
        return 1.0 / 1e4 ** (torch.arange(0, 8, 2, dtype=torch.int64).float() / 8), 1.0

    @torch.no_grad()
    @dynamic_rope_update
    def forward(self, x, position_ids):
        with torch.autocast(device_type=x.device.type, enabled=False):
            freqs = (self.inv_freq[None, :, None] @ position_ids[:, None].float()).transpose(1, 2)
        return freqs.cos().to(dtype=x.dtype), freqs.sin().to(dtype=x.dtype)


@use_kernel_forward_from_hub("RMSNorm")
class ModernNorm(LlamaRMSNorm):
    pass


class ModernLayer(GradientCheckpointingLayer):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.mlp, self.layer_idx = LlamaMLP(config), layer_idx

    def forward(self, hidden_states, attention_mask=None, **kwargs: Unpack[TransformersKwargs]):
        attention: Callable = eager_attention_forward
        if self.config._attn_implementation != "eager":
            attention = ALL_ATTENTION_FUNCTIONS[self.config._attn_implementation]
        out, _ = attention(self, hidden_states, hidden_states, hidden_states, attention_mask)
        return self.mlp(out.reshape(*hidden_states.shape[:-1], -1).contiguous())


@auto_docstring
class ModernModel(PreTrainedModel):
    config: ModernConfig
    _no_split_modules = ["ModernLayer"]
    _can_record_outputs = {"hidden_states": ModernLayer}

    @check_model_inputs
    @auto_docstring
    def forward(self, input_ids: torch.LongTensor | None = None,
                past_key_values: Cache | None = None, **kwargs) -> BaseModelOutputWithPast:
        if past_key_values is None:
            past_key_values = DynamicCache(config=self.config)
        mask = create_causal_mask(config=self.config, past_key_values=past_key_values)
        for layer in self.layers[: self.config.num_hidden_layers]:
            hidden_states = layer(input_ids, attention_mask=mask, **kwargs)
        return BaseModelOutputWithPast(last_hidden_state=hidden_states)


class ModernForSequenceClassification(GenericForSequenceClassification, PreTrainedModel):
    pass


__all__ = ["ModernConfig", "ModernModel"]
""",
}

REMOTE_BASE = {
    "configuration_base.py": """
import inspect
import json
from pathlib import Path

from transformers import CONFIG_MAPPING, AutoConfig, PretrainedConfig


class PairConfig(PretrainedConfig):
    model_type = "pair"
    is_composition = True

    def __init__(self, text_config=None, vision_config=None, **kwargs):
        if isinstance(text_config, dict):
            kind = text_config.get("model_type", "llama")
            text_config = CONFIG_MAPPING[kind](**text_config)
        self.text_config = text_config or AutoConfig.for_model("llama")
        self.trust = kwargs.pop("trust_remote_code", False)
        super().__init__(**kwargs)

    @classmethod
    def from_file(cls, path):
        return cls(**json.loads(Path(path).read_text(encoding="utf-8")))

    def to_dict(self):
        output = self.__dict__.copy()
        output["model_type"] = self.__class__.model_type
        return output

    @property
    def parameters(self):
        return inspect.signature(self.__init__).parameters
""",
}
HONEST = {
    "a state space model with kernels": MAMBA,
    "an encoder with flash attention and einops": ENCODER,
    "a tokenizer with sentencepiece": TOKENIZER,
    "image processing": VISION,
    "its own generate": GENERATE,
    "modules of sentence-transformers": SENTENCES,
    "quantised layers and a triton kernel": QUANTISED,
    "a chat model of 2023": CHAT,
    "a model of transformers 5": MODERN,
    "a configuration of two": REMOTE_BASE,
}
