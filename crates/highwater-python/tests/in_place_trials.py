"""Random calls of operations, each carried out twice: with a result of its own, and written over the first argument.

``python tests/in_place_trials.py --trials 1000 --ops 'aten.mul*'`` tries the table of `in_place.py`, and ``--all`` every
operation that has a form in place: it prints for which dtypes and layouts the bits differ.
"""

from __future__ import annotations

import argparse
import fnmatch
import math
import random
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch
from highwater.torch._device import in_place as _in_place
from highwater.torch._device.allocated import allocated
from torch import Tensor

aten = torch.ops.aten
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
COMPLEX = (torch.complex64, torch.complex128)
WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
DTYPES = (*FLOATS, *COMPLEX, *WHOLE)
FIRST = ("contiguous", "transposed", "channels_last")
OTHERS = ("alike", "strided")
SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-40, -1e-40, 1e-8, 6e4, -1e30, 1.0, -1.0, 0.5]


def numbers(dice: random.Random, shape: list[int], dtype: torch.dtype) -> Tensor:
    """Numbers of all kinds, mostly ordinary ones."""
    torch.manual_seed(dice.randrange(1 << 30))
    if dtype is torch.bool:
        return torch.rand(shape) < 0.5
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.randint(0 if dtype is torch.uint8 else -9, 9, shape).to(dtype)
    drawn = torch.randn(shape, dtype=torch.complex128 if dtype.is_complex else torch.float64) * dice.choice([0.3, 1.0, 5.0, 100.0])
    if dice.random() < 0.3 and drawn.numel():
        parts = torch.view_as_real(drawn) if dtype.is_complex else drawn
        flat = parts.view(-1)
        for _ in range(dice.randint(1, 4)):
            flat[dice.randrange(flat.numel())] = dice.choice(SPECIAL)
    return drawn.to(dtype)


def shape_of(dice: random.Random, layout: str) -> list[int]:
    if dice.random() < 0.01 and layout == "contiguous":
        return [dice.randint(33_000, 70_000)]
    dims = 4 if layout == "channels_last" else dice.randint(2, 3) if layout == "transposed" else dice.randint(0, 4)
    most = {0: 1, 1: 3000, 2: 70, 3: 20, 4: 9}[dims]
    return [0 if dice.random() < 0.01 else dice.choice([1, 2, 3, 7, 8, 16, 17, 33, 64, most, dice.randint(1, most)]) if dims < 4 else dice.randint(1, 9) for _ in range(dims)]


def whole(dice: random.Random, shape: list[int], dtype: torch.dtype, layout: str) -> Tensor:
    """A tensor that is all of its storage."""
    if layout == "transposed" or layout == "channels_last" and len(shape) != 4:
        order = list(range(len(shape)))
        dice.shuffle(order)
        back = [order.index(i) for i in range(len(order))]
        return numbers(dice, [shape[i] for i in order], dtype).permute(back)
    made = numbers(dice, shape, dtype)
    return made.contiguous(memory_format=torch.channels_last) if layout == "channels_last" else made


def like(dice: random.Random, first: Tensor, dtype: torch.dtype, layout: str) -> Tensor:
    """Another operand: of the first one's layout or a number ("alike"), or of any."""
    if layout == "alike":
        if dice.random() < 0.2:
            return numbers(dice, [1] * dice.choice([0, 0, first.dim()]), dtype)
        drawn = numbers(dice, [first.numel() + dice.choice([0, 1, 3])], dtype)
        return drawn[drawn.numel() - first.numel() :].as_strided(first.shape, first.stride(), drawn.numel() - first.numel())
    shape, kind = list(first.shape), dice.randrange(5)
    if kind == 0:  # broadcast
        return numbers(dice, [1 if dice.random() < 0.5 else size for size in shape][dice.randint(0, len(shape)) :], dtype)
    if kind == 1:  # expanded
        return numbers(dice, [1 if dice.random() < 0.5 else size for size in shape], dtype).expand(shape)
    if kind == 2:  # with gaps
        wide = numbers(dice, [2 * size + 1 for size in shape], dtype)
        return wide[tuple(slice(dice.randint(0, 1), 2 * size, 2) if dice.random() < 0.6 else slice(1, size + 1) for size in shape)]
    if kind == 3:
        return whole(dice, shape, dtype, "transposed")
    made = whole(dice, shape, dtype, "contiguous")
    if dtype.is_complex:
        made = made.conj() if dice.random() < 0.5 else torch._neg_view(made)
    return made


