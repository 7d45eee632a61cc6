"""Times PyTorch's convolutions of ResNet-50 at a batch of 16, to be set beside `cargo bench --bench conv`.

    python3 conv.py [--threads 2] [--repeat 10] [--contiguous] [--criterion ../../target/criterion]

Prints milliseconds, the median of the repetitions, of y, dx and dw of each layer, channels last unless
`--contiguous`; and beside them, with `--criterion`, what the bench measured, and its share of PyTorch's time.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
import torch.nn.functional as F

BATCH = 16
# Channels in and out, side, kernel, stride, groups: those of the bench.
LAYERS = [
    (3, 64, 224, 7, 2, 1), (64, 64, 56, 1, 1, 1), (64, 64, 56, 3, 1, 1), (64, 256, 56, 1, 1, 1),
    (256, 64, 56, 1, 1, 1), (256, 512, 56, 1, 2, 1), (128, 128, 56, 3, 2, 1), (128, 128, 28, 3, 1, 1),
    (512, 128, 28, 1, 1, 1), (256, 256, 14, 3, 1, 1), (1024, 256, 14, 1, 1, 1), (512, 512, 7, 3, 1, 1),
    (512, 2048, 7, 1, 1, 1), (96, 96, 56, 3, 1, 96),
]


def milliseconds(f, repeat: int) -> float:
    f()
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        f()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds) * 1e3


def measured(criterion: Path | None, label: str) -> float | None:
    if criterion is None:
        return None
    file = criterion / "conv" / label.replace(" ", "_") / "new" / "estimates.json"
    for file in (file, criterion / "conv" / label / "new" / "estimates.json"):
        if file.exists():
            return json.loads(file.read_text())["median"]["point_estimate"] / 1e6
    return None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--contiguous", action="store_true")
    parser.add_argument("--criterion", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    order = torch.contiguous_format if options.contiguous else torch.channels_last

    def say(label: str, theirs: float) -> None:
        ours = measured(options.criterion, label)
        print(f"{label:28} {theirs:8.2f}" + (f" {ours:8.2f} {ours / theirs:5.2f}" if ours else ""))

    for inputs, outputs, side, kernel, stride, groups in LAYERS:
        x = torch.randn(BATCH, inputs, side, side).contiguous(memory_format=order)
        w = torch.randn(outputs, inputs // groups, kernel, kernel).contiguous(memory_format=order)
        conv = dict(stride=stride, padding=kernel // 2, groups=groups)
        label = f"{inputs}-{outputs} {side} {kernel} {stride} {groups}"
        y = F.conv2d(x, w, **conv)
        g = torch.randn_like(y)
        say(f"{label} y", milliseconds(lambda: F.conv2d(x, w, **conv), options.repeat))
        both = [stride] * 2, [kernel // 2] * 2, [1] * 2, False, [0] * 2, groups
        for what, mask in (("dx", [True, False, False]), ("dw", [False, True, False])):
            backward = lambda: torch.ops.aten.convolution_backward(g, x, w, None, *both, mask)
            say(f"{label} {what}", milliseconds(backward, options.repeat))
    x = torch.randn(BATCH, 64, 112, 112).contiguous(memory_format=order)
    norm = lambda: F.batch_norm(x, None, None, None, None, training=True)
    say("batch norm", milliseconds(norm, options.repeat))
    say("max pool", milliseconds(lambda: F.max_pool2d(x, 3, 2, 1), options.repeat))


if __name__ == "__main__":
    main()
