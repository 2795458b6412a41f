# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""Configuration of the encoder-only family.

The defaults give the modern encoder: rotary positions, RMSNorm before each sub-layer, a gated GELU
MLP, and two sliding-window layers after each full-attention layer. Other values give
BERT, RoBERTa, DistilBERT, ELECTRA, ModernBERT and EuroBERT.
"""

from transformers.activations import ACT2FN
from transformers.configuration_utils import strict

from .configuration_base import PP_PLAN, TP_PLAN, wrong
from .layer_types import LAYER_TYPES, LayerTypesConfig

if False:  # never run: makes transformers hash the modeling files too
    from .modeling_encoder import TformerEncoderModel

AUTO_MAP = {
    "AutoConfig": "configuration_encoder.TformerEncoderConfig",
    "AutoModel": "modeling_encoder.TformerEncoderModel",
    "AutoModelForMaskedLM": "modeling_encoder.TformerEncoderForMaskedLM",
    "AutoModelForSequenceClassification": (
        "modeling_encoder.TformerEncoderForSequenceClassification"
    ),
    "AutoModelForTokenClassification": "modeling_encoder.TformerEncoderForTokenClassification",
    "AutoModelForQuestionAnswering": "modeling_encoder.TformerEncoderForQuestionAnswering",
}
CHOICES = {
    "score_bias": ("relative",),
    "classifier_pooling": ("cls", "mean"),
    "classifier_act": tuple(ACT2FN),
    "head_act": tuple(ACT2FN),
}
# The base of the angles where windows alternate: far tokens have to be told apart by wide layers.
THETAS = {"full_attention": 160000.0, "sliding_attention": 10000.0}


@strict
class TformerEncoderConfig(LayerTypesConfig):
    """Fields of the encoder-only family, besides layer_types and rope_parameters."""

    model_type = "tformer_encoder"
    own_choices = CHOICES
    base_model_tp_plan = TP_PLAN
    base_model_pp_plan = PP_PLAN

    vocab_size: int = 32000
    type_vocab_size: int = 0  # number of segment types: 2 in BERT, 0: none
    hidden_size: int = 512
    intermediate_size: int = 1376
    num_hidden_layers: int = 6
    num_attention_heads: int = 8
    num_key_value_heads: int | None = None  # None: one per query head
    head_dim: int | None = None  # None: hidden_size / num_attention_heads

    position_embedding_type: str = "rotary"  # learned (BERT), sinusoidal, none
    max_position_embeddings: int = 8192  # binding for learned positions only
    sinusoidal_layout: str = "interleaved"  # halves, fairseq
    score_bias: str | None = None  # relative (MPNet): each distance adds to the scores
    sliding_window: int | None = 64  # on both sides, tokens nearer than this; None: all

    norm_type: str = "rmsnorm"  # layernorm (BERT), layernorm_unbiased (ModernBERT)
    rms_norm_eps: float = 1e-6
    layer_norm_eps: float = 1e-5
    norm_position: str = "pre"  # post (BERT)
    final_norm: bool | None = None  # None: True unless norm_position is "post"
    embedding_norm: bool = False  # BERT, ModernBERT
    first_attention_norm: bool = True  # ModernBERT has none: its embeddings are normalised
    qk_norm: bool | str = False  # True: of each head; all: of all together
    scale_embedding: bool | float | int = False  # True: by sqrt(hidden_size) (EmbeddingGemma)

    mlp_type: str = "gated"  # plain (BERT)
    hidden_act: str = "gelu"
    attention_bias: bool = False  # of q, k and v (BERT)
    attention_output_bias: bool = False
    mlp_bias: bool = False

    head_act: str | None = "gelu"  # dense → activation → norm before lm_head; None: lm_head alone
    lm_head_bias: bool = True
    classifier_pooling: str = "cls"  # the first token's vector, or the mean of all
    classifier_act: str | None = "gelu"  # tanh (BERT): dense → activation before its classes
    classifier_norm: bool = True  # a norm behind it, and both for tokens too (ModernBERT); not BERT
    head_bias: bool = False  # of the dense layers in all of these heads

    attention_scale: float | int | None = None  # None: 1 / sqrt(head_dim)
    attention_dropout: float | int = 0.0
    dropout: float | int = 0.0  # of the embeddings, each sub-layer's output, and before classes
    tie_word_embeddings: bool = True
    label_smoothing: float | int = 0.0
    z_loss: float | int = 0.0  # weight of the squared log-partition
    return_logits_in_training: bool = False  # beside the loss; they can be the largest tensor
    initializer: str = "normal"
    initializer_range: float = 0.02

    pad_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    cls_token_id: int | None = None
    sep_token_id: int | None = None
    mask_token_id: int | None = None

    def __post_init__(self, rope_parameters: dict | None = None, **kwargs: object) -> None:
        if rope_parameters is None and not {"rope_theta", "rope_scaling"} & kwargs.keys():
            rope_parameters = {name: {"rope_theta": theta} for name, theta in THETAS.items()}
        kwargs |= {"rope_parameters": rope_parameters, "auto_map": dict(AUTO_MAP)}
        super().__post_init__(**kwargs)
        self.validate_architecture()

    def take_layer_types(self, layer_types: list[str] | None) -> None:
        if layer_types is None and self.sliding_window is not None:
            layer_types = [LAYER_TYPES[index % 3 > 0] for index in range(self.num_hidden_layers)]
        super().take_layer_types(layer_types)

    def validate_architecture(self) -> None:
        if not 0 <= self.type_vocab_size <= 10**6:  # before all sizes are counted together
            raise wrong("type_vocab_size", self.type_vocab_size, "choose 0 or their number")
        super().validate_architecture()
        if not (self.first_attention_norm or self.norm_position == "pre"):
            raise ValueError(
                f"first_attention_norm is False but norm_position is {self.norm_position!r}: only "
                "where one norm comes first ('pre') can the first be left out"
            )
        if self.classifier_norm and self.classifier_act is None:
            raise ValueError(
                "classifier_norm is True but classifier_act is None, and the norm follows it: set "
                "classifier_norm=False or an activation"
            )


TformerEncoderConfig.register_for_auto_class()
