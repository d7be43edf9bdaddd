"""Commands that measure what the predictions of a scenario rest on, as `gpufleet calibrate --plan` prints them.

Three loads distinguish bandwidth from host times, a long prompt shows the rate of arithmetic, and all-reduces of
nccl-tests show the link between the GPUs.
"""

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from sim.catalogue.catalog import Catalog
from sim.message import Message
from sim.scenario.resolving.case import resolve
from sim.scenario.resolving.resolved import CasePlan, PoolPlan
from sim.scenario.schema import Scenario
from sim.scenario.sweep import cases
from sim.steptime.inputs import RooflineInputs
from sim.steptime.roofline import RooflineStepTime
from sim.workload import Workload

CLIENTS = (1, 8, 64)
"""Requests in flight of the three loads."""
WAVES, LEAST_REQUESTS = 5, 10
"""Requests per client of a load, and at least in total."""
USUAL_LENGTHS = 512, 256
"""Prompt and answer [tokens] of a workload whose lengths are in a trace."""
LONG_PROMPT, LONG_TIMES, FEW_TOKENS = 8192, 4, 16
"""Long prompt [tokens], at least in mean prompts, and its answer [tokens]."""
NCCL_VENDORS = ("nvidia", "amd")
"""Vendors whose GPUs all_reduce_perf measures, of nccl-tests and of rccl-tests."""
PORTS = {"llama.cpp": 8080, "lm-studio": 1234, "lmdeploy": 23333, "mlx-lm": 8080, "ollama": 11434}
"""Usual ports of engines' servers that differ from the default of the client that measures them (vLLM's: 8000)."""
QUANTILES = (np.arange(64) + 0.5) / 64


def measuring_plan(scenario: Scenario, catalog: Catalog) -> list[str]:
    """Return the lines for a shell, and for its reader, that measure every kind of server in *scenario*.

    Pools with the same GPU, model, formats, engine and layout are measured once. Pools without a roofline step time,
    and those that do not fit, have no lines; those that `calibrate` cannot read back have a remark.
    """
    lines: list[str] = []
    seen: set[tuple[object, ...]] = set()
    servers: Counter[str] = Counter()
    for plan in (resolve(scenario, case, catalog) for case in cases(scenario) if not case.replication):
        for pool in () if plan.infeasible else plan.pools:
            if not isinstance(pool.steptime, RooflineStepTime) or pool.memory is None:
                continue
            inputs = pool.steptime.inputs
            why = _why_not_read_back(pool, inputs)
            server = (inputs.gpu.id, why, *_stated(pool, inputs).items())
            if server in seen:
                continue
            seen.add(server)
            lines += [""] * bool(lines)
            if why:
                lines.append(
                    "# "
                    + Message("{fleet}: {why} is left out: results of benchmarks do not describe it", plan.fleet, why)
                )
                continue
            servers[inputs.gpu.id] += 1
            lines += _server_lines(plan, pool, inputs, servers[inputs.gpu.id])
    return lines


def _why_not_read_back(pool: PoolPlan, inputs: RooflineInputs) -> str:
    """Return the kind of server that a table of benchmarks cannot describe; empty if it can."""
    if pool.slices is not None:
        return "a server on a MIG slice"
    if inputs.host is not None:
        return "a server with weights in host memory"
    return "a replica over several servers" if inputs.network is not None else ""


def _stated(pool: PoolPlan, inputs: RooflineInputs) -> dict[str, str]:
    """Return the columns that describe the pool's server in a table of benchmarks."""
    (tp, pp, dp), link = _layout(pool, inputs), inputs.link.id
    engine, _, release = inputs.engine.id.rpartition("-")
    stated = {"model": inputs.model.id, "precision": inputs.quantization.id}
    stated |= {"kv_dtype": "fp8"} if inputs.kv_8bit else {}
    stated |= {"engine": engine, "engine_version": release} if release[0].isdigit() else {"engine": inputs.engine.id}
    ranks = {"tp": tp, "pp": pp, "dp": dp, "ep": tp * dp if inputs.enable_expert_parallel else 1}
    stated |= {name: str(number) for name, number in ranks.items() if number > 1}
    return stated | ({"interconnect": link} if tp * pp * dp > 1 and link != inputs.gpu.link else {})


