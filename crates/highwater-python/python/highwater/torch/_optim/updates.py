"""The updates of a step: how they are done, and what they need."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import _disable_current_modes

from .._device.allocated import Within
from .._device.device import device_of
from .._device.held import held
from .._messages.errors import said
from .._messages.locations import CannotPlan
from .optimizers import ALONE, Optimizers, is_trained, ways
from .rehearsal import STEPS, Needs, Rehearsal, as_eager, twin_of
from .rows import rows_at_once, same_bits, step_by_rows


class Updates:
    """What optimizers do to parameters. `scratch`: measures the bytes that a kernel allocates and frees again."""

    def __init__(self, optimizers: Optimizers, scratch: Callable[[fx.Node], int] = lambda node: 0) -> None:
        self.optimizers, self._scratch = optimizers, scratch
        self.device: torch.device | None = None
        """Where the parameters will be, if not where they are."""
        self.done = 0
        """How many parameters were updated one at a time since this was last set to 0."""
        self._needs: dict[Any, tuple[Needs, int]] = {}
        self._same: dict[Any, bool] = {}
        self._whole: Whole | None = None

    # One parameter at a time.

    def step(self, parameters: Iterable[Tensor]) -> None:
        """Updates some parameters, whose gradients are there, and frees those."""
        for parameter in parameters:
            with self._only(parameter) as optimizer:
                step_by_rows(optimizer, self._rows(parameter))
            parameter.grad = None
            self.done += 1

    @contextmanager
    def _only(self, parameter: Tensor) -> Iterator[Any]:
        optimizer, group = self.optimizers.owner(parameter)
        groups, optimizer.param_groups = optimizer.param_groups, [{**group, "params": [parameter]}]
        try:
            yield optimizer
        finally:
            optimizer.param_groups = groups

    def _rows(self, parameter: Tensor) -> int | None:
        """How many rows of a parameter are updated at a time, None for all at once."""
        (optimizer, group), device = self.optimizers.owner(parameter), self.device or parameter.device
        rows = rows_at_once(type(optimizer), group, parameter, device)
        if rows is None or device.type == "cuda" and not torch.cuda.is_available():
            return rows
        key = (type(optimizer), parameter.dtype, device, *ways(optimizer, group))
        if key not in self._same:
            self._same[key] = same_bits(lambda like: twin_of(optimizer, group, like), parameter.dtype, device)
        return rows if self._same[key] else None

    def needs(self, parameter: Tensor) -> Needs:
        """What the update of one parameter needs."""
        return self._of_one(parameter)[0]

    def count_bytes(self, parameter: Tensor) -> int:
        """What of a parameter's state counts steps, and stays where it is."""
        return self._of_one(parameter)[1]

    def _of_one(self, parameter: Tensor) -> tuple[Needs, int]:
        optimizer, group = self.optimizers.owner(parameter)
        state = self.optimizers.state_of(parameter)
        there = tuple((key, tuple(value.shape), value.dtype) for key, value in state.items() if isinstance(value, Tensor))
        like = tuple(parameter.shape), parameter.stride(), parameter.dtype, parameter.device
        key = (id(optimizer), like, there, *ways(optimizer, group))
        if key not in self._needs:
            rows = self._rows(parameter)
            # The first update may need most, and the state may be dropped.
            fresh, going_on = (Rehearsal.of_one(optimizer, group, parameter, some, self._scratch, self.device, rows=rows) for some in ({}, state))
            needs = self._rehearsed(fresh.all_steps)
            self._needs[key] = needs | self._rehearsed(going_on.all_steps) if state else needs, fresh.counts()
        return self._needs[key]

    def state_bytes(self, apart: Collection[int] = ()) -> int:
        """Bytes of all states, once each parameter has had an update. Of parameters that are `apart`, by their ids,
        only what counts steps."""
        parameters = self.optimizers.parameters
        # Learning rates may be tensors, of which schedulers keep copies.
        settings = [value for _, group in self.optimizers.groups for value in group.values() if isinstance(value, Tensor)]
        stateful = [parameter for parameter in parameters if is_trained(parameter) or self.optimizers.state_of(parameter)]
        each = (self.count_bytes(parameter) if id(parameter) in apart else self.needs(parameter).state for parameter in stateful)
        return held(settings, device_of(parameters)) + sum(each)

    def seconds(self, parameter: Tensor, known_or: Callable[[str, Callable[[], tuple[Any, ...]]], tuple[Any, ...]]) -> float:
        """Predicted seconds of a parameter's update, from one of a small parameter. `known_or`: what was measured before
        by a name, or is now."""
        device = device_of([parameter])
        # With its gradient and state it has to have room, several times where it is computed from copies.
        count = max(1, int(min(parameter.numel(), device.timed_numbers, device.room() / 64)))
        optimizer, group = self.optimizers.owner(parameter)

        def measured() -> tuple[float, int]:
            with as_eager(), _disable_current_modes():
                twin = twin_of(optimizer, group, torch.zeros(count, 1, dtype=parameter.dtype, device=parameter.device))
                return device.seconds(twin.step, 3, 1.0), 0

        name = f"{type(optimizer).__name__}.step {dict(ways(optimizer, group))} {parameter.device.type} {parameter.dtype} {count} {device.name}"
        seconds: float = known_or(name.rstrip(), measured)[0]
        return seconds * max(1.0, parameter.numel() / max(count, 1))

    # All parameters at once.

    @property
    def whole(self) -> Needs:
        """What an update of all parameters at once needs."""
        return self._current_whole().needs

    def _current_whole(self) -> Whole:
        if self._whole is None or self._whole.key != self.optimizers.key():
            self._whole = self._new_whole()
        return self._whole

    def _new_whole(self) -> Whole:
        if self._whole:
            self._whole = None
            gc.collect()  # its copies hold each other, and the small tensors that are real
        return Whole(self)

    def whole_scratch(self, received: Sequence[Tensor]) -> int:
        """Scratch bytes of an update of all parameters, where those `received` a gradient."""
        whole, there = self._current_whole(), set(map(id, received))
        if not whole.makes_gradients:
            return whole.needs.scratch
        # Those of frozen ones were made in the rehearsal too.
        return whole.needs.scratch + sum(p.nbytes for p in self.optimizers.parameters if is_trained(p) and id(p) not in there)

    def look_ahead(self) -> Needs:
        """What the next update of all parameters needs: more than before, where an optimizer is about to do
        something new. Raises `CannotPlan`."""
        if self._whole is None or self._whole.is_stale():
            self._whole = self._new_whole()
        else:
            self._whole.look_ahead()
        return self._whole.needs

    def _rehearsed(self, steps: Callable[[], Needs]) -> Needs:
        try:
            return steps()
        except (Within, torch.OutOfMemoryError, MemoryError):
            raise
        except Exception as error:
            raise CannotPlan(
                f"{self.optimizers.name} failed in a trial step, and nothing was changed: {said(error)}. "
                "The trial measures memory with a copy of the optimizer on tensors without data. If the optimizer reads the values of its "
                "parameters, or needs more than their gradients, use highwater.torch.backend and call optimizer.step() yourself."
            ) from error


