# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""Configuration of the encoder-decoder family.

The defaults give the model of the 2017 paper: sinusoids, LayerNorm after each sub-layer, a plain
ReLU MLP, one table for source, target and output. Other values give Marian, BART and modern forms.
"""

from transformers.configuration_utils import strict

from .configuration_base import TformerConfig

if False:  # never run: makes transformers hash the modeling files too
    from .modeling_seq2seq import TformerSeq2SeqModel

AUTO_MAP = {
    "AutoConfig": "configuration_seq2seq.TformerSeq2SeqConfig",
    "AutoModel": "modeling_seq2seq.TformerSeq2SeqModel",
    "AutoModelForSeq2SeqLM": "modeling_seq2seq.TformerSeq2SeqForConditionalGeneration",
    "AutoModelForTextEncoding": "modeling_seq2seq.TformerSeq2SeqEncoderModel",
}


@strict
class TformerSeq2SeqConfig(TformerConfig):
    """Fields of the encoder-decoder family; sizes hold for both stacks, depths for each.

    One more is an attribute only with rotary positions: `rope_parameters`, in transformers' format.
    """

    model_type = "tformer_seq2seq"
    own_choices = {"score_bias": ("relative", "relative_per_layer")}
    keys_to_ignore_at_inference = ["past_key_values", "cache", "encoder_last_hidden_state"]
    attribute_map = {"num_hidden_layers": "encoder_layers"}
    base_model_fsdp_plan = {}  # TformerSeq2SeqModel has one; this would hold for each stack too

    vocab_size: int = 32000  # of the target, and of the source where source_vocab_size is None
    source_vocab_size: int | None = None
    hidden_size: int = 512
    intermediate_size: int = 2048
    encoder_layers: int = 6
    decoder_layers: int = 6
    num_attention_heads: int = 8
    num_key_value_heads: int | None = None  # None: one per query head
    head_dim: int | None = None  # None: hidden_size / num_attention_heads
    value_head_dim: int | None = None  # None: head_dim

    position_embedding_type: str = "sinusoidal"  # learned (BART), rotary, none
    max_position_embeddings: int = 1024  # binding for learned positions only
    sinusoidal_layout: str = "interleaved"  # halves: sines first (Marian), fairseq (M2M100)
    score_bias: str | None = None  # relative (T5), relative_per_layer (UMT5)

    norm_type: str = "layernorm"
    rms_norm_eps: float = 1e-6
    layer_norm_eps: float = 1e-5
    norm_position: str = "post"
    final_norm: bool | None = None  # None: True unless norm_position is "post"
    embedding_norm: bool = False  # BART, attention-is-all-you-need-pytorch
    qk_norm: bool | str = False  # True: of each head; all: of all together

    mlp_type: str = "plain"
    hidden_act: str = "relu"
    attention_bias: bool = True
    attention_output_bias: bool = True
    mlp_bias: bool = True
    lm_head_bias: bool = False  # Marian and BART call it final_logits_bias

    attention_scale: float | int | None = None  # None: 1 / sqrt(head_dim)
    logit_scale: float | int | None = None  # None: 1
    scale_embedding: bool | float | int = True  # by sqrt(hidden_size), or by a number

    attention_dropout: float | int = 0.0
    dropout: float | int = 0.1  # of the embeddings and of each sub-layer's output
    tie_word_embeddings: bool = True  # the output projection with the target table
    share_encoder_decoder_embeddings: bool = True
    label_smoothing: float | int = 0.0
    z_loss: float | int = 0.0  # weight of the squared log-partition
    return_logits_in_training: bool = False  # beside the loss; they can be the largest tensor
    initializer: str = "xavier_uniform"  # of the projections; embeddings are always normal
    initializer_range: float = 0.02

    use_cache: bool = True
    is_encoder_decoder: bool = True
    pad_token_id: int | None = 0
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 1

    def __post_init__(self, **kwargs: object) -> None:
        if self.logit_scale is None:
            self.logit_scale = 1.0
        self.architectures = self.architectures or []  # transformers looks for a class in it
        auto_map = {**AUTO_MAP, "AutoModel": self.class_of_auto_model()}
        super().__post_init__(**{**kwargs, "auto_map": auto_map})
        if self.share_encoder_decoder_embeddings and self.source_vocab_size == self.vocab_size:
            self.source_vocab_size = None  # one table is resized as one
        if self.value_head_dim is None:
            self.value_head_dim = self.head_dim
        self.validate_architecture()

    def class_of_auto_model(self) -> str:
        """Name the class that AutoModel opens: the encoder, in a folder saved from it alone."""
        is_alone = self.architectures == ["TformerSeq2SeqEncoderModel"]
        return AUTO_MAP["AutoModelForTextEncoding" if is_alone else "AutoModel"]

    def to_dict(self) -> dict:
        values = super().to_dict()
        auto_map = values.get("auto_map") or {}
        if auto_map.get("AutoModel") in AUTO_MAP.values():  # a model of one's own has its own names
            auto_map["AutoModel"] = self.class_of_auto_model()
        return values

    def validate_architecture(self) -> None:
        super().validate_architecture()
        source = self.source_vocab_size or self.vocab_size
        if self.share_encoder_decoder_embeddings and source != self.vocab_size:
            raise ValueError(
                f"source_vocab_size ({source}) differs from vocab_size ({self.vocab_size}), so one "
                "table cannot serve both: set share_encoder_decoder_embeddings=False"
            )
        if self.pad_token_id is not None and self.pad_token_id >= source:
            raise ValueError(
                f"pad_token_id is {self.pad_token_id}, outside the source vocabulary of {source}: "
                "source and target are padded with one id, choose it inside both"
            )


TformerSeq2SeqConfig.register_for_auto_class()
