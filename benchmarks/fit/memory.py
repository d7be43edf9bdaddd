"""KV cache that engines reported at start-up compared with sim/memory, and the fit of the communication buffers.

    python -m benchmarks.fit.memory

kv_capacity.csv holds published starts, each with its source. A fixed hash of a row's id assigns it to the fit or to
the check. The only fitted constant is `comms_bytes` (0.4 to more than 1.4 GiB on similar servers): the median over
sources of what the rows of the fit half leave for it, with equal weight per source. All other constants are values of
single lines in start-up logs (data/engines). Rows of FlashInfer sampling and of vLLM's V0 engine are not fitted.
"""

import csv
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from zlib import crc32

from sim.catalogue.catalog import Catalog, load_catalog
from sim.catalogue.quantization import native_quantization
from sim.memory.fit import MemoryFit, fit
from sim.units import GIB

TABLE = Path(__file__).parent / "kv_capacity.csv"
FITTED_GROUP = "vLLM V1"


@dataclass(frozen=True, slots=True)
class Start:
    """Published start-up of an engine."""

    cells: dict[str, str]

    @property
    def checked(self) -> bool:
        """True if the row belongs to the half that is not fitted."""
        return crc32(self.cells["id"].encode()) % 2 == 1

    @property
    def gpus(self) -> int:
        """GPUs of the replica; all rows are tensor-parallel."""
        return int(self.cells["tensor_parallel_size"])

    def computed(self, catalog: Catalog) -> MemoryFit:
        """Return the computed memory for the row's settings."""
        cells = self.cells
        model = catalog.model(cells["model"])
        weights = native_quantization(catalog.quantization(cells["quantization"]), model, catalog.quantization)
        return fit(
            catalog.gpu(cells["gpu"]),
            model,
            weights,
            catalog.engine(cells["engine"]),
            tensor_parallel_size=self.gpus,
            enable_expert_parallel=cells["expert_parallel"] == "true",
            max_num_seqs=int(cells["max_num_seqs"]),
            max_num_batched_tokens=int(cells["max_num_batched_tokens"]),
            gpu_memory_utilization=float(cells["gpu_memory_utilization"]),
        )

    def reported_bytes(self, computed: MemoryFit) -> float:
        """KV cache of one GPU, from the row's tokens if it has no bytes [bytes]."""
        if self.cells["kv_gib"]:
            return float(self.cells["kv_gib"]) * GIB
        return computed.block_bytes / computed.block_size * int(self.cells["kv_tokens"])

    def error(self, catalog: Catalog) -> float:
        """Relative error of the computed KV bytes."""
        computed = self.computed(catalog)
        return computed.kv_bytes / self.reported_bytes(computed) - 1


def read_starts() -> list[Start]:
    """Return all rows of kv_capacity.csv."""
    with TABLE.open(newline="", encoding="utf-8") as file:
        return [Start(cells) for cells in csv.DictReader(file)]


def fitted_comms_bytes(starts: list[Start], catalog: Catalog) -> float:
    """Return the median over sources of each source's median over multi-GPU rows in the fit half."""
    left: dict[str, list[float]] = {}
    for start in starts:
        board = start.gpus > 1 and not catalog.gpu(start.cells["gpu"]).pcie_card
        if start.cells["group"] == FITTED_GROUP and not start.checked and board:
            computed = start.computed(catalog)
            missing = computed.kv_bytes - start.reported_bytes(computed)
            left.setdefault(start.cells["source"], []).append(computed.comms_bytes + missing)
    return median(median(sizes) for sizes in left.values())


def main() -> None:
    """Print each row's error and the medians of both halves by group."""
    catalog, starts = load_catalog(), read_starts()
    print(f"communication buffers, fitted: {fitted_comms_bytes(starts, catalog) / GIB:.2f} GiB per GPU")
    errors = {s.cells["id"]: s.error(catalog) for s in starts}
    for start in starts:
        name = start.cells["id"]
        print(f"{name:32s} {start.cells['group']:28s} {'check' if start.checked else 'fit':5s} {errors[name]:+7.1%}")
    for group in dict.fromkeys(s.cells["group"] for s in starts):
        for half in ("fit", "check"):
            found = [
                abs(errors[s.cells["id"]])
                for s in starts
                if s.cells["group"] == group and s.checked == (half == "check")
            ]
            if found:
                print(f"{group}, {half}: {len(found)} rows, median {median(found):.1%}, worst {max(found):.1%}")


if __name__ == "__main__":
    main()
