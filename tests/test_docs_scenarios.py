"""Every YAML block of README and docs is a scenario, or a part of one: its keys and values are those that are read."""

import re
from pathlib import Path
from typing import Any

import pytest

from sim.catalogue.catalog import load_catalog
from sim.jobs.load import load_job
from sim.scenario.reading.layers import as_document
from sim.scenario.reading.load import has_job, load_for_size
from sim.yamlio import parse

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL))
]
CATALOG = load_catalog()
ARRIVALS = {"process": "poisson", "rate_rps": 1}
LENGTHS = {"distribution": "fixed", "value": 100}
WORKLOAD = {"arrivals": ARRIVALS, "lengths": {"prompt": LENGTHS, "output": LENGTHS}}
CHATS = {"model": "llama3.1-70b", "workload": WORKLOAD, "slo": {"e2e_s": 60}}
IMAGES = {"model": "resnet-50", "workload": {"arrivals": ARRIVALS}, "slo": {"e2e_s": 1}}
GPUS = ("l40s", "rtx-4090", "a100-80gb-pcie", "a100-80gb-sxm", "h100-80gb-sxm")
RENT = {"acquisition": "rent", "quotes": dict.fromkeys(GPUS, 2)}


def whole(block: dict[str, Any]) -> dict[str, Any]:
    """*block* as a scenario: what a page shows a part of is completed by what it leaves to the reader."""
    if {"model", "job", "jobs"} & block.keys() or "..." not in str(block.get("services", "...")):
        return block
    of_pool = {key: block.pop(key) for key in ("batching",) if key in block}
    of_fleet = {key: block.pop(key) for key in ("pools", "kv_transfer") if key in block}
    one = {"name": "a fleet", "pools": [{"gpu": "l40s"} | of_pool]} | of_fleet
    if "size" not in block:
        block["fleets"] = [{"cost": RENT} | fleet for fleet in block.get("fleets", [one])]
    if "horizon_h" in block:
        return block | {"jobs": [{"name": "a job", "gpus": 1, "duration_h": 1}]}
    pools = [pool for fleet in block.get("fleets", ()) for pool in fleet["pools"]]
    names = {name for pool in pools for name in [*pool.get("services", ()), pool.get("service")] if name}
    if services := block.get("services", [{"name": name} for name in sorted(names)]):
        block["services"] = [CHATS | service | {"workload": WORKLOAD} for service in services]
        return {"horizon_s": 60} | block
    served = IMAGES if "dynamic" in str(block) else CHATS
    return {"horizon_s": 60} | served | block | {"workload": served["workload"] | block.get("workload", {})}


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_is_a_scenario(block: str) -> None:
    scenario = as_document(whole(parse(block)))
    read = load_job if has_job(scenario) else load_for_size
    read(scenario, catalog=CATALOG)


def test_a_wrong_key_of_a_block_is_found() -> None:
    with pytest.raises(ValueError, match="tensor_paralel_size: unknown key; did you mean tensor_parallel_size"):
        load_for_size(as_document(whole({"pools": [{"gpu": "l40s", "tensor_paralel_size": 2}]})), catalog=CATALOG)
