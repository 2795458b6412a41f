"""Count the bytes that tensors hold while a program runs, whether or not memory is allocated."""

import weakref
from collections.abc import Callable, Iterable

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """A mode that counts the bytes of all tensors that are created while it is active.

    `live` is what they hold now, `peak` the maximum since `mark` was called. Tensors in `known`
    existed before: they and their views are not counted.
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
        """Return the live bytes and their peak since the last mark, and start a new peak."""
        highest, self.peak = self.peak, self.live
        return self.live, highest
