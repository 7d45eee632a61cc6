"""The planner. What is said of `highwater.Problem` and others is said here.

Nodes and values are numbers: their positions in the problem, counted from 0, as `Problem.add_node` and
`Problem.add_value` answer them. Sizes are bytes, times are seconds. Whole numbers that are out of range
raise `ValueError`, what is no whole number raises `TypeError`. All that takes long lets other threads of
Python run.
"""

from collections.abc import Iterable
from typing import ClassVar, Literal, TypeAlias, final

from typing_extensions import disjoint_base

__all__ = [
    "Decision",
    "Family",
    "Floor",
    "Holders",
    "Instruction",
    "Link",
    "Plan",
    "Problem",
    "Traffic",
    "__version__",
    "verify",
]

_Lane: TypeAlias = Literal[
    "compute", "communicate", "host_to_device", "device_to_host", "read", "write"
]
_Tier: TypeAlias = Literal["host", "disk"]

__version__: str

@final
class Link:
    """The way to host memory, as a tier where values may wait. Rates are bytes per second."""

    def __new__(
        cls,
        bytes: int,
        read: float,
        write: float,
        *,
        read_while_writing: float | None = None,
        write_while_reading: float | None = None,
        lost: float = 0.0,
    ) -> Link:
        """Raises `ValueError` for a rate that is not above 0, or a negative `lost`."""

    @property
    def bytes(self) -> int:
        """The most bytes that plans may put there."""

    @property
    def read(self) -> float:
        """Rate of fetching while nothing is evicted."""

    @property
    def write(self) -> float:
        """Rate of evicting while nothing is fetched."""

    @property
    def read_while_writing(self) -> float:
        """Rate of fetching while something is evicted: `read`, if nothing else was said."""

    @property
    def write_while_reading(self) -> float:
        """Rate of evicting while something is fetched: `write`, if nothing else was said."""

    @property
    def lost(self) -> float:
        """Seconds that nodes lose beside for each byte moved either way."""

@final
class Problem:
    """What a step computes: nodes in program order, and the values that they read and fill.

    An error leaves it as it was. Families and plans keep the problem as it was when they were made.
    """

    def __new__(cls, *, align: int = 64, host: Link | None = None) -> Problem:
        """An empty problem.

        `align`: every buffer and scratch starts at a multiple of so many bytes and takes whole multiples
        of it, a power of two below 2**30. `host`: host memory as a tier below the arena, if there is one.
        Raises `ValueError` for another `align`.
        """

    def add_value(
        self,
        bytes: int,
        *,
        home: Literal["arena", "external", "cell"] = "arena",
        pin: Literal["free", "keep", "recompute", "prefer_keep", "prefer_recompute"] = "free",
        wanted: bool = False,
    ) -> int:
        """Adds a value and answers its number.

        `bytes`: its size; may be 0. `home`: "arena" for what plans place, free and make again;
        "external" for what lies elsewhere (an input, a parameter, a result that outlives the step): it
        takes nothing of the budget, is never freed, and need not be filled by a node; "cell" for what
        outlives the step and is overwritten in it (an optimizer's state), which plans keep in memory, within
        the budget, or on the host, to be fetched where it is read: `Plan.cells_on_host`. `pin`: what is
        decided already: "keep" from its first production to its last use, or "recompute" for uses after
        the forward part, in every plan; "prefer_keep" and "prefer_recompute" are the same as long as a
        plan fits that follows all preferences. `wanted`: it must be there when the plan ends, see
        `Plan.residents`.

        Raises `ValueError` for another word, or where all bytes come to 2**62 or more.
        """

    def add_node(
        self,
        inputs: Iterable[int],
        outputs: Iterable[int],
        seconds: float,
        *,
        scratch_bytes: int = 0,
        in_place: Iterable[tuple[int, int]] = (),
        optional: Iterable[tuple[int, float]] = (),
        rewrites: Iterable[int] = (),
        reads: Iterable[tuple[int, int]] = (),
        writes: Iterable[tuple[int, int]] = (),
        effect: Literal["repeatable", "once", "guard"] = "repeatable",
        lane: Literal["compute", "communicate"] = "compute",
    ) -> int:
        """Adds a node, which comes after all that were added before, and answers its number.

        `inputs`, `outputs`: values that it reads and fills. Each value is filled by at most one node, and
        before it is read. `seconds`: predicted, of one run that fills every output. `scratch_bytes`:
        memory that it needs while it runs. `in_place`: pairs (position in `inputs`, position in
        `outputs`): the output may take over the input's buffer, where sizes are equal and nobody else
        reads the input later. `optional`: pairs (position in `outputs`, seconds that this saves): a run
        may leave these outputs out, and gives the others the same bits.

        `rewrites`: positions in `inputs` of values of home "cell" that it overwrites where they are.

        `reads`, `writes`: pairs (cell, version), where a cell is any number that the caller gives to
        something that is overwritten (a parameter, a buffer), and a version that must be current when the
        node runs; a write makes the next one. So no node that reads an old version runs after the write,
        recomputation included. A node that writes has effect "once".

        `effect`: "repeatable" may run again; "once" may not; "guard" may stop the step, fills nothing,
        and comes before every node that writes a cell. `lane`: what runs it; nodes of two lanes may run
        at the same time, where data lets them.

        Raises `ValueError`, with the node's number, for what contradicts this or names what is not there.
        """

    @property
    def node_count(self) -> int:
        """How many nodes there are."""

    @property
    def value_count(self) -> int:
        """How many values there are."""

    @property
    def align(self) -> int:
        """Every buffer starts at a multiple of so many bytes."""

    def value_bytes(self, value: int) -> int:
        """The size of a value, as it was added. Raises `IndexError` if there is none."""

    def node_seconds(self, node: int) -> float:
        """Predicted seconds of a node, as they were added. Raises `IndexError` if there is none."""

