"""What one call of a compiled model holds while another one runs: tensors that wait for a backward, and gradients."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from .._messages.amounts import show
from .._messages.locations import level_of_user


# From so many remembered storages on, those that are gone are forgotten.
SWEEP = 256


class AboveMemory(UserWarning):
    """What is held beside a plan may bring it above the memory that was stated."""


def warn_of_gradients(held: int, room: int, refusal: Exception) -> None:
    """Tells of gradients that a plan has no room for, and no other plan has."""
    message = (
        f"gradients of earlier backward passes use {show(held)}, and the plan leaves {show(room)} for them: call zero_grad() before the forward, "
        f"or state more memory if gradients are accumulated. {refusal}"
    )
    warnings.warn(message, AboveMemory, stacklevel=level_of_user())


class Held:
    """What forwards have kept for backwards that are still to come."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._storages: dict[StorageWeakRef, int] = {}
        self._sweep_at = SWEEP
        self._warned = False
        self._lock = threading.RLock()

    def keep(self, saved: Iterable[Any]) -> None:
        """Something is kept from here on. Parameters are held by the model."""
        with self._lock:
            self._sweep_now_and_then()
            for leaf in saved:
                if isinstance(leaf, Tensor) and not isinstance(leaf, nn.Parameter):
                    storage = leaf.untyped_storage()
                    self._storages[StorageWeakRef(storage)] = storage.nbytes()  # type: ignore[no-untyped-call]

    def _sweep_now_and_then(self) -> None:
        # A weak reference keeps part of a storage alive. Backwards have freed the oldest or the newest when another
        # step begins; where somebody holds both, sweeping at twice what was left costs little per step.
        ends = [next(iter(self._storages)), next(reversed(self._storages))] if self._storages else []
        if any(end.expired() for end in ends) or len(self._storages) > self._sweep_at:  # type: ignore[no-untyped-call]
            self._sweep()
            self._sweep_at = max(SWEEP, 2 * len(self._storages))

    def _sweep(self) -> None:
        """Forgets what is gone."""
        self._storages = {storage: size for storage, size in self._storages.items() if not storage.expired()}  # type: ignore[no-untyped-call]

    def beside(self, inputs: Iterable[Any]) -> int:
        """Bytes of what is kept and is not among the inputs of a graph."""
        with self._lock:
            self._sweep()
            others = dict(self._storages)
        if not others:
            return 0
        given = {StorageWeakRef(leaf.untyped_storage()) for leaf in inputs if isinstance(leaf, Tensor)}  # type: ignore[no-untyped-call]
        return sum(size for storage, size in others.items() if storage not in given)

    def watched(self, run: Callable[[list[Any]], Any], room: int | None, kept: Sequence[int]) -> Callable[[list[Any]], Any]:
        """A forward that keeps some of what it answers, and whose plan leaves so much room for others, if that
        is to be watched."""

        def watching(arguments: list[Any]) -> Any:
            if room is not None and self._storages and not self._warned and (beside := self.beside(arguments)) > room:
                self._warned = True
                message = (
                    f"earlier forward passes hold {show(beside)} until their backward, and the plan of this one leaves {show(room)} of "
                    f"{show(self._memory)} for them: call backward before the next forward, or compile one function that calls both."
                )
                warnings.warn(message, AboveMemory, stacklevel=level_of_user())
            answer = run(arguments)
            self.keep(answer[i] for i in kept)
            return answer

        watching._boxed_call = True  # type: ignore[attr-defined]
        return watching
