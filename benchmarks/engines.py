"""The same weights in other libraries, where they are installed.

Each function takes a model of transformers. Layouts differ in where query, key and value lie, and
in which values of a head are rotated together.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import ModuleType

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from .measure import Absent
from .peers import END

State = dict[str, torch.Tensor]


def library(name: str) -> ModuleType:
    """Import on demand: each takes seconds, and a process that is weighed needs one."""
    try:
        return import_module(name)
    except ImportError as error:
        raise Absent(f"{name.split('.')[0]} is not installed") from error


def layer_weights(layers: nn.ModuleList) -> list[State]:
    """Return the tensors of each layer by their names within it."""
    return [dict(layer.named_parameters()) for layer in layers]


def load(model: nn.Module, state: State) -> nn.Module:
    model.load_state_dict({name: tensor.detach().clone() for name, tensor in state.items()})
    return model.eval()


def litgpt_from(llama: PreTrainedModel) -> nn.Module:
    litgpt = library("litgpt")
    config = llama.config
    model = litgpt.GPT(
        litgpt.Config(
            block_size=config.max_position_embeddings,
            n_layer=config.num_hidden_layers,
            n_embd=config.hidden_size,
            vocab_size=config.vocab_size,
            padded_vocab_size=config.vocab_size,
            n_head=config.num_attention_heads,
            n_query_groups=config.num_key_value_heads,
            head_size=config.head_dim,
            intermediate_size=config.intermediate_size,
            norm_class_name="RMSNorm",
            norm_eps=config.rms_norm_eps,
            mlp_class_name="LLaMAMLP",
            rotary_percentage=1.0,
            rope_base=config.rope_parameters["rope_theta"],
            parallel_residual=False,
            bias=False,
        )
    )
    table = llama.model.embed_tokens.weight
    state = {
        "transformer.wte.weight": table,
        "lm_head.weight": table,
        "transformer.ln_f.weight": llama.model.norm.weight,
    }
    for index, theirs in enumerate(layer_weights(llama.model.layers)):
        layer = f"transformer.h.{index}"
        qkv = [theirs[f"self_attn.{name}_proj.weight"] for name in "qkv"]
        state |= {
            f"{layer}.attn.qkv.weight": torch.cat(qkv),
            f"{layer}.attn.proj.weight": theirs["self_attn.o_proj.weight"],
            f"{layer}.mlp.fc_1.weight": theirs["mlp.gate_proj.weight"],
            f"{layer}.mlp.fc_2.weight": theirs["mlp.up_proj.weight"],
            f"{layer}.mlp.proj.weight": theirs["mlp.down_proj.weight"],
            f"{layer}.norm_1.weight": theirs["input_layernorm.weight"],
            f"{layer}.norm_2.weight": theirs["post_attention_layernorm.weight"],
        }
    load(model, state).lm_head.weight = model.transformer.wte.weight
    return model


def litgpt_decoding(
    llama: PreTrainedModel, prompt: torch.Tensor, length: int
) -> Callable[[], torch.Tensor]:
    """Return a call that gives the prompt and `length` tokens after it, in a cache made before."""
    model = litgpt_from(llama)
    model.max_seq_length = prompt.shape[1] + length
    model.set_kv_cache(batch_size=1)
    generate = library("litgpt.generate.base").generate
    decode = partial(generate, model, prompt[0], prompt.shape[1] + length, eos_id=END)
    return lambda: torch.inference_mode()(decode)(temperature=0.0, top_p=0.0)[None]


def x_transformers_from(llama: PreTrainedModel) -> nn.Module:
    x_transformers = library("x_transformers")
    config = llama.config
    model = x_transformers.TransformerWrapper(
        num_tokens=config.vocab_size,
        max_seq_len=config.max_position_embeddings,
        use_abs_pos_emb=False,
        tie_embedding=True,
        tie_embedding_scale=1.0,
        attn_layers=x_transformers.Decoder(
            dim=config.hidden_size,
            depth=config.num_hidden_layers,
            heads=config.num_attention_heads,
            attn_kv_heads=config.num_key_value_heads,
            attn_dim_head=config.head_dim,
            attn_flash=True,
            rotary_pos_emb=True,
            rotary_emb_dim=config.head_dim,
            use_rmsnorm=True,
            ff_mult=config.intermediate_size / config.hidden_size,
            ff_glu=True,
            ff_swish=True,
            ff_no_bias=True,
            verbose=False,
        ),
    )
    frequencies = "attn_layers.rotary_pos_emb.inv_freq"
    load(model, {**x_transformers_state(llama), frequencies: model.get_buffer(frequencies)})
    for name, tensor in model.named_parameters():
        if name.endswith("bias"):  # Llama has none to train
            tensor.requires_grad_(False)
    return model


def x_transformers_state(llama: PreTrainedModel) -> State:
    config = llama.config
    state = {
        "token_emb.emb.weight": llama.model.embed_tokens.weight,
        "attn_layers.final_norm.g": llama.model.norm.weight - 1,  # they add one to every gain
    }
    for index, theirs in enumerate(layer_weights(llama.model.layers)):
        attention, mlp = f"attn_layers.layers.{2 * index}", f"attn_layers.layers.{2 * index + 1}"
        query, key = (
            side_by_side(theirs[f"self_attn.{name}_proj.weight"], config.head_dim) for name in "qk"
        )
        output = theirs["self_attn.o_proj.weight"]
        up_and_gate = torch.cat((theirs["mlp.up_proj.weight"], theirs["mlp.gate_proj.weight"]))
        state |= {
            f"{attention}.0.0.g": theirs["input_layernorm.weight"] - 1,
            f"{attention}.1.to_q.weight": deal(query, config),
            f"{attention}.1.to_k.weight": key,
            f"{attention}.1.to_v.weight": theirs["self_attn.v_proj.weight"],
            f"{attention}.1.to_out.weight": deal(output.t(), config).t(),
            f"{mlp}.0.0.g": theirs["post_attention_layernorm.weight"] - 1,
            f"{mlp}.1.ff.0.proj.weight": up_and_gate,
            f"{mlp}.1.ff.0.proj.bias": torch.zeros(len(up_and_gate)),
            f"{mlp}.1.ff.2.weight": theirs["mlp.down_proj.weight"],
        }
    return state


def side_by_side(weight: torch.Tensor, head_dim: int) -> torch.Tensor:
    """Reorder the rows of each head: rotated together are neighbours, where halves were."""
    halves = weight.unflatten(0, (-1, 2, head_dim // 2))
    return halves.transpose(1, 2).flatten(0, 2)


def deal(weight: torch.Tensor, config: PreTrainedConfig) -> torch.Tensor:
    """Reorder the query heads: those that share a key head are as far apart as there are key heads,
    where they followed each other."""
    groups = weight.unflatten(0, (config.num_key_value_heads, -1, config.head_dim))
    return groups.transpose(0, 1).flatten(0, 2)


def torch_encoder_from(marian: PreTrainedModel) -> nn.Module:
    """Return a torch.nn.TransformerEncoder, whose fast path serves inference; for a relu Marian."""
    config, encoder = marian.config, marian.model.encoder
    layer = nn.TransformerEncoderLayer(
        config.d_model,
        config.encoder_attention_heads,
        config.encoder_ffn_dim,
        dropout=config.dropout,
        activation=config.activation_function,
        batch_first=True,
    )
    model = nn.TransformerEncoder(layer, config.encoder_layers)
    state = {}
    for index, weights in enumerate(layer_weights(encoder.layers)):
        for kind in ("weight", "bias"):
            qkv = [weights[f"self_attn.{name}_proj.{kind}"] for name in "qkv"]
            state |= {
                f"layers.{index}.self_attn.in_proj_{kind}": torch.cat(qkv),
                f"layers.{index}.self_attn.out_proj.{kind}": weights[f"self_attn.out_proj.{kind}"],
                f"layers.{index}.linear1.{kind}": weights[f"fc1.{kind}"],
                f"layers.{index}.linear2.{kind}": weights[f"fc2.{kind}"],
                f"layers.{index}.norm1.{kind}": weights[f"self_attn_layer_norm.{kind}"],
                f"layers.{index}.norm2.{kind}": weights[f"final_layer_norm.{kind}"],
            }
    return load(model, state)
