"""Scenarios that repeat rows of serving benchmarks.

A scenario has one fleet of one replica, so that all defaults are those of gpufleet. Scheduler limits are those of the
benchmark tool if it sets its own, as trtllm-bench does (tensorrt_llm/bench/build/tuning.py, 04cba88).
"""

from dataclasses import dataclass, replace
from math import ceil, exp
from typing import Any

from sim.benchdata.campaigns import Campaigns, CampaignSetup
from sim.benchdata.row import BenchRow
from sim.catalogue.catalog import Catalog
from sim.catalogue.model import kv_bytes_per_token, params_total
from sim.catalogue.quantization import kv_element_bytes
from sim.fidelity.names import Names, engine_release, match
from sim.message import Message
from sim.scenario.resolving.bind import power_coefficients
from sim.scenario.schema import Scenario
from sim.units import BITS_PER_BYTE
from sim.workload import Workload
from sim.workload.published import length_table

TRTLLM_KV_SHARE = 0.95
"""Fraction of the memory beside the weights that trtllm-bench counts for the KV cache."""
TRTLLM_MOST_REQUESTS, TRTLLM_MOST_TOKENS, TRTLLM_LEAST_REQUESTS, TRTLLM_LEAST_TOKENS = 4096, 32768, 64, 2048
BITS_BY_FORMAT = (("nvfp4", 4.0), ("fp8", 8.0), ("mxfp4", 8.5))
"""Bits per weight that trtllm-bench assumes, by prefix of the format.

The tool does not know mxfp4: it counts two bytes per stored byte (of two weights), and two per scale.
"""


def trtllm_bench_limits(names: Names, gpus: int, stages: int, prompt: float, answer: float) -> tuple[int, int]:
    """Return max_num_seqs and max_num_batched_tokens of a batch in flight over *stages*, as trtllm-bench derives them.

    *prompt* and *answer* are mean lengths [tokens]. The step's tokens are at least the requests, as our schedulers
    require.
    """
    running = min(_requests_in_cache(names, gpus, prompt + answer), TRTLLM_MOST_REQUESTS) / stages
    tokens = min(running * (1 + prompt / answer), TRTLLM_MOST_TOKENS)
    requests = _round_up(running, ((256, 32), (1024, 128)), 256, TRTLLM_LEAST_REQUESTS)
    return requests, max(requests, _round_up(tokens, ((4096, 256), (8192, 512)), 1024, TRTLLM_LEAST_TOKENS))


def _requests_in_cache(names: Names, gpus: int, tokens: float) -> float:
    """Return the requests of *tokens* tokens that fit beside the weights, as the tool estimates it."""
    native = names.model.native_quantization or names.model.native_dtype
    stored = native if names.quantization == "none" else names.quantization
    bits = next((bits for start, bits in BITS_BY_FORMAT if stored.startswith(start)), 16)
    left = names.gpu.memory_bytes.value * gpus - params_total(names.model) * bits / BITS_PER_BYTE
    return left * TRTLLM_KV_SHARE / (kv_bytes_per_token(names.model, kv_element_bytes(names.kv_cache_dtype)) * tokens)


def _round_up(value: float, steps: tuple[tuple[int, int], ...], otherwise: int, least: int) -> int:
    """Round *value* up to a multiple, with a minimum of *least*.

    The multiple is that of the first of *steps* (upper bound, multiple) with a bound above *value*, else *otherwise*.
    """
    multiple = next((multiple for below, multiple in steps if value < below), otherwise)
    return max(least, multiple * ceil(value / multiple))


REQUESTS_PER_CLIENT, LEAST_REQUESTS = 10, 20
"""Assumed requests of a closed loop of unknown length: per client, and at least in total."""
USUAL_REQUESTS = 1000
"""Assumed requests of an open loop or burst of unknown length: the default of vLLM's client."""
MOST_REQUESTS, MOST_TOKENS = 3000, 20_000_000
"""Largest numbers of requests and of tokens that are simulated; longer runs are cut."""
UNLIMITED_RATE = 1e6
"""Request rate above which a client's rate means "all at once" [1/s]."""
LEAST_WAVES = 3
"""Smallest simulated number of requests per client, or per concurrent sequence of a burst."""
REPLAY_CV = 1.0
"""Coefficient of variation of lognormal lengths of recorded requests whose file is missing."""
LONGEST_OVER_MEAN = 8.0
"""Largest drawn length divided by the mean."""


