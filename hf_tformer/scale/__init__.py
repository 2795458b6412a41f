"""Training at scale: data that no memory holds, and many processes."""

from .preparing import write_tokens
from .tokens import TokenRows, TokensError, collate_rows

__all__ = ["TokenRows", "TokensError", "collate_rows", "write_tokens"]
