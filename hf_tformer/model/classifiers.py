# Copyright 2026 The hf_tformer authors. Licensed under the Apache License, Version 2.0.
"""What stands between an encoder's hidden states and its logits.

hidden_states [batch, seq, hidden] → pooled → dense, activation, norm → projected to scores
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from .layers import build_activation
from .norms import build_norm, unchanged
from .positions import is_padding_mask


class Transform(nn.Module):
    """Applies dense → activation → norm, between the model and a projection.

    Reads from config: hidden_size, head_bias (+ the norm's fields).
    """

    def __init__(self, config: PreTrainedConfig, activation: str, has_norm: bool):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=config.head_bias)
        self.act_fn = build_activation(activation)
        # CODEPATH: every masked language model and ModernBERT's classes; BERT's classes have none
        self.norm = build_norm(config, config.hidden_size) if has_norm else unchanged

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.norm(self.act_fn(self.dense(hidden_states)))


def build_transform(config: PreTrainedConfig, activation: str | None, has_norm: bool) -> Callable:
    # CODEPATH: BERT and ModernBERT; EuroBERT has no dense layer before lm_head
    return Transform(config, activation, has_norm) if activation else unchanged


class Classifier(nn.Module):
    """Hidden states [..., hidden] to one score for each class [..., labels].

    Reads from config: dropout, hidden_size, classifier_norm (+ the transform's fields).
    """

    def __init__(self, config: PreTrainedConfig, activation: str | None, num_labels: int):
        super().__init__()
        self.transform = build_transform(config, activation, config.classifier_norm)
        self.dropout = nn.Dropout(config.dropout)
        self.out_proj = nn.Linear(config.hidden_size, num_labels)

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.out_proj(self.dropout(self.transform(hidden_states)))


class TextClassifier(Classifier):
    """All tokens of a sequence [batch, seq, hidden] to its classes [batch, labels].

    vLLM calls this module alone, with what it has pooled as a sequence of one token.

    Reads from config: classifier_pooling, classifier_act, num_labels (+ the classifier's fields).
    """

    def __init__(self, config: PreTrainedConfig):
        super().__init__(config, config.classifier_act, config.num_labels)
        self.pool = POOLINGS[config.classifier_pooling]

    def forward(self, hidden_states: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return super().forward(self.pool(hidden_states, attention_mask))


def first_token(hidden_states: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Pick the first token that is no padding, [batch, seq, hidden] → [batch, hidden]."""
    if not is_padding_mask(attention_mask):
        return hidden_states[:, 0]
    first = attention_mask.to(hidden_states.device).int().argmax(-1)
    return hidden_states[torch.arange(first.shape[0], device=first.device), first]


def mean_token(hidden_states: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Average the tokens that are no padding, [batch, seq, hidden] → [batch, hidden]."""
    if not is_padding_mask(attention_mask):
        return hidden_states.mean(1)
    real = attention_mask.to(hidden_states)[..., None]
    return (hidden_states * real).sum(1) / real.sum(1).clamp(min=1)


POOLINGS = {"cls": first_token, "mean": mean_token}


def build_token_classifier(config: PreTrainedConfig, num_labels: int) -> Classifier:
    # CODEPATH: ModernBERT; the classes of BERT's tokens are projected as they are
    return Classifier(config, config.classifier_act if config.classifier_norm else None, num_labels)
