"""Peak memory of training with pairs left out.

    python benchmarks/fit/training_memory.py MEASURED

The two figures of data/training/stacks.yaml that were derived from measured rows, the reserve of Megatron and the
bytes of LitGPT's 4-bit weights, are derived again without the pair of GPU and model family that is then predicted.
"""

import sys
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sim.benchdata.training import TrainingRow, read_training
from sim.catalogue.catalog import load_catalog
from sim.fidelity.training import PredictionBasis
from sim.fidelity.training_rows import TrainingNotCovered, case_of
from sim.training.figures import framework_memory
from sim.training.job import OptimizerStep
from sim.training.memory import FrameworkMemory, memory

GB = 1e9


@dataclass(frozen=True)
class Measured:
    """Row with its peak memory."""

    pair: tuple[str, str]
    stack: str
    job: OptimizerStep
    layout: FrameworkMemory
    peak_bytes: float

    def total_bytes(self, **instead: float) -> float:
        """Return the predicted memory, with some parameters of the memory layout replaced [bytes]."""
        changed: dict[str, Any] = dict(instead)
        return memory(self.job, replace(self.layout, **changed)).total_bytes


def measured(row: TrainingRow, figured: PredictionBasis) -> Measured | None:
    """Return the measured row; None for rows without memory or trust, or that are not covered."""
    peak = row.measured.get("peak_memory_gb")
    if not peak or row.text("trust") == "C":
        return None
    try:
        case = case_of(row, figured.catalog, figured.data)
    except TrainingNotCovered:
        return None
    longest = figured.data.stacks[case.stack].longest_sequence
    job = replace(case.job, sequence=longest) if longest and row.count("seq_len") is None else case.job
    return Measured(
        (job.gpu.id, row.text("family")), case.stack, job, framework_memory(figured.data, case.stack), peak * GB
    )


def settled(rows: list[Measured]) -> dict[str, dict[str, float]]:
    """Return the derived figures of each stack, as medians over *rows*."""
    reserves = [one.peak_bytes - one.total_bytes(reserve_bytes=0.0) for one in rows if one.stack == "megatron-2021"]
    weights = [
        (one.peak_bytes - one.total_bytes(four_bit_bytes=0.0))
        / memory(one.job, replace(one.layout, four_bit_bytes=1.0)).weights_bytes
        for one in rows
        if one.stack == "litgpt" and one.job.method == "qlora"
    ]
    found = {"megatron-2021": ("reserve_bytes", reserves), "litgpt": ("four_bit_bytes", weights)}
    return {stack: {name: float(np.median(values))} for stack, (name, values) in found.items() if values}


def main() -> None:
    """Print every pair's median error, and their median."""
    figured = PredictionBasis.of(load_catalog())
    table = read_training(Path(sys.argv[1]) / "training.csv")
    rows = [one for row in table if (one := measured(row, figured)) is not None]
    errors: dict[tuple[str, str], list[float]] = defaultdict(list)
    for pair in sorted({one.pair for one in rows}):
        known = settled([one for one in rows if one.pair != pair])
        for one in rows:
            if one.pair == pair:
                errors[pair].append(one.total_bytes(**known.get(one.stack, {})) / one.peak_bytes - 1)
        print(f"{' '.join(pair):32s} {len(errors[pair]):3d} rows  {np.median(np.abs(errors[pair])):.3f}")
    medians = [float(np.median(np.abs(one))) for one in errors.values()]
    print(f"median over {len(medians)} pairs {np.median(medians):.3f}, 90 % {np.percentile(medians, 90):.3f}")


if __name__ == "__main__":
    main()
