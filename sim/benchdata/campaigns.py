"""Facts about published benchmark campaigns that the columns of their rows lack: data/benchmarks.yaml.

A fact selects rows and states how they were measured.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import isqrt
from pathlib import Path
from typing import TypeVar

from sim.benchdata.row import BenchRow
from sim.catalogue.value import Sourced
from sim.spec import Count, Positive, Spec, WholeNumber
from sim.yamlio import read


class RowMatch(Spec):
    """Conditions on the rows to which a fact applies; left-out conditions hold for all rows."""

    source_key: str
    loads: tuple[str, ...] = ()
    isl_from: Positive | None = None
    """Smallest mean prompt length [tokens]."""
    isl_to: Positive | None = None
    """Largest mean prompt length [tokens]."""
    osl_to: Positive | None = None
    """Largest mean answer length [tokens]."""
    versions: tuple[str, ...] = ()
    """Prefixes of engine versions."""
    workloads: tuple[str, ...] = ()
    """Substrings of the workload in the source's words."""
    engines: tuple[str, ...] = ()
    """Prefixes of engine names."""
    notes: tuple[str, ...] = ()
    """Substrings of the note."""
    models: tuple[str, ...] = ()
    """Prefixes of model names."""
    gpus: tuple[str, ...] = ()
    """Prefixes of GPU names."""
    precisions: tuple[str, ...] = ()
    """Prefixes of the precision in the source's words."""
    clients_from: Count | None = None
    """Smallest concurrency."""
    tp: Count | None = None
    """Exact tensor-parallel size."""
    tp_to: Count | None = None
    """Largest tensor-parallel size."""
    ep_from: Count | None = None
    """Smallest expert-parallel size."""
    ids: str = ""
    """Regular expression to search for in the row's id."""

    def holds(self, row: BenchRow) -> bool:
        """Return whether the conditions hold for *row*."""
        return (
            row.source_key == self.source_key
            and (not self.loads or row.load in self.loads)
            and (self.isl_from is None or (row.isl or 0.0) >= self.isl_from)
            and (self.isl_to is None or (row.isl or 0.0) <= self.isl_to)
            and (self.osl_to is None or (row.osl or 0.0) <= self.osl_to)
            and (not self.versions or row.engine_version.startswith(self.versions))
            and (not self.models or row.model.startswith(self.models))
            and (not self.engines or row.engine.startswith(self.engines))
            and (not self.gpus or row.gpu.startswith(self.gpus))
            and (not self.precisions or row.precision.startswith(self.precisions))
            and (self.clients_from is None or (row.concurrency or 0) >= self.clients_from)
            and (self.tp is None or row.tp == self.tp)
            and (self.tp_to is None or (row.tp or 1) <= self.tp_to)
            and (self.ep_from is None or (row.ep or 1) >= self.ep_from)
            and (not self.notes or any(words in row.note for words in self.notes))
            and (not self.workloads or any(words in row.workload for words in self.workloads))
            and (not self.ids or re.search(self.ids, row.id) is not None)
        )


T = TypeVar("T")

LARGEST_SERVER = 8
"""Number of GPUs of the largest server in the campaigns."""


