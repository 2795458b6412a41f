"""The runtimes, by the names that follow --to."""

from .ctranslate2 import CTranslate2
from .executorch import Executorch
from .gguf.runtime import Gguf
from .onnx import Onnx
from .openvino import OpenVino
from .runtime import Runtime

RUNTIMES: dict[str, Runtime] = {
    runtime.name: runtime for runtime in (Onnx(), OpenVino(), Gguf(), CTranslate2(), Executorch())
}
