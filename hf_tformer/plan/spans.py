"""Measure what each span of a training step adds to memory, on fake tensors without data.

A model of three layers runs forward and backward under torch's FakeTensorMode. Fake tensors have
the shapes and operations of real ones, so the model's own code decides what is kept for the
backward pass, whatever the configuration, attention backend and precision are. The layers of a
stack are alike: the middle one of the three stands for all but the first and the last.
"""

import functools
import itertools
import math
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import PreTrainedConfig, PreTrainedModel

from ..training import enable_activation_checkpointing
from .live import LiveBytes
from .parameters import head_and_table
from .skeleton import build_language_model, shallow, skeleton_of, stacks_of

MEASURED_LAYERS = 3
BETWEEN, HEAD = "between", "head"  # the head includes the loss, forward and backward


@dataclass(frozen=True)
class Pass:
    """Settings of one forward and backward pass on one device."""

    rows: int  # batch size
    row_length: int
    dtype: torch.dtype = torch.float32  # of the weights
    is_autocast: bool = False  # products in bfloat16, weights as they are
    is_checkpointed: bool = False  # layers keep only their inputs and are recomputed
    tensor: int = 1  # tensor parallel parts of each layer, of which this device has one
    backend: str = "sdpa"


@dataclass(frozen=True)
class Span:
    """The part of a step between two hooks, which occurs `times` times in a row.

    `place` is a stack of layers, HEAD, or BETWEEN them. `peak` and `change` are bytes relative to
    the start of the span: the maximum within it and the difference at its end. `finished` names
    the parameters whose gradients the span completes; gradients count in `peak` alone.
    """

    place: str
    is_backward: bool
    peak: int
    change: int
    finished: tuple[str, ...] = ()
    times: int = 1


class Recorder:
    """Records the spans of a step with hooks on the layers, the head and the gradients."""

    def __init__(self, model: PreTrainedModel):
        self.memory = LiveBytes([*model.parameters(), *model.buffers()])
        self.spans: list[Span] = []
        self.finished: dict[str, int] = {}
        self.is_backward = False
        self.level = 0
        for stack, layers in stacks_of(model).items():
            for layer in layers:
                self.watch(layer, stack)
            self.watch_output(layers[-1])
        self.watch(model.get_output_embeddings(), HEAD)
        for name, parameter in model.named_parameters():
            parameter.register_post_accumulate_grad_hook(functools.partial(self.finish, name))

    def watch(self, module: nn.Module, place: str) -> None:
        """End a span at both ends of a module; its forward input is where its backward ends."""

        def begin(module: nn.Module, inputs: tuple[torch.Tensor], options: object) -> None:
            if not self.is_backward:  # or else a layer is being recomputed
                self.end(BETWEEN)
                inputs[0].register_hook(lambda gradient: self.end(place))

        def end(module: nn.Module, inputs: object, output: object) -> None:
            if not self.is_backward and place != HEAD:
                self.end(place)

        module.register_forward_pre_hook(begin, with_kwargs=True)
        module.register_forward_hook(end)

    def watch_output(self, module: nn.Module) -> None:
        """End a span where the backward pass reaches the last layer of a stack."""

        def end(module: nn.Module, inputs: object, output: torch.Tensor) -> None:
            if not self.is_backward:
                output.register_hook(lambda gradient: self.end(BETWEEN))

        module.register_forward_hook(end)

    def finish(self, name: str, parameter: torch.Tensor) -> None:
        self.finished[name] = parameter.nbytes

    def end(self, place: str) -> None:
        live, highest = self.memory.mark()
        change = live - self.level - sum(self.finished.values())
        names = tuple(self.finished)
        self.spans.append(Span(place, self.is_backward, highest - self.level, change, names))
        self.level = live
        self.finished.clear()


def measure_spans(config: PreTrainedConfig, settings: Pass) -> list[Span]:
    """Return the spans of a forward and backward pass in order; the loss takes all logits."""
    whole = skeleton_of(config)
    depths = {name: len(layers) for name, layers in stacks_of(whole).items()}
    config = part_of(shallow(config, MEASURED_LAYERS), settings.tensor, whole.tp_plan)
    options = {"dtype": settings.dtype, "attn_implementation": settings.backend}
    with FakeTensorMode():
        model = build_language_model(config, **options).train()
        if settings.tensor > 1:
            split_embeddings(model, settings.tensor)
        if settings.is_checkpointed:
            enable_activation_checkpointing(model)
        ids = torch.zeros(settings.rows, settings.row_length, dtype=torch.long)
        recorder = Recorder(model)
        with recorder.memory:
            with torch.autocast("cpu", torch.bfloat16, enabled=settings.is_autocast):
                loss = model(ids, labels=ids, use_cache=False).loss
            recorder.is_backward = True
            loss.backward()
            recorder.end(BETWEEN)
    spans = [span for span in recorder.spans if span.peak or span.finished]
    return repeat_middle(spans, depths)


def repeat_middle(spans: list[Span], depths: dict[str, int]) -> list[Span]:
    """Let the second layer of each stack stand for all inner ones; `depths` are the real depths."""
    result: list[Span] = []
    for _, group in itertools.groupby(spans, key=lambda span: (span.place, span.is_backward)):
        run = list(group)
        if len(run) == MEASURED_LAYERS:
            run[1] = replace(run[1], times=depths[run[1].place] - 2)
        result += run
    return result


def part_of(config: PreTrainedConfig, tensor: int, plan: dict[str, str]) -> PreTrainedConfig:
    """Reduce heads and intermediate size to the share of one of `tensor` devices."""
    split = {name.rpartition(".")[2] for name, style in plan.items() if style == "colwise"}
    shares = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
    shares["up_proj"] = "intermediate_size"
    # A head size that is not set would follow from the number of heads.
    head_dim = getattr(config, "head_dim", None)
    config.head_dim = head_dim or config.hidden_size // config.num_attention_heads
    for module, name in shares.items():
        value = getattr(config, name, None)
        if module not in split or value is None:
            continue
        if value % tensor:
            raise ValueError(f"{name} is {value}, which {tensor} devices cannot share evenly")
        setattr(config, name, value // tensor)
    return config


def split_embeddings(model: PreTrainedModel, tensor: int) -> None:
    """Replace the input table and the head by one of `tensor` parts, where the plan splits them."""
    head, table = head_and_table(model)
    is_tied = model.get_submodule(head).weight is model.get_submodule(table).weight
    dtype = model.dtype
    if table in model.tp_plan:
        tokens, size = model.get_submodule(table).weight.shape
        model.set_submodule(table, nn.Embedding(math.ceil(tokens / tensor), size, dtype=dtype))
    if head in model.tp_plan:
        model.set_submodule(head, PartialHead(model.get_submodule(head), tensor))
        if is_tied:
            model.get_submodule(head).weight = model.get_submodule(table).weight


class PartialHead(nn.Linear):
    """One of `tensor` parts of a head, whose logits are gathered with those of the others."""

    def __init__(self, head: nn.Linear, tensor: int):
        outputs, has_bias = math.ceil(head.out_features / tensor), head.bias is not None
        super().__init__(head.in_features, outputs, has_bias, dtype=head.weight.dtype)
        self.tokens, self.tensor = head.out_features, tensor

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        parts = super().forward(states)
        return torch.cat([parts] * self.tensor, dim=-1)[..., : self.tokens]