@dataclass(frozen=True, slots=True)
class BenchCase:
    """Row with its measurement conditions and the scenario that repeats it."""

    row: BenchRow
    names: Names
    setup: CampaignSetup
    data: dict[str, Any]
    """Scenario as plain data."""
    run_requests: int
    """Number of requests of the measured run, known or assumed; 0 for a replay of all its requests."""
    simulated_requests: int
    """Number of simulated requests, at most `run_requests`."""
    notes: tuple[str, ...] = ()
    """Phrases that describe what the simulation omits."""

    @property
    def layout(self) -> str:
        """Name of the parallel layout."""
        tp, pp, dp, experts = layout(self.row, self.setup)
        return layout_name(tp, pp, dp, experts and self.names.model.moe is not None)

    def open_loop(self, answered_req_s: float) -> Workload | None:
        """Return the open-loop workload of a closed loop with a rate, if the rate is what limits it.

        *answered_req_s* is the throughput of the closed loop without the rate. The result is None if there is no rate
        or if the number of clients limits the load. If there are as many clients as requests, only the rate spreads
        them.
        """
        rate = self.row.rate_req_s
        if self.row.load != "closed_loop" or rate is None or rate > UNLIMITED_RATE:
            return None
        if answered_req_s <= rate and (self.row.concurrency or 0) < self.simulated_requests:
            return None
        arrivals = _at_rate(self.row, "poisson", self.simulated_requests)
        return Workload.model_validate(self.data["workload"] | {"arrivals": arrivals})

    def scenario(self, **pool: Any) -> Scenario:
        """Return the scenario, with *pool* overriding the `batching` of its pool."""
        data = self.data
        if pool:
            fleet = data["fleets"][0]
            one = fleet["pools"][0]
            batching = one.get("batching", {}) | pool
            data = data | {"fleets": [fleet | {"pools": [one | {"batching": batching}]}]}
        return Scenario.model_validate(data)


def case_of(row: BenchRow, catalog: Catalog, campaigns: Campaigns) -> BenchCase:
    """Return the case of *row*. Raises NotCovered."""
    setup = campaigns.setup(row)
    known = replace(
        row, isl=setup.isl, osl=setup.osl, rate_req_s=setup.rate_req_s,
        kv_dtype=setup.kv_dtype, engine_version=setup.engine_version,
        max_num_batched_tokens=setup.max_num_batched_tokens, gpu_memory_utilization=setup.gpu_memory_utilization,
        interconnect=setup.interconnect,
    )  # fmt: skip
    if setup.decode_rate:
        known = replace(known, load="single", concurrency=1)
    names = match(known, catalog, campaigns)
    power, drafts = _power(row, names, catalog), _drafts(row, setup, catalog)
    notes = _left_out(row, power, drafts)
    if (known.isl, known.osl) != (row.isl, row.osl):
        notes.append(Message("lengths assumed: {isl:g} in, {osl:g} out", setup.isl, setup.osl))
    if setup.prompts_held_steps and setup.prompts_held_ratio is None and not _ranks_wait(row, names, setup):
        notes.append(
            Message(
                "prompts were held back for up to {prompts_held_steps} steps, which is not simulated",
                setup.prompts_held_steps,
            )
        )
    row = known
    wanted = 0 if row.replay else _run_requests(row, setup)
    count = min(wanted, _most_requests(row, _most_running(row, names, setup)))
    lengths = _lengths(row, setup)
    if row.replay:
        workload: dict[str, Any] = {"trace": {"path": row.replay, "format": "csv"}}
    else:
        workload = {"arrivals": _arrivals(row, count), "lengths": lengths}
        if setup.repeated_prompts:
            whole = {"tokens": _longest_length(lengths["prompt"]), "prefixes": setup.repeated_prompts}
            workload["shared_prefix"] = whole
            workload["sent_before"] = min((setup.warmup_per_client or 0) * (row.concurrency or 1), count)
        elif setup.prompts_sent_before:
            workload["sent_before"] = min(setup.prompts_sent_before, count)
        elif shared := round((setup.cached_share or 0.0) * (row.isl or 0.0)):
            workload["shared_prefix"] = {"tokens": shared, "prefixes": 1}
    data: dict[str, Any] = {
        "name": row.id,
        "model": names.model.id,
        "quantization": names.quantization,
        "kv_cache_dtype": names.kv_cache_dtype,
        "engine": engine_release(names.engine, row.engine_version, campaigns),
        "power": power,
        "workload": workload,
        "measured_at": setup.measured_at,
        "requests": "none",
        "fleets": [{"name": "measured", "pools": [_pool(row, names, setup, lengths)]}],
    }
    if setup.replica_routing:
        data["fleets"][0]["routing"] = {"policy": setup.replica_routing}
    if drafts is not None:
        data["fleets"][0]["pools"][0]["batching"]["speculative"] = drafts
    return BenchCase(row, names, setup, data, wanted, count, tuple(notes))


