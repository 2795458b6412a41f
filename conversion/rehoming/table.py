"""The code of others that is known: what each computes is a class of transformers, or one of ours.

The order matters where several fit: the first whose answers agree is taken.
"""

from .fused_layers import FALCON, GLM, MPT, NOMIC, PHI, QWEN
from .llama_kin import BAICHUAN, INTERNLM, INTERNLM2, MINICPM, STABLELM, YARN_MISTRAL, fla

RENAMINGS = (
    FALCON,
    QWEN,
    GLM,
    *PHI,
    STABLELM,
    INTERNLM,
    INTERNLM2,
    MINICPM,
    *BAICHUAN,
    YARN_MISTRAL,
    MPT,
    fla("llama", qkv_bias=False, qk_norm=False),
    fla("qwen2", qkv_bias=True, qk_norm=False),
    fla("qwen3", qkv_bias=False, qk_norm=True),
    NOMIC,
)