def scalar(dice: random.Random, dtype: torch.dtype) -> Any:
    kinds: list[Any] = [dice.randint(-3, 5), dice.choice([True, False])]
    if dtype.is_floating_point or dtype.is_complex:
        kinds += [dice.uniform(-3, 3), dice.uniform(-3, 3), 0.1, 1 / 3, dice.choice(SPECIAL)]
    if dtype.is_complex:
        kinds += [complex(dice.uniform(-2, 2), dice.uniform(-2, 2))] * 2
    return dice.choice(kinds)


def mixed(dice: random.Random, dtype: torch.dtype) -> torch.dtype:
    return dtype if dice.random() < 0.75 else dice.choice(DTYPES)


Others = Callable[[random.Random, Tensor, str], "tuple[list[Any], dict[str, Any]]"]


def by_schema(target: Any) -> Others:
    """Arguments after the first, by their names and types."""

    def draw(dice: random.Random, first: Tensor, layout: str) -> tuple[list[Any], dict[str, Any]]:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for argument in target._schema.arguments[1:]:
            value = one(dice, argument, first, layout)
            if argument.kwarg_only:
                kwargs[argument.name] = value
            else:
                args.append(value)
        return args, kwargs

    return draw


def one(dice: random.Random, argument: Any, first: Tensor, layout: str) -> Any:
    name, kind = argument.name, str(argument.type)
    optional = kind.startswith("Optional")
    if optional and dice.random() < 0.3:
        return None
    if name in ("dim", "dim0", "dim1"):
        return dice.randrange(max(1, first.dim()))
    if name == "rounding_mode":
        return dice.choice([None, "trunc", "floor"])
    if name == "approximate":
        return dice.choice(["none", "tanh"])
    if name == "dtype":
        return None
    if name == "mask":
        return like(dice, first, torch.bool, layout)
    if name == "decimals":
        return dice.randint(-2, 3)
    if name in ("eps", "nan", "posinf", "neginf"):
        return dice.uniform(0, 0.4)
    if name == "is_result":
        return False
    if "Tensor" in kind:
        return like(dice, first, mixed(dice, first.dtype) if name != "self" else first.dtype, layout)
    if "number" in kind:
        return scalar(dice, first.dtype)
    if "float" in kind:
        return dice.uniform(-2, 2)
    if "int" in kind:
        return dice.randint(-3, 3)
    if "bool" in kind:
        return dice.random() < 0.5
    raise NotImplementedError(f"{name}: {kind}")


def index(dice: random.Random, size: int, shape: list[int]) -> Tensor:
    torch.manual_seed(dice.randrange(1 << 30))
    return torch.randint(0, max(1, size), shape)


def by_rows(kind: str) -> Others:
    """Of operations that write to some places."""

    def draw(dice: random.Random, first: Tensor, layout: str) -> tuple[list[Any], dict[str, Any]]:
        dim = dice.randrange(first.dim())
        size, count = first.shape[dim], dice.randint(1, 9)
        rows = index(dice, size, [count])
        part = [count if i == dim else length for i, length in enumerate(first.shape)]
        source = like(dice, torch.empty(part), first.dtype, "alike" if layout == "alike" else "strided")
        source = source.expand(part) if source.dim() <= len(part) else source
        full = index(dice, size, part)
        value = scalar(dice, first.dtype)
        if kind == "index_add":
            return [dim, rows, source], {"alpha": dice.choice([1, 1, 2])}
        if kind == "index_copy":
            return [dim, rows.unique(), source.narrow(dim, 0, len(rows.unique()))], {}
        if kind == "index_fill":
            return [dim, rows, value], {}
        if kind == "index_put":
            at = index(dice, first.shape[0], [count])
            return [[at], numbers(dice, [count, *first.shape[1:]], first.dtype), True], {}
        if kind == "index_put_once":
            at = index(dice, first.shape[0], [count]).unique()
            return [[at], numbers(dice, [len(at), *first.shape[1:]], first.dtype), dice.random() < 0.5], {}
        if kind == "scatter_value":
            return [dim, full, value], {}
        if kind == "scatter":
            full = full.sort(dim).values if layout == "alike" else full
            return [dim, torch.arange(count).clamp(max=size - 1).view([-1 if i == dim else 1 for i in range(first.dim())]).expand(part), source], {}
        return [dim, full, source], {}

    return draw


