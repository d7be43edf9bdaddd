"""What is known about published campaigns beyond the columns of their rows: data/benchmarks.yaml.

A fact names the rows that it speaks of, and how they were measured.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import isqrt
from pathlib import Path
from typing import TypeVar

from sim.benchdata.row import BenchRow
from sim.catalogue.value import Sourced
from sim.spec import Count, Positive, Spec
from sim.yamlio import read


class RowMatch(Spec):
    """Which rows a fact speaks of; what is left out does not matter."""

    source_key: str
    loads: tuple[str, ...] = ()
    isl_from: Positive | None = None
    """Rows with prompts of at least this number of tokens."""
    isl_to: Positive | None = None
    """Rows with prompts of at most this number of tokens."""
    osl_to: Positive | None = None
    """Rows with answers of at most this number of tokens."""
    versions: tuple[str, ...] = ()
    """Engine versions that begin with one of these."""
    workloads: tuple[str, ...] = ()
    """Workloads, in the source's words, that contain one of these."""
    engines: tuple[str, ...] = ()
    """Engines whose name begins with one of these."""
    notes: tuple[str, ...] = ()
    """Notes that contain one of these."""
    models: tuple[str, ...] = ()
    """Models whose name begins with one of these."""
    gpus: tuple[str, ...] = ()
    """GPUs whose name begins with one of these."""
    precisions: tuple[str, ...] = ()
    """Precisions, in the source's words, that begin with one of these."""
    clients_from: Count | None = None
    """Rows with at least this concurrency."""
    tp: Count | None = None
    """Rows with this tensor-parallel size."""
    tp_to: Count | None = None
    """Rows with at most this tensor-parallel size."""
    ep_from: Count | None = None
    """Rows with at least this expert-parallel size."""
    ids: str = ""
    """Rows in whose id this regular expression is found."""

    def holds(self, row: BenchRow) -> bool:
        """Whether *row* is meant."""
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

LARGEST_BOX = 8
"""GPUs of the largest server that the campaigns know."""