def _layout(pool: PoolPlan, inputs: RooflineInputs) -> tuple[int, int, int]:
    return inputs.tensor_parallel_size, pool.pipeline_parallel_size, pool.data_parallel_size


def _server_lines(plan: CasePlan, pool: PoolPlan, inputs: RooflineInputs, number: int) -> Iterator[str]:
    """Yield the lines for a server; *number* counts those on its GPU, whose files are distinct."""
    tp, pp, dp = _layout(pool, inputs)
    gpu, files = inputs.gpu.id, []
    again = f"-{number}" if number > 1 else ""
    ending = "jsonl" if inputs.engine_family == "sglang" else "json"
    yield "# " + Message(
        "{fleet}: {model} on {gpus} x {gpu}. Start the server as planned, then run on its host:",
        plan.fleet, inputs.model.id, tp * pp * dp, gpu,
    )  # fmt: skip
    if tp > 1 and inputs.gpu.vendor in NCCL_VENDORS:
        files.append(f"all-reduce-{tp}{again}.txt")
        yield f"all_reduce_perf -b 1K -e 256M -f 2 -g {tp} > {files[-1]}"
    prompt, answer = _mean_lengths(plan.workload)
    limit = pool.batching.max_model_len or prompt + answer
    prompt = max(1, min(prompt, limit - answer))
    most = pool.batching.max_num_seqs or CLIENTS[-1]
    for clients in sorted({min(clients, most) for clients in CLIENTS}):
        files.append(f"load-{clients}{again}.{ending}")
        yield _bench(inputs, prompt, answer, clients, max(LEAST_REQUESTS, WAVES * clients), files[-1])
    long = min(max(LONG_PROMPT, LONG_TIMES * prompt), limit - FEW_TOKENS)
    if long > prompt:
        files.append(f"long{again}.{ending}")
        yield _bench(inputs, long, FEW_TOKENS, 1, LEAST_REQUESTS, files[-1])
    told = " ".join(f"--about {name}={value}" for name, value in _stated(pool, inputs).items())
    yield " ".join(["gpufleet calibrate", *files, "--gpu", gpu, told, "--out", f"my-{gpu}{again}.yaml"])


def _bench(inputs: RooflineInputs, prompt: int, answer: int, clients: int, requests: int, file: str) -> str:
    """Return the command that measures a load: SGLang's client for its own servers, vLLM's for all others."""
    engine, warm = inputs.engine_family, min(2 * clients, requests)
    options = {
        "model": shlex.quote(inputs.model.hf_id or inputs.model.id),
        "random-input-len": prompt,
        "random-output-len": answer,
        "max-concurrency": clients,
        "num-prompts": requests,
    }
    if engine == "sglang":
        client, last = "python -m sglang.bench_serving", "--flush-cache"
        options = {"backend": engine, "dataset-name": "random-ids", **options, "random-range-ratio": 1}
        options |= {"warmup-requests": warm, "output-file": file}
    else:
        client, last = "vllm bench serve", "--ignore-eos --save-result"
        options = {"dataset-name": "random", **options, "num-warmups": warm, "result-filename": file}
        options |= {"port": PORTS[engine]} if engine in PORTS else {}
    return " ".join([client, *(f"--{name} {value}" for name, value in options.items()), last])


def _mean_lengths(workload: Workload) -> Sequence[int]:
    """Return the mean prompt and answer [tokens]."""
    if workload.lengths is None:
        return USUAL_LENGTHS
    both = workload.lengths.prompt, workload.lengths.output
    return [max(1, round(float(one.quantile(QUANTILES).mean()))) for one in both]
