"""The rules of a table, and the one loop that applies them in both directions.

A table names for each tensor of ours the tensors of theirs. Names are written in full, `{i}` stands
for the number of a layer. Where a layer of ours is two of theirs, as in programs that store
attention and MLP one after the other, theirs are `{2i}` and `{2i+1}`. The order of the rules means
nothing, and a tensor that fits no rule or two stops the conversion.

transformers' WeightConverter, which renames while it loads, is not used: its patterns match parts
of names in order, so a table cannot be checked by reading it, and it does not account for each
tensor.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from .aliases import State
from .checkpoints import Checkpoint
from .errors import ConversionError
from .transforms import SAME, Transform

SHOWN = 5  # names in a message
NUMBER = re.compile(r"\{(\d*)i(?:\+(\d+))?\}")  # {i}, {2i}, {2i+1}


@dataclass(frozen=True)
class Rule:
    """Our names, their names, and the transform whose `forward` makes ours from theirs."""

    ours: str | tuple[str, ...]
    theirs: str | tuple[str, ...]
    transform: Transform = SAME


@dataclass(frozen=True)
class Step:
    """A rule applied to one layer: its names are those of tensors."""

    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    transform: Transform

    def sources(self, to_ours: bool) -> tuple[str, ...]:
        return self.theirs if to_ours else self.ours

    def targets(self, to_ours: bool) -> tuple[str, ...]:
        return self.ours if to_ours else self.theirs


def linear(ours: str, theirs: str, transform: Transform = SAME) -> tuple[Rule, Rule]:
    """Return rules for weight and bias of a module; the transform is for the weight alone."""
    return (
        Rule(f"{ours}.weight", f"{theirs}.weight", transform),
        Rule(f"{ours}.bias", f"{theirs}.bias"),
    )


def linears(
    ours: str, theirs: str, names: dict[str, str], transform: Transform = SAME
) -> tuple[Rule, ...]:
    """Return rules for weight and bias of modules, named ours → theirs below two prefixes."""
    pairs = [(f"{ours}.{name}", f"{theirs}.{other}") for name, other in names.items()]
    return tuple(rule for name, other in pairs for rule in linear(name, other, transform))


def weights(ours: str, theirs: str, names: dict[str, str]) -> tuple[Rule, ...]:
    """Return rules for the weights of modules, named as for `linears`."""
    return tuple(
        Rule(f"{ours}.{name}.weight", f"{theirs}.{other}.weight") for name, other in names.items()
    )


def fused(
    ours: Iterable[str], theirs: str, transform: Transform, bias: Transform | None = None
) -> tuple[Rule, Rule]:
    """Return rules for weights and biases of our modules that are one module of theirs."""
    names = tuple(ours)
    return (
        Rule(tuple(f"{name}.weight" for name in names), f"{theirs}.weight", transform),
        Rule(tuple(f"{name}.bias" for name in names), f"{theirs}.bias", bias or transform),
    )


def replaced(rules: Iterable[Rule], *new: Rule) -> tuple[Rule, ...]:
    """Return the rules with new ones instead of those for the same tensors of ours."""
    names = {name for rule in new for name in as_tuple(rule.ours)}
    return (*(rule for rule in rules if names.isdisjoint(as_tuple(rule.ours))), *new)


def omitted(rules: Iterable[Rule], *names: str) -> tuple[Rule, ...]:
    """Return the rules without those for these tensors of ours."""
    return tuple(rule for rule in rules if rule.ours not in names)


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    fixed = re.split(r"\{\d*i(?:\+\d+)?\}", pattern)
    return re.compile(r"(\d+)".join(map(re.escape, fixed)))


def matches(pattern: str, name: str) -> re.Match[str] | None:
    return compiled(pattern).fullmatch(name)


def is_ignored(ignored: Iterable[str], name: str) -> bool:
    return any(matches(pattern, name) for pattern in ignored)


def plan(rules: Sequence[Rule], our_names: Iterable[str]) -> list[Step]:
    """Return the steps that produce each of our tensors once."""
    steps: dict[tuple[str, ...], Step] = {}
    for name in our_names:
        found = [(rule, hit) for rule in rules for hit in matching(rule, name)]
        if len(found) != 1:
            raise ConversionError(
                f"{len(found)} rules of the table produce our {name}: write exactly one"
            )
        rule, hit = found[0]
        step = instantiate(rule, hit.groups())
        steps[step.ours] = step
    produced = [name for step in steps.values() for name in step.ours]
    refuse_names("the table produces what our model does not have", set(produced) - set(our_names))
    return list(steps.values())


def matching(rule: Rule, name: str) -> list[re.Match[str]]:
    hits = (matches(pattern, name) for pattern in as_tuple(rule.ours))
    return [hit for hit in hits if hit]


def instantiate(rule: Rule, layer: tuple[str, ...]) -> Step:
    ours, theirs = (
        tuple(numbered(name, int(layer[0])) if layer else name for name in as_tuple(names))
        for names in (rule.ours, rule.theirs)
    )
    return Step(ours, theirs, rule.transform)


def numbered(pattern: str, layer: int) -> str:
    """Return the name for one layer: numbered("layers.{2i+1}.w", 3) → "layers.7.w"."""
    return NUMBER.sub(lambda hit: str(int(hit[1] or 1) * layer + int(hit[2] or 0)), pattern)


def as_tuple(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return names if isinstance(names, tuple) else (names,)


def convert(
    steps: Iterable[Step],
    read: Callable[[str], torch.Tensor],
    config: PreTrainedConfig,
    to_ours: bool,
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield (name, tensor) one by one, with the tensors of a single step in memory.

    `read` returns the tensor of a name on the source side.
    """
    for step in steps:
        change = step.transform.forward if to_ours else step.transform.inverse
        names, sources = step.targets(to_ours), step.sources(to_ours)
        # No variable: it would keep these tensors while the next ones are read.
        yield from zip(names, change(tuple(map(read, sources)), config), strict=True)


