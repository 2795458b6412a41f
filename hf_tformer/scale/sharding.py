"""What transformers alone would shard wrongly: tied tables, and bodies cut into pipeline stages.

It replaces the refusal of `TformerPreTrainedModel`, which travels with a saved model.
"""

from torch import nn
from transformers import PreTrainedModel
from transformers.distributed import DistributedConfig

from ..model.layers import TformerPreTrainedModel
from ..model.norms import unchanged
from ..model.positions import NoPositions


def distribute(
    kind: type[PreTrainedModel],
    model: PreTrainedModel,
    distributed_config: DistributedConfig | None,
    *mesh: object,
) -> PreTrainedModel:
    """Distribute a model; tied tables become one parameter before they are sharded.

    Sharded one by one, each would be padded for itself where the processes do not divide its rows:
    from the second step on, one of them would keep what it was loaded with, without an error.
    """
    layout = distributed_config
    if layout is not None and layout.fsdp_size > 1:
        tie_before_sharding(model, layout)
    model = super(TformerPreTrainedModel, kind).maybe_distribute_model(model, layout, *mesh)
    if layout is not None and layout.pp_size > 1:
        keep_own_stage(model.base_model)
    return model


def tie_before_sharding(model: PreTrainedModel, layout: DistributedConfig) -> None:
    pairs = model.all_tied_weights_keys.items()
    tied = {name.rpartition(".")[0] for pair in pairs for name in pair}
    if layout.tp_size > 1 and tied & model.tp_plan.keys():
        refuse_to_cut(model, layout.fsdp_size * layout.tp_size)
    else:  # the root shards what no entry names, all users of a table together
        model.tie_weights(recompute_mapping=False)
        plan = model.fsdp_plan.items()
        model._fsdp_plan = {name: style for name, style in plan if name not in tied}


def keep_own_stage(body: PreTrainedModel) -> None:
    """Let a body run whose other layers transformers has replaced by identities."""
    if body.config.score_bias:
        raise ValueError(
            f"score_bias is {body.config.score_bias!r}, which counts distances in the cache of the "
            "first layer, and that is in another process: omit pp_size"
        )
    if isinstance(body.layers[0], nn.Identity):
        take_embedded(body)
    own = [layer for layer in body.layers if not isinstance(layer, nn.Identity)]
    for layer in set(body.layers) - set(own):
        layer.attention_type, layer.own_rotation = own[0].attention_type, unchanged


def take_embedded(body: PreTrainedModel) -> None:
    """Take hidden states of the stage before, which are scaled, placed and normalised already."""
    body.embedding_scale, body.positions = 1.0, NoPositions()
    body.embed_norm, body.dropout = nn.Identity(), nn.Identity()
    if getattr(body, "embed_types", None) is not None:
        body.embed_types = None


def refuse_to_cut(model: PreTrainedModel, parts: int) -> None:
    """Refuse to pad tied tables that are cut both ways, which stay two parameters."""
    if rest := model.config.vocab_size % parts:
        raise ValueError(
            f"vocab_size is {model.config.vocab_size}, and tied tables cannot be cut into "
            f"fsdp_size x tp_size = {parts} unequal parts: add {parts - rest} tokens by "
            "resize_token_embeddings(), or set one of the sizes to 1"
        )


TformerPreTrainedModel.maybe_distribute_model = classmethod(distribute)  # type: ignore[method-assign, assignment]
