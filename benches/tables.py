#!/usr/bin/env python3
"""Writes BENCHMARKS.md and the chart of the README from the result files in benches/results/.

    benches/tables.py            # write both
    benches/tables.py --check    # fail if either is not what the result files say

A result file has the title and the claim of a measurement, the machine, date, commit and command (null where nobody
noted them), tables of cells as text, aims as [aim, measured, met|missed], and notes. `index.json` has their order.
To record a measurement, edit or add a file and run this script. Needs only Python.
"""

import argparse
import json
import sys
from pathlib import Path

from chart import chart

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benches" / "results"
PAGE = ROOT / "BENCHMARKS.md"
CHART = ROOT / "docs" / "images" / "budgets.svg"

HEAD = """# Benchmarks

What was measured, on which machine, and how to measure it again. Commands run from the repository's root. Machines are
servers with two cores: compare figures of one table with each other, and not those of two tables.

This page is written by `benches/tables.py` from the files in `benches/results/`, which each section names. A date and
a commit are those with which the figures were recorded. "Met" and "missed" say how a figure compares with the aim that
was set before.
"""


def table(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def section(name: str) -> str:
    result = json.loads((RESULTS / f"{name}.json").read_text())
    date, commit = result["date"], result["commit"]
    recorded = f"{date}, commit {commit}" if commit else date or "not noted"
    commands = "; ".join(f"`{command}`" for command in result["command"])
    facts = [
        f"- Machine: {result['machine']}",
        f"- Recorded: {recorded}",
        f"- Command: {commands}",
        f"- Results: `benches/results/{name}.json`",
    ]
    parts = [f"### {result['title']}\n", result["claim"] + "\n", "\n".join(facts) + "\n"]
    for each in result["tables"]:
        if each["caption"]:
            parts.append(each["caption"] + ":\n")
        parts.append(table(each["columns"], each["rows"]))
    if result["aims"]:
        parts.append(table(["aim", "measured", ""], result["aims"]))
    if result["notes"]:
        parts.append("\n".join(f"- {note}" for note in result["notes"]) + "\n")
    return "\n".join(parts)


def page() -> str:
    index = json.loads((RESULTS / "index.json").read_text())
    named = {name for names in index.values() for name in names}
    there = {path.stem for path in RESULTS.glob("*.json")} - {"index"}
    if named != there:
        sys.exit(f"index.json and the files differ: {sorted(named ^ there)}")
    parts = [HEAD]
    for group, names in index.items():
        parts += [f"## {group}\n", *(section(name) for name in names)]
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes BENCHMARKS.md from benches/results/.")
    parser.add_argument("--check", action="store_true", help="fail if it is not up to date")
    check = parser.parse_args().check
    stale = []
    for path, text in [(PAGE, page()), (CHART, chart(RESULTS))]:
        if check:
            if not path.exists() or path.read_text() != text:
                stale.append(path.name)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    if stale:
        sys.exit(f"{', '.join(stale)}: not what the result files say; run benches/tables.py")


if __name__ == "__main__":
    main()