@dataclass
class SavedTensors:
    """The tensors that a model saves: the shape of each, and further names of some.

    Those are the names of tied tensors, and the model's own where transformers renames on saving.
    """

    shapes: dict[str, tuple[int, ...]]
    aliases: dict[str, str]
    prefix: str

    @classmethod
    def of(cls, model: nn.Module) -> "SavedTensors":
        state = model.state_dict(keep_vars=True)
        aliases = dict(getattr(model, "all_tied_weights_keys", None) or shared_names(state))
        if not isinstance(model, PreTrainedModel):
            return cls(shapes_of(state, aliases), aliases, "")
        saved = revert_weight_conversion(model, state)
        renamed = {name: name_in_files(model, name, state[name]) for name in state.keys() - saved}
        aliases = {renamed.get(name, name): first for name, first in aliases.items()}
        own_names = {name: aliases.get(new, new) for name, new in renamed.items() if new in saved}
        shapes = shapes_of(saved, aliases)
        return cls(shapes, {**aliases, **own_names}, model.base_model_prefix)

    def canonical(self, name: str) -> str:
        """Return the name by which the model saves a tensor.

        Base models are saved without a prefix and read what was saved beside a head.
        """
        for candidate in (name, f"{self.prefix}.{name}", name.removeprefix(f"{self.prefix}.")):
            if candidate in self.shapes or candidate in self.aliases:
                return self.aliases.get(candidate, candidate)
        return name


def saved_state(model: PreTrainedModel) -> State:
    """Return the tensors of a model by the names under which it saves them."""
    saved = revert_weight_conversion(model, model.state_dict())
    return {name: saved[name] for name in SavedTensors.of(model).shapes}


def shapes_of(state: State, aliases: dict[str, str]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(state[name].shape) for name in state if name not in aliases}


def name_in_files(model: PreTrainedModel, name: str, tensor: torch.Tensor) -> str:
    """Return the name by which transformers saves a tensor; its own where it is joined."""
    (new, joined), *_ = revert_weight_conversion(model, {name: tensor}).items()
    return new if joined.shape == tensor.shape else name


def shared_names(state: State) -> dict[str, str]:
    """Return name → first name of the same parameter, for parameters that modules share."""
    first: dict[int, str] = {}
    aliases = {}
    for name, tensor in state.items():
        if first.setdefault(id(tensor), name) != name:
            aliases[name] = first[id(tensor)]
    return aliases


def locate(
    checkpoint: Checkpoint,
    saved: SavedTensors,
    ignored: Iterable[str],
    used: set[str],
    how_to_untie: Callable[[str, str], str],
) -> dict[str, str]:
    """Return canonical name → name in the file for all used tensors; refuse unexplained names.

    A tied tensor may be in a file under several names, if they hold the same values. If they do
    not, `how_to_untie` ends the refusal of two of them.
    """
    refuse_names("the table reads what the model does not have", used - saved.shapes.keys())
    places: dict[str, str] = {}
    for name in checkpoint.names():
        canonical = saved.canonical(modern(name))
        if canonical in places:
            refuse_unequal(checkpoint, places[canonical], name, how_to_untie)
        else:
            places[canonical] = name
    unknown = {
        name
        for canonical, name in places.items()
        if canonical not in used
        and not is_ignored(ignored, canonical)
        and not is_ignored(ignored, f"{saved.prefix}.{canonical}")
    }
    refuse_names("tensors that no rule explains", unknown)
    return {canonical: places[canonical] for canonical in sorted(used & places.keys())}


def modern(name: str) -> str:
    """Return today's name of a parameter: files from TensorFlow name those of norms otherwise."""
    old, new = ("LayerNorm.gamma", "LayerNorm.beta"), ("LayerNorm.weight", "LayerNorm.bias")
    for ending, today in zip(old, new, strict=True):
        if name.endswith(ending):
            return name.removesuffix(ending) + today
    return name


def refuse_unequal(
    checkpoint: Checkpoint, first: str, second: str, how_to_untie: Callable[[str, str], str]
) -> None:
    if not torch.equal(checkpoint.read(first), checkpoint.read(second)):
        raise ConversionError(
            f"{first} and {second} hold different values, but the configuration ties them, "
            f"{how_to_untie(first, second)}"
        )


def refuse_names(what: str, names: set[str]) -> None:
    if names:
        shown = ", ".join(sorted(names)[:SHOWN])
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        raise ConversionError(f"{what}: {shown}{more}; check that the format is the right one")


def check_shape(name: str, shape: Sequence[int], saved: SavedTensors) -> None:
    expected = saved.shapes[name]
    if tuple(shape) != expected:
        raise ConversionError(
            f"{name} has the shape {list(shape)}, but the configuration asks for "
            f"{list(expected)}: check that config.json belongs to these weights"
        )


def check_targets(
    steps: Iterable[Step], saved: SavedTensors, ignored: Iterable[str], to_ours: bool
) -> None:
    """Refuse steps that do not produce exactly the tensors that the target's model saves."""
    produced = [name for step in steps for name in step.targets(to_ours)]
    expected = {name for name in saved.shapes if name in produced or not is_ignored(ignored, name)}
    refuse_names("the table produces twice", {n for n in produced if produced.count(n) > 1})
    refuse_names("the table does not produce", expected - set(produced))
    refuse_names("the table produces what the target does not have", set(produced) - expected)