def _power(row: BenchRow, names: Names, catalog: Catalog) -> dict[str, float] | None:
    """Return the row's power cap, if its effect on the GPU was measured."""
    if row.power_cap_w is None:
        return None
    try:
        power_coefficients(catalog).speed(names.gpu, row.power_cap_w)
    except ValueError:
        return None
    return {"cap_w": row.power_cap_w}


def _drafts(row: BenchRow, setup: CampaignSetup, catalog: Catalog) -> dict[str, Any] | None:
    """Return the row's speculative decoding, if its acceptance is known."""
    if not row.spec_decode or not setup.drafts or setup.num_speculative_tokens is None:
        return None
    drafter, _ = catalog.accepted(setup.drafts)
    found: dict[str, Any] = {"num_speculative_tokens": setup.num_speculative_tokens, "method": drafter.method}
    found |= {"draft_model": setup.draft_model} if setup.draft_model else {}
    return found | {"acceptance": setup.drafts}


def layout(row: BenchRow, setup: CampaignSetup) -> tuple[int, int, int, bool]:
    """Return (tensor, pipeline, data parallel sizes, expert parallel) on all GPUs of the row.

    If the columns do not multiply to the number of GPUs, tensor parallelism gets the rest: experts are spread over
    tensor- and data-parallel ranks (vLLM: ep = tp x dp), so that tp = dp = 1 with ep = 8 omits tp = 8.
    """
    if setup.layers_in_turn:
        return 1, setup.n_gpus, 1, False
    gpus, pp, dp, ep = setup.n_gpus, row.pp, setup.dp, setup.ep
    tp = row.tp or max(1, gpus // (pp * dp))
    if tp * pp * dp != gpus and gpus % (pp * dp) == 0:
        tp = gpus // (pp * dp)
    return tp, pp, dp, ep > 1


def layout_name(tp: int, pp: int, dp: int, experts: bool) -> str:
    """Return the name of a parallel layout: one GPU, TP, PP, EP, DP, or attention DP (DP with experts spread).

    >>> layout_name(8, 1, 1, True), layout_name(1, 1, 8, True), layout_name(4, 1, 1, False)
    ('EP', 'attention DP', 'TP')
    """
    if dp > 1:
        return "attention DP" if experts else "DP"
    return "EP" if experts else "PP" if pp > 1 else "TP" if tp > 1 else "one GPU"


def _pool(row: BenchRow, names: Names, setup: CampaignSetup, lengths: dict[str, Any]) -> dict[str, Any]:
    tp, pp, dp, experts = layout(row, setup)
    pool: dict[str, Any] = {
        "gpu": names.gpu.id,
        "link": names.link,
        "tensor_parallel_size": tp,
        "pipeline_parallel_size": pp,
        "data_parallel_size": 1 if setup.replica_routing else dp,
        "replicas": dp if setup.replica_routing else 1,
        "enable_expert_parallel": experts and names.model.moe is not None,
        "steptime": {"model": "roofline", **host_of(row, setup)},
    } | ({"server": setup.server} if setup.server else {})
    if setup.trtllm_bench_limits and row.isl and row.osl:
        most_requests, most_tokens = trtllm_bench_limits(names, setup.n_gpus, pp, row.isl, row.osl)
        row = replace(row, max_num_batched_tokens=most_tokens)
        setup = replace(setup, max_num_seqs=most_requests)
    max_num_seqs = setup.max_num_seqs or (ceil(_batch(row) / dp) if row.load == "static_batch" else None)
    batching = {
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": row.max_num_batched_tokens,
        "gpu_memory_utilization": row.gpu_memory_utilization,
        "async_scheduling": setup.async_scheduling,
        "enable_prefix_caching": setup.prefix_caching,
        "policy": "prefill_first" if setup.scheduler_recv_interval else "vllm" if setup.chunked_prefill else None,
        "scheduler_recv_interval": setup.scheduler_recv_interval,
        "chunked_prefill_size": setup.chunked_prefill_size,
        "enable_mixed_chunk": setup.enable_mixed_chunk,
        "mamba_ssm_dtype": setup.mamba_ssm_dtype or None,
        "late_output": setup.late_output or None,
        "batch_wait_timeout_iters": setup.prompts_held_steps if setup.prompts_held_ratio else None,
        "batch_wait_max_tokens_ratio": setup.prompts_held_ratio,
        "attention_dp_timeout_iters": setup.prompts_held_steps if _ranks_wait(row, names, setup) else None,
        "max_model_len": None
        if row.replay
        else _longest_length(lengths["prompt"]) + _longest_length(lengths["output"]),
    }
    pool["batching"] = {name: value for name, value in batching.items() if value is not None}
    return pool


def _ranks_wait(row: BenchRow, names: Names, setup: CampaignSetup) -> bool:
    """Return whether prompts wait until all data-parallel ranks have some."""
    _, _, dp, experts = layout(row, setup)
    held = setup.prompts_held_steps is not None and setup.prompts_held_ratio is None
    return held and dp > 1 and experts and names.model.moe is not None


def host_of(row: BenchRow, setup: CampaignSetup) -> dict[str, bool | int | str | None]:
    """Return the step-time options that describe the host work of the row's server and client."""
    return {
        "in_process": in_process(row, setup),
        "one_process": setup.one_process,
        "sorts_logits": setup.sorts_logits,
        "penalizes_logits": setup.penalizes_logits,
        "chat_template": setup.chat_template,
        "cuda_graphs": setup.cuda_graphs,
        "graph_tokens": setup.graph_tokens,
        "stream_interval": setup.stream_interval,
        "fp8_gemm_backend": setup.fp8_gemm_backend or None,
        "moe_backend": setup.moe_backend or None,
    }


def in_process(row: BenchRow, setup: CampaignSetup) -> bool:
    """Return whether the client called the engine directly: batches, and bursts without request latencies."""
    if setup.in_process is not None:
        return setup.in_process
    latencies = any(name.startswith(("ttft", "tpot", "e2e")) for name in row.measured)
    return row.load == "static_batch" or (row.load == "burst" and not latencies)


def _arrivals(row: BenchRow, count: int) -> dict[str, Any]:
    if row.load in ("poisson", "constant"):
        return _at_rate(row, row.load, count)
    if row.load == "trace":
        return {"process": "poisson", "rate_rps": row.rate_req_s or 1.0, "num_requests": count}
    if row.load in ("burst", "static_batch"):
        return {"process": "burst", "num_requests": count}
    clients = 1 if row.load == "single" else min(row.concurrency or 1, count)
    return {"process": "closed_loop", "concurrency": clients, "num_requests": count}


def _at_rate(row: BenchRow, process: str, count: int) -> dict[str, Any]:
    arrivals: dict[str, Any] = {"process": process, "rate_rps": row.rate_req_s, "num_requests": count}
    if process == "poisson" and row.burstiness is not None:
        arrivals |= {"process": "gamma", "cv": row.burstiness**-0.5}
    return arrivals


def _run_requests(row: BenchRow, setup: CampaignSetup) -> int:
    if row.load == "static_batch":
        return _batch(row)
    if setup.num_requests is not None:
        return setup.num_requests
    if row.load in ("closed_loop", "single"):
        clients = 1 if row.load == "single" else row.concurrency or 1
        if setup.requests_per_client is not None:
            return ceil(clients * setup.requests_per_client)
        return max(LEAST_REQUESTS, clients * REQUESTS_PER_CLIENT)
    if row.load == "burst" and row.concurrency is not None:
        return ceil(row.concurrency * (setup.requests_per_client or 1))
    return USUAL_REQUESTS


def _most_requests(row: BenchRow, running: int) -> int:
    if row.load == "static_batch":
        return _batch(row)
    by_tokens = int(MOST_TOKENS / ((row.isl or 1.0) + (row.osl or 1.0)))
    burst = min(LEAST_WAVES * running, by_tokens)
    return max(min(MOST_REQUESTS, by_tokens), burst, LEAST_WAVES * (row.concurrency or 1), LEAST_REQUESTS)


def _most_running(row: BenchRow, names: Names, setup: CampaignSetup) -> int:
    """Return the most requests of a burst that run at once, as far as it is known."""
    if row.load != "burst":
        return 1
    _, stages, ranks, _ = layout(row, setup)
    if setup.trtllm_bench_limits and row.isl and row.osl:
        return stages * trtllm_bench_limits(names, setup.n_gpus, stages, row.isl, row.osl)[0]
    return ranks * (setup.max_num_seqs or 1)


def _batch(row: BenchRow) -> int:
    return row.concurrency or max(1, round(row.avg_batch or 1))


def _lengths(row: BenchRow, setup: CampaignSetup) -> dict[str, Any]:
    """Return the length distributions: published tables where the campaign has them, else those of its spreads."""
    tabled = {"prompt": (setup.prompt_table, row.isl), "output": (setup.output_table, row.osl)}
    published = {name: _as_published(table, mean or 1.0) for name, (table, mean) in tabled.items() if table}
    return _spread_lengths(row, setup) | published


def _spread_lengths(row: BenchRow, setup: CampaignSetup) -> dict[str, Any]:
    prompt, output = row.isl or 1.0, row.osl or 1.0
    if row.load == "trace" or setup.lengths_cv is not None:
        cv = setup.lengths_cv or REPLAY_CV
        return {"prompt": _lognormal(prompt, cv), "output": _lognormal(output, cv)}
    both = (("prompt", prompt), ("output", output))
    if setup.lengths_from_share is not None:
        return {name: _uniform(nominal, setup.lengths_from_share) for name, nominal in both}
    if setup.lengths_uniform:
        return {name: _uniform(2 * mean - 1, 0.0) for name, mean in both}
    return {
        "prompt": _lognormal(prompt, setup.prompt_cv) if setup.prompt_cv else _fixed_length(prompt),
        "output": _lognormal(output, row.output_cv) if row.output_cv else _capped_exponential(output, setup.output_cap),
    }


def _fixed_length(tokens: float) -> dict[str, Any]:
    return {"distribution": "fixed", "value": max(1, round(tokens))}


def _uniform(nominal: float, share: float) -> dict[str, Any]:
    return {"distribution": "uniform", "min": max(1, round(share * nominal)), "max": max(1, round(nominal))}


def _lognormal(mean: float, cv: float) -> dict[str, Any]:
    return {"distribution": "lognormal", "mean": mean, "cv": cv, "max": ceil(LONGEST_OVER_MEAN * mean)}


def _as_published(table: str, mean: float) -> dict[str, Any]:
    """Return the published length *table* scaled to *mean*."""
    known = length_table(table)
    scale = mean / known.mean
    longest = ceil(scale * known.quantiles[-1][1])
    return {"distribution": "empirical", "table": table, "scale": scale, "max": longest}


def _capped_exponential(mean: float, cap: int | None) -> dict[str, Any]:
    """Return an exponential distribution cut at *cap* with mean *mean*.

    The mean m of the uncut distribution solves m (1 - exp(-cap/m)) = mean.
    """
    if cap is None or mean >= 0.99 * cap:
        return _fixed_length(mean)
    low, high = mean, 1000.0 * cap
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if middle * (1 - exp(-cap / middle)) < mean else (low, middle)
    return {"distribution": "geometric", "mean": max(1.0, low), "max": cap}


def _longest_length(length: dict[str, Any]) -> int:
    return int(length.get("max") or length["value"])


def _left_out(row: BenchRow, power: dict[str, float] | None, drafts: dict[str, Any] | None) -> list[str]:
    notes: list[str] = []
    if row.spec_decode and drafts is None:
        notes.append(
            Message(
                "speculative decoding ({spec_decode}) is not simulated: its acceptance rate is not known",
                row.spec_decode,
            )
        )
    if row.power_cap_w is not None and power is None:
        notes.append("the power cap is not simulated")
    if row.load == "trace" and not row.replay:
        notes.append("no request file: lognormal lengths and Poisson arrivals replace the trace")
    return notes
