"""Plans kept from run to run, by the problem that they are of."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import highwater

from .costs import cache_folder

P = ParamSpec("P")
T = TypeVar("T")

# Beyond so many bytes, the plans that nobody asked for the longest are dropped.
MOST_BYTES = 64 << 20


class Said:
    """Listens to what a problem is told, for a name that no other problem has."""

    def __init__(self) -> None:
        self._hash, self._structure = hashlib.sha256(), hashlib.sha256()
        self.count = 0
        """How many things it was told."""

    def __call__(self, tell: Callable[P, T]) -> Callable[P, T]:
        def heard(*args: P.args, **kwargs: P.kwargs) -> T:
            self._hash.update(f"{args} {kwargs}\n".encode())
            self._structure.update(f"{[*map(without_rates, args)]} {[(key, without_rates(value)) for key, value in kwargs.items()]}\n".encode())
            self.count += 1
            return tell(*args, **kwargs)

        return heard

    @property
    def name(self) -> str:
        return self._hash.hexdigest()

    @property
    def structure(self) -> str:
        """A name that problems share which differ in seconds alone."""
        return self._structure.hexdigest()


def without_rates(value: Any) -> Any:
    return "seconds" if isinstance(value, float) else value.bytes if isinstance(value, highwater.Link) else value


@functools.cache
def maker() -> str:
    """The code that makes plans: what another one made may be no plan of this one's."""
    folder = Path(highwater.__file__).parent
    found = hashlib.sha256(highwater.__version__.encode())
    for path in sorted([*folder.rglob("*.py"), *folder.glob("_native*.so"), *folder.glob("_native*.pyd")]):
        found.update(path.read_bytes())
    return found.hexdigest()


class Kept:
    """A folder of small texts by name, written whole or not at all; what is not as it was written is not there."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or plans_folder()

    def read(self, name: str) -> dict[str, Any] | None:
        path = self._path(name)
        try:
            sum, _, text = path.read_text().partition("\n")
            if sum != checksum(name, text):
                return None
            os.utime(path)
            found = json.loads(text)
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def write(self, name: str, fields: dict[str, Any]) -> None:
        """Keeps fields, where the folder can be written."""
        text = json.dumps(fields)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self.folder, suffix=".new", delete=False) as file:
                file.write(f"{checksum(name, text)}\n{text}")
            os.replace(file.name, self._path(name))
            self._drop()
        except OSError:
            pass

    def _path(self, name: str) -> Path:
        return self.folder / f"{hashlib.sha256(f'{name} {maker()}'.encode()).hexdigest()}.plan"

    def _drop(self) -> None:
        """Drops what was not asked for the longest; what a process that died left behind is dropped in its turn."""
        with os.scandir(self.folder) as entries:
            stats = [(entry.stat(), entry.path) for entry in entries if entry.name.endswith((".plan", ".new"))]
        total = 0
        for stat, path in sorted(stats, key=lambda file: -file[0].st_mtime_ns):
            total += stat.st_size
            if total > MOST_BYTES:
                Path(path).unlink(missing_ok=True)


def plans_folder() -> Path:
    return cache_folder() / "plans"


def checksum(name: str, text: str) -> str:
    """Of a text that a maker wrote under a name."""
    return hashlib.sha256(f"{maker()} {name} {text}".encode()).hexdigest()
