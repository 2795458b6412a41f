"""How the configuration of a format corresponds to ours, in both directions."""

from collections.abc import Callable
from dataclasses import dataclass, field

from .aliases import Config, Fields
from .format import carry, inverted, plain_attention_scale, require


@dataclass(frozen=True)
class FieldMap:
    """The two functions of a format, for configurations that differ by names and fixed values.

    `format_name` is what errors call the other side. `fields` hold the same value on both sides,
    named {theirs: ours}. `fixed` are values of ours that every model of the format has. `equal` are
    fields of ours that always have the value of another: {"mlp_bias": "attention_bias"}. `rotation`
    takes a configuration of either side and gives its rope_parameters. Without `has_head_dim` the
    heads share the hidden size among themselves. A format that translates attention_scale itself
    has `checks_scale` off; elsewhere only the usual scale is exported.
    """

    format_name: str
    fields: dict[str, str]
    fixed: Fields
    equal: dict[str, str] = field(default_factory=dict)
    rotation: Callable[[Config, str], Fields | None] | None = None
    has_head_dim: bool = True
    checks_scale: bool = True

    def to_ours(self, theirs: Config) -> Fields:
        fields = {**carry(theirs, self.fields), **self.fixed}
        fields |= {name: fields[other] for name, other in self.equal.items()}
        if self.has_head_dim:
            fields["head_dim"] = head_dim_of(theirs)
        if self.rotation:
            fields["rope_parameters"] = self.rotation(theirs, self.format_name)
        return fields

    def to_theirs(self, ours: Config) -> Fields:
        equal = {name: getattr(ours, other) for name, other in self.equal.items()}
        require(ours, self.format_name, **self.fixed, **equal)
        if not self.has_head_dim:
            require(ours, self.format_name, head_dim=ours.hidden_size / ours.num_attention_heads)
        if self.checks_scale:
            plain_attention_scale(ours, self.format_name)
        fields = carry(ours, inverted(self.fields))
        if self.has_head_dim:
            fields["head_dim"] = ours.head_dim
        if self.rotation:
            fields["rope_parameters"] = self.rotation(ours, self.format_name)
        return fields


def head_dim_of(theirs: Config) -> int:
    """Return the size of a head: models read it from a file even if their class has no field."""
    return getattr(theirs, "head_dim", None) or theirs.hidden_size // theirs.num_attention_heads
