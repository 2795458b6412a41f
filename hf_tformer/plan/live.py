"""The bytes that tensors hold while a program runs, counted without memory being touched."""

import weakref
from collections.abc import Callable, Iterable

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """`live` is what tensors made under it hold now, `peak` the most since `mark` was called.

    `known` are tensors made before; views of them hold nothing of their own.
    """

    def __init__(self, known: Iterable[torch.Tensor]):
        super().__init__()
        self.live = self.peak = 0
        self.seen: set[int] = set()
        for tensor in known:
            self.remember(tensor.untyped_storage(), 0)

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                storage = leaf.untyped_storage()
                self.remember(storage, storage.nbytes())
        return result

    def remember(self, storage: torch.UntypedStorage, size: int) -> None:
        if id(storage) in self.seen:  # torch keeps one object for a storage as long as it lives
            return
        self.seen.add(id(storage))
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self.forget, id(storage), size)

    def forget(self, key: int, size: int) -> None:
        self.seen.discard(key)
        self.live -= size

    def mark(self) -> tuple[int, int]:
        """What is live, and the most that was since the last mark."""
        highest, self.peak = self.peak, self.live
        return self.live, highest