class CampaignFact(Sourced):
    """How a campaign was run. Later facts about the same row win."""

    match: RowMatch
    lengths_from_share: Positive | None = None
    """Prompts and answers are uniform between this share of the nominal length and all of it."""
    lengths_uniform: bool = False
    """Prompts and answers are equally likely from one token to twice the row's mean."""
    lengths_cv: Positive | None = None
    """Prompts and answers are lognormal with this standard deviation over mean, as those of a chat data set."""
    prompt_cv: Positive | None = None
    """Prompts are lognormal with this standard deviation over mean, where the row has no `prompt_cv`."""
    output_cap: Count | None = None
    """Answers end by themselves or at this many tokens: an exponential cut there, with the row's mean."""
    requests_per_client: Positive | None = None
    """Closed loop or burst: requests of the whole run over concurrency."""
    num_requests: Count | None = None
    num_requests_by_lengths: dict[str, Count] | None = None
    """By `<isl>/<osl>`."""
    max_num_seqs: Count | None = None
    max_num_batched_tokens: Count | None = None
    trtllm_bench_limits: bool | None = None
    """Both were left to trtllm-bench, which works them out of memory and lengths."""
    gpu: str = ""
    """The card that the rows ran on, where they name another one."""
    interconnect: str = ""
    """What the GPUs really talked over, where the rows name what is built in."""
    server: str = ""
    """The machine, by its id in data/servers, where its source says on which CPUs its cards hang."""
    kv_dtype: str = ""
    """Precision of the KV cache where the rows do not give it."""
    engine_version: str = ""
    """Version of the engine where the rows do not give it."""
    engine_as: str = ""
    """An older version of it, whose engine the rows' release falls back to on what they ran on."""
    async_scheduling: bool | None = None
    """Whether the server was told to form a step while one runs, where this is not the version's default."""
    scheduler_recv_interval: Count | None = None
    """Decode steps from one look for new requests to the next, as the server was told."""
    prompts_held_steps: Count | None = None
    """The server held prompts back for up to so many steps, until more had come; not simulated without their share."""
    prompts_held_ratio: Positive | None = None
    """Share of the tokens of a step from which on prompts were held back no longer."""
    gpu_memory_utilization: Positive | None = None
    concurrency_is_seats: bool = False
    """The concurrency column holds max_num_seqs."""
    in_process: bool | None = None
    """Whether the engine was called as a library."""
    one_process: bool | None = None
    """Whether the API server ran in the engine's process."""
    late_output: bool | None = None
    """Whether vLLM's V0 engine ran in the client's process, which sees tokens when the next step ends."""
    cuda_graphs: bool | None = None
    """False: the server was told to launch kernels one by one."""
    stream_interval: Count | None = None
    """Tokens that the server was told to send at once."""
    sorts_logits: bool | None = None
    """Whether requests asked for top-p, and the engine sorted all logits for it."""
    chat_template: bool | None = None
    """Whether requests were chats, for which the API server filled in the model's template."""
    prefix_caching: bool | None = None
    """False: the server was told to keep no prefix."""
    chunked_prefill: bool | None = None
    """Whether the scheduler cut prompts, where this is not the engine's usual way."""
    measured_at: str | None = None
    gpus_squared: bool = False
    """n_gpus, and dp or ep, were multiplied by the GPUs of the box: more than eight stand for their square root, as do
    those of a row whose experts are spread over all of them and whose dp is that root."""
    rate_req_s: Positive | None = None
    """Requests per second that the client sends, where the rows do not give them."""
    rate_alone: bool = False
    """Nothing but that rate held the client back: `concurrency` is the most that were in flight."""
    attention_dp: bool | None = None
    """Attention was data parallel over all GPUs, and the experts were spread over them."""
    expert_parallel: bool | None = None
    """Each GPU held whole experts, whatever `ep` says."""
    layers_in_turn: bool | None = None
    """The GPUs held the layers in turn, whatever `tp` says."""
    isl: Positive | None = None
    """Mean prompt where the rows do not give it; `note` says why."""
    osl: Positive | None = None
    """Mean answer where the rows do not give it."""
    osl_as_run: Positive | None = None
    """Mean answer, whatever the rows say."""
    tpot_is_itl: bool | None = None
    """The tpot columns hold times between tokens: every token counts, not every request."""
    steady: bool | None = None
    """Rates were taken in steady state, without the run's beginning and end."""
    decode_rate: bool | None = None
    """The token rate is that of decoding a single request, its prompt not counted, whatever `concurrency` says."""
    one_sequence: bool = False
    """One request ran at a time. `concurrency` holds the tokens that a prompt was read in by, and output_tok_s was
    worked out with it: total_tok_s is what was measured."""
    repeated_prompts: Count | None = None
    """The number of different prompts that the client sends over and over: the prefix cache holds them."""
    prompts_sent_before: Count | None = None
    """Number of requests, from the first on, whose prompts the same server had before: its prefix cache has them."""
    cached_share: Positive | None = None
    """Share of each prompt that the prefix cache holds, where the rows do not give it."""
    drafts: str = ""
    """What drafts, and for which text: a drafter and a task of the catalogue (mistral-7b-ngram/code)."""
    draft_model: str = ""
    """The model that drafts, where one does."""
    num_speculative_tokens: Count | None = None
    note_patterns: dict[str, str] | None = None
    """Regular expressions for the note: num_requests, max_num_seqs, output_cap."""


