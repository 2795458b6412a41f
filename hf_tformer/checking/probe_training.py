"""Check what Trainer and PEFT ask of a model, in the fresh process of `check` (probe.py)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from probe_errors import Caution, Fault, Skip, explained
from probe_inputs import (
    MEDIA,
    Answers,
    ask,
    compare,
    completed,
    main_inputs,
    may_take,
    random_ids,
    takes,
    with_target,
)
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

if TYPE_CHECKING:
    from probe import Subject

IGNORED = 1  # the place of the label -100 in a row
CLASSIFIERS = ("SequenceClassification", "ImageClassification", "AudioClassification")
SHIFTED = ("AutoModelForCausalLM", "AutoModelForImageTextToText")


def check_options(subject: "Subject") -> str:
    """Check that what forward names besides its ids is used as transformers uses it."""
    model = subject.answering()
    inputs = main_inputs(model)
    if "input_ids" not in inputs:
        raise Skip(f"its main input is {model.main_input_name}, not input_ids")
    ids, tried = inputs["input_ids"], []
    refused = [name for name in subject.of_tokenizer if not may_take(model, name)]
    remedy = "take it, or leave it out of model_input_names in tokenizer_config.json"
    faults = [f"the tokenizer gives {name}, which forward refuses: {remedy}" for name in refused]
    if takes(model, "inputs_embeds"):
        tried.append("inputs_embeds")
        faults += embeddings_fault(model, ids)
    if takes(model, "position_ids") and not model.config.is_encoder_decoder:
        tried.append("position_ids")
        check_positions(model, ids)
    if takes(model, "output_hidden_states"):
        tried.append("output_hidden_states")
        given = completed(model, {"input_ids": ids})
        if not getattr(model(**given, output_hidden_states=True), "hidden_states", True):
            faults.append("output_hidden_states=True gives none: return them as hidden_states")
    if faults:
        raise Caution("; ".join(faults))
    return ", ".join(tried) or "forward names none that is tried"


def check_positions(model: PreTrainedModel, ids: torch.Tensor) -> None:
    """Check that each row has its own positions, where a model takes a row of them for each."""
    rows = torch.stack((torch.arange(ids.shape[1]), torch.arange(ids.shape[1]) // 2))
    given = {"input_ids": ids.repeat(2, 1), "position_ids": rows}
    if may_take(model, "attention_mask"):  # without, transformers takes such rows for packed ones
        given["attention_mask"] = torch.ones_like(rows)
    try:
        both = ask(model, **given)
        second = ask(model, **{name: value[1:] for name, value in given.items()})
    except (RuntimeError, ValueError, IndexError):
        return  # positions of several dimensions
    last = {name: answer[1:] for name, answer in both.items()}
    compare(second, last, "position_ids of one row are used for another")


@torch.no_grad()
def embeddings_fault(model: PreTrainedModel, ids: torch.Tensor) -> Iterator[str]:
    """Compare the embeddings of ids with the ids: soft prompts are given so."""
    remedy = "hand inputs_embeds on, and scale them as those of ids"
    try:
        plain = with_target(model, {"input_ids": ids})
        answers = ask(model, **plain)
        given = model.get_input_embeddings()(plain.pop("input_ids"))
        compare(answers, ask(model, inputs_embeds=given, **plain), "differently")
    except Fault as fault:
        yield f"inputs_embeds are answered {fault}: {remedy}"
    except Exception as error:
        yield f"with inputs_embeds {explained(error)}: {remedy}"


def check_training(subject: "Subject") -> str:
    """Check that labels give a loss and gradients, and what trainers ask for besides."""
    model = subject.answering()
    inputs = {name: torch.cat((value, value)) for name, value in main_inputs(model).items()}
    labels = labels_for(model, subject.auto, inputs)
    given = {**inputs, "labels": labels}
    faults = list(embedding_faults(model, inputs))
    output = None if labels is None else with_labels(model, given)
    if output is not None and labels is not None:
        check_loss(subject.auto, output, labels)
        faults += unreached(model)
        faults += faults_of_trainers(subject.auto, model, given)
    model.zero_grad(set_to_none=True)
    if faults:
        raise Caution("; ".join(faults))
    if output is None:
        raise Skip(f"this check makes no labels for {subject.auto or type(model).__name__}")
    return "labels give a loss and gradients"


def labels_for(model: PreTrainedModel, auto: str, inputs: Answers) -> torch.Tensor | None:
    if not may_take(model, "labels"):
        return None
    if auto.endswith(CLASSIFIERS):
        return torch.zeros(2, dtype=torch.float32 if model.config.num_labels == 1 else torch.int64)
    if auto == "AutoModelForSeq2SeqLM":
        labels = random_ids(model, 5).repeat(2, 1)
    elif auto in (*SHIFTED, "AutoModelForMaskedLM"):
        labels = inputs["input_ids"].clone()
    elif auto == "AutoModelForTokenClassification":
        labels = inputs["input_ids"] % model.config.num_labels
    else:
        return None
    labels[:, IGNORED] = -100  # collators of transformers mark so what is not to be learnt
    return labels


def trained(model: PreTrainedModel, given: dict[str, Any]) -> ModelOutput:
    """Return the output in training mode; the buffers that it changes are set back."""
    buffers = {buffer: buffer.clone() for buffer in model.buffers()}
    torch.manual_seed(0)
    model.train()
    try:
        with torch.enable_grad():
            return model(**completed(model, given))
    finally:
        model.eval()
        for buffer, value in buffers.items():
            buffer.data.copy_(value)


def with_labels(model: PreTrainedModel, given: dict[str, Any]) -> ModelOutput | None:
    """Return the output with a loss, None if there is none and forward names no labels."""
    try:
        output = trained(model, given)
    except Exception as error:
        raise Fault(f"with labels {explained(error)}") from error
    loss = output.get("loss") if isinstance(output, dict) else output[0]
    if not takes(model, "labels") and (loss is None or loss.numel() != 1):
        return None
    if loss is None or loss.numel() != 1 or not loss.isfinite().all():
        raise Fault("labels, one of them -100, give no finite loss: use self.loss_function")
    if isinstance(output, dict) and getattr(output.get("logits"), "requires_grad", False):
        output["logits"].retain_grad()
    loss.sum().backward()
    if not any(p.grad is not None and p.grad.any() for p in model.parameters()):
        if loss == 0 and model.config.num_labels == 1:
            raise Fault("the loss of one label is always 0: take the squared error of num_labels 1")
        raise Fault("the loss of labels gives no parameter a gradient: do not detach it")
    return output


def check_loss(auto: str, output: ModelOutput, labels: torch.Tensor) -> None:
    """Check which token a label is compared with, and that a label of -100 counts for nothing."""
    logits, loss = getattr(output, "logits", None), getattr(output, "loss", None)
    if logits is None or loss is None or logits.shape[:2] != labels.shape:
        return
    place = IGNORED
    if auto in SHIFTED:
        by_shift = [
            cross_entropy(
                logits[:, : labels.shape[1] - n].flatten(0, 1).float(), labels[:, n:].flatten()
            )
            for n in range(3)
        ]
        same, _, twice = (torch.isclose(loss, one, rtol=1e-4) for one in by_shift)
        if same:
            raise Fault("the loss compares each answer with its own token: shift labels by one")
        if twice:
            raise Fault("the loss shifts labels twice: loss_function shifts them itself")
        place -= 1
    if logits.grad is not None and logits.grad[:, place].any():
        raise Fault("a label of -100 counts in the loss: pass ignore_index=-100")


def unreached(model: PreTrainedModel) -> Iterator[str]:
    """Name parameters without a gradient; an expert that no token chose may have none."""
    names = [n for n, p in model.named_parameters() if p.grad is None and p.requires_grad]
    if any(takes(model, name) for name in MEDIA if name != model.main_input_name):
        return  # what reads images was given none
    if names and not any("expert" in name for name in names):
        yield f"no gradient reaches {', '.join(names[:2])}, so that DDP stops: leave them out"


def faults_of_trainers(auto: str, model: PreTrainedModel, given: dict[str, Any]) -> Iterator[str]:
    """Yield what Trainer and PEFT will stumble over."""
    accepts = getattr(model, "accepts_loss_kwargs", may_take(model, "num_items_in_batch"))
    if accepts and auto in ("AutoModelForCausalLM", "AutoModelForSeq2SeqLM"):
        losses = [trained(model, {**given, "num_items_in_batch": torch.tensor(n)}) for n in (9, 90)]
        if torch.equal(losses[0]["loss"], losses[1]["loss"]):
            yield (
                "the loss ignores num_items_in_batch, by which Trainer accumulates gradients: hand "
                "**kwargs on to self.loss_function, or set accepts_loss_kwargs = False"
            )
    if model.supports_gradient_checkpointing:
        plain = kept(model, given)
        since_5_23 = hasattr(model, "activation_checkpointing_enable")
        name = "activation_checkpointing" if since_5_23 else "gradient_checkpointing"
        remedy = "derive layers of GradientCheckpointingLayer"
        try:
            getattr(model, f"{name}_enable")()
        except ValueError as error:
            yield f"gradient checkpointing: {explained(error)}: {remedy}"
            return
        if kept(model, given) >= plain:
            yield f"gradient checkpointing saves nothing: {remedy}"
        getattr(model, f"{name}_disable")()
    table = embedding(model) if "input_ids" in given else None
    if isinstance(table, nn.Embedding) and table.weight.requires_grad:
        table.weight.requires_grad_(False)  # as PEFT leaves it
        model.enable_input_require_grads()
        try:
            trained(model, given)
        except RuntimeError as error:
            yield f"LoRA with gradient checkpointing: {explained(error)}"
        model.disable_input_require_grads()
        table.weight.requires_grad_(True)


def kept(model: PreTrainedModel, given: dict[str, Any]) -> int:
    """Return how many tensors a forward pass keeps for the gradients."""
    count = 0

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        trained(model, given)
    return count


def embedding(model: PreTrainedModel) -> Any:
    try:
        return model.get_input_embeddings()
    except NotImplementedError:
        return None


def embedding_faults(model: PreTrainedModel, inputs: Answers) -> Iterator[str]:
    if "input_ids" in inputs and embedding(model) is None:
        yield "PEFT and resize_token_embeddings need get_input_embeddings(): define it"
