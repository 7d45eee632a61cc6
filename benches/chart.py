"""The README's chart: seconds of a training step against peak memory, as an SVG for light and dark pages."""

import json
from pathlib import Path

WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 46, 56
MIB, SECONDS = 8000, 10
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f; }
  .title { font-size: 15px; font-weight: 600; }
  .small { font-size: 12px; fill: #57606a; }
  .grid { stroke: #d0d7de; stroke-width: 1; }
  .ours { stroke: #0969da; fill: none; stroke-width: 2.5; }
  .dot { fill: #0969da; }
  .peer { fill: #bc4c00; }
  .us { fill: #0969da; font-weight: 600; }
  .them { fill: #bc4c00; font-weight: 600; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .small { fill: #9198a1; }
    .grid { stroke: #3d444d; }
    .ours { stroke: #58a6ff; }
    .dot, .us { fill: #58a6ff; }
    .peer, .them { fill: #f0883e; }
  }
"""


def x(mib: float) -> float:
    return LEFT + mib / MIB * (WIDTH - LEFT - RIGHT)


def y(seconds: float) -> float:
    return HEIGHT - BOTTOM - seconds / SECONDS * (HEIGHT - TOP - BOTTOM)


def column(rows: list[list[str]], columns: list[str], name: str) -> list[float]:
    return [float(row[columns.index(name)].replace(",", "")) for row in rows]


def points(results: Path, name: str, seconds: str, peak: str) -> dict[str, tuple[float, float]]:
    """Peak MiB and seconds per step of a result's first table, by the first cell of the row."""
    table = json.loads((results / f"{name}.json").read_text())["tables"][0]
    columns, rows = table["columns"], table["rows"]
    both = zip(column(rows, columns, peak), column(rows, columns, seconds), strict=True)
    return dict(zip([row[0] for row in rows], both, strict=True))


def chart(results: Path) -> str:
    ours = points(results, "budgets", "s/step", "peak RSS, MiB")
    eager = points(results, "pytorch-f32", "s/step, median", "peak RSS, MiB")
    frugal = points(results, "pytorch-memory", "s/step", "peak RSS, MiB")
    peers = [
        ("PyTorch as installed", eager["PyTorch, installed"], "end", -12),
        ("PyTorch with tcmalloc", eager["PyTorch, tuned"], "middle", 22),
        ("PyTorch, every memory option", frugal["PyTorch, all of these"], "start", -12),
    ]
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="t">',
        '<title id="t">GPT-2 (124 M), one training step: seconds against peak memory of the process</title>',
        f"<style>{STYLE}</style>",
        f'<text class="title" x="{LEFT}" y="20">GPT-2 (124 M), one training step: less memory, same numbers</text>',
        f'<text class="small" x="{LEFT}" y="37">seconds per step; f32, AdamW, 4 x 512, two cores with AVX-512</text>',
    ]
    for seconds in range(0, SECONDS + 1, 2):
        at = y(seconds)
        out.append(f'<line class="grid" x1="{LEFT}" y1="{at:.1f}" x2="{WIDTH - RIGHT}" y2="{at:.1f}"/>')
        out.append(f'<text class="small" x="{LEFT - 10}" y="{at + 4:.1f}" text-anchor="end">{seconds} s</text>')
    for mib in range(0, MIB + 1, 1000):
        out.append(
            f'<text class="small" x="{x(mib):.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{mib}</text>'
        )
    out.append(
        f'<text class="small" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">'
        "peak resident memory of the process, MiB</text>"
    )
    curve = sorted(ours.values())
    line = " ".join(f"{x(mib):.1f},{y(seconds):.1f}" for mib, seconds in curve)
    out.append(f'<polyline class="ours" points="{line}"/>')
    out += [f'<circle class="dot" cx="{x(mib):.1f}" cy="{y(seconds):.1f}" r="4.5"/>' for mib, seconds in curve]
    mib, seconds = curve[-1]
    out.append(f'<text class="us" x="{x(mib) - 78:.1f}" y="{y(seconds) + 26:.1f}">Highwater under budgets</text>')
    for label, (mib, seconds), anchor, down in peers:
        at = x(mib), y(seconds)
        out.append(f'<rect class="peer" x="{at[0] - 4.5:.1f}" y="{at[1] - 4.5:.1f}" width="9" height="9"/>')
        shift = {"end": 4, "middle": 0, "start": -4}[anchor]
        out.append(f'<text class="them" x="{at[0] + shift:.1f}" y="{at[1] + down:.1f}" text-anchor="{anchor}">{label}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"