class CampaignFact(Sourced):
    """Measurement conditions of a part of a campaign. Later facts about a row take precedence."""

    match: RowMatch
    lengths_from_share: Positive | None = None
    """Lower bound of uniformly distributed prompt and answer lengths, as a fraction of the nominal length."""
    lengths_uniform: bool = False
    """True if lengths are uniformly distributed from one token to twice the row's mean."""
    lengths_cv: Positive | None = None
    """Coefficient of variation of lognormal prompt and answer lengths, as in a chat data set."""
    prompt_cv: Positive | None = None
    """Coefficient of variation of lognormal prompt lengths, if the row has no `prompt_cv`."""
    prompt_table: str = ""
    """Published length table, such as sharegpt-vllm/prompt; scaled to the row's mean, it replaces all spreads."""
    output_table: str = ""
    """Published length table of the answers, as `prompt_table`."""
    output_cap: Count | None = None
    """Largest answer length [tokens]; answers are exponential, cut there, with the row's mean."""
    requests_per_client: Positive | None = None
    """Number of requests in the run divided by concurrency (closed loop or burst)."""
    num_requests: Count | None = None
    num_requests_by_lengths: dict[str, Count] | None = None
    """Number of requests, keyed by `<isl>/<osl>`."""
    max_num_seqs: Count | None = None
    max_num_batched_tokens: Count | None = None
    trtllm_bench_limits: bool | None = None
    """True if trtllm-bench derived max_num_seqs and max_num_batched_tokens from memory and lengths."""
    gpu: str = ""
    """GPU that the rows ran on, if their column is wrong."""
    precision: str = ""
    """Format of the weights, if their column names it less exactly."""
    pp: Count | None = None
    """Number of pipeline stages, if their column is wrong; tensor parallelism gets the other GPUs."""
    interconnect: str = ""
    """Link that the GPUs used, if the rows name the built-in one."""
    server: str = ""
    """Server id in data/servers, if the source states how the GPUs attach to the CPUs."""
    kv_dtype: str = ""
    """Precision of the KV cache, if the rows lack it."""
    engine_version: str = ""
    """Version of the engine, if the rows lack it."""
    engine_as: str = ""
    """Older engine version to whose engine the rows' release falls back on their hardware."""
    async_scheduling: bool | None = None
    """True if scheduling overlapped execution, if this was not the version's default."""
    scheduler_recv_interval: Count | None = None
    """Configured number of decode steps between checks for new requests."""
    chunked_prefill_size: Count | None = None
    """Configured number of prompt tokens at which SGLang cuts prompts."""
    enable_mixed_chunk: bool | None = None
    """True if decoding requests took part in SGLang's steps with prompts."""
    mamba_ssm_dtype: str = ""
    """Configured precision of recurrent states (SGLang)."""
    prompts_held_steps: Count | None = None
    """Largest number of steps for which the server delayed prompts to collect more; simulated only with the ratio."""
    prompts_held_ratio: Positive | None = None
    """Fraction of a step's token budget at which delayed prompts were released."""
    gpu_memory_utilization: Positive | None = None
    concurrency_is_max_num_seqs: bool = False
    """True if the concurrency column holds max_num_seqs."""
    in_process: bool | None = None
    """True if the engine was called as a library."""
    one_process: bool | None = None
    """True if the API server ran in the engine's process."""
    late_output: bool | None = None
    """True if vLLM's V0 engine ran in the client's process, where tokens arrive a step later."""
    cuda_graphs: bool | None = None
    """True if CUDA graphs were used; False: kernels were launched individually."""
    graph_tokens: WholeNumber | None = None
    """Configured maximum tokens of a step with prompts that ran from CUDA graphs; 0: no such step did."""
    stream_interval: Count | None = None
    """Configured number of tokens per streamed message."""
    fp8_gemm_backend: str = ""
    """Configured kernel of dense products in fp8 by blocks (SGLang)."""
    moe_backend: str = ""
    """Configured kernels of products over experts."""
    sorts_logits: bool | None = None
    """True if requests used top-p, for which the engine sorted all logits."""
    penalizes_logits: bool | None = None
    """True if requests had repetition, presence or frequency penalties."""
    chat_template: bool | None = None
    """True if requests were chats, to which the API server applied the model's template."""
    prefix_caching: bool | None = None
    """True if the prefix cache was enabled."""
    chunked_prefill: bool | None = None
    """True if the scheduler split prompts, if this was not the engine's default."""
    measured_at: str | None = None
    unseen_tokens: Count | None = None
    """Number of an answer's first tokens that the client is not sent, after which it measures TTFT."""
    gpus_squared: bool = False
    """True if n_gpus, and dp or ep, were multiplied by the number of GPUs of the server.

    The true number is then the square root, for rows with more than eight GPUs and for rows whose experts are spread
    over all GPUs and whose dp is that root.
    """
    rate_req_s: Positive | None = None
    """Request rate of the client, if the rows lack it [1/s]."""
    rate_alone: bool = False
    """True if only the rate limited the client; `concurrency` is then the observed maximum in flight."""
    attention_dp: bool | None = None
    """True if attention was data parallel and experts were spread over all GPUs."""
    replica_routing: str = ""
    """Routing policy among `dp` independent replicas behind one address, in place of data-parallel ranks."""
    expert_parallel: bool | None = None
    """True if each GPU held whole experts, False if GPUs shared all experts, regardless of `ep`."""
    layers_in_turn: bool | None = None
    """True if the GPUs held consecutive layers, regardless of `tp`."""
    isl: Positive | None = None
    """Mean prompt length, if the rows lack it; `note` states the reason [tokens]."""
    osl: Positive | None = None
    """Mean answer length, if the rows lack it [tokens]."""
    osl_as_run: Positive | None = None
    """Mean answer length that overrides the rows [tokens]."""
    prompt_factor: Positive | None = None
    """Prompt tokens of the server per prompt token of the client, if their tokenisers differ."""
    cold_start: bool | None = None
    """True if the run had no warm-up, so that mean TTFT includes compiling and tuning the server's kernels."""
    spec_decode: str = ""
    """Kind of speculative decoding, if the rows do not state it."""
    tpot_is_itl: bool | None = None
    """True if the tpot columns hold inter-token latencies, averaged over tokens instead of requests."""
    steady: bool | None = None
    """True if rates were measured in steady state, without the start and the end of the run."""
    decode_rate: bool | None = None
    """True if the token rate is that of decoding a single request, regardless of `concurrency`."""
    one_sequence: bool = False
    """True if a single request ran at a time.

    `concurrency` then holds the chunk size of the prompt, from which output_tok_s was derived; total_tok_s was
    measured.
    """
    repeated_prompts: Count | None = None
    """Number of different prompts that the client repeats; the prefix cache holds them."""
    warmup_per_client: Count | None = None
    """Number of repeated prompts that the client sends per client before the run."""
    prompts_sent_before: Count | None = None
    """Number of requests, from the first on, whose prompts are in the prefix cache from an earlier run."""
    cached_share: Positive | None = None
    """Fraction of each prompt in the prefix cache, if the rows lack it."""
    drafts: str = ""
    """Drafter and task of the catalogue, such as mistral-7b-ngram/code."""
    draft_model: str = ""
    """Draft model, if the drafter uses one."""
    num_speculative_tokens: Count | None = None
    note_patterns: dict[str, str] | None = None
    """Regular expressions that extract num_requests, max_num_seqs or output_cap from the note."""


