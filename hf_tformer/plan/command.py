"""`tformer plan`: estimate memory, traffic and time of a training run in each layout."""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

from ..command_line import Parser, print_error
from ..opening import OpeningError, first_line, open_pretrained, refuse_missing_folder

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from .choices import Choice, Planner

GB = 10**9
TERA = 10**12
POSITIVE = ["devices", "memory", "tokens", "rows", "batch", "node", "flops", "within", "between"]


class PlanError(Exception):
    """The reason why there is no plan, in one sentence."""


def build_parser(prog: str) -> Parser:
    parser = Parser(
        prog=prog,
        description="Estimate what training a model takes of each device, in each layout: memory, "
        "bytes sent and seconds per step. No weights are loaded, and no device is needed.",
    )
    add = parser.add_argument
    add("config", metavar="CONFIG", help="model folder, user/name on the Hub, or config.json")
    add("--revision", help="branch, tag or commit of a repository")
    add("--devices", type=int, required=True, metavar="N", help="number of devices")
    add("--memory", type=float, required=True, metavar="GB", help="memory of each device")
    add("--tokens", type=int, required=True, metavar="N", help="sequence length in tokens")
    add("--rows", type=int, default=1, metavar="N", help="batch size of a device (default: 1)")
    add("--batch", type=int, metavar="N", help="sequences per step (default: --rows x --devices)")
    add(
        "--precision",
        choices=("float32", "mixed", "bfloat16"),
        default="mixed",
        help="number format; mixed keeps float32 weights and computes in bfloat16 (default: mixed)",
    )
    add("--attention", choices=("sdpa", "eager"), default="sdpa", help="backend (default: sdpa)")
    add("--all-logits", action="store_true", help="assume a loss that takes all logits at once")
    add("--json", action="store_true", help="print JSON, in bytes and seconds")
    machine = parser.add_argument_group("the machine", "The defaults are those of an H100.")
    add = machine.add_argument
    add("--node", type=int, default=8, metavar="N", help="devices per node (default: 8)")
    add("--flops", type=float, default=989, metavar="TFLOPS", help="device peak (default: 989)")
    add("--utilisation", type=float, default=0.5, help="share of the peak reached (default: 0.5)")
    add("--within", type=float, default=450, metavar="GB/S", help="node bandwidth (default: 450)")
    add("--between", type=float, default=50, metavar="GB/S", help="network bandwidth (default: 50)")
    return parser


def main(arguments: list[str] | None = None, prog: str = "tformer plan") -> int:
    """Run the command; the exit status is 1 if there is no plan, or no layout that fits."""
    args = build_parser(prog).parse_args(arguments)
    try:
        planner, choices = make_plan(args)
    except (PlanError, OpeningError) as error:
        return print_error(error)
    show = as_json if args.json else as_table
    print(show(planner, choices))
    return 0 if any(not choice.refusal for choice in choices) else 1


def make_plan(args: argparse.Namespace) -> "tuple[Planner, list[Choice]]":
    refuse_numbers(args)
    config = read_config(args.config, args.revision)
    from .choices import Machine, Planner
    from .memory import Recipe

    machine = Machine(
        args.devices,
        args.memory * GB,
        args.node,
        args.flops * TERA,
        args.utilisation,
        args.within * GB,
        args.between * GB,
    )
    recipe = Recipe(
        args.tokens,
        args.rows,
        precision=args.precision,
        has_all_logits=args.all_logits,
        backend=args.attention,
    )
    try:
        planner = Planner(config, machine)
        return planner, planner.choices(recipe, args.batch or args.rows * args.devices)
    except ValueError as error:
        raise PlanError(first_line(error)) from error


def refuse_numbers(args: argparse.Namespace) -> None:
    for name in POSITIVE:
        value = getattr(args, name)
        if value is not None and value <= 0:
            raise PlanError(f"--{name} is {value:g}: give more than 0")
    if not 0 < args.utilisation <= 1:
        raise PlanError(f"--utilisation is {args.utilisation:g}: give a share between 0 and 1")


def read_config(source: str, revision: str | None) -> "PreTrainedConfig":
    path = Path(source)
    if path.suffix == ".json":
        if not path.is_file():
            raise PlanError(f"there is no file {source}: give a config.json")
        source = str(path.parent) if path.name == "config.json" else source
    if source.endswith(".json"):
        raise PlanError(f"{source} is not called config.json: rename it, or give its folder")
    refuse_missing_folder(source, revision)
    from transformers import AutoConfig

    return open_pretrained(AutoConfig, source, revision=revision)


def as_json(planner: "Planner", choices: "list[Choice]") -> str:
    described = [
        {
            "name": str(choice.layout),
            **dataclasses.asdict(choice),
            "sent": choice.sent,
            "fits": not choice.refusal,
        }
        for choice in choices
    ]
    row_length = choices[0].recipe.row_length
    return json.dumps(
        {
            "parameters": planner.model.num_parameters(),
            "flops_per_token": planner.operations(row_length),
            "machine": dataclasses.asdict(planner.machine),
            "layouts": described,
        },
        indent=2,
    )


HEADINGS = ["layout", "recomputed", "parts", "weights", "optimizer", "gradients", "activations"]
HEADINGS += ["peak GB", "sent GB", "seconds", "tokens/s"]


def as_table(planner: "Planner", choices: "list[Choice]") -> str:
    fitting = [choice for choice in choices if not choice.refusal]
    operations = planner.operations(choices[0].recipe.row_length)
    lines = [
        f"{planner.model.num_parameters():,} parameters, {operations / GB:.2f} GFLOPs a token",
        "",
        *aligned([HEADINGS, *map(row_of, fitting)]),
    ]
    refused = [choice for choice in choices if choice.refusal]
    if refused:
        lines += ["", "not possible:"]
        lines += [f"  {choice.layout}: {choice.refusal}" for choice in refused]
    return "\n".join(lines)


def row_of(choice: "Choice") -> list[str]:
    memory, recipe = choice.memory, choice.recipe
    assert memory is not None  # a layout that fits has figures
    tokens = recipe.rows * recipe.parts * recipe.row_length * choice.layout.data_size
    sizes = (memory.weights, memory.optimizer, memory.gradients, memory.activations, memory.peak)
    return [
        str(choice.layout),
        "yes" if recipe.is_checkpointed else "no",
        str(recipe.parts),
        *(f"{size / GB:.1f}" for size in sizes),
        f"{choice.sent / GB:.1f}",
        f"{choice.seconds:.2f}",
        f"{tokens / choice.seconds:,.0f}",
    ]


def aligned(rows: list[list[str]]) -> list[str]:
    """Align the cells of a table: the first column to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
