"""`tformer prove`: say whether a file answers as the model that it was made from."""

import sys

from transformers.utils import logging

from hf_tformer.command_line import Parser
from hf_tformer.path_safety import printable

from ..engine.errors import ConversionError
from .comparison import prove

STATUS = "exit status: 0 if all answers agree, 1 if some differ, 2 if the file could not be judged"


def build_parser(prog: str) -> Parser:
    parser = Parser(
        prog=prog,
        description="Compare a file that somebody made from a model with the model: token ids, "
        "chats, special tokens, weights, logits and greedy text.",
        epilog=STATUS,
    )
    parser.add_argument("model", metavar="MODEL", help="folder of transformers, or of ours")
    parser.add_argument(
        "file",
        metavar="FILE",
        help=".gguf file, folder of ONNX, OpenVINO, CTranslate2 or ExecuTorch, or model folder",
    )
    parser.add_argument("--json", action="store_true", help="JSON output")
    return parser


def main(arguments: list[str] | None = None, prog: str = "tformer prove") -> int:
    options = build_parser(prog).parse_args(arguments)
    logging.disable_progress_bar()
    try:
        done = prove(options.model, options.file)
    except (ConversionError, OSError) as error:
        print(printable(" ".join(f"{prog}: {error}".split())), file=sys.stderr)
        return 2
    text = done.as_json() if options.json else done.as_table()
    print("\n".join(map(printable, text.splitlines())))
    return 2 if not done.is_judged else 0 if done.is_same else 1
