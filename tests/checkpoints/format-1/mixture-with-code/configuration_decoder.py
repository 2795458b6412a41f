# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""Configuration of the decoder-only family.

The defaults give the modern language model: grouped queries, rotary positions, RMSNorm before each
sub-layer, a gated SiLU MLP. Other values give GPT-2, Mistral, Qwen2, Qwen3 and the teaching models.
"""

from transformers.configuration_utils import strict

from .configuration_base import PP_PLAN, TP_PLAN, wrong
from .layer_types import LayerTypesConfig

if False:  # never run: makes transformers hash the modeling files too
    from .modeling_decoder import TformerDecoderModel

AUTO_MAP = {
    "AutoConfig": "configuration_decoder.TformerDecoderConfig",
    "AutoModel": "modeling_decoder.TformerDecoderModel",
    "AutoModelForCausalLM": "modeling_decoder.TformerDecoderForCausalLM",
    "AutoModelForSequenceClassification": (
        "modeling_decoder.TformerDecoderForSequenceClassification"
    ),
    "AutoModelForTokenClassification": "modeling_decoder.TformerDecoderForTokenClassification",
    "AutoModelForQuestionAnswering": "modeling_decoder.TformerDecoderForQuestionAnswering",
}


@strict
class TformerDecoderConfig(LayerTypesConfig):
    """Fields of the decoder-only family, besides layer_types and rope_parameters."""

    model_type = "tformer_decoder"
    own_choices = {"score_bias": ("alibi",)}
    base_model_tp_plan = TP_PLAN
    base_model_pp_plan = PP_PLAN

    vocab_size: int = 32000
    hidden_size: int = 512
    intermediate_size: int = 1376
    num_hidden_layers: int = 6
    num_attention_heads: int = 8
    num_key_value_heads: int | None = 4  # None: one per query head
    head_dim: int | None = None  # None: hidden_size / num_attention_heads

    position_embedding_type: str = "rotary"  # learned (GPT-2), sinusoidal, none
    max_position_embeddings: int = 2048  # binding for learned positions only
    sinusoidal_layout: str = "interleaved"  # halves: sines first (Marian), fairseq (XGLM)
    no_rope_layers: list[int] | None = None  # 0 for each layer that does not rotate (SmolLM3)
    score_bias: str | None = None  # alibi (BLOOM): distances lower the scores

    # layernorm (GPT-2), layernorm_unbiased (Cohere), rmsnorm_offset (Gemma)
    norm_type: str = "rmsnorm"
    rms_norm_eps: float = 1e-6
    layer_norm_eps: float = 1e-5
    norm_position: str = "pre"  # post (GPT-1), inside (OLMo-2), both (Gemma 2)
    parallel_residual: str | None = None  # own (NeoX): a norm each; shared (Phi-2): one norm
    residual_multiplier: float | int = 1.0  # of what each sub-layer adds (Granite)
    final_norm: bool | None = None  # None: True unless norm_position is "post"
    embedding_norm: bool = False
    qk_norm: bool | str = False  # True: of each head (Qwen3); all: of all together (OLMo-2)

    mlp_type: str = "gated"  # plain (GPT-2)
    hidden_act: str = "silu"
    attention_bias: bool = False  # of q, k and v (Qwen2, GPT-2)
    attention_output_bias: bool = False
    mlp_bias: bool = False
    lm_head_bias: bool = False

    attention_scale: float | int | None = None  # None: 1 / sqrt(head_dim)
    logit_scale: float | int | None = None  # None: 1
    attn_logit_softcapping: float | int | None = None  # bounds the scores (Gemma 2)
    final_logit_softcapping: float | int | None = None  # bounds the logits (Gemma 2)
    scale_embedding: bool | float | int = False  # True: by sqrt(hidden_size); or a number
    sliding_window: int | None = None  # Mistral

    attention_dropout: float | int = 0.0
    dropout: float | int = 0.0  # of the embeddings and of each sub-layer's output
    tie_word_embeddings: bool = True
    label_smoothing: float | int = 0.0
    z_loss: float | int = 0.0  # weight of the squared log-partition
    return_logits_in_training: bool = False  # beside the loss; they can be the largest tensor
    initializer: str = "normal"
    initializer_range: float = 0.02

    use_cache: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2

    def __post_init__(self, **kwargs: object) -> None:
        if self.logit_scale is None:
            self.logit_scale = 1.0  # never None: vLLM multiplies by it
        super().__post_init__(**{**kwargs, "auto_map": dict(AUTO_MAP)})
        self.validate_architecture()

    def take_layer_types(self, layer_types: list[str] | None) -> None:
        if layer_types is None and self.sliding_window is not None:
            layer_types = ["sliding_attention"] * self.num_hidden_layers
        super().take_layer_types(layer_types)

    def validate_architecture(self) -> None:
        super().validate_architecture()
        if self.sliding_window == 1:  # transformers' cache would keep [-0:], which is everything
            raise wrong("sliding_window", 1, "choose at least 2: 1 is the token itself alone")
        rotates = self.no_rope_layers
        if rotates is not None and (
            len(rotates) != self.num_hidden_layers
            or any(type(flag) is not int or flag not in (0, 1) for flag in rotates)
        ):
            remedy = f"give 0 or 1 for each of {self.num_hidden_layers} layers"
            raise wrong("no_rope_layers", rotates, remedy)
        if self.score_bias and self.sliding_window is not None:
            raise ValueError(
                f"score_bias is {self.score_bias!r} beside sliding_window "
                f"({self.sliding_window}), whose cache forgets positions: set one of them to None"
            )
        if self.parallel_residual and self.norm_position != "pre":
            raise ValueError(
                f"parallel_residual is {self.parallel_residual!r} beside norm_position "
                f"{self.norm_position!r}: parallel sub-layers have their norms first: choose 'pre'"
            )
        if self.residual_multiplier != 1 and self.norm_position in ("inside", "both"):
            raise ValueError(
                f"residual_multiplier is {self.residual_multiplier}, but norm_position "
                f"{self.norm_position!r} puts a norm in its place: set it to 1.0"
            )
        if self.final_logit_softcapping is not None and self.logit_scale != 1:
            raise ValueError(
                f"final_logit_softcapping is {self.final_logit_softcapping} beside logit_scale "
                f"({self.logit_scale}), and engines differ in which comes first: choose one"
            )


TformerDecoderConfig.register_for_auto_class()
