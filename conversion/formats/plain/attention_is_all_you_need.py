"""attention-is-all-you-need-pytorch's .chkpt: weights, and the command line of their training."""

from types import SimpleNamespace

from ...engine.aliases import Fields
from ...engine.checkpoints import Checkpoint
from ...engine.errors import ConversionError
from ...engine.format import SEQ2SEQ, require, require_one_of
from ...engine.plain import TOKEN_IDS, Needed, PlainFormat, count, head_size
from ...engine.rules import Rule, linear, linears, weights
from ...references.attention_is_all_you_need import Transformer
from ..shared import POST_NORM, SINUSOIDS

ATTENTION = {"q_proj": "w_qs", "k_proj": "w_ks", "v_proj": "w_vs", "o_proj": "fc"}
MLP = {
    "mlp.up_proj": "pos_ffn.w_1",
    "mlp.down_proj": "pos_ffn.w_2",
    "mlp_norm": "pos_ffn.layer_norm",
}
BLOCKS = {"encoder": {"self_attn": "slf_attn"}}
BLOCKS["decoder"] = {**BLOCKS["encoder"], "cross_attn": "enc_attn"}


def stack_rules(stack: str, blocks: dict[str, str]) -> tuple[Rule, ...]:
    ours, theirs = f"model.{stack}.layers.{{i}}", f"{stack}.layer_stack.{{i}}"
    norms = {f"{our}_norm": f"{their}.layer_norm" for our, their in blocks.items()}
    projections = {
        f"{our}.{name}": f"{their}.{other}"
        for our, their in blocks.items()
        for name, other in ATTENTION.items()
    }
    return (
        *linear(f"model.{stack}.embed_norm", f"{stack}.layer_norm"),
        *linears(ours, theirs, {**norms, **MLP}),
        *weights(ours, theirs, projections),
    )


RULES = (
    *(rule for stack, blocks in BLOCKS.items() for rule in stack_rules(stack, blocks)),
    # One table where both sides share it, which is theirs of the source; else one for each.
    Rule("model.shared.weight", "encoder.src_word_emb.weight"),
    Rule("model.encoder.embed_tokens.weight", "encoder.src_word_emb.weight"),
    Rule("model.decoder.embed_tokens.weight", "decoder.trg_word_emb.weight"),
    Rule("lm_head.weight", "trg_word_prj.weight"),
)
IGNORED = {f"{stack}.position_enc.pos_table": SINUSOIDS for stack in BLOCKS}


def sizes(checkpoint: Checkpoint, settings: SimpleNamespace) -> Fields:
    source, width = checkpoint.shape("encoder.src_word_emb.weight")
    target = checkpoint.shape("decoder.trg_word_emb.weight")[0]
    first = "encoder.layer_stack.0"
    keys, values = (checkpoint.shape(f"{first}.slf_attn.{x}.weight")[0] for x in ("w_ks", "w_vs"))
    require_one_of(settings, "hf_tformer", scale_emb_or_prj=("prj", "emb", "none"))
    if settings.embs_share_weight and source != target:
        raise ConversionError(
            f"embs_share_weight is True, but the source has {source} tokens and the target "
            f"{target}: one table cannot serve both, set embs_share_weight=false"
        )
    # Without a shared output projection it scales nothing, whatever the setting is.
    scaled = settings.scale_emb_or_prj if settings.proj_share_weight else "none"
    return {
        "src_vocab_size": source,
        "trg_vocab_size": target,
        "d_model": width,
        "d_inner": checkpoint.shape(f"{first}.pos_ffn.w_1.weight")[0],
        "d_k": head_size(keys, settings.n_head, "n_head"),
        "d_v": head_size(values, settings.n_head, "n_head"),
        "n_layers": count(checkpoint, "encoder.layer_stack.{i}.pos_ffn.w_1.weight"),
        "n_position": checkpoint.shape("encoder.position_enc.pos_table")[1],
        "scales_embeddings": scaled == "emb",
        "scales_logits": scaled == "prj",
    }


def to_ours(theirs: SimpleNamespace) -> Fields:
    require(theirs, "hf_tformer", trg_pad_idx=theirs.src_pad_idx)
    shared = theirs.embs_share_weight
    return {
        **POST_NORM,
        "layer_norm_eps": 1e-6,
        "embedding_norm": True,
        "hidden_act": "relu",
        "attention_bias": False,
        "attention_output_bias": False,
        "lm_head_bias": False,
        "position_embedding_type": "sinusoidal",
        "sinusoidal_layout": "interleaved",
        "scale_embedding": theirs.scales_embeddings,
        "logit_scale": theirs.d_model**-0.5 if theirs.scales_logits else 1.0,
        "vocab_size": theirs.trg_vocab_size,
        "source_vocab_size": None if shared else theirs.src_vocab_size,
        "hidden_size": theirs.d_model,
        "intermediate_size": theirs.d_inner,
        "encoder_layers": theirs.n_layers,
        "decoder_layers": theirs.n_layers,
        "num_attention_heads": theirs.n_head,
        "head_dim": theirs.d_k,
        "value_head_dim": theirs.d_v,
        "max_position_embeddings": theirs.n_position,
        "dropout": theirs.dropout or 0.0,
        "tie_word_embeddings": theirs.proj_share_weight,
        "share_encoder_decoder_embeddings": shared,
        "pad_token_id": theirs.src_pad_idx,
        "bos_token_id": theirs.bos_token_id,
        "decoder_start_token_id": theirs.bos_token_id,
        "eos_token_id": theirs.eos_token_id,
    }


FORMATS = (
    PlainFormat(
        name="attention-is-all-you-need",
        remark="the .chkpt of attention-is-all-you-need-pytorch, which holds all settings",
        released="attention-is-all-you-need-pytorch",
        rules=RULES,
        config_to_ours=to_ours,
        our_classes=SEQ2SEQ,
        reference=Transformer,
        sizes=sizes,
        settings={
            "n_head": Needed(8),
            "src_pad_idx": Needed(1),
            "trg_pad_idx": Needed(1),
            "proj_share_weight": Needed(True),
            "embs_share_weight": Needed(False),
            "scale_emb_or_prj": Needed("prj"),
            "dropout": None,
            **{name: None for name in TOKEN_IDS if name != "pad_token_id"},
        },
        marks=("encoder.src_word_emb.weight", "decoder.layer_stack.{i}.enc_attn.w_qs.weight"),
        ignored=IGNORED,
        hides_padding=True,
        ties={
            "trg_word_prj.weight": "proj_share_weight",
            "encoder.src_word_emb.weight": "embs_share_weight",
        },
    ),
)
