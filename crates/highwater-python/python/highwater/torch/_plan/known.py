"""Where plans come from: from another run, from another size of the same graph, or from a search."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

import highwater
from highwater import Family, Plan, Problem

from .._messages.amounts import MOST
from .choice import Choice
from .choices import Choices, OverBudget, Report
from .plan_cache import Kept

# Of graphs of one structure, so many that were searched are remembered, and so many of all.
ALIKE, ALL = 3, 64
# A plan for one size by the decisions for another may lose so much more, as a share of the seconds, than
# those lose at the same share of the memory.
SLOWER = 0.05


@dataclass(frozen=True, slots=True)
class Found:
    """A plan, and the floor that is told beside it."""

    choice: Choice
    floor_bytes: int
    adapted: bool
    kept: bool = False


class Known:
    """What is known before a search, and is found by one."""

    def __init__(self, kept: Kept | None = None) -> None:
        self.kept = kept or Kept()
        self.searches = 0
        """How many graphs were searched."""
        self._families: list[tuple[tuple[int, int], Family]] = []

    def choose(self, choices: Choices, memory: int) -> tuple[Choice, Report]:
        """A plan that fits, and what to say of it. Raises `OverBudget`, but never without a search."""
        start = time.perf_counter()
        name = f"{choices.name} {memory - choices.given}"
        found = self._of_another_run(choices, memory, name)
        if not found:
            found = self._of_another_size(choices, memory) or self._searched(choices, memory)
            self._keep(choices, memory, name, found)
        report = choices.report(
            memory, found.choice, found.floor_bytes, time.perf_counter() - start, adapted=found.adapted, kept=found.kept
        )
        return found.choice, report

    def _of_another_run(self, choices: Choices, memory: int, name: str) -> Found | None:
        fields = self.kept.read(name)
        return None if fields is None else read(choices, memory, fields)

    def _keep(self, choices: Choices, memory: int, name: str, found: Found) -> None:
        floor = found.floor_bytes - choices.given
        fields = {"plan": found.choice.plan.to_json(), "floor": floor, "adapted": found.adapted}
        again = read(choices, memory, fields)
        # A plan without the host's memory is of another problem.
        if again and again.choice.needed == found.choice.needed:
            self.kept.write(name, fields)

    def _of_another_size(self, choices: Choices, memory: int, any_speed: bool = False) -> Found | None:
        """The fastest plan by the decisions for graphs of the same structure; None where it is none of these."""
        found: list[Found] = []
        for family in self._alike(choices):
            adapted = choices.adapted(family)
            if adapted is None or adapted.floor_bytes > memory:
                continue
            choice = adapted.at(memory)
            if any_speed or is_fast(adapted, choice, family):
                found.append(Found(choice, adapted.floor_bytes, adapted=True))
        return min(found, key=lambda found: found.choice.plan.seconds, default=None)

    def _alike(self, choices: Choices) -> list[Family]:
        return [family for size, family in self._families if size == choices.size]

    def _searched(self, choices: Choices, memory: int) -> Found:
        self.searches += 1
        try:
            choice = choices.at(memory)
        except OverBudget:
            # No search promises the least: what is known may still do.
            found = self._of_another_size(choices, memory, any_speed=True) or self._of_other_seconds(choices, memory)
            if found:
                return found
            raise
        finally:
            self._remember(choices)
        return Found(choice, self._lowest_floor(choices), adapted=False)

    def _of_other_seconds(self, choices: Choices, memory: int) -> Found | None:
        """The lowest plan that was kept for a problem that differs in seconds alone."""
        fields = self.kept.read(f"{choices.structure} lowest")
        return None if fields is None else read(choices, memory, {**fields, "plan": retimed(choices.problem, fields.get("plan"))})

    def _lowest_floor(self, choices: Choices) -> int:
        """The floor, or that of a search by other times: a reported floor holds, also when kernels are
        timed again."""
        kept = self._of_other_seconds(choices, MOST)
        if kept and kept.floor_bytes <= choices.floor_bytes:
            return kept.floor_bytes
        if least := choices.least:
            self.kept.write(f"{choices.structure} lowest", {"plan": least.plan.to_json(), "floor": least.needed, "adapted": False})
        return choices.floor_bytes

    def _remember(self, choices: Choices) -> None:
        alike = [entry for entry in self._families if entry[0] == choices.size]
        if len(alike) >= ALIKE:
            self._families.remove(alike[0])
        self._families = [*self._families, (choices.size, choices.family)][-ALL:]


def read(choices: Choices, memory: int, fields: dict[str, Any]) -> Found | None:
    """What was kept, proved for the problem at hand; None if it is of another one."""
    try:
        plan, floor, adapted = Plan.from_json(choices.problem, fields["plan"]), fields["floor"], fields["adapted"]
    except (KeyError, TypeError, ValueError, highwater.InvalidPlan):
        return None
    choice = Choice.of(choices.joint, plan, memory - choices.given)
    if type(floor) is not int or type(adapted) is not bool or choices.given + max(choice.needed, floor) > memory:
        return None
    return Found(choice, choices.given + floor, adapted, kept=True)


def retimed(problem: Problem, text: Any) -> str | None:
    """A kept plan with the seconds of a problem. Where bytes move, waiting for them is left out."""
    try:
        plan = json.loads(text)
        actions = [step["action"] for step in plan["instructions"]]
        ran = [run["node"] for action in actions if isinstance(action, dict) and (run := action.get("Run") or action.get("Guard"))]
        seconds = [problem.node_seconds(node) for node in ran]
    except (KeyError, TypeError, ValueError, IndexError):
        return None
    known: set[int] = set()
    again = [time for node, time in zip(ran, seconds) if node in known or known.add(node)]  # type: ignore[func-returns-value]
    return json.dumps({**plan, "seconds": sum(seconds), "recompute_seconds": sum(again)})


def is_fast(adapted: Choices, choice: Choice, known: Family) -> bool:
    """Whether a plan loses hardly more than those that it was made from, at the same share of the memory."""
    ours, theirs = adapted.fastest.plan, known.choose(MOST)
    room = theirs.live_bytes * choice.plan.live_bytes // max(1, ours.live_bytes)
    if room < known.floor.bytes:
        return False
    expected = known.choose(room).seconds + SLOWER * theirs.seconds
    # A graph without kernels takes no time at all.
    return choice.plan.seconds * theirs.seconds <= expected * ours.seconds
