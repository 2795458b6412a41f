"""Check what Trainer and PEFT ask of a model, in the fresh process of `check` (probe.py)."""

from typing import TYPE_CHECKING

import torch
from probe_errors import Caution, Fault, Skip, explained
from probe_inputs import main_inputs, may_take, random_ids, takes, too_large
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

if TYPE_CHECKING:
    from probe import Subject


def check_training(subject: "Subject") -> str:
    """Check that labels give a loss and gradients, and that the input embedding is found."""
    model = subject.answering()
    inputs = {name: torch.cat((value, value)) for name, value in main_inputs(model).items()}
    labels = labels_for(model, subject.auto, inputs)
    output = None if labels is None else with_labels(model, inputs, labels)
    if output is not None and labels is not None and subject.auto == "AutoModelForCausalLM":
        check_shift(output, labels)
    if faults := cautions(model, inputs):
        raise Caution("; ".join(faults))
    if output is None:
        raise Skip(f"{type(model).__name__} takes no labels that this check can make up")
    return "labels give a loss and gradients"


def labels_for(
    model: PreTrainedModel, auto: str, inputs: dict[str, torch.Tensor]
) -> torch.Tensor | None:
    if not may_take(model, "labels"):
        return None
    if auto.endswith(("SequenceClassification", "ImageClassification", "AudioClassification")):
        return torch.zeros(2, dtype=torch.float32 if model.config.num_labels == 1 else torch.int64)
    if auto not in ("AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoModelForSeq2SeqLM"):
        return None
    ids = random_ids(model, 5).repeat(2, 1) if auto.endswith("Seq2SeqLM") else inputs["input_ids"]
    labels = ids.clone()
    labels[:, 1] = -100  # collators of transformers mark so what is not to be learnt
    return labels


@torch.enable_grad()
def with_labels(
    model: PreTrainedModel, inputs: dict[str, torch.Tensor], labels: torch.Tensor
) -> ModelOutput | None:
    """Return the output with a loss, None if there is none and forward names no labels."""
    buffers = {buffer: buffer.clone() for buffer in model.buffers()}
    model.train()
    try:
        output = model(**inputs, labels=labels)
    except Exception as error:
        raise Fault(f"with labels {explained(error)}") from error
    finally:
        model.eval()
        for buffer, value in buffers.items():  # training changes those of normalisation
            buffer.data.copy_(value)
    loss = output.get("loss") if isinstance(output, dict) else output[0]
    if not takes(model, "labels") and (loss is None or loss.numel() != 1):
        return None
    if loss is None or loss.numel() != 1 or not loss.isfinite().all():
        raise Fault("labels, one of them -100, give no finite loss: use self.loss_function")
    loss.sum().backward()
    learns = any(p.grad is not None and p.grad.any() for p in model.parameters())
    model.zero_grad(set_to_none=True)
    if not learns:
        raise Fault("the loss of labels gives no parameter a gradient: do not detach it")
    return output


def check_shift(output: ModelOutput, labels: torch.Tensor) -> None:
    """Check that the loss compares each answer with the next token, not with its own."""
    logits, loss = getattr(output, "logits", None), getattr(output, "loss", None)
    if logits is None or loss is None or logits.shape[:2] != labels.shape:
        return
    same = cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
    after = cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())
    if torch.isclose(loss, same, rtol=1e-4) and not torch.isclose(same, after, rtol=1e-3):
        raise Fault("the loss compares each answer with its own token: shift labels by one")


def cautions(model: PreTrainedModel, inputs: dict[str, torch.Tensor]) -> list[str]:
    if "input_ids" not in inputs:
        return []
    found = list(too_large(model).values())
    try:
        model.get_input_embeddings()
    except NotImplementedError:
        found.append("PEFT and resize_token_embeddings need get_input_embeddings(): define it")
    return found
