"""`tformer plan`: what a training takes in each layout, before a device is rented."""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

from ..command_line import Parser, print_error
from ..opening import OpeningError, first_line, open_pretrained

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from .choices import Choice, Planner

GB = 10**9
TERA = 10**12


class PlanError(Exception):
    """Why there is no plan, in one sentence."""


def build_parser(prog: str) -> Parser:
    parser = Parser(
        prog=prog,
        description="Say what training a model takes of each device, in each layout: memory, bytes "
        "sent and seconds per step. No weights are loaded, and no device is needed.",
    )
    parser.add_argument("config", metavar="CONFIG", help="a folder, user/name, or a config.json")
    parser.add_argument("--revision", help="branch, tag or commit of a repository")
    add = parser.add_argument
    add("--devices", type=int, required=True, metavar="N", help="that train together")
    add("--memory", type=float, required=True, metavar="GB", help="of a device")
    add("--tokens", type=int, required=True, metavar="N", help="of a row")
    add("--rows", type=int, default=1, metavar="N", help="that a device takes at once (default: 1)")
    add("--batch", type=int, metavar="N", help="rows of a step (default: --rows for each device)")
    add(
        "--precision",
        choices=("float32", "mixed", "bfloat16"),
        default="mixed",
        help="mixed: float32 weights, computed with in bfloat16 (default)",
    )
    add("--attention", choices=("sdpa", "eager"), default="sdpa", help="default: sdpa")
    add("--all-logits", action="store_true", help="of a loss that is made of all logits at once")
    add("--json", action="store_true", help="print JSON, in bytes and seconds")
    machine = parser.add_argument_group("the machine", "The defaults are those of an H100.")
    add = machine.add_argument
    add("--node", type=int, default=8, metavar="N", help="devices of a node (default: 8)")
    add("--flops", type=float, default=989, metavar="TFLOPS", help="of a device (default: 989)")
    add("--utilisation", type=float, default=0.5, help="share of them reached (default: 0.5)")
    add("--within", type=float, default=450, metavar="GB/S", help="in a node (default: 450)")
    add("--between", type=float, default=50, metavar="GB/S", help="of nodes (default: 50)")
    return parser


def main(arguments: list[str] | None = None, prog: str = "tformer plan") -> int:
    """The exit status is 1 where there is no plan, or no layout that fits."""
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
    for name in ("devices", "memory", "tokens", "rows", "batch", "node", "flops", "within"):
        value = getattr(args, name)
        if value is not None and value <= 0:
            raise PlanError(f"--{name} is {value:g}: give more than 0")
    if args.between <= 0:
        raise PlanError(f"--between is {args.between:g}: give more than 0")
    if not 0 < args.utilisation <= 1:
        raise PlanError(f"--utilisation is {args.utilisation:g}: give a share between 0 and 1")


def read_config(source: str, revision: str | None) -> "PreTrainedConfig":
    from transformers import AutoConfig

    path = Path(source)
    if path.suffix == ".json":
        if not path.is_file():
            raise PlanError(f"there is no file {source}: give a config.json")
        source = str(path.parent) if path.name == "config.json" else source
    if source.endswith(".json"):
        raise PlanError(f"{source} is not called config.json: rename it, or give its folder")
    return open_pretrained(AutoConfig, source, revision=revision)


def as_json(planner: "Planner", choices: "list[Choice]") -> str:
    from .flops import training_flops

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
            "flops_per_token": training_flops(planner.config, row_length),
            "machine": dataclasses.asdict(planner.machine),
            "layouts": described,
        },
        indent=2,
    )


HEADINGS = ("layout", "recomputed", "parts", "weights", "optimizer", "gradients", "activations")
HEADINGS += ("peak GB", "sent GB", "seconds", "tokens/s")


def as_table(planner: "Planner", choices: "list[Choice]") -> str:
    from .flops import training_flops

    fitting = [choice for choice in choices if not choice.refusal]
    operations = training_flops(planner.config, choices[0].recipe.row_length)
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


def row_of(choice: "Choice") -> tuple[str, ...]:
    memory, recipe = choice.memory, choice.recipe
    tokens = recipe.rows * recipe.parts * recipe.row_length * choice.layout.data_size
    sizes = (memory.weights, memory.optimizer, memory.gradients, memory.activations, memory.peak)
    return (
        str(choice.layout),
        "yes" if recipe.is_checkpointed else "no",
        str(recipe.parts),
        *(f"{size / GB:.1f}" for size in sizes),
        f"{choice.sent / GB:.1f}",
        f"{choice.seconds:.2f}",
        f"{tokens / choice.seconds:,.0f}",
    )


def aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """The first column to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]