@final
class Floor:
    """The least that a problem needs: what is held at the worst moment of the smallest plan found."""

    @property
    def bytes(self) -> int:
        """The least budget that a plan was found for."""

    @property
    def node(self) -> int | None:
        """The node that runs at that moment, if any."""

    @property
    def holders(self) -> list[tuple[int, int]]:
        """Values held then, and the bytes that they take, largest first."""

    @property
    def scratch_bytes(self) -> int:
        """Bytes of the node's scratch memory."""

@final
class Holders:
    """Who holds the arena while an instruction is carried out. Sizes are rounded up to `align`."""

    @property
    def node(self) -> int | None:
        """The node that runs; of another instruction, the one that ran last before it."""

    @property
    def values(self) -> list[tuple[int, int]]:
        """Values and their bytes, largest first.

        What the instruction frees is among them; of a pair that shares a buffer only the output is.
        """

    @property
    def scratch_bytes(self) -> int:
        """Bytes of the node's scratch memory, if the instruction runs it."""

@final
class Traffic:
    """What a plan moves to and from a tier."""

    @property
    def read_bytes(self) -> int:
        """Bytes fetched."""

    @property
    def written_bytes(self) -> int:
        """Bytes evicted."""

    @property
    def spill_bytes(self) -> int:
        """Bytes of the area there for values that are no cells: no copy ends above it."""

    @property
    def home_bytes(self) -> int:
        """Bytes of the cells that are there."""

@final
class Decision:
    """One decision of a plan, what it saves and what it costs."""

    @property
    def choice(self) -> Literal["recompute", "in_place", "early"]:
        """What was decided: the node runs again; an output is written over an input; or a node with
        effect "once" runs before nodes that were added before it."""

    @property
    def node(self) -> int:
        """The node."""

    @property
    def times(self) -> int:
        """How often: repetitions, or runs in place."""

    @property
    def bytes(self) -> int:
        """Bytes that are free because of it."""

    @property
    def lasts_seconds(self) -> float:
        """For how many predicted seconds they are free, on average over the bytes."""

    @property
    def seconds(self) -> float:
        """Predicted seconds that it costs."""

@disjoint_base
class Instruction:
    """One instruction of a plan: `Instruction.Run`, `Free`, `Guard`, `Evict` or `Fetch`.

    It starts after the instruction before it in its own `lane`, and after all of `waits` (positions in
    `Plan.instructions`) have completed. Carrying out the list in its order satisfies every wait.
    """

    @property
    def lane(self) -> _Lane:
        """The queue that it runs in."""

    @property
    def waits(self) -> list[int]:
        """Instructions of other lanes that must have completed before."""

    @final
    class Run(Instruction):
        """Runs a node: again, if it ran before."""

        __match_args__: ClassVar[tuple[str, ...]] = ("node", "offsets", "scratch", "lane", "waits")

        def __new__(
            cls,
            node: int,
            offsets: list[int | None],
            scratch: int | None,
            lane: str,
            waits: list[int],
        ) -> Instruction.Run: ...
        @property
        def node(self) -> int:
            """The node."""

        @property
        def offsets(self) -> list[int | None]:
            """Byte offset in the arena of each output.

            `None` for values outside the arena, for outputs that are still there (they are filled again
            where they are), and for optional outputs that this run leaves out.
            """

        @property
        def scratch(self) -> int | None:
            """Byte offset of the scratch memory, if the node asks for any."""

    @final
    class Free(Instruction):
        """The bytes of a value may be used for something else from here on."""

        __match_args__: ClassVar[tuple[str, ...]] = ("value", "lane", "waits")

        def __new__(cls, value: int, lane: str, waits: list[int]) -> Instruction.Free: ...
        @property
        def value(self) -> int:
            """The value."""

    @final
    class Guard(Instruction):
        """Evaluates a guard."""

        __match_args__: ClassVar[tuple[str, ...]] = ("node", "lane", "waits")

        def __new__(cls, node: int, lane: str, waits: list[int]) -> Instruction.Guard: ...
        @property
        def node(self) -> int:
            """The node."""

    @final
    class Evict(Instruction):
        """Copies a value to a tier; its bytes are free when this completes."""

        __match_args__: ClassVar[tuple[str, ...]] = ("value", "tier", "place", "lane", "waits")

        def __new__(
            cls, value: int, tier: str, place: int | None, lane: str, waits: list[int]
        ) -> Instruction.Evict: ...
        @property
        def value(self) -> int:
            """The value."""

        @property
        def tier(self) -> _Tier:
            """Where to."""

        @property
        def place(self) -> int | None:
            """Byte offset in the tier's area, which has `Traffic.spill_bytes`; `None` for a cell, which has a
            place of its own."""

    @final
    class Fetch(Instruction):
        """Copies a value back into the arena; its bytes count from the start of the copy."""

        __match_args__: ClassVar[tuple[str, ...]] = ("value", "tier", "offset", "lane", "waits")

        def __new__(
            cls, value: int, tier: str, offset: int, lane: str, waits: list[int]
        ) -> Instruction.Fetch: ...
        @property
        def value(self) -> int:
            """The value."""

        @property
        def tier(self) -> _Tier:
            """Where from."""

        @property
        def offset(self) -> int:
            """Byte offset in the arena."""

