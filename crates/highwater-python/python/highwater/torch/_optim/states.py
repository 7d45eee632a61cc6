"""An optimizer's state on the host, from where each update fetches what it needs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._device.device import device_of
from .._device.transfers import Token, Transfers
from .optimizers import Optimizers


class States:
    """Where an optimizer's state is. What is on the host stands in the optimizer's `state` as tensors of the
    CPU, so that `state_dict` has it as ever."""

    def __init__(self, optimizers: Optimizers, transfers: Transfers) -> None:
        self.optimizers, self.transfers = optimizers, transfers
        self._homes: dict[Tensor, dict[str, Tensor]] = {}
        """Of each parameter whose state has a place on the host, its tensors there."""
        self._in_order: dict[int, int] = {}

    def put_in_order(self) -> None:
        """Has new states stand as parameters do, behind those that were there, where an update of all at once would have put
        them: they are made as gradients come."""
        for optimizer in self.optimizers.all:
            state = optimizer.state
            known = self._in_order.get(id(optimizer), 0)
            if len(state) != known:
                parameters = [parameter for group in optimizer.param_groups for parameter in group["params"] if parameter in state]
                # Another one, at once: none is gone in between.
                optimizer.state = defaultdict(dict, {**{parameter: state[parameter] for parameter in [*list(state)[:known], *parameters]}, **state})
                self._in_order[id(optimizer)] = len(state)

    def arrange(self, parameters: Collection[Tensor], on_host: Collection[Tensor]) -> None:
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

    def bytes_of(self, parameter: Tensor) -> int:
        """What of a parameter's state may be on the host, wherever it is now, in the parameter's memory."""
        device = device_of([parameter])
        return sum(device.rounded(value.nbytes) for value in self._movable(parameter).values())

    def fetch(self, parameter: Tensor, *after: Token) -> tuple[list[Tensor], Token]:
        """Starts to copy a parameter's state to where the parameter is, for one update."""
        homes = {key: value for key, value in self._movable(parameter).items() if value is self._home_of(parameter, key)}
        made = {key: torch.empty_like(value, device=parameter.device) for key, value in homes.items()}
        token = self._lanes(parameter).copy(False, [(made[key], value) for key, value in homes.items()], after)
        # Not before it is sure that they will be there.
        self.optimizers.state_of(parameter).update(made)
        return list(made.values()), token

    def evict(self, parameter: Tensor, *after: Token) -> tuple[list[Tensor], Token]:
        """Starts to copy a parameter's state to the host. What it was stays until that was waited for."""
        state, moved = self.optimizers.state_of(parameter), self._movable(parameter)
        home = self._homes.get(parameter)
        if home is None or home.keys() != moved.keys():
            home = self._homes[parameter] = self._make_home(parameter, moved)
        pairs = [(home[key], value) for key, value in moved.items() if value is not home[key]]
        token = self._lanes(parameter).copy(True, pairs, after)
        state.update(home)
        return [source for _, source in pairs], token

    def _movable(self, parameter: Tensor) -> dict[str, Tensor]:
        """What of a state is worth it: not counts of steps."""
        return {key: value for key, value in self.optimizers.state_of(parameter).items() if isinstance(value, Tensor) and value.dim() > 0}

    def _home_of(self, parameter: Tensor, key: str) -> Tensor | None:
        return self._homes.get(parameter, {}).get(key)

    def _make_home(self, parameter: Tensor, moved: dict[str, Tensor]) -> dict[str, Tensor]:
        if not moved:
            return {}
        room, end, home = self.transfers.take(sum(value.nbytes for value in moved.values()), parameter.device), 0, {}
        # Those of the widest numbers first: each is where its numbers may be, and nothing lies between them.
        for key, value in sorted(moved.items(), key=lambda item: -item[1].itemsize):
            # Dense, whatever it was.
            like = torch.empty_like(value, device="meta")
            home[key] = room[end : end + value.nbytes].view(value.dtype).as_strided(like.shape, like.stride())
            end += value.nbytes
        return home

    def _lanes(self, parameter: Tensor) -> Any:
        return self.transfers.lanes(parameter.device)


# What stands in graphs.


@dataclass(frozen=True, eq=False)
class Arrange:
    """Has states where a plan wants them when it starts."""

    states: States
    parameters: list[Tensor]
    on_host: list[Tensor]
    __name__ = "arrange_states"

    def __call__(self) -> None:
        self.states.arrange(self.parameters, self.on_host)


@dataclass(frozen=True, eq=False)
class MoveState:
    """Moves a parameter's state: `States.fetch`, or `States.evict`."""

    move: Callable[..., tuple[list[Tensor], Token]]
    parameter: Tensor
    __name__ = "move_state"

    def __call__(self, *after: Token) -> tuple[list[Tensor], Token]:
        return self.move(self.parameter, *after)
