"""Copies the metrics of a run into Weights & Biases or MLflow.

    pip install wandb (or mlflow)
    python examples/tracking/import.py runs/a --to wandb [--project NAME] [--watch]
    python examples/tracking/import.py runs/a --to mlflow [--project NAME] [--watch]

What a run writes to `metrics.jsonl` is logged under the names that it has there, each step once: a second call adds
what came since, also after a kill and a resume. `--watch` goes on until the run has ended. The settings of
`config.toml` become the run's parameters. Where things go is for `wandb` and `mlflow` to know (WANDB_MODE=offline,
MLFLOW_TRACKING_URI).
"""

import argparse
import hashlib
import json
import math
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

Log = Callable[[int, dict[str, float]], None]


def settings(run: Path) -> dict[str, object]:
    """The run's settings, `table.key` by `table.key`."""
    found: dict[str, object] = {}

    def walk(prefix: str, table: dict) -> None:
        for key, value in table.items():
            if isinstance(value, dict):
                walk(f"{prefix}{key}.", value)
            else:
                found[prefix + key] = value

    walk("", tomllib.loads((run / "config.toml").read_text()))
    return found


def steps(run: Path, after: int) -> list[tuple[int, dict[str, float]]]:
    """Numbers by name of steps that were not logged. The last line may be half written."""
    found = []
    for line in (run / "metrics.jsonl").read_text().splitlines():
        try:
            values = json.loads(line)
        except json.JSONDecodeError:
            continue
        step = values.pop("step", None)
        if step is None or step <= after:
            continue
        numbers = {name: float(value) for name, value in values.items()
                   if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)}
        found.append((step, numbers))
        after = step
    return found


def to_wandb(run: Path, project: str) -> tuple[Log, int, Callable[[], None]]:
    import wandb

    # The same run again for the same folder.
    identity = hashlib.sha256(str(run.resolve()).encode()).hexdigest()[:16]
    into = wandb.init(project=project, name=run.name, id=identity, resume="allow", config=settings(run))
    return (lambda step, values: into.log(values, step=step)), into.summary.get("_step", 0) or 0, into.finish


def to_mlflow(run: Path, project: str) -> tuple[Log, int, Callable[[], None]]:
    import mlflow

    mlflow.set_experiment(project)
    folder = str(run.resolve())
    known = mlflow.search_runs(filter_string=f"tags.`highwater.run` = '{folder}'", output_format="list")
    last = 0
    if known:
        mlflow.start_run(run_id=known[0].info.run_id)
        history = mlflow.MlflowClient().get_metric_history(known[0].info.run_id, "loss")
        last = max((point.step for point in history), default=0)
    else:
        mlflow.start_run(run_name=run.name, tags={"highwater.run": folder})
        mlflow.log_params({name: str(value)[:500] for name, value in settings(run).items()})
    return (lambda step, values: mlflow.log_metrics(values, step=step)), last, mlflow.end_run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("run", type=Path, help="the run's folder")
    parser.add_argument("--to", choices=["wandb", "mlflow"], required=True)
    parser.add_argument("--project", default="highwater", help="wandb's project, mlflow's experiment")
    parser.add_argument("--watch", action="store_true", help="go on until the run has ended")
    args = parser.parse_args()
    if not (args.run / "metrics.jsonl").exists():
        parser.error(f"{args.run}: no run's folder (there is no metrics.jsonl)")
    log, last, finish = {"wandb": to_wandb, "mlflow": to_mlflow}[args.to](args.run, args.project)
    count = 0
    while True:
        ended = (args.run / "final").exists()
        for step, values in steps(args.run, last):
            log(step, values)
            last, count = step, count + 1
        if ended or not args.watch:
            break
        time.sleep(5)
    finish()
    print(f"{count} steps, up to step {last}")


if __name__ == "__main__":
    main()
