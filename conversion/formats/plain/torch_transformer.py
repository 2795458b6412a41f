"""torch.nn.Transformer, with the names that PyTorch's translation tutorial gives what is around it.

transformer.*                                   nn.Transformer
src_tok_emb.embedding.weight, tgt_tok_emb...    the tables, scaled by sqrt(d_model)
positional_encoding.pos_embedding               sinusoids, sines at even and cosines at odd places
generator.weight, generator.bias                to the target's vocabulary
"""

from collections.abc import Iterator
from math import prod
from types import SimpleNamespace

from ...engine.aliases import Config, Fields
from ...engine.checkpoints import Checkpoint
from ...engine.errors import ConversionError
from ...engine.format import (
    SEQ2SEQ,
    carry,
    inverted,
    plain_attention_scale,
    require,
    require_one_of,
)
from ...engine.plain import Needed, PlainFormat, count, head_size, is_same
from ...engine.rules import Rule
from ...engine.transforms import Split, Zeros
from ...references.torch_transformer import TorchTransformer
from ..shared import SINUSOIDS

# our norm → theirs
NORMS = {
    "encoder": {"self_attn_norm": "norm1", "mlp_norm": "norm2"},
    "decoder": {"self_attn_norm": "norm1", "cross_attn_norm": "norm2", "mlp_norm": "norm3"},
}
ATTENTIONS = {
    "encoder": {"self_attn": "self_attn"},
    "decoder": {"self_attn": "self_attn", "cross_attn": "multihead_attn"},
}
SRC, TGT = "src_tok_emb.embedding.weight", "tgt_tok_emb.embedding.weight"


def rules(theirs: SimpleNamespace) -> tuple[Rule, ...]:
    return (
        *(rule for stack in NORMS for rule in stack_rules(stack, "weight")),
        *(rule for stack in NORMS for rule in bias_rules(stack, theirs.bias)),
        Rule("model.shared.weight", SRC),
        Rule("model.encoder.embed_tokens.weight", SRC),
        Rule("model.decoder.embed_tokens.weight", TGT),
        Rule("lm_head.weight", "generator.weight"),
        Rule("lm_head.bias", "generator.bias"),
    )


def layer_of(stack: str) -> tuple[str, str]:
    return f"model.{stack}.layers.{{i}}", f"transformer.{stack}.layers.{{i}}"


def norms_of(stack: str) -> dict[str, str]:
    """Ours → theirs, in the layers and behind them."""
    ours, theirs = layer_of(stack)
    inside = {f"{ours}.{our}": f"{theirs}.{their}" for our, their in NORMS[stack].items()}
    return {**inside, f"model.{stack}.norm": f"transformer.{stack}.norm"}


def stack_rules(stack: str, kind: str) -> Iterator[Rule]:
    ours, theirs = layer_of(stack)
    for our_norm, their_norm in norms_of(stack).items():
        yield Rule(f"{our_norm}.{kind}", f"{their_norm}.{kind}")
    for our, their in ATTENTIONS[stack].items():
        yield Rule(
            tuple(f"{ours}.{our}.{x}_proj.{kind}" for x in "qkv"),
            f"{theirs}.{their}.in_proj_{kind}",
            Split(3),
        )
        yield Rule(f"{ours}.{our}.o_proj.{kind}", f"{theirs}.{their}.out_proj.{kind}")
    yield Rule(f"{ours}.mlp.up_proj.{kind}", f"{theirs}.linear1.{kind}")
    yield Rule(f"{ours}.mlp.down_proj.{kind}", f"{theirs}.linear2.{kind}")


def bias_rules(stack: str, has_biases: bool) -> Iterator[Rule]:
    if has_biases:
        return stack_rules(stack, "bias")
    return (Rule(f"{norm}.bias", (), Zeros("hidden_size")) for norm in norms_of(stack))


IGNORED = {"positional_encoding.pos_embedding": SINUSOIDS}

# The constructor's arguments, with its defaults.
SETTINGS = {
    "nhead": Needed(8),
    "pad_token_id": Needed(1),
    "norm_first": False,
    "activation": "relu",
    "layer_norm_eps": 1e-5,
    "scale_embedding": True,
    "bos_token_id": None,
    "eos_token_id": None,
    "decoder_start_token_id": None,  # bos_token_id
    "max_len": None,  # needed without a table of positions
}


