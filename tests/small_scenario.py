"""Small scenarios that tests share, as text; `variant` states another one by what differs."""

from pathlib import Path
from typing import Any

from sim.case.result import CaseResult
from sim.case.run import run_case
from sim.catalogue.catalog import load_catalog
from sim.scenario.reading.load import load
from sim.scenario.resolving.case import resolve
from sim.scenario.resolving.resolved import CasePlan
from sim.scenario.schema import Scenario
from sim.scenario.sweep import cases
from sim.yamlio import dump, parse

SMALL = """\
name: small
model: llama3.1-8b
workload:
  arrivals: {process: poisson, rate_rps: 1}
  lengths: {prompt: {distribution: fixed, value: 100}, output: {distribution: fixed, value: 20}}
horizon_s: 5
replications: 2
fleets:
  - name: one
    pools: [{gpu: rtx-4090, replicas: 1, batching: {policy: vllm}}]
"""
REFEREE = """\
name: referee
workload:
  arrivals: {process: poisson, rate_rps: 1.0}
  lengths:
    prompt: {distribution: fixed, value: 100}
    output: {distribution: fixed, value: 10}
horizon_s: 100
fleets:
  - name: a
    pools:
      - steptime: {model: affine, base_s: 0.01, per_token_s: 1e-5, per_context_token_s: 1e-8}
        batching: {policy: vllm, max_num_seqs: 16, max_num_batched_tokens: 512, num_gpu_blocks: 1000}
"""
"""Scenario of one replica with stated step times, without model and GPU."""
TINY = """\
name: tiny
workload:
  arrivals: {process: poisson, rate_rps: 5}
  lengths: {prompt: {distribution: fixed, value: 100}, output: {distribution: geometric, mean: 10}}
horizon_s: 20
slo: {ttft_s: 1}
fleets:
  - name: a
    pools:
      - steptime: {model: affine, base_s: 0.005, per_token_s: 1.0e-5, per_context_token_s: 1.0e-8}
        batching: {policy: vllm, max_num_seqs: 256, max_num_batched_tokens: 2048, num_gpu_blocks: 50000}
"""
"""A hundred requests that never queue."""
ONE_SEAT = """\
workload:
  arrivals: {process: poisson, rate_rps: 1}
  lengths: {prompt: {distribution: fixed, value: 1}, output: {distribution: geometric, mean: 40, max: 900}}
horizon_s: 100
meter_interval_s: 1.0e+9
fleets:
  - name: a
    pools:
      - replicas: 1
        steptime: {model: affine, base_s: 0.015625, per_token_s: 0.0, per_context_token_s: 0.0}
        batching: {policy: vllm, max_num_seqs: 1, max_num_batched_tokens: 99, num_gpu_blocks: 999, max_model_len: 999}
"""
"""The queue M/M/1: one request at a time, geometric answers in steps of 1/64 s."""
ANY_LENGTH = """\
workload:
  arrivals: {process: poisson, rate_rps: 1.0}
  lengths: {prompt: {distribution: fixed, value: 1}, output: {distribution: geometric, mean: 100}}
horizon_s: 20
requests: none
fleets:
  - name: queue
    pools:
      - steptime: {model: affine, base_s: 0.01, per_token_s: 0, per_context_token_s: 0}
        batching: {policy: vllm, max_num_seqs: 1, num_gpu_blocks: 10000}
"""
"""Scenario with one request at a time in steps of 10 ms: a queue whose capacity follows from theory."""
OWN_OR_RENTED = """\
# Buy or rent?
name: small
workload:
  arrivals: {process: poisson, rate_rps: 4}
  lengths: {prompt: {distribution: fixed, value: 100}, output: {distribution: fixed, value: 20}}
horizon_s: 40
slo: {ttft_s: 0.5}
fleets:
  - name: own
    pools:
      - gpu: rtx-4090
        server: workstation-1x4090
        steptime: {model: affine, base_s: 0.01, per_token_s: 1e-5, per_context_token_s: 1e-8}
        batching: {policy: vllm, max_num_seqs: 2, max_num_batched_tokens: 512, num_gpu_blocks: 1000}
    cost: {acquisition: buy}
  - name: rented
    pools:
      - gpu: rtx-4090
        steptime: {model: affine, base_s: 0.01, per_token_s: 1e-5, per_context_token_s: 1e-8}
        batching: {policy: vllm, max_num_seqs: 2, max_num_batched_tokens: 512, num_gpu_blocks: 1000}
    cost: {acquisition: rent, quotes: {rtx-4090: 0.4}}
site: {electricity_usd_per_kwh: 0.2, pue: 1.2}
finance: {method: annuity, discount_rate: 0.08, life_years: 1, residual_fraction: 0.3}
"""
TWO_OR_ONE = """\
# Which is cheaper?
name: se
model: llama3.1-8b
workload:
  arrivals: {process: poisson, rate_rps: 2}
  lengths:
    prompt: {distribution: fixed, value: 200}
    output: {distribution: lognormal, mean: 50, cv: 0.5}
horizon_s: 10
fleets:
  - name: two
    pools:
      - {gpu: rtx-4090, tensor_parallel_size: 2, server: workstation-2x4090, batching: {max_num_seqs: 4}}
    cost: {acquisition: buy, quotes: {rtx-4090: 2000, workstation-2x4090: 3000}}
  - name: one
    pools: [{gpu: a100-80gb-pcie, batching: {max_num_seqs: 4}}]
    cost: {acquisition: rent, quotes: {a100-80gb-pcie: 1.5}}
site: {electricity_usd_per_kwh: 0.2, pue: 1.4, hosting: none}
finance: {method: straight_line, life_years: 4, residual_fraction: 0}
"""