@dataclass(frozen=True, slots=True)
class CampaignSetup:
    """Measurement conditions of a row from the table and the facts; None is unknown."""

    num_requests: int | None = None
    requests_per_client: float | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    trtllm_bench_limits: bool = False
    gpu_memory_utilization: float | None = None
    interconnect: str = ""
    server: str = ""
    kv_dtype: str = ""
    engine_version: str = ""
    async_scheduling: bool | None = None
    scheduler_recv_interval: int | None = None
    chunked_prefill_size: int | None = None
    enable_mixed_chunk: bool | None = None
    mamba_ssm_dtype: str = ""
    prompts_held_steps: int | None = None
    prompts_held_ratio: float | None = None
    in_process: bool | None = None
    one_process: bool = False
    late_output: bool = False
    sorts_logits: bool = False
    penalizes_logits: bool = False
    cuda_graphs: bool = True
    graph_tokens: int | None = None
    stream_interval: int = 1
    fp8_gemm_backend: str = ""
    moe_backend: str = ""
    chat_template: bool = False
    prefix_caching: bool | None = None
    chunked_prefill: bool = False
    measured_at: str = "client"
    unseen_tokens: int = 0
    lengths_from_share: float | None = None
    lengths_uniform: bool = False
    lengths_cv: float | None = None
    prompt_cv: float | None = None
    prompt_table: str = ""
    output_table: str = ""
    output_cap: int | None = None
    tpot_is_itl: bool = False
    steady: bool = False
    decode_rate: bool = False
    repeated_prompts: int | None = None
    warmup_per_client: int | None = None
    prompts_sent_before: int | None = None
    cached_share: float | None = None
    drafts: str = ""
    draft_model: str = ""
    num_speculative_tokens: int | None = None
    rate_req_s: float | None = None
    n_gpus: int = 1
    dp: int = 1
    ep: int = 1
    replica_routing: str = ""
    layers_in_turn: bool = False
    cold_start: bool = False
    isl: float | None = None
    osl: float | None = None