def matrices(target: str) -> Others:
    """Of products that are added to the first argument."""

    def draw(dice: random.Random, first: Tensor, layout: str) -> tuple[list[Any], dict[str, Any]]:
        inner = dice.choice([1, 2, 5, 16, 33, 64])
        kind = layout if layout == "alike" else "transposed"
        *batch, n, m = first.shape
        made = [numbers(dice, [*batch, n, inner], first.dtype), numbers(dice, [*batch, inner, m], first.dtype)]
        if kind == "transposed":
            made = [t.mT.contiguous().mT if dice.random() < 0.7 else t for t in made]
        scales = {} if dice.random() < 0.6 else {"beta": dice.choice([1, 0.5]), "alpha": dice.choice([1, 0.3])}
        return made, scales

    return draw


def softmax(backward: bool, log: bool) -> Others:
    def draw(dice: random.Random, first: Tensor, layout: str) -> tuple[list[Any], dict[str, Any]]:
        dim = dice.randrange(max(1, first.dim()))
        if not backward:
            return [dim, False], {}
        x = like(dice, first, first.dtype, layout).expand(first.shape)
        return [x.log_softmax(dim) if log else x.softmax(dim), dim, first.dtype], {}

    return draw


SPECIFIC: dict[str, Others] = {
    "aten.elu_backward.default": lambda dice, first, layout: ([1.5, 1.0, 1.0, dice.random() < 0.5, like(dice, first, first.dtype, layout)], {}),
    "aten.hardtanh_backward.default": lambda dice, first, layout: ([like(dice, first, first.dtype, layout), -1.0, 1.0], {}),
    "aten.log_sigmoid_backward.default": lambda dice, first, layout: (lambda x: ([x, aten.log_sigmoid_forward(x)[1]], {}))(like(dice, first, first.dtype, layout).expand(first.shape)),
    "aten._softmax.default": softmax(False, False),
    "aten._log_softmax.default": softmax(False, True),
    "aten._softmax_backward_data.default": softmax(True, False),
    "aten._log_softmax_backward_data.default": softmax(True, True),
    "aten.index_add.default": by_rows("index_add"),
    "aten.index_copy.default": by_rows("index_copy"),
    "aten.index_fill.int_Scalar": by_rows("index_fill"),
    "aten.index_put.default": by_rows("index_put"),
    "aten.scatter.value": by_rows("scatter_value"),
    "aten.scatter.src": by_rows("scatter"),
    "aten.scatter_add.default": by_rows("scatter_add"),
    "aten.addmm.default": matrices("addmm"),
    "aten.baddbmm.default": matrices("baddbmm"),
}


def drawn(target: Any, dtype: torch.dtype, first_layout: str, layout: str, dice: random.Random) -> tuple[Tensor, list[Any], dict[str, Any], Tensor] | None:
    """A call, and what it answers; None where it is no call, or would not be rewritten."""
    shape = shape_of(dice, first_layout)
    if target in (aten.addmm.default, aten.baddbmm.default):
        shape = [dice.choice([1, 3, 8, 17, 40]) for _ in range(2 if target is aten.addmm.default else 3)]
    first = whole(dice, shape, dtype, first_layout)
    try:
        args, kwargs = (SPECIFIC.get(str(target)) or by_schema(target))(dice, first, layout)
        expected = target(first, *args, **kwargs)
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
        return None
    if not isinstance(expected, Tensor) or not _in_place.is_alike(first, expected) or expected.data_ptr() == first.data_ptr():
        return None
    return first, args, kwargs, expected


