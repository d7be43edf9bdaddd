"""Factors of a link from measured all-reduces, relative to the catalogue's curve."""

from collections.abc import Sequence

import numpy as np

from sim.benchdata.nccl_tests import AllReduceRun
from sim.catalogue.link import Link
from sim.fidelity.fit import Theta
from sim.steptime.collective import AllReduce

LEAST = 0.05
"""Smallest factor."""


def link_factors(runs: Sequence[AllReduceRun], link: Link) -> Theta:
    """Return the logarithms of both factors of *link* that fit all *runs* best.

    Notes
    -----
    Least squares of relative errors in t = latency * c(0) + time_per_byte * (c(bytes) - c(0)), where c is NCCL's time
    in the catalogue between as many GPUs.

    """
    nccl = link.model_copy(update={"allreduce_tables": link.nccl_tables or link.allreduce_tables})
    rows = []
    for run in runs:
        usual = AllReduce.over(nccl, run.gpus, 1.0)
        smallest_s = usual.time_s(1.0)
        rows += [
            (smallest_s / time_s, (usual.time_s(size) - smallest_s) / time_s)
            for size, time_s in zip(run.bytes, run.time_s, strict=True)
        ]
    found = np.linalg.lstsq(np.array(rows), np.ones(len(rows)), rcond=None)[0]
    latency, per_byte = np.log(np.maximum(found, LEAST)).tolist()
    return {f"links.{link.id}.latency": latency, f"links.{link.id}.time_per_byte": per_byte}
