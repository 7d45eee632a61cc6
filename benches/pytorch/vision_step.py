"""Trains a model of torchvision's for a few steps on made-up pictures, in f32, and prints one JSON line per step.

    python3 vision_step.py [--model resnet50] [--batch 16] [--size 224] [--steps 4] [--threads 2] [--contiguous]
                           [--memory-efficient]

Channels last unless `--contiguous`; SGD with momentum, as the example `vision_step` of highwater-models.
`--memory-efficient` is DenseNet's own switch: its concatenations, norms and ReLUs are computed again in
backward. The first step warms up.
"""

import argparse
import json
import time

import torch
import torch.nn.functional as F
import torchvision

CLASSES = 1000


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--contiguous", action="store_true")
    parser.add_argument("--memory-efficient", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    order = torch.contiguous_format if options.contiguous else torch.channels_last
    arguments = {"memory_efficient": True} if options.memory_efficient else {}
    model = torchvision.models.get_model(options.model, num_classes=CLASSES, **arguments)
    model = model.train().to(memory_format=order)
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(options.batch, 3, options.size, options.size).contiguous(memory_format=order)
    labels = torch.arange(options.batch) * 37 % CLASSES
    for step in range(options.steps):
        start = time.perf_counter()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        sgd.step()
        sgd.zero_grad(set_to_none=True)
        value = loss.item()
        print(json.dumps({"step": step, "loss": value, "seconds": time.perf_counter() - start}), flush=True)


if __name__ == "__main__":
    main()