def over(target: Any, first: Tensor, args: list[Any], kwargs: dict[str, Any]) -> Tensor:
    """The same call, over its first argument."""
    form = _in_place.FORMS.get(target)
    in_place: Any = form.target if form else _in_place.underscored(target)
    answer: Tensor = in_place(first, *args, **{**kwargs, form.out: first} if form and form.out else kwargs)
    return answer


def trial(target: Any, dtype: torch.dtype, first_layout: str, layout: str, dice: random.Random) -> bool | None:
    """Whether both forms have the same bits in a drawn call; None where there is none."""
    call = drawn(target, dtype, first_layout, layout, dice)
    if call is None:
        return None
    first, args, kwargs, expected = call
    try:
        found = over(target, first, args, kwargs)
    except (RuntimeError, IndexError):
        return False
    return found.data_ptr() == first.data_ptr() and same_bits(found, expected)


def scratch(target: Any, dtype: torch.dtype, dice: random.Random) -> tuple[int, int] | None:
    """Bytes that a drawn call takes beside its result, and over its first argument."""
    call = drawn(target, dtype, FIRST[0], OTHERS[0], dice)
    if call is None or target is aten.cumsum.default and not call[0].dim():
        return None
    first, args, kwargs, expected = call
    size = expected.untyped_storage().nbytes()
    del expected, call
    _, most, _ = allocated(lambda: target(first, *args, **kwargs))
    return most - size, allocated(lambda: over(target, first, args, kwargs))[1]


def same_bits(a: Tensor, b: Tensor) -> bool:
    """A NaN is like another."""
    if a.dtype.is_complex:
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
    if not a.dtype.is_floating_point:
        return torch.equal(a, b)
    size = {2: torch.int16, 4: torch.int32, 8: torch.int64}[a.itemsize]
    none = a.isnan()
    return torch.equal(none, b.isnan()) and torch.equal(a.contiguous().view(size)[~none], b.contiguous().view(size)[~none])


def candidates() -> Iterator[Any]:
    """All operations that have a form in place."""
    yield from _in_place.FORMS
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        base, _, overload = name.removeprefix("aten::").partition(".")
        if not name.startswith("aten::") or base.startswith(("_foreach", "_philox", "set", "resize", "sparse", "as_strided", "squeeze", "swap", "unsqueeze", "_resize")):
            continue
        try:
            target = getattr(getattr(aten, base), overload or "default")
        except (AttributeError, RuntimeError):
            continue
        if _in_place.underscored(target) and torch.Tag.nondeterministic_seeded not in target.tags and target not in _in_place.FORMS:
            yield target


def main() -> None:
    parser = argparse.ArgumentParser(description="Operations in place compared with themselves.")
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--ops", default="*", help="a name with wildcards")
    parser.add_argument("--skip", type=int, default=0, help="so many operations")
    parser.add_argument("--all", action="store_true", help="operations that are not in the table too")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for target in list(candidates() if args.all else _in_place.FORMS)[args.skip :]:
        if not fnmatch.fnmatch(str(target), args.ops):
            continue
        counts: dict[tuple[str, str, str], Counter[bool | None]] = defaultdict(Counter)
        form = _in_place.FORMS.get(target)
        for dtype in DTYPES if args.all or form is None else form.dtypes:
            for first in FIRST:
                for layout in OTHERS:
                    dice = random.Random(zlib.crc32(f"{args.seed} {target} {dtype} {first} {layout}".encode()))
                    for _ in range(args.trials):
                        counts[str(dtype)[6:], first, layout][trial(target, dtype, first, layout, dice)] += 1
        good = sorted({key[0] for key, seen in counts.items() if seen[True] and not any(counts[key[0], f, o][False] for f in FIRST for o in OTHERS)})
        none = sorted({key[0] for key in counts} - {key[0] for key, seen in counts.items() if seen[True] or seen[False]})
        print(target, "SAME", ",".join(good), "| NOT A CALL", ",".join(none), flush=True)
        for key, seen in counts.items():
            if seen[False]:
                print("    DIFFERS", *key, dict(seen), flush=True)


if __name__ == "__main__":
    main()
