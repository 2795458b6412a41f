"""The tutorial encoder-decoder: separate vocabularies, nothing tied, a norm behind each stack."""

from types import SimpleNamespace

from ...engine.aliases import Fields
from ...engine.checkpoints import Checkpoint
from ...engine.format import SEQ2SEQ
from ...engine.plain import Needed, PlainFormat, count, head_size
from ...engine.rules import Rule, linear, linears
from ...references.tutorial_seq2seq import TutorialSeq2Seq
from ..shared import POST_NORM, SINUSOIDS

# our module → theirs, in a layer
MODULES = {
    **{f"self_attn.{x}_proj": f"self_attn.W_{x}" for x in "qkvo"},
    "self_attn_norm": "norm1",
    "mlp.up_proj": "feed_forward.linear1",
    "mlp.down_proj": "feed_forward.linear2",
}
ENCODER = {**MODULES, "mlp_norm": "norm2"}
DECODER = {
    **MODULES,
    **{f"cross_attn.{x}_proj": f"cross_attn.W_{x}" for x in "qkvo"},
    "cross_attn_norm": "norm2",
    "mlp_norm": "norm3",
}
RULES = (
    *(
        rule
        for stack, modules in (("encoder", ENCODER), ("decoder", DECODER))
        for rule in (
            Rule(f"model.{stack}.embed_tokens.weight", f"{stack}.embedding.weight"),
            *linear(f"model.{stack}.norm", f"{stack}.norm"),
            *linears(f"model.{stack}.layers.{{i}}", f"{stack}.layers.{{i}}", modules),
        )
    ),
    *linear("lm_head", "output_proj"),
)
IGNORED = {f"{stack}.pos_encoding.pe": SINUSOIDS for stack in ("encoder", "decoder")}


def sizes(checkpoint: Checkpoint, settings: SimpleNamespace) -> Fields:
    source, width = checkpoint.shape("encoder.embedding.weight")
    head_size(width, settings.num_heads, "num_heads")
    return {
        "src_vocab_size": source,
        "tgt_vocab_size": checkpoint.shape("decoder.embedding.weight")[0],
        "d_model": width,
        "d_ff": checkpoint.shape("encoder.layers.0.feed_forward.linear1.weight")[0],
        "encoder_layers": count(checkpoint, "encoder.layers.{i}.norm1.weight"),
        "decoder_layers": count(checkpoint, "decoder.layers.{i}.norm1.weight"),
        "max_len": checkpoint.shape("encoder.pos_encoding.pe")[1],
    }


def to_ours(theirs: SimpleNamespace) -> Fields:
    return {
        **POST_NORM,  # post-norm layers with LayerNorm and biases everywhere, as in Marian
        "final_norm": True,
        "hidden_act": "relu",
        "position_embedding_type": "sinusoidal",
        "sinusoidal_layout": "interleaved",
        "scale_embedding": True,
        "embedding_norm": False,
        "vocab_size": theirs.tgt_vocab_size,
        "source_vocab_size": theirs.src_vocab_size,
        "hidden_size": theirs.d_model,
        "intermediate_size": theirs.d_ff,
        "encoder_layers": theirs.encoder_layers,
        "decoder_layers": theirs.decoder_layers,
        "num_attention_heads": theirs.num_heads,
        "max_position_embeddings": theirs.max_len,
        "tie_word_embeddings": False,
        "share_encoder_decoder_embeddings": False,
        "pad_token_id": theirs.pad_idx,
        "bos_token_id": theirs.start_idx,
        "decoder_start_token_id": theirs.start_idx,
        "eos_token_id": theirs.end_idx,
    }


FORMATS = (
    PlainFormat(
        name="tutorial-seq2seq",
        remark="the state dict of the tutorial encoder-decoder",
        released="the tutorial encoder-decoder (W_q, W_k, W_v, W_o)",
        rules=RULES,
        config_to_ours=to_ours,
        our_classes=SEQ2SEQ,
        reference=TutorialSeq2Seq,
        sizes=sizes,
        settings={"num_heads": Needed(8), "pad_idx": 0, "start_idx": 1, "end_idx": 2},
        marks=("encoder.embedding.weight", "encoder.layers.{i}.self_attn.W_q.weight"),
        ignored=IGNORED,
        hides_padding=True,
    ),
)