def sizes(checkpoint: Checkpoint, settings: SimpleNamespace) -> Fields:
    source, width = checkpoint.shape(SRC)
    head_size(width, settings.nhead, "nhead")
    names = checkpoint.names()
    table = "positional_encoding.pos_embedding"
    layer = "transformer.encoder.layers.0"
    return {
        "src_vocab_size": source,
        "tgt_vocab_size": checkpoint.shape(TGT)[0],
        "d_model": width,
        "dim_feedforward": checkpoint.shape(f"{layer}.linear1.weight")[0],
        "num_encoder_layers": count(checkpoint, "transformer.encoder.layers.{i}.linear1.weight"),
        "num_decoder_layers": count(checkpoint, "transformer.decoder.layers.{i}.linear1.weight"),
        "bias": f"{layer}.linear1.bias" in names,
        "generator_bias": "generator.bias" in names,
        "final_norm": "transformer.encoder.norm.weight" in names,
        "shares_tables": is_same(checkpoint, SRC, TGT),
        "ties_generator": is_same(checkpoint, TGT, "generator.weight"),
        "max_len": settings.max_len or (rows(checkpoint.shape(table)) if table in names else 1024),
    }


def rows(shape: tuple[int, ...]) -> int:
    """Programs put their batch dimension of one first, second or nowhere."""
    return prod(shape[:-1])


FIXED = {
    "norm_type": "layernorm",
    "embedding_norm": False,
    "qk_norm": False,
    "mlp_type": "plain",
    "logit_scale": 1.0,
    "position_embedding_type": "sinusoidal",
    "sinusoidal_layout": "interleaved",
}
ACTIVATIONS = ("relu", "gelu")
# theirs → ours
FIELDS = {
    "tgt_vocab_size": "vocab_size",
    "d_model": "hidden_size",
    "dim_feedforward": "intermediate_size",
    "num_encoder_layers": "encoder_layers",
    "num_decoder_layers": "decoder_layers",
    "nhead": "num_attention_heads",
    "bias": "mlp_bias",
    "generator_bias": "lm_head_bias",
    "final_norm": "final_norm",
    "shares_tables": "share_encoder_decoder_embeddings",
    "ties_generator": "tie_word_embeddings",
    "activation": "hidden_act",
    "layer_norm_eps": "layer_norm_eps",
    "scale_embedding": "scale_embedding",
    "pad_token_id": "pad_token_id",
    "bos_token_id": "bos_token_id",
    "eos_token_id": "eos_token_id",
    "max_len": "max_position_embeddings",
}


def to_ours(theirs: SimpleNamespace) -> Fields:
    require_one_of(theirs, "hf_tformer", activation=ACTIVATIONS)
    return {
        **FIXED,
        **carry(theirs, FIELDS),
        **dict.fromkeys(("attention_bias", "attention_output_bias"), theirs.bias),
        "norm_position": "pre" if theirs.norm_first else "post",
        "source_vocab_size": None if theirs.shares_tables else theirs.src_vocab_size,
        "decoder_start_token_id": first_id(theirs),
    }


def first_id(theirs: SimpleNamespace) -> int | None:
    start = theirs.decoder_start_token_id
    return theirs.bos_token_id if start is None else start


def to_theirs(ours: Config) -> Fields:
    format_name = "torch.nn.Transformer"
    if ours.pad_token_id is None:
        raise ConversionError(f"pad_token_id is None, by which {format_name} finds padding: set it")
    require(ours, format_name, **FIXED)
    require(ours, format_name, attention_bias=ours.mlp_bias, attention_output_bias=ours.mlp_bias)
    require(
        ours,
        format_name,
        num_key_value_heads=ours.num_attention_heads,
        head_dim=ours.hidden_size / ours.num_attention_heads,
        value_head_dim=ours.head_dim,
    )
    plain_attention_scale(ours, format_name)
    require_one_of(ours, format_name, hidden_act=ACTIVATIONS)
    return {
        **carry(ours, inverted(FIELDS)),
        "norm_first": ours.norm_position == "pre",
        "src_vocab_size": ours.source_vocab_size or ours.vocab_size,
        "decoder_start_token_id": ours.decoder_start_token_id,
    }


FORMATS = (
    PlainFormat(
        name="torch-transformer",
        remark="torch.nn.Transformer, named as in PyTorch's translation tutorial",
        released="torch.nn.Transformer",
        rules=rules,
        config_to_ours=to_ours,
        config_to_theirs=to_theirs,
        our_classes=SEQ2SEQ,
        reference=TorchTransformer,
        sizes=sizes,
        settings=SETTINGS,
        marks=(SRC, TGT, "transformer.encoder.layers.{i}.self_attn.in_proj_weight"),
        ignored=IGNORED,
        hides_padding=True,
    ),
)
