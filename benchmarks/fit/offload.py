"""Speed of engines with weights in host memory: comparison of published runs with predictions, and the fit to them.

    python benchmarks/fit/offload.py            # the table of benchmarks/offload.md
    python benchmarks/fit/offload.py --fit      # efficiencies for data/engines

Each row of offload.csv is a published rate of a single request with its machine; `host_bytes_per_s` is the rated
bandwidth of the memory modules, `gpu_bytes_per_s` replaces a GPU that data/ lacks. A decode row has half of its tokens
as context, a prefill row computes them as one prompt. The fit determines the fraction of the host memory's bandwidth
at which weights are read, by engine, and the fraction of the link's rate, so that the median of predicted / measured
is 1.
"""

import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from scipy.optimize import brentq

from sim.catalogue.catalog import Catalog, load_catalog
from sim.catalogue.engine import EngineOffload
from sim.catalogue.value import Value
from sim.records import Batch
from sim.scenario.resolving.bind import bind
from sim.scenario.resolving.resolve import roofline_inputs
from sim.scenario.schema import Scenario
from sim.steptime.inputs import RooflineInputs
from sim.steptime.options import Roofline
from sim.steptime.roofline import RooflineStepTime

ROWS = Path(__file__).with_name("offload.csv")
FITTED = (("llama.cpp", "memory_efficiency"), ("llama.cpp", "expert_memory_efficiency"),
          ("ktransformers-0.2", "expert_memory_efficiency"), ("vllm-0.11", "link_efficiency"))  # fmt: skip


@dataclass(frozen=True)
class Run:
    """Published rate of a single request."""

    row: dict[str, str]
    inputs: RooflineInputs
    measured: float
    """Measured rate [tokens/s]."""

    @property
    def use(self) -> EngineOffload:
        """Figures of the engine for weights in host memory."""
        assert self.inputs.host is not None
        return self.inputs.host.use

    def predicted(self, use: EngineOffload | None = None) -> float:
        """Return the predicted rate [tokens/s], with other figures of the engine if given."""
        assert self.inputs.host is not None
        host = replace(self.inputs.host, use=use or self.use)
        steptime = RooflineStepTime(Roofline(in_process=True), replace(self.inputs, host=host))
        tokens = int(self.row["tokens"])
        if self.row["phase"] == "decode":
            return 1 / steptime.leap(Batch(decode_seqs=1, kv_tokens=tokens // 2, sampled_seqs=1)).first_s
        pairs = tokens * (tokens + 1) // 2
        prompt = Batch(prefill_seqs=1, prefill_tokens=tokens, prefill_attention_pairs=pairs, sampled_seqs=1)
        return tokens / steptime.leap(prompt).first_s


def runs(catalog: Catalog) -> Iterator[Run]:
    """Yield every row with its step-time inputs."""
    with ROWS.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            yield Run(row, inputs_of(row, catalog), float(row["tok_s"]))


def inputs_of(row: dict[str, str], catalog: Catalog) -> RooflineInputs:
    """Return the row's engine and model on its GPU and host."""
    pool = {"gpu": row["gpu"], row["option"]: float(row["value"])}
    length = {"distribution": "fixed", "value": 1}
    scenario = Scenario.model_validate(
        {
            "name": "row", "model": row["model"], "quantization": row["quantization"], "engine": row["engine"],
            "workload": {
                "arrivals": {"process": "burst", "num_requests": 1}, "lengths": {"prompt": length, "output": length}
            },
            "fleets": [{"name": "one", "pools": [pool]}],
        }
    )  # fmt: skip
    fleet = scenario.fleets[0]
    inputs = roofline_inputs(bind(scenario, fleet, fleet.pools[0], catalog), catalog)
    assert inputs.host is not None
    use = inputs.host.use
    if row["micro_batch"]:
        use = use.model_copy(update={"micro_batch_tokens": stated(row["micro_batch"])})
    host = replace(
        inputs.host,
        use=use,
        memory_bytes_per_s=stated(row["host_bytes_per_s"]),
        flops=stated(row["host_flops"]),
        link_bytes_per_s=catalog.link(row["link"]).theoretical_bytes_per_s,
    )
    gpu = inputs.gpu.model_copy(update={"memory_bytes_per_s": stated(row["gpu_bytes_per_s"])})
    return replace(inputs, gpu=gpu, host=host, load=None)


def stated(text: str) -> Any:
    """Return a value that the row states itself; None if it states none."""
    return Value(value=float(text), source="offload_runs", kind="quoted") if text else None


def fitted(found: list[Run], engine: str, name: str) -> float:
    """Return the fraction at which the median of predicted / measured is 1, over the engine's rows that it affects."""

    def ratio(run: Run, share: float) -> float:
        return run.predicted(run.use.model_copy(update={name: stated(str(share))})) / run.measured

    mine = [run for run in found if run.row["engine"] == engine and run.row["fitted"] == "1"]
    mine = [run for run in mine if abs(ratio(run, 0.9) / ratio(run, 0.3) - 1) > 0.2]
    return float(brentq(lambda share: median(ratio(run, share) for run in mine) - 1, 0.05, 1.5))


def table(found: list[Run]) -> str:
    """Return the rows of benchmarks/offload.md."""
    lines = ["| run | option | measured tok/s | predicted | error |", "| --- | --- | --- | --- | --- |"]
    for run in found:
        row, predicted = run.row, run.predicted()
        what = f"{row['model']} {row['quantization']}, {row['machine']} [{row['source']}]"
        if row["phase"] == "prefill":
            what += f", prompt of {row['tokens']}"
        error = f"{predicted / run.measured - 1:+.0%}" + ("" if row["fitted"] == "1" else " (not in the fit)")
        lines.append(f"| {what} | {row['option']} {row['value']} | {run.measured:g} | {predicted:.3g} | {error} |")
    return "\n".join(lines)


if __name__ == "__main__":
    published = list(runs(load_catalog()))
    if "--fit" in sys.argv:
        for engine, name in FITTED:
            print(f"{engine} {name}: {fitted(published, engine, name):.3f}")
    else:
        print(table(published))
