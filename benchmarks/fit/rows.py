"""Selection of measured rows for the fit and for its evaluation.

Every rule that excludes a row has its reason next to it. Rows excluded from the fit are still predicted and evaluated.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

from sim.benchdata import BenchRow, read_benchmarks
from sim.catalogue.catalog import load_catalog
from sim.fidelity.prediction import campaigns_of

MOST_ROWS = 4
"""Largest number of rows per pair, source, mode, precision and parallel layout, as campaigns differ a hundredfold."""

FITTED_SOURCES = frozenset({
    "accelmark", "inferencex", "trtllm_v0.5.0", "trtllm_v0.9.0", "trtllm_v0.14", "trtllm_v1.0", "cloudrift",
    "deplodock", "nim", "tsho", "argonne", "argonne_power", "argonne_tppp", "lambda", "mlenergy_v2", "mlenergy_v3",
    "aic_own", "rig3090",
})  # fmt: skip
"""Benchmark harnesses that state lengths and load, or whose lengths are known otherwise (data/benchmarks.yaml).

Peculiarities of a campaign's host, as with aic_own and rig3090, are random effects. Not used: argonne_quant (labels
that contradict each other by a factor of two), gpustack (unknown max_num_seqs, outputs down to 4 tokens), lmdeploy
(rounded to the millisecond), splitwise (vLLM 0.1), anyscale (clients send at a given rate, so that `concurrency` is
not the number in flight).
"""
UNFITTED_ENGINES = ("llama.cpp", "exllamav3", "Deepspeed-MII", "LMDeploy-TurboMind")
"""Engines whose host times have other sources (data/engines); Deepspeed's rows cover Gaudi 2."""
FOR_FIT_ALONE = tuple(
    Path(__file__).with_name(f"{name}.csv") for name in ("blis_training", "recent_hosts", "more_campaigns")
)
"""Tables of rows with `use` fit, which are not evaluated.

They contain twelve of the fifteen runs that BLIS was trained on (none of the 38 that benchmarks/published.md compares,
though of their cluster); three without a stated request rate (reasoning-lite) are omitted. They also contain
further runs of 2026 releases on a consumer card by a publisher of PUBLIC, with only the first of its sweeps over rates
with a prefix cache, as each repeats the prompts of the previous one, and known pairs by new publishers.
"""
PUBLIC = tuple(Path(__file__).with_name(f"{name}.csv") for name in ("unseen_by_rule", "unseen", "unseen_2026_11"))
"""Tables of rows from public sources, fitted and evaluated like all others."""
RELEASED = "serving-blackwell-released.csv"
"""Table beside MEASURED/serving.csv whose rows are judged and never fitted: SGLang and vLLM with DeepSeek V3,
Qwen3.5-397B and Kimi K2.5 on B200 and B300."""
RELEASED_PAIRS = frozenset({
    "B200-SXM kimi-k2.5", "B200-SXM kimi-k2.5-nvfp4", "B200-SXM qwen3.5-397b-a17b", "B300-SXM deepseek-v3",
})  # fmt: skip
IN_MEASURED = frozenset({"H100-SXM llama3-8b", "A100-SXM-40GB llama3-8b"})
"""Pairs of PUBLIC that MEASURED has as well; all other pairs of PUBLIC are shown separately."""
PUBLISHERS = {
    "trtllm_": "NVIDIA/TensorRT-LLM", "argonne": "argonne", "mlenergy": "mlenergy", "blis_training": "inference-sim",
    "cloudrift": "cloudrift-ai", "deplodock": "cloudrift-ai", "gpustack": "gpustack",
}  # fmt: skip
"""Publishers of campaigns whose names begin with these prefixes; other campaigns are their own publisher."""
BLOCKED_IMAGE = "1.1.0rc2.post2"
"""TensorRT-LLM image whose DeepSeek rows take 0.6 of the time of the same setting in related images.

InferenceX used it with and without multi-token prediction, which the row does not state.
"""

UNSTATED_CLIENTS = 512
"""Column `concurrency` of rows whose script sent another number of requests at a time."""


def read_rows(measured: Path) -> list[BenchRow]:
    """Return all rows of *measured*/serving.csv and RELEASED as they were run, of FOR_FIT_ALONE and of PUBLIC."""
    campaigns = campaigns_of(load_catalog())
    tables = [path for path in (measured / "serving.csv", measured / RELEASED) if path.exists()]
    found = [*_typed(*tables), *_typed(*FOR_FIT_ALONE), *_typed(*PUBLIC)]
    return [campaigns.as_run(row) for row in found]


@cache
def _typed(*tables: Path) -> tuple[BenchRow, ...]:
    return tuple(row for table in tables for row in read_benchmarks(table))


@cache
def _ids(*tables: Path) -> frozenset[str]:
    return frozenset(row.id for row in _typed(*tables))


def stranger(row: BenchRow) -> bool:
    """Return whether *row* is of a pair that MEASURED lacks."""
    return row.id in _ids(*PUBLIC) and pair(row) not in IN_MEASURED


def released(row: BenchRow) -> bool:
    """Return whether *row* is of a pair of RELEASED: a model or card that MEASURED/serving.csv lacks."""
    return pair(row) in RELEASED_PAIRS


def in_project_table(row: BenchRow) -> bool:
    """Return whether *row* is in a table of the project."""
    return row.id in _ids(*FOR_FIT_ALONE, *PUBLIC)


def publisher_of(row: BenchRow) -> str:
    """Return the publisher of *row*, whose rows are left out of the fit together."""
    return publisher_named(row.source_key)