def two_fleets() -> dict[str, Any]:
    """Two fleets whose steps are given, at two loads."""
    affine = {"model": "affine", "base_s": 0.02, "per_token_s": 1e-4, "per_context_token_s": 1e-7}
    batching = {"policy": "vllm", "max_num_seqs": 8, "max_num_batched_tokens": 512, "num_gpu_blocks": 400}
    pool = {"gpu": "l4", "steptime": affine, "batching": batching}
    lengths = {"distribution": "geometric", "mean": 40}
    return {
        "name": "small",
        "question": "One card or two?",
        "workload": {
            "arrivals": {"process": "poisson", "rate_rps": 2},
            "lengths": {"prompt": lengths, "output": lengths},
        },
        "horizon_s": 20,
        "seed": 3,
        "replications": 2,
        "slo": {"ttft_s": 0.5, "tpot_s": 0.05, "attainment": 0.9},
        "site": {"electricity_usd_per_kwh": 0.12, "pue": 1.3},
        "fleets": [
            {"name": "one", "pools": [pool], "cost": {"acquisition": "rent", "quotes": {"l4": 0.5}}},
            {"name": "two", "pools": [pool | {"replicas": 2}], "cost": {"acquisition": "rent", "quotes": {"l4": 0.5}}},
        ],
        "sweep": {"workload.arrivals.rate_rps": [1, 2]},
    }


def variant(text: str, values: dict[str, Any]) -> str:
    """Return the scenario *text* with other values at dotted paths (`fleets.0.name`); `...` removes the key."""
    data = parse(text)
    for path, value in values.items():
        *above, key = (int(step) if step.isdecimal() else step for step in path.split("."))
        place = data
        for step in above:
            place = place[step]
        if value is ...:
            del place[key]
        else:
            place[key] = value
    return dump(data)


def loaded(folder: Path, scenario: str | dict[str, Any], *sets: str) -> Scenario:
    """Return *scenario*, text or data, as read from `s.yaml` in *folder* with *sets* from the command line."""
    (folder / "s.yaml").write_text(scenario if isinstance(scenario, str) else dump(scenario))
    return load(folder / "s.yaml", sets, catalog=load_catalog())


def planned(folder: Path, scenario: str | dict[str, Any], *sets: str) -> CasePlan:
    """Return the plan of the first case of *scenario*."""
    read = loaded(folder, scenario, *sets)
    return resolve(read, cases(read)[0], load_catalog())


def ran(folder: Path, scenario: str | dict[str, Any], *sets: str) -> CaseResult:
    """Return the result of the first case of *scenario*, which fits."""
    read = loaded(folder, scenario, *sets)
    result = run_case(read, cases(read)[0], load_catalog())
    assert isinstance(result, CaseResult)
    return result