@dataclass(frozen=True, slots=True)
class CampaignSetup:
    """How a row was measured, as far as the table and the facts say; None is unknown."""

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
    prompts_held_steps: int | None = None
    prompts_held_ratio: float | None = None
    in_process: bool | None = None
    one_process: bool = False
    late_output: bool = False
    sorts_logits: bool = False
    cuda_graphs: bool = True
    stream_interval: int = 1
    chat_template: bool = False
    prefix_caching: bool | None = None
    chunked_prefill: bool = False
    measured_at: str = "client"
    lengths_from_share: float | None = None
    lengths_uniform: bool = False
    lengths_cv: float | None = None
    prompt_cv: float | None = None
    output_cap: int | None = None
    tpot_is_itl: bool = False
    steady: bool = False
    decode_rate: bool = False
    repeated_prompts: int | None = None
    prompts_sent_before: int | None = None
    cached_share: float | None = None
    drafts: str = ""
    draft_model: str = ""
    num_speculative_tokens: int | None = None
    rate_req_s: float | None = None
    n_gpus: int = 1
    dp: int = 1
    ep: int = 1
    layers_in_turn: bool = False
    isl: float | None = None
    osl: float | None = None


class Campaigns(Spec):
    """All facts, the year of engine versions that are given as a date, and bridges."""

    facts: tuple[CampaignFact, ...]
    version_by_year: dict[str, dict[int, str]]
    """By family of engines: the version in use where a source names only a year."""
    nvlink_bridges: dict[str, str]
    """By GPU id: the link where a source speaks of NVLink on a card without it by default."""

    def as_run(self, row: BenchRow) -> BenchRow:
        """*row* as it was run, where its columns say something else."""
        facts = [fact for fact in self.facts if fact.match.holds(row)]
        gpu = _last(fact.gpu or None for fact in facts) or row.gpu
        row = replace(row, gpu=gpu, osl=_last(fact.osl_as_run for fact in facts) or row.osl)
        if any(fact.gpus_squared for fact in facts):
            row = _in_one_box(row)
        if any(fact.rate_alone for fact in facts):
            row = replace(row, load="constant", concurrency=None)
        if not any(fact.one_sequence for fact in facts):
            return row
        measured = {name: value for name, value in row.measured.items() if name != "output_tok_s"}
        return replace(row, concurrency=1, avg_batch=1.0, max_num_batched_tokens=row.concurrency, measured=measured)

    def setup(self, row: BenchRow) -> CampaignSetup:
        """What holds for *row*: its own columns before the facts."""
        facts = [fact for fact in self.facts if fact.match.holds(row)]
        box = row.n_gpus
        apart = bool(_last(fact.attention_dp for fact in facts))
        spread = apart or bool(_last(fact.expert_parallel for fact in facts))
        return CampaignSetup(
            num_requests=row.num_requests or self._num_requests(row, facts),
            requests_per_client=_last(fact.requests_per_client for fact in facts),
            max_num_seqs=row.max_num_seqs or self._seats(row, facts),
            max_num_batched_tokens=row.max_num_batched_tokens or _last(fact.max_num_batched_tokens for fact in facts),
            trtllm_bench_limits=bool(_last(fact.trtllm_bench_limits for fact in facts)),
            gpu_memory_utilization=row.gpu_memory_utilization or _last(fact.gpu_memory_utilization for fact in facts),
            interconnect=_last(fact.interconnect or None for fact in facts) or row.interconnect,
            server=_last(fact.server or None for fact in facts) or "",
            kv_dtype=row.kv_dtype or _last(fact.kv_dtype or None for fact in facts) or "",
            engine_version=_last(fact.engine_as or None for fact in facts)
            or row.engine_version
            or _last(fact.engine_version or None for fact in facts)
            or "",
            async_scheduling=_last(fact.async_scheduling for fact in facts),
            scheduler_recv_interval=_last(fact.scheduler_recv_interval for fact in facts),
            prompts_held_steps=_last(fact.prompts_held_steps for fact in facts),
            prompts_held_ratio=_last(fact.prompts_held_ratio for fact in facts),
            in_process=_last(fact.in_process for fact in facts),
            one_process=bool(_last(fact.one_process for fact in facts)),
            late_output=bool(_last(fact.late_output for fact in facts)),
            sorts_logits=bool(_last(fact.sorts_logits for fact in facts)),
            cuda_graphs=_last(fact.cuda_graphs for fact in facts) is not False,
            stream_interval=_last(fact.stream_interval for fact in facts) or 1,
            chat_template=bool(_last(fact.chat_template for fact in facts)),
            prefix_caching=_last(fact.prefix_caching for fact in facts),
            chunked_prefill=bool(_last(fact.chunked_prefill for fact in facts)),
            measured_at=row.measured_at or _last(fact.measured_at for fact in facts) or "client",
            lengths_from_share=_last(fact.lengths_from_share for fact in facts),
            lengths_uniform=any(fact.lengths_uniform for fact in facts),
            lengths_cv=_last(fact.lengths_cv for fact in facts),
            prompt_cv=row.prompt_cv or _last(fact.prompt_cv for fact in facts),
            output_cap=_noted("output_cap", row, facts) or _last(fact.output_cap for fact in facts),
            tpot_is_itl=bool(_last(fact.tpot_is_itl for fact in facts)),
            steady=bool(_last(fact.steady for fact in facts)),
            decode_rate=bool(_last(fact.decode_rate for fact in facts)),
            repeated_prompts=_last(fact.repeated_prompts for fact in facts),
            prompts_sent_before=_last(fact.prompts_sent_before for fact in facts),
            cached_share=row.cached_share or _last(fact.cached_share for fact in facts),
            drafts=_last(fact.drafts or None for fact in facts) or "",
            draft_model=_last(fact.draft_model or None for fact in facts) or "",
            num_speculative_tokens=_last(fact.num_speculative_tokens for fact in facts),
            rate_req_s=row.rate_req_s or _last(fact.rate_req_s for fact in facts),
            n_gpus=box,
            dp=box if apart else row.dp,
            ep=box if spread else min(row.ep or 1, box),
            layers_in_turn=bool(_last(fact.layers_in_turn for fact in facts)),
            isl=row.isl or _last(fact.isl for fact in facts),
            osl=row.osl or _last(fact.osl for fact in facts),
        )

    def _num_requests(self, row: BenchRow, facts: list[CampaignFact]) -> int | None:
        shape = f"{row.isl:g}/{row.osl:g}" if row.isl is not None and row.osl is not None else ""
        return _last(
            (fact.num_requests_by_lengths or {}).get(shape) or _noted("num_requests", row, [fact]) or fact.num_requests
            for fact in facts
        )

    def _seats(self, row: BenchRow, facts: list[CampaignFact]) -> int | None:
        if any(fact.concurrency_is_seats for fact in facts):
            return row.concurrency
        return _noted("max_num_seqs", row, facts) or _last(fact.max_num_seqs for fact in facts)


def _in_one_box(row: BenchRow) -> BenchRow:
    """*row* with the GPUs that it ran on, where its own are their square."""
    if row.n_gpus <= LARGEST_BOX and not row.ep == row.n_gpus == row.dp**2 > 1:
        return row
    box = isqrt(row.n_gpus)
    return replace(row, n_gpus=box, dp=max(1, row.dp // box), ep=min(row.ep or 1, box))


def load_campaigns(path: Path) -> Campaigns:
    """Read data/benchmarks.yaml.

    Raises pydantic.ValidationError or sim.yamlio.YamlError if the file is not what it should be.
    """
    return Campaigns.model_validate(read(path).data)


def _last(values: Iterable[T | None]) -> T | None:
    """The last of *values* that is given."""
    found = None
    for value in values:
        found = found if value is None else value
    return found


def _noted(name: str, row: BenchRow, facts: list[CampaignFact]) -> int | None:
    for fact in facts:
        pattern = (fact.note_patterns or {}).get(name)
        found = re.search(pattern, row.note) if pattern else None
        if found:
            return int(found.group(1))
    return None
