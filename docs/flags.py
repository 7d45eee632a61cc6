#!/usr/bin/env python3
"""Writes docs/reference/flags.md, the page of commands and flags, from what `highwater COMMAND --help-all` prints.

    cargo build && docs/flags.py                         # from target/debug/highwater
    docs/flags.py --program target/release/highwater
    docs/flags.py --check                                # fail if the page is not up to date

Needs only Python.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "flags.md"
COMMANDS = ["train", "plan", "init", "resume", "eval", "generate", "chat", "merge", "export", "data show", "doctor",
            "completions", "man"]
HEAD = """# Commands and flags

What `highwater --help` and `highwater COMMAND --help` print. `docs/flags.py` writes this page. Commands with many flags
show the essential ones with `--help`, and all of them, as here, with `--help-all`. Flags win over a `config.toml` that
`--config` names. `-h` prints a summary.
"""


def shown(program: Path, words: list[str], flag: str = "--help") -> str:
    done = subprocess.run([program, *words, flag], check=True, capture_output=True, text=True)
    if flag == "--help" and "--help-all" in done.stdout:
        return shown(program, words, "--help-all")
    return "\n".join(line.rstrip() for line in done.stdout.splitlines())


def page(program: Path) -> str:
    with tempfile.TemporaryDirectory() as folder:
        # Its help has the name that it was started by.
        named = Path(folder) / "highwater"
        os.symlink(program.resolve(), named)
        parts = [HEAD, f"## highwater\n\n```text\n{shown(named, [])}\n```\n"]
        parts += [f"## {name}\n\n```text\n{shown(named, name.split())}\n```\n" for name in COMMANDS]
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes docs/reference/flags.md.")
    built = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug" / "highwater"
    parser.add_argument("--program", type=Path, default=built)
    parser.add_argument("--check", action="store_true", help="fail if the page is not up to date")
    given = parser.parse_args()
    text = page(given.program)
    if not given.check:
        PAGE.write_text(text)
    elif PAGE.read_text() != text:
        sys.exit("docs/reference/flags.md is not what the program prints; run docs/flags.py")


if __name__ == "__main__":
    main()
