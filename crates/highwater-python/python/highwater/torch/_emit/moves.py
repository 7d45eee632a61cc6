"""A plan's copies to the host and back, while its graphs are written."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx

from highwater import Instruction

from .._device.transfers import CopyRoom, Evict, Fetch, Finish, Form, Stay, TakeRoom, Transfers, Wait
from .._graph.joint import JointGraph
from .._graph.nodes import OVERWRITTEN, tensors
from .._optim.states import Arrange, MoveState, States
from .._plan.alive import Move
from .._plan.choice import Choice
from .section import Section


class Moves:
    """Writes the copies of a plan into its forward's graph, and then into its backward's."""

    def __init__(self, joint: JointGraph, choice: Choice, transfers: Transfers, graph: fx.Graph) -> None:
        self.joint, self.transfers, self.graph = joint, transfers, graph
        self.room: fx.Node | None = None
        self._waits = choice.waits
        self._room_bytes, self._home_bytes = choice.plan.host.spill_bytes, choice.plan.host.home_bytes
        self._steps, self._on_host = choice.plan.instructions, choice.plan.cells_on_host
        self._last_state: fx.Node | None = None
        """The token of the last state that was evicted."""
        self._stays: dict[int, Stay] = {}
        """Of each storage that was evicted."""
        self._under_way: dict[int, tuple[str, fx.Node]] = {}
        """What nobody has waited for: of each instruction its lane, and its token."""
        self._leaving: dict[int, fx.Node] = {}
        """What is being evicted, by the instruction: held until somebody has waited for that."""

    def begin(self) -> None:
        """Has an optimizer's states where the plan wants them."""
        updates: list[Any] = [kernel.node.target for kernel in self.joint.kernels if kernel.cell_bytes]
        if updates:
            states: States = updates[0].states
            on_host = [self._update(cell).parameter for cell in self._on_host]
            self._call(Arrange(states, [update.parameter for update in updates], on_host))

    def end(self) -> None:
        """Nothing is under way in the end, and who reads states then may."""
        self.wait_for_all()
        if self._last_state:
            self._call(Finish(self.transfers, self.joint.device.device), self._last_state)

    def wait_before(self, at: int) -> None:
        """Has an instruction start after the copies that it waits for."""
        step = self._steps[at]
        fetches = [i for i in step.waits if isinstance(self._steps[i], Instruction.Fetch)] if step.lane == "compute" else []
        self._wait([*self._waits.get(at, []), *fetches])

    def carry_out(self, move: Move, section: Section) -> None:
        step, value = move.step, move.step.value
        if value in self.joint.cells:
            self._move_state(move)
        elif isinstance(step, Instruction.Evict):
            first = self.joint.storages[value].first
            self._evict(move.at, step, section.get(first))
            del section.present[value]
        else:
            first = self.joint.storages[value].first
            section.hold(value, first, section.put(first, self._fetch(move)))

    def wait_for_all(self) -> None:
        self._wait(list(self._under_way))

    def go_on_in(self, graph: fx.Graph) -> dict[fx.Node, fx.Node]:
        """Nothing is under way when a graph ends. Answers the name that the room has in the next one, and the one
        that it had."""
        room, self.graph = self.room, graph
        if room is None:
            return {}
        self.room = graph.placeholder("room")
        self.room.meta = dict(room.meta)
        return {self.room: room}

    def _evict(self, at: int, step: Instruction.Evict, tensor: fx.Node) -> None:
        (like,) = tensors(self.joint.storages[step.value].first)
        assert step.place is not None, step
        stay = self._stays[step.value] = Stay(step.place, self.joint.storages[step.value].bytes, Form.of(like))
        if self.room is None:
            self.room = self._call(TakeRoom(self.transfers, self._room_bytes, self._home_bytes, like.device))
            with like.fake_mode:  # type: ignore[attr-defined]
                self.room.meta["val"] = torch.empty(self._room_bytes, dtype=torch.uint8, device="cpu")
        if self.room.op == "placeholder":
            self.room.meta[OVERWRITTEN] = CopyRoom(self.transfers, like.device)
        self._start(at, self._call(Evict(self.transfers, stay), self.room, tensor, *self._after(step)))
        self._leaving[at] = tensor

    def _fetch(self, move: Move) -> fx.Node:
        assert self.room is not None, move
        both = self._call(Fetch(self.transfers, self._stays[move.step.value]), self.room, *self._after(move.step))
        self._start(move.at, self._call(operator.getitem, both, 1))
        return self._call(operator.getitem, both, 0)

    def _move_state(self, move: Move) -> None:
        update, evicts = self._update(move.step.value), isinstance(move.step, Instruction.Evict)
        states: States = update.states
        both = self._call(MoveState(states.evict if evicts else states.fetch, update.parameter), *self._after(move.step))
        token = self._call(operator.getitem, both, 1)
        self._start(move.at, token)
        if evicts:
            self._last_state = token
            self._leaving[move.at] = self._call(operator.getitem, both, 0)

    def _update(self, cell: int) -> Any:
        return self.joint.cells[cell].node.target

    def _start(self, at: int, token: fx.Node) -> None:
        self._under_way[at] = self._steps[at].lane, token

    def _wait(self, instructions: Iterable[int]) -> None:
        """Has what comes next start after some copies. Those before them in their lanes are over then too."""
        last: dict[str, int] = {}
        for at in sorted(at for at in instructions if at in self._under_way):
            last[self._under_way[at][0]] = at
        if not last:
            return
        tokens = [self._under_way[at][1] for at in last.values()]
        over = [at for at, (lane, _) in self._under_way.items() if at <= last.get(lane, -1)]
        held = [self._leaving.pop(at) for at in over if at in self._leaving]
        for at in over:
            del self._under_way[at]
        # Until then nobody else may take the room.
        held += [self.room] if self.room else []
        self._call(Wait(self.transfers, self.joint.device.device), tokens, held)

    def _after(self, step: Instruction) -> list[fx.Node]:
        return [self._under_way[at][1] for at in step.waits if at in self._under_way]

    def _call(self, target: Callable[..., Any], *args: Any) -> fx.Node:
        return self.graph.call_function(target, args)