def publisher_named(source_key: str) -> str:
    """Return the publisher of the rows with *source_key*."""
    return next((name for start, name in PUBLISHERS.items() if source_key.startswith(start)), source_key)


def pair(row: BenchRow) -> str:
    """Return GPU and model family, whose rows cross-validation leaves out together."""
    return f"{row.gpu} {row.model_family}"


def publisher(source: str) -> str:
    """Return the publisher named in a `source`.

    >>> publisher("noonghunna/club-3090 issue 698"), publisher("sgl-project/sglang#340")
    ('noonghunna/club-3090', 'sgl-project/sglang')
    """
    return re.split(r"[ @#:]", source)[0]


def judged(row: BenchRow) -> bool:
    """Return whether the row counts in docs/fidelity.md: scored, trusted, its load stated, no replay."""
    known = row.trust in ("A", "B") and not row.spec_decode and not load_unstated(row) and not model_unstated(row)
    return row.use == "score" and row.load != "trace" and known


def load_unstated(row: BenchRow) -> bool:
    """Return whether the number of clients of *row* is not that of the run.

    InferenceX's gptoss_fp4_h100_docker.sh (d22bf9c to 4e135fd, 21 November to 8 December 2025) has max-concurrency 512
    for every point of its sweep, with as many prompts as ten times the point's clients and max-num-seqs as many as its
    clients, which the results do not state.
    """
    script = row.source_key == "inferencex" and row.engine == "vLLM" and row.gpu.startswith("H100")
    return script and "gpt-oss" in row.model_family and row.concurrency == UNSTATED_CLIENTS


def model_unstated(row: BenchRow) -> bool:
    """Return whether *row* ran another model than its column says.

    Anyscale's result files have the client's tokenizer as `model_id` (prefill_decode/run_bm.sh, 04ba8ab), gpt-oss-120b.
    The folder of these runs is named after a model of 32B.
    """
    return row.source_key == "anyscale" and row.id.startswith("any_qwen32b")


def simulated(row: BenchRow) -> bool:
    """Return whether the row is needed to fit or to evaluate."""
    return judged(row) or row.use == "fit"


def left_out(row: BenchRow) -> str:
    """Return the reason why *row* is not fitted; empty if it is."""
    tests = (
        (not simulated(row), "a replay, or not of the scored class"),
        (released(row), "judged as a row outside the fit"),
        (row.source_key not in FITTED_SOURCES and not in_project_table(row), "source not used"),
        (row.engine in UNFITTED_ENGINES, "host times from elsewhere"),
        (row.precision == "" and not in_project_table(row), "precision not stated"),
        (
            "W4A16" in row.precision and row.source_key == "accelmark",
            "AccelMark asks for quantization gptq (suite_C/suite.json): the plain GPTQ kernel, slower than 16 bit",
        ),
        (
            row.source_key == "deplodock" and row.engine == "SGLang" and row.precision.startswith("awq"),
            "its recipe asks for quantization moe_wna16: Triton's kernel for 4-bit experts, not Marlin",
        ),
        (row.engine_version == BLOCKED_IMAGE and "deepseek" in row.model_family, "unflagged speculation"),
        (
            "image-chat" in row.workload and row.model.startswith("Llama-4"),
            "an image is 1 to 17 tiles of 144 tokens there, and nobody says how many",
        ),
        (
            row.source_key == "accelmark" and row.gpu == "H200-SXM",
            "one host, three times slower per sequence than the campaign's others and than other H200 hosts",
        ),
        (
            row.n_gpus not in (_ranks(row), _ranks(row) * (row.ep or 1)),
            "neither tp x pp x dp nor that times ep is the number of GPUs",
        ),
        (
            row.source_key == "cloudrift" and row.dp > 1 and (row.concurrency or 0) > 1,
            "nginx's least_conn without a zone (utils/generate_compose.py) counts connections per worker process: of "
            "eight servers with 256 slots each, 2,048 requests overfill some",
        ),
        (
            row.id == "n-l4-qwen3-8b-c10-60-6554",
            "half of its requests took longer (625 s) than the run (377 s)",
        ),
        (
            row.source_key == "trtllm_v0.14" and row.n_gpus >= 4 and (row.osl or 0) >= 2000,
            "a batch limit that is not stated",
        ),
    )
    return next((reason for refused, reason in tests if refused), "")


def _ranks(row: BenchRow) -> int:
    return (row.tp or 1) * row.pp * row.dp


def thinned(rows: Iterable[BenchRow], wanted: Callable[[BenchRow], bool]) -> list[BenchRow]:
    """Return the rows that are *wanted*, without exact repeats, each stratum reduced evenly to MOST_ROWS."""
    strata: dict[tuple[object, ...], dict[tuple[object, ...], BenchRow]] = {}
    for row in rows:
        if wanted(row):
            stratum = (pair(row), row.source_key, row.engine, row.load, row.precision, row.tp, row.pp, row.dp, row.ep)
            setting = (row.isl, row.osl, row.concurrency, row.rate_req_s, row.max_num_batched_tokens)
            strata.setdefault(stratum, {})[setting] = row
    return [row for settings in strata.values() for row in _evenly(list(settings.values()))]


def _evenly(rows: list[BenchRow]) -> Iterator[BenchRow]:
    rows.sort(key=lambda row: (row.isl or 0, row.osl or 0, row.concurrency or 0, row.rate_req_s or 0))
    count = min(MOST_ROWS, len(rows))
    for i in range(count):
        yield rows[(2 * i + 1) * len(rows) // (2 * count)]