class Campaigns(Spec):
    """Contents of data/benchmarks.yaml: facts, versions by year, and NVLink bridges."""

    facts: tuple[CampaignFact, ...]
    version_by_year: dict[str, dict[int, str]]
    """Engine versions in use in a year for sources that name only the year, keyed by engine family."""
    nvlink_bridges: dict[str, str]
    """Links, keyed by GPU id, for sources that mention NVLink on a card without it by default."""

    def as_run(self, row: BenchRow) -> BenchRow:
        """Return *row* with the columns that the facts correct."""
        facts = [fact for fact in self.facts if fact.match.holds(row)]
        gpu = _last_known(fact.gpu or None for fact in facts) or row.gpu
        drafts = row.spec_decode or _last_known(fact.spec_decode or None for fact in facts) or ""
        row = replace(row, precision=_last_known(fact.precision or None for fact in facts) or row.precision)
        row = replace(row, gpu=gpu, osl=_last_known(fact.osl_as_run for fact in facts) or row.osl, spec_decode=drafts)
        if stages := _last_known(fact.pp for fact in facts):
            row = replace(row, pp=stages, tp=row.n_gpus // (stages * row.dp))
        if any(fact.gpus_squared for fact in facts):
            row = _within_one_server(row)
        if any(fact.rate_alone for fact in facts):
            row = replace(row, load="constant", concurrency=None)
        if not any(fact.one_sequence for fact in facts):
            return row
        measured = {name: value for name, value in row.measured.items() if name != "output_tok_s"}
        return replace(row, concurrency=1, avg_batch=1.0, max_num_batched_tokens=row.concurrency, measured=measured)

    def setup(self, row: BenchRow) -> CampaignSetup:
        """Return the measurement conditions of *row*; its own columns take precedence over the facts."""
        facts = [fact for fact in self.facts if fact.match.holds(row)]
        gpus, isl = row.n_gpus, row.isl or _last_known(fact.isl for fact in facts)
        attention_dp = bool(_last_known(fact.attention_dp for fact in facts))
        expert_parallel = attention_dp or _last_known(fact.expert_parallel for fact in facts)
        return CampaignSetup(
            num_requests=row.num_requests or self._num_requests(row, facts),
            requests_per_client=_last_known(fact.requests_per_client for fact in facts),
            max_num_seqs=row.max_num_seqs or self._max_num_seqs(row, facts),
            max_num_batched_tokens=row.max_num_batched_tokens
            or _last_known(fact.max_num_batched_tokens for fact in facts),
            trtllm_bench_limits=bool(_last_known(fact.trtllm_bench_limits for fact in facts)),
            gpu_memory_utilization=row.gpu_memory_utilization
            or _last_known(fact.gpu_memory_utilization for fact in facts),
            interconnect=_last_known(fact.interconnect or None for fact in facts) or row.interconnect,
            server=_last_known(fact.server or None for fact in facts) or "",
            kv_dtype=row.kv_dtype or _last_known(fact.kv_dtype or None for fact in facts) or "",
            engine_version=_last_known(fact.engine_as or None for fact in facts)
            or row.engine_version
            or _last_known(fact.engine_version or None for fact in facts)
            or "",
            async_scheduling=_last_known(fact.async_scheduling for fact in facts),
            scheduler_recv_interval=_last_known(fact.scheduler_recv_interval for fact in facts),
            chunked_prefill_size=_last_known(fact.chunked_prefill_size for fact in facts),
            enable_mixed_chunk=_last_known(fact.enable_mixed_chunk for fact in facts),
            mamba_ssm_dtype=_last_known(fact.mamba_ssm_dtype or None for fact in facts) or "",
            prompts_held_steps=_last_known(fact.prompts_held_steps for fact in facts),
            prompts_held_ratio=_last_known(fact.prompts_held_ratio for fact in facts),
            in_process=_last_known(fact.in_process for fact in facts),
            one_process=bool(_last_known(fact.one_process for fact in facts)),
            late_output=bool(_last_known(fact.late_output for fact in facts)),
            sorts_logits=bool(_last_known(fact.sorts_logits for fact in facts)),
            penalizes_logits=bool(_last_known(fact.penalizes_logits for fact in facts)),
            cuda_graphs=_last_known(fact.cuda_graphs for fact in facts) is not False,
            graph_tokens=_last_known(fact.graph_tokens for fact in facts),
            stream_interval=_last_known(fact.stream_interval for fact in facts) or 1,
            fp8_gemm_backend=_last_known(fact.fp8_gemm_backend or None for fact in facts) or "",
            moe_backend=_last_known(fact.moe_backend or None for fact in facts) or "",
            chat_template=bool(_last_known(fact.chat_template for fact in facts)),
            prefix_caching=_last_known(fact.prefix_caching for fact in facts),
            chunked_prefill=bool(_last_known(fact.chunked_prefill for fact in facts)),
            measured_at=row.measured_at or _last_known(fact.measured_at for fact in facts) or "client",
            unseen_tokens=_last_known(fact.unseen_tokens for fact in facts) or 0,
            lengths_from_share=_last_known(fact.lengths_from_share for fact in facts),
            lengths_uniform=any(fact.lengths_uniform for fact in facts),
            lengths_cv=_last_known(fact.lengths_cv for fact in facts),
            prompt_cv=row.prompt_cv or _last_known(fact.prompt_cv for fact in facts),
            prompt_table=_last_known(fact.prompt_table or None for fact in facts) or "",
            output_table=_last_known(fact.output_table or None for fact in facts) or "",
            output_cap=_number_in_note("output_cap", row, facts) or _last_known(fact.output_cap for fact in facts),
            tpot_is_itl=bool(_last_known(fact.tpot_is_itl for fact in facts)),
            steady=bool(_last_known(fact.steady for fact in facts)),
            decode_rate=bool(_last_known(fact.decode_rate for fact in facts)),
            repeated_prompts=_last_known(fact.repeated_prompts for fact in facts),
            warmup_per_client=_last_known(fact.warmup_per_client for fact in facts),
            prompts_sent_before=_last_known(fact.prompts_sent_before for fact in facts),
            cached_share=row.cached_share or _last_known(fact.cached_share for fact in facts),
            drafts=_last_known(fact.drafts or None for fact in facts) or "",
            draft_model=_last_known(fact.draft_model or None for fact in facts) or "",
            num_speculative_tokens=_last_known(fact.num_speculative_tokens for fact in facts),
            rate_req_s=row.rate_req_s or _last_known(fact.rate_req_s for fact in facts),
            n_gpus=gpus,
            dp=gpus if attention_dp else row.dp,
            ep=gpus if expert_parallel else 1 if expert_parallel is False else min(row.ep or 1, gpus),
            replica_routing=_last_known(fact.replica_routing or None for fact in facts) or "",
            layers_in_turn=bool(_last_known(fact.layers_in_turn for fact in facts)),
            cold_start=bool(_last_known(fact.cold_start for fact in facts)),
            isl=isl and isl * (_last_known(fact.prompt_factor for fact in facts) or 1.0),
            osl=row.osl or _last_known(fact.osl for fact in facts),
        )

    def _num_requests(self, row: BenchRow, facts: list[CampaignFact]) -> int | None:
        shape = f"{row.isl:g}/{row.osl:g}" if row.isl is not None and row.osl is not None else ""
        return _last_known(
            (fact.num_requests_by_lengths or {}).get(shape)
            or _number_in_note("num_requests", row, [fact])
            or fact.num_requests
            for fact in facts
        )

    def _max_num_seqs(self, row: BenchRow, facts: list[CampaignFact]) -> int | None:
        if any(fact.concurrency_is_max_num_seqs for fact in facts):
            return row.concurrency
        return _number_in_note("max_num_seqs", row, facts) or _last_known(fact.max_num_seqs for fact in facts)


def _within_one_server(row: BenchRow) -> BenchRow:
    """Return *row* with the true number of GPUs if its column holds the square."""
    if row.n_gpus <= LARGEST_SERVER and not row.ep == row.n_gpus == row.dp**2 > 1:
        return row
    gpus = isqrt(row.n_gpus)
    return replace(row, n_gpus=gpus, dp=max(1, row.dp // gpus), ep=min(row.ep or 1, gpus))


def load_campaigns(path: Path) -> Campaigns:
    """Read data/benchmarks.yaml.

    Raises
    ------
    pydantic.ValidationError, sim.yamlio.YamlError
        The file is invalid.

    """
    return Campaigns.model_validate(read(path).data)


def _last_known(values: Iterable[T | None]) -> T | None:
    """Return the last of *values* that is not None."""
    found = None
    for value in values:
        found = found if value is None else value
    return found


def _number_in_note(name: str, row: BenchRow, facts: list[CampaignFact]) -> int | None:
    for fact in facts:
        pattern = (fact.note_patterns or {}).get(name)
        found = re.search(pattern, row.note) if pattern else None
        if found:
            return int(found.group(1))
    return None
