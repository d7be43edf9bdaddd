"""Fleets of pools with roles whose step times are round numbers."""

from dataclasses import replace
from pathlib import Path

from sim.catalogue.catalog import load_catalog
from sim.fleet.fleet import RunningFleet
from sim.records import FleetLog
from sim.scenario.reading.load import load
from sim.scenario.resolving.case import resolve
from sim.scenario.sweep import cases
from sim.yamlio import dump

CATALOG = load_catalog()
STEP = {"model": "affine", "base_s": 2.0**-6, "per_token_s": 2.0**-14, "per_context_token_s": 2.0**-26}
LIMITS = {
    "policy": "vllm", "max_num_seqs": 64, "max_num_batched_tokens": 2048, "block_size": 16, "num_gpu_blocks": 4000,
    "max_model_len": 8192,
}  # fmt: skip
POOL = {"kv_bytes_per_token": 30_000, "steptime": STEP, "batching": LIMITS}
EVEN = {"distribution": "fixed", "value": 500}
"""Prompts of equal length: equal transfers."""


def scenario(transfer: dict | None, pools: list[dict], prompt: dict | None = None, rate_rps: float = 20.0) -> dict:
    fleet = {"name": "split", "pools": [POOL | pool for pool in pools]}
    if transfer is not None:
        fleet["kv_transfer"] = transfer
    lengths = {"prompt": prompt or EVEN, "output": {"distribution": "uniform", "min": 1, "max": 40}}
    arrivals = {"process": "poisson", "rate_rps": rate_rps}
    return {
        "name": "roles", "workload": {"arrivals": arrivals, "lengths": lengths}, "horizon_s": 40, "seed": 3,
        "fleets": [fleet],
    }  # fmt: skip


def log_of(
    data: dict, folder: Path, watch=lambda running: None, changed=lambda pool: pool
) -> tuple[RunningFleet, FleetLog]:
    path = folder / "scenario.yaml"
    path.write_text(dump(data))
    loaded = load(path, (), catalog=CATALOG)
    plan = resolve(loaded, cases(loaded)[0], CATALOG)
    running = RunningFleet(replace(plan, pools=tuple(map(changed, plan.pools))))
    watch(running)
    return running, running.run()


PAIR = [{"name": "p", "role": "prefill", "replicas": 3}, {"name": "d", "role": "decode", "replicas": 2}]


def moved(log: FleetLog):
    return [one for one in log.requests if one.prefill_replica >= 0]