class Whole:
    """An update of all parameters at once, rehearsed for the steps to come.

    All parameters are rehearsed at first. From then on a copy that has one parameter of each kind is kept some
    steps ahead of the optimizer, which is cheap. When that needs more than before, all are rehearsed again.
    """

    def __init__(self, updates: Updates) -> None:
        self._updates, self._optimizers = updates, updates.optimizers
        self.key = self._optimizers.key()
        self._states = self._state_ids()
        self._all = self._optimizers.parameters
        self._is_known = all(type(one) in ALONE for one in self._optimizers.all)
        self.needs = self._rehearse()
        self._samples: Rehearsal | None = None
        kinds = {self._kind(parameter): id(parameter) for parameter in self._all}
        self.makes_gradients = not self._is_known and self._rehearsal(list(kinds.values())).makes_gradients()
        """Whether a parameter without a gradient is given one, which is there for a while."""
        try:
            samples = self._rehearsal(list(kinds.values()))
            self._most = samples.steps(STEPS)
            self._samples = samples
            self.needs = Needs(self.needs.state + samples.real_bytes, self.needs.scratch)
        except (Within, torch.OutOfMemoryError, MemoryError):
            raise
        except Exception:  # It wants all of its parameters at once: then all are rehearsed each time.
            self._most = self.needs

    def is_stale(self) -> bool:
        """Whether the optimizer has other parameters, settings or states by now."""
        return self.key != self._optimizers.key() or self._states != self._state_ids()

    def look_ahead(self) -> None:
        try:
            needs = self._most | self._samples.step() if self._samples else None
        except Exception:  # What it reads of its parameters is different by now.
            self._samples = needs = None
        if needs is None or needs != self._most:
            self._most = needs or self._most
            more = self._rehearse()
            self.needs |= Needs(more.state + (self._samples.real_bytes if self._samples else 0), more.scratch)

    def _rehearse(self) -> Needs:
        """All parameters, in a step more than samples are ahead."""
        return self._updates._rehearsed(lambda: self._rehearsal().all_steps() if self._is_known else self._rehearsal().steps(STEPS + 1))

    def _rehearsal(self, some: Collection[int] = ()) -> Rehearsal:
        return Rehearsal.of_all(self._optimizers.all, self._all, self._updates._scratch, self._updates.device, some=some)

    def _kind(self, parameter: Tensor) -> Any:
        _, group = self._optimizers.owner(parameter)
        return id(group), is_trained(parameter), tuple(parameter.shape), parameter.stride(), parameter.dtype, parameter.device

    def _state_ids(self) -> list[int]:
        """Which dictionaries hold states: loading others replaces them."""
        return [id(vars(one).get("state")) for one in self._optimizers.all]
