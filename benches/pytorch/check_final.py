"""Loads a trained model into Hugging Face's GPT-2, and prints its loss on given tokens as JSON.

    python3 check_final.py DIR TOKENS.bin [--batch 4] [--seq 512] [--offset 0]

DIR/final is the model folder; TOKENS.bin holds u16 tokens, little-endian. Row r of the batch takes
seq inputs from token offset + r * seq on, and as targets the tokens one place later. Exits with 1 if
a weight is missing, unexpected or of another shape.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import transformers


def main() -> None:
    parser = argparse.ArgumentParser(description="Checks a trained GPT-2 with Hugging Face's transformers.")
    parser.add_argument("dir", type=Path, help="the run's folder, with the model in final/")
    parser.add_argument("tokens", type=Path, help="u16 tokens, little-endian")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--offset", type=int, default=0, help="the first token's position")
    args = parser.parse_args()

    folder = args.dir / "final"
    if not folder.is_dir():
        sys.exit(f"{folder} is not a folder")
    model, info = transformers.GPT2LMHeadModel.from_pretrained(
        folder, output_loading_info=True, dtype=torch.float32, local_files_only=True
    )
    problems = {kind: sorted(map(str, found)) for kind, found in info.items() if found}
    if problems:
        sys.exit(f"{folder} does not load cleanly: {json.dumps(problems)}")

    data = np.fromfile(args.tokens, dtype="<u2")
    wanted = args.offset + args.batch * args.seq + 1
    if data.size < wanted:
        sys.exit(f"{args.tokens} holds {data.size} tokens; {wanted} are needed")
    window = torch.from_numpy(data[args.offset : wanted].astype(np.int64))
    inputs, targets = window[:-1].reshape(args.batch, args.seq), window[1:]
    with torch.no_grad():
        logits = model.eval()(input_ids=inputs).logits
        loss = F.cross_entropy(logits.flatten(0, 1), targets)
    print(json.dumps({"loss": loss.item()}))


if __name__ == "__main__":
    main()
