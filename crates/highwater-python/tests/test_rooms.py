"""Holds the package to the rooms that docs/design/rooms.md lists: no import goes upward, and no files import each other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
PACKAGE = HERE / "python/highwater/torch"
PAGE = HERE.parents[1] / "docs/design/rooms.md"
SECTION, ORDER = "### `highwater.torch`", "Rooms, from top to bottom:"

Arrows = dict[str, set[str]]
"""Of each file, those that it imports from, all by their paths in the package."""


def stated(page: str) -> list[list[str]]:
    """The rooms of the package, from top to bottom."""
    section = page.partition(f"\n{SECTION}\n")[2].partition("\n## ")[0]
    (line,) = [line for line in section.splitlines() if line.startswith(ORDER)]
    return [level.split("`")[1::2] for level in line.split("·")]


def arrows(package: Path, name: str) -> Arrows:
    """All imports within a package, wherever they stand: those in functions and for types count too."""
    files = {path.relative_to(package).as_posix() for path in package.rglob("*.py")}
    return {file: set(imported(package / file, file, files, name)) - {file} for file in files}


def imported(path: Path, file: str, files: set[str], name: str) -> Iterator[str]:
    folder = [name, *file.split("/")[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = folder[: len(folder) - node.level + 1] if node.level else []
            module = [*start, *(node.module.split(".") if node.module else [])]
            # What is taken may be a module itself.
            found = [[*module, alias.name] for alias in node.names]
        else:
            continue
        for parts in found:
            if ".".join(parts[: name.count(".") + 1]) == name:
                parts = [name, *parts[name.count(".") + 1 :]]
            if parts[0] == name:
                yield file_of(parts[1:], files)


def file_of(parts: list[str], files: set[str]) -> str:
    """The file that a path of names leads to, or into."""
    for end in range(len(parts), 0, -1):
        for file in (f"{'/'.join(parts[:end])}.py", f"{'/'.join(parts[:end])}/__init__.py"):
            if file in files:
                return file
    return "__init__.py"


def room_of(file: str) -> str:
    folder, slash, _ = file.partition("/")
    return folder + slash


def upward(arrows: Arrows, levels: list[list[str]]) -> list[str]:
    """Imports from a room above."""
    height = {room: i for i, level in enumerate(levels) for room in level}
    return sorted(f"{file} imports {other}" for file, others in arrows.items() for other in others if height[room_of(other)] < height[room_of(file)])


def circle(arrows: Arrows) -> set[str]:
    """The files that are in circles, or between two of them."""
    left = set(arrows)
    # Files below a circle are in none.
    while gone := {file for file in left if not arrows[file] & left}:
        left -= gone
    # Nor are those above one.
    while gone := {file for file in left if not any(file in arrows[other] for other in left)}:
        left -= gone
    return left


def test_rooms_import_from_rooms_below_them() -> None:
    levels, found = stated(PAGE.read_text()), arrows(PACKAGE, "highwater.torch")
    named = [room for level in levels for room in level]
    assert sorted(named) == sorted({room_of(file) for file in found}), "rooms.md lists each room once"
    assert upward(found, levels) == []


def test_no_files_import_each_other() -> None:
    assert circle(arrows(PACKAGE, "highwater.torch")) == set()


def test_the_planners_own_package_knows_no_pytorch() -> None:
    for path in PACKAGE.parent.glob("*.py*"):
        modules = [name for node in ast.walk(ast.parse(path.read_text())) for name in names(node)]
        assert not [name for name in modules if "torch" in name], path


def names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [node.module or "", *(alias.name for alias in node.names)]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


MADE_UP = {
    "__init__.py": "from ._top.door import enter",
    "_top/__init__.py": "",
    "_top/door.py": "from .._low import stair\nenter = stair.climb",
    "_low/__init__.py": "",
    "_low/stair.py": "import made_up._low.floor as floor\ndef climb(): return floor",
    "_low/floor.py": "",
}
LEVELS = [["__init__.py"], ["_top/"], ["_low/"]]
FAULTS = {
    "plain": "from .._top.door import enter",
    "absolute": "import made_up._top.door",
    "module": "from .._top import door",
    "in a function": "def late():\n    from .._top.door import enter",
    "for types": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from made_up._top.door import enter",
}


def written(folder: Path, files: dict[str, str]) -> Arrows:
    for file, text in files.items():
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(text)
    return arrows(folder, "made_up")


def test_a_package_in_order_passes(tmp_path: Path) -> None:
    found = written(tmp_path, MADE_UP)
    assert found == {
        "__init__.py": {"_top/door.py"},
        "_top/__init__.py": set(),
        "_top/door.py": {"_low/stair.py"},
        "_low/__init__.py": set(),
        "_low/stair.py": {"_low/floor.py"},
        "_low/floor.py": set(),
    }
    assert upward(found, LEVELS) == [] and circle(found) == set()


@pytest.mark.parametrize("fault", FAULTS)
def test_an_import_that_goes_upward_is_found(fault: str, tmp_path: Path) -> None:
    found = written(tmp_path, MADE_UP | {"_low/floor.py": FAULTS[fault]})
    assert upward(found, LEVELS) == ["_low/floor.py imports _top/door.py"]
    assert circle(found) == {"_low/floor.py", "_low/stair.py", "_top/door.py"}


def test_a_circle_within_a_room_is_found(tmp_path: Path) -> None:
    found = written(tmp_path, MADE_UP | {"_low/floor.py": "def late():\n    from . import stair"})
    assert upward(found, LEVELS) == []
    assert circle(found) == {"_low/floor.py", "_low/stair.py"}
