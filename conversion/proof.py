"""Proof of a conversion: both models read the same padded batch and give the same logits."""

import torch
import transformers
from torch import nn

import hf_tformer

from .formats import OURS
from .registry import FORMATS, model_type_of
from .rules import ConversionError

# Of the largest logit. Between equal models only rounding differs, which is far smaller.
TOLERANCE = 1e-4
LONGEST = 48  # enough for positions to matter


def verify(first, second, dtype=None):
    """The largest difference between the logits of two folders, in float32; too large, it raises.

    `dtype` is what the second was rounded to; the first is rounded alike before it is read.
    """
    model = load(first)
    round_weights(model, dtype)
    batch = padded_batch(model)
    expected = real_logits(model, batch)
    del model  # one model in memory at a time
    actual = real_logits(load(second), batch)
    if actual.shape != expected.shape:
        raise ConversionError(
            f"{first} gives {expected.shape[-1]} logits for each token and {second} "
            f"{actual.shape[-1]}: they are different models"
        )
    return refuse_difference(expected, actual)


def refuse_difference(expected, actual):
    difference = (actual - expected).abs().max().item()
    limit = TOLERANCE * max(1.0, expected.abs().max().item())
    if not difference <= limit:  # said so that it catches what is not a number, too
        raise ConversionError(
            f"the logits differ by {difference:.1e}, more than rounding explains ({limit:.1e}): "
            "the two models do not compute the same"
        )
    return difference


def load(folder):
    """The model of a folder in float32, every weight of it from there."""
    model, report = model_class_of(folder).from_pretrained(
        folder, dtype=torch.float32, attn_implementation="sdpa", output_loading_info=True
    )
    lacking = sorted(map(str, (*report["missing_keys"], *report["mismatched_keys"])))
    if lacking:
        raise ConversionError(f"{folder} lacks or misshapes {lacking[:5]}: fetch it again")
    return model.eval()


def model_class_of(folder):
    model_type = model_type_of(folder)
    if model_type in OURS:
        return getattr(hf_tformer, OURS[model_type][1])
    if model_type in FORMATS:
        return getattr(transformers, FORMATS[model_type].classes[1])
    raise ConversionError(f"model_type is {model_type!r} in {folder}/config.json: unknown here")


@torch.no_grad()
def round_weights(model, dtype):
    if dtype is None:
        return
    for tensor in model.state_dict(keep_vars=True).values():
        # Frozen parameters are tables of constants, which are computed and not converted.
        if tensor.requires_grad or not isinstance(tensor, nn.Parameter):
            tensor.copy_(tensor.to(dtype))


def padded_batch(model):
    """Rows of three lengths: padding is where models that agree on whole rows part."""
    longest = min(LONGEST, model.config.max_position_embeddings)
    lengths = torch.tensor([longest, max(1, longest * 2 // 3), max(1, longest // 3)])
    inputs = random_ids(model.get_input_embeddings().num_embeddings, longest)
    mask = (torch.arange(longest) < lengths[:, None]).long()
    if model.config.is_encoder_decoder:
        outputs = random_ids(model.get_output_embeddings().out_features, longest)
        return {
            "input_ids": inputs,
            "attention_mask": mask,
            "decoder_input_ids": outputs,
            "decoder_attention_mask": mask.flip(0),  # a short source beside a long target
        }
    mask = mask.flip(1)  # on the left, as for generation
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    return {"input_ids": inputs, "attention_mask": mask, "position_ids": positions}


def random_ids(vocab_size, length):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(vocab_size, (3, length), generator=generator)


@torch.inference_mode()
def real_logits(model, batch):
    """The logits at real tokens; what stands at padding is nobody's answer."""
    try:
        logits = model(**batch, use_cache=False).logits
    except IndexError as error:
        raise ConversionError(
            f"a {type(model).__name__} cannot read the ids of the other model: they differ"
        ) from error
    return logits[batch.get("decoder_attention_mask", batch["attention_mask"]).bool()]
