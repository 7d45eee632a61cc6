"""What a step of an 8B Llama would take: words, seconds, and the process's peak, as JSON."""

import json
import resource
import sys
import time

import highwater.torch
import torch
from models import Llama, add_lora

start = time.perf_counter()
torch.set_default_dtype(torch.bfloat16)
with torch.device("meta"):
    model = Llama(128256, 4096, 32, 32, 8, 14336)
    if "--lora" in sys.argv:
        add_lora(model)
ids = torch.empty(1, 2048, dtype=torch.long, device="meta")
told = highwater.torch.plan(
    model, ids, optimizer=torch.optim.AdamW, memory="40GiB", device="cuda", rates="H100"
)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
print(json.dumps({"words": str(told), "seconds": time.perf_counter() - start, "bytes": peak}))
