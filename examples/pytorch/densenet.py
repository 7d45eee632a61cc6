"""torchvision's DenseNet-121 in half of what it takes above its weights, by whole steps. A plain step ends with all
gradients at once; here each is let go of after its parameter's update. Running statistics, too, are the same."""

import highwater.torch
import torch
from beside import Run, check, peak_bytes
from torch import Tensor, nn
from torchvision.models import densenet121

MEMORY = 71 << 20
IMAGES, LABELS = torch.randn(2, 8, 3, 64, 64), torch.randint(10, (2, 8))


def run(memory: int | None) -> Run:
    torch.manual_seed(1)
    model, loss_fn = densenet121(num_classes=10), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def plain(images: Tensor, labels: Tensor) -> Tensor:
        loss = loss_fn(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    step = plain if memory is None else highwater.torch.step(model, loss_fn, optimizer, memory=memory)
    losses = [step(images, labels).item() for images, labels in zip(IMAGES, LABELS, strict=True)]
    state = [t.clone() for t in model.state_dict().values()]
    return losses, state, peak_bytes(model, lambda: step(IMAGES[0], LABELS[0]))


check(run(None), run(MEMORY), MEMORY, share=0.5)