@final
class Plan:
    """A step compiled under a budget. Each is proved for its problem before it is handed out."""

    @property
    def instructions(self) -> list[Instruction]:
        """The list, made anew each time that it is asked for."""

    @property
    def arena_bytes(self) -> int:
        """Height of the arena: no buffer or scratch ends above it. It is within the budget."""

    @property
    def live_bytes(self) -> int:
        """The most bytes alive at any instruction: `arena_bytes` less what packing lost.

        With transfers, or nodes in two lanes, what is alive at once depends on how they go, and this is
        the most that it might be: it may exceed `arena_bytes`, which is what has to be there.
        """

    @property
    def peak_instruction(self) -> int:
        """The instruction with the most live bytes."""

    @property
    def seconds(self) -> float:
        """Predicted seconds: of all runs one after the other, and of what they wait for transfers."""

    @property
    def recomputed_nodes(self) -> int:
        """How many runs are repetitions."""

    @property
    def recompute_seconds(self) -> float:
        """Predicted seconds of those."""

    @property
    def residents(self) -> list[tuple[int, int]]:
        """Wanted values that end in the arena, each with its byte offset there."""

    @property
    def cells_on_host(self) -> list[int]:
        """Values of home "cell" that are on the host when the plan starts, and when it ends."""

    @property
    def memory_bytes(self) -> int:
        """What is within the budget: `arena_bytes`, and cells that are in memory throughout."""

    @property
    def host(self) -> Traffic:
        """What is moved to and from host memory."""

    def holders(self, at: int | None = None) -> Holders:
        """Who holds the arena at an instruction; at the peak, if none is said.

        Raises `IndexError` if there is no such instruction.
        """

    def explain(self) -> list[Decision]:
        """What was decided: by kind, then in the order of nodes."""

    def to_json(self) -> str:
        """The plan as text."""

    @staticmethod
    def from_json(problem: Problem, text: str) -> Plan:
        """The plan that `to_json` wrote, proved for a problem.

        Raises `ValueError` if the text is no plan, `InvalidPlan` if it is none of this problem.
        """

@final
class Family:
    """The plans of a problem, for all budgets: predicted seconds never rise with the budget.

    Making one is fast. The first budget below what keeping everything takes starts a search, whose
    result is kept; so do `floor` and `curve`.
    """

    def __new__(
        cls,
        problem: Problem,
        policy: Literal["auto", "keep", "recompute"] = "auto",
        *,
        arena: bool = True,
    ) -> Family:
        """Poses a problem to the planner.

        `arena`: whether budgets bound `Plan.arena_bytes`, for who places buffers where plans say; or
        else `Plan.live_bytes`, for who has an allocator of its own (not with host memory as a tier).

        `policy`: "auto" for whatever is fastest within the budget, "keep" to recompute nothing but what
        is pinned so, "recompute" to recompute at least all between cuts, as checkpointing per block does.

        Raises `ValueError` if the problem makes no sense, and says where and what to do.
        """

    @property
    def floor(self) -> Floor:
        """The least that would do, and what sets it."""

    def curve(self, count: int = 64) -> list[tuple[int, float]]:
        """The ladder of budgets: pairs (bytes, seconds), fastest first, each slower one smaller.

        About `count` of the plans that there are, evenly over the bytes. Each is packed for this.
        """

    def choose(self, budget: int) -> Plan:
        """The fastest plan that fits so many bytes, proved.

        Raises `OverBudget` if none fits. (`InvalidPlan` would be a fault of Highwater's.)
        """

    def adapt(self, problem: Problem) -> Family | None:
        """The plans of another problem of the same structure, by the decisions made for this one.

        For other bytes and seconds with the same nodes, edges, homes and pins: another length of a
        sequence, say. It takes over what was searched and searches nothing, so its plans may be slower,
        and its floor higher, than those of `Family(problem)`. `None` if nothing has been searched yet, or
        the structure is another. Raises `ValueError` as `Family` does.
        """

def verify(problem: Problem, plan: Plan, budget: int) -> None:
    """Proves that a plan computes a problem within a budget, in every order that its waits allow.

    It shares no function with the planner. Raises `InvalidPlan` with the first thing that is wrong.
    """
