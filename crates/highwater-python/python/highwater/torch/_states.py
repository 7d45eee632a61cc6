"""An optimizer's state on the host, from where each update fetches what it needs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, optim
from torch.nn import Parameter

from ._transfers import Token, Transfers


class States:
    """Where an optimizer's state is. What is on the host stands in the optimizer's `state` as tensors of the
    CPU, so that `state_dict` has it as ever."""

    def __init__(self, optimizer: optim.Optimizer, transfers: Transfers) -> None:
        self.optimizer, self.transfers = optimizer, transfers
        self._homes: dict[Parameter, dict[str, Tensor]] = {}
        """Of each parameter whose state has a place on the host, its tensors there."""

    def arrange(self, parameters: Collection[Parameter], on_host: Collection[Parameter]) -> None:
        """Moves what is not where it will be wanted: states that were loaded, or had another plan."""
        wanted = set(map(id, on_host))
        for parameter in parameters:
            if id(parameter) in wanted:
                if any(value is not self._home_of(parameter, key) for key, value in self._movable(parameter).items()):
                    _, token = self.evict(parameter)
                    self._lanes(parameter).finish(token)
            elif parameter in self._homes:
                _, token = self.fetch(parameter)
                self._lanes(parameter).finish(token)
                del self._homes[parameter]

    def bytes_of(self, parameter: Parameter) -> int:
        """What of a parameter's state may be on the host, wherever it is now."""
        return sum(value.nbytes for value in self._movable(parameter).values())

    def fetch(self, parameter: Parameter, *after: Token) -> tuple[list[Tensor], Token]:
        """Starts to copy a parameter's state to where the parameter is, for one update."""
        state, pairs = self.optimizer.state.get(parameter, {}), []
        for key, value in self._movable(parameter).items():
            if value is self._home_of(parameter, key):
                state[key] = torch.empty_like(value, device=parameter.device)
                pairs.append((state[key], value))
        return [target for target, _ in pairs], self._lanes(parameter).copy(False, pairs, after)

    def evict(self, parameter: Parameter, *after: Token) -> tuple[list[Tensor], Token]:
        """Starts to copy a parameter's state to the host. What it was stays until that was waited for."""
        state, moved = self.optimizer.state.get(parameter, {}), self._movable(parameter)
        home = self._homes.get(parameter)
        if home is None or home.keys() != moved.keys():
            home = self._homes[parameter] = self._make_home(parameter, moved)
        pairs = [(home[key], value) for key, value in moved.items() if value is not home[key]]
        token = self._lanes(parameter).copy(True, pairs, after)
        state.update(home)
        return [source for _, source in pairs], token

    def _movable(self, parameter: Parameter) -> dict[str, Tensor]:
        """What of a state is worth it: not counts of steps."""
        state: dict[str, Any] = self.optimizer.state.get(parameter) or {}
        return {key: value for key, value in state.items() if isinstance(value, Tensor) and value.dim() > 0}

    def _home_of(self, parameter: Parameter, key: str) -> Tensor | None:
        return self._homes.get(parameter, {}).get(key)

    def _make_home(self, parameter: Parameter, moved: dict[str, Tensor]) -> dict[str, Tensor]:
        if not moved:
            return {}
        starts, end = [], 0
        for value in moved.values():
            starts.append(end)
            end += -(-value.nbytes // ALIGN) * ALIGN
        room = self.transfers.take(end, parameter.device)
        tensors = (room[start : start + value.nbytes].view(value.dtype) for start, value in zip(starts, moved.values()))
        # Dense, whatever they were.
        likes = {key: torch.empty_like(value, device="meta") for key, value in moved.items()}
        return {key: tensor.as_strided(like.shape, like.stride()) for (key, like), tensor in zip(likes.items(), tensors)}

    def _lanes(self, parameter: Parameter) -> Any:
        return self.transfers.lanes(parameter.device)


# Where a tensor of any dtype may start.
ALIGN = 64


# What stands in graphs.


@dataclass(frozen=True, eq=False)
class Arrange:
    """Has states where a plan wants them when it starts."""

    states: States
    parameters: list[Parameter]
    on_host: list[Parameter]
    __name__ = "arrange_states"

    def __call__(self) -> None:
        self.states.arrange(self.parameters, self.on_host)


@dataclass(frozen=True, eq=False)
class FetchState:
    states: States
    parameter: Parameter
    __name__ = "fetch_state"

    def __call__(self, *after: Token) -> tuple[list[Tensor], Token]:
        return self.states.fetch(self.parameter, *after)


@dataclass(frozen=True, eq=False)
class EvictState:
    states: States
    parameter: Parameter
    __name__ = "evict_state"

    def __call__(self, *after: Token) -> tuple[list[Tensor], Token]:
        return self.states.evict(self.parameter, *after)
