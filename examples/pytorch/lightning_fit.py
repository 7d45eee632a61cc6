"""A `LightningModule` whose network is compiled in place, fitted by Lightning's `Trainer`."""

import highwater.torch
import lightning
import torch
from beside import Run, check, peak_bytes
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

MEMORY = 8 << 20
DATA = TensorDataset(torch.randn(64, 3, 32, 32), torch.randint(10, (64,)))


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        channels = [3, 16, 16, 16, 16]
        blocks = [
            nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU())
            for a, b in zip(channels, channels[1:], strict=False)
        ]
        self.net = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
        self.losses: list[float] = []

    def training_step(self, batch: list[Tensor], index: int = 0) -> Tensor:
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def run(memory: int | None) -> Run:
    torch.manual_seed(1)
    model = Classifier()
    if memory is not None:
        model.net.compile(backend=highwater.torch.backend(memory), dynamic=False, fullgraph=True)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(model, DataLoader(DATA, batch_size=16))
    losses = list(model.losses)
    state = [t.clone() for t in model.state_dict().values()]
    batch = [t[:16] for t in DATA.tensors]
    return losses, state, peak_bytes(model, lambda: model.training_step(batch).backward())


check(run(None), run(MEMORY), MEMORY)
