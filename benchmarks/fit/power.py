"""Watts of serving GPUs against the law of sim/power; fits the energies of an operation and of a byte.

    python -m benchmarks.fit.power MEASURED

Rows of serving.csv with power on A100, H100 and B200 whose models the catalogue has. A row's batch is taken as even:
so many decodes at the middle of their answers, with the prompt tokens that an even flow brings. The simulator says how
long such a step keeps the tensor cores at their peak and the memory reading; divided by the measured step that gives
the shares that the law asks for, so that errors of the step time stay out of the fit. ML.ENERGY publishes no prompt
lengths: 100 tokens are assumed for lm-arena-chat, 230 for gpqa, 150 (code 130) in version 2. Models in CHECKED are in
no fit.

Groups (source, GPU, model, GPUs, workload) weigh the same. Errors are medians over groups of the median in each.
"""

import csv
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import log, log2
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from sim.catalogue.catalog import Catalog, load_catalog
from sim.catalogue.entries.gpu import Gpu
from sim.catalogue.entries.quantization import native_quantization, padded
from sim.power import GpuPower, LoadLaw, PowerCoefficients, load_power_coefficients
from sim.records import Batch
from sim.steptime import Roofline, RooflineInputs, load_coefficients

ENGINES = {"argonne": "vllm-0.6", "mlenergy_v2": "vllm-0.6", "mlenergy_v3": "vllm-0.11"}
GPUS = {"A100-SXM-40GB": "a100-40gb-sxm", "H100-SXM": "h100-80gb-sxm", "B200-SXM": "b200-180gb-sxm"}
MODELS = {
    "CodeLlama-13b-hf": "llama2-13b", "CodeLlama-70b-hf": "llama2-70b", "CodeLlama-7b-hf": "llama2-7b",
    "DeepSeek-R1-0528": "deepseek-r1", "DeepSeek-V3.1": "deepseek-v3", "Llama-2-7b-hf": "llama2-7b",
    "Llama-3.1-70B-Instruct": "llama3.1-70b", "Llama-3.1-8B-Instruct": "llama3.1-8b",
    "Llama-3.3-70B-Instruct": "llama3.3-70b", "Meta-Llama-3-8B": "llama3-8b",
    "Meta-Llama-3.1-70B-Instruct": "llama3.1-70b", "Meta-Llama-3.1-8B-Instruct": "llama3.1-8b",
    "Mistral-7B-Instruct-v0.3": "mistral-7b-v0.3", "Mixtral-8x22B-Instruct-v0.1": "mixtral-8x22b",
    "Mixtral-8x7B-Instruct-v0.1": "mixtral-8x7b", "gpt-oss-120b": "gpt-oss-120b",
}  # fmt: skip
CHECKED = {
    "Llama-4-Scout-17B-16E-Instruct": "llama4-scout", "gemma-3-12b-it": "gemma3-12b", "gemma-3-27b-it": "gemma3-27b",
    "starcoder2-15b": "starcoder2-15b",
}  # fmt: skip
BEFORE = {"a100-40gb-sxm": (0.63, 1.0), "h100-80gb-sxm": (0.67, 0.99), "b200-180gb-sxm": (0.72, 0.97)}
"""Shares of the limit, memory-bound and compute-bound, of the law that this one replaced."""
Floats = NDArray[np.float64]
Law = Callable[[Sequence[float], "Run"], float]


@dataclass(frozen=True, slots=True)
class Run:
    """A measured row and what the simulator makes of its step."""

    group: str
    source: str
    checked: bool
    gpu: Gpu
    tokens: int
    """In a step."""
    watts: float
    compute: float
    """Measured step's share at the dense peak."""
    memory: float
    """Its share of reading memory."""
    slower: float
    """Measured step over the simulated one."""


def lengths(row: dict[str, str]) -> tuple[float, float] | None:
    """Prompt and answer tokens, prompts assumed where the source has none."""
    assumed = {"gpqa": 230.0, "lm-arena": 100.0, "llm code": 130.0, "llm": 150.0}
    prompts = [tokens for name, tokens in assumed.items() if f"({name}" in row["workload"]]
    prompt = float(row["isl"]) if row["isl"] else next(iter(prompts), None)
    return None if prompt is None or not row["osl"] else (prompt, float(row["osl"]))


def read_runs(measured: Path, catalog: Catalog) -> Iterator[Run]:
    """The usable rows of *measured*/serving.csv."""
    coefficients = load_coefficients(catalog.root / "steptime.yaml")
    with (measured / "serving.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["power_w"] and row["avg_batch"]]
    for row in rows:
        engine, tokens = ENGINES.get(row["source_key"].removesuffix("_power")), lengths(row)
        if engine is None or tokens is None or row["gpu"] not in GPUS:
            continue
        if row["model"] not in MODELS | CHECKED:
            continue
        gpu, named = catalog.gpu(GPUS[row["gpu"]]), catalog.model((MODELS | CHECKED)[row["model"]])
        weights = native_quantization(catalog.quantization("none"), named, catalog.quantization)
        shares: list[tuple[float, float]] = []

        def note(compute: float, memory: float, tokens: int, shares: list[tuple[float, float]] = shares) -> float:
            shares.append((compute, memory))
            return 1.0

        steptime = Roofline().build(
            RooflineInputs(
                gpu=gpu,
                model=padded(weights, named),
                quantization=weights,
                kernel=catalog.kernel(weights.kernel),
                engine=catalog.engine(engine),
                link=catalog.link(gpu.link),
                coefficients=coefficients,
                tensor_parallel_size=int(row["n_gpus"]),
                load=note,
            )
        )
        step = even_batch(float(row["avg_batch"]), *tokens, steptime.window)
        slower = float(row["avg_batch"]) / float(row["output_tok_s"]) / steptime.leap(step).first_s
        workload = row["workload"].partition("(")[2]
        yield Run(
            group=" ".join([row["source_key"], row["gpu"], row["model"], row["n_gpus"], workload]),
            source=row["source_key"],
            checked=row["model"] in CHECKED,
            gpu=gpu,
            tokens=step.decode_seqs + step.prefill_tokens,
            watts=float(row["power_w"]) / int(row["n_gpus"]),
            compute=shares[0][0] / slower,
            memory=shares[0][1] / slower,
            slower=slower,
        )


def even_batch(sequences: float, prompt: float, answer: float, window: int | None) -> Batch:
    """A step of *sequences* decodes, and of the prompt tokens that come in while one token of each goes out."""
    context = prompt + answer / 2
    prompts = sequences / answer
    return Batch(
        decode_seqs=round(sequences),
        kv_tokens=round(sequences * context),
        windowed_kv_tokens=round(sequences * min(context, window or context)),
        prefill_seqs=1,
        prefill_tokens=round(prompts * prompt),
        prefill_attention_pairs=round(prompts * prompt * prompt / 2),
        sampled_seqs=round(sequences),
    )


def by_energy(parameters: Sequence[float], run: Run) -> float:
    """The law: pJ per operation, 100 pJ per byte, growth per doubling of the tokens."""
    assert run.gpu.tdp_w is not None
    tdp_w = run.gpu.tdp_w.value
    compute = parameters[0] * 1e-12 * run.gpu.fp16_flops.value / tdp_w
    memory = parameters[1] * 1e-10 * run.gpu.memory_bytes_per_s.value / tdp_w
    return IDLE + (1 - IDLE) * LoadLaw(compute, memory, parameters[2])(run.compute, run.memory, run.tokens)


def without_growth(parameters: Sequence[float], run: Run) -> float:
    """The same with every byte alike."""
    return by_energy([*parameters, 0.0], run)


def by_share(parameters: Sequence[float], run: Run) -> float:
    """The same with one weight per share, whatever the GPU."""
    return IDLE + (1 - IDLE) * LoadLaw(parameters[0], parameters[1], parameters[2])(run.compute, run.memory, run.tokens)


def linear(parameters: Sequence[float], run: Run) -> float:
    """Linear in both shares."""
    return parameters[0] + parameters[1] * run.compute + parameters[2] * run.memory


def by_batch(parameters: Sequence[float], run: Run) -> float:
    """Logistic in log2 of the tokens."""
    return IDLE + (1 - IDLE) / (1 + 2 ** -(parameters[0] + parameters[1] * log2(run.tokens)))


def before(parameters: Sequence[float], run: Run) -> float:
    """The law until now: nothing is fitted."""
    memory_bound, compute_bound = BEFORE[run.gpu.id]
    return memory_bound + (compute_bound - memory_bound) * run.compute


IDLE = load_power_coefficients(load_catalog().root / "power.yaml").loaded_idle.value
LAWS: dict[str, tuple[Law, list[float]]] = {
    "energies": (by_energy, [2.0, 2.0, 0.2]),
    "without growth": (without_growth, [3.0, 3.5]),
    "shares": (by_share, [4.0, 1.5, 0.1]),
    "linear": (linear, [0.3, 1.0, 0.4]),
    "log2 of tokens": (by_batch, [0.0, 0.2]),
    "before": (before, []),
}


def fitted(law: Law, start: list[float], runs: list[Run]) -> list[float]:
    """Least squares of log power, robust, each group weighing the same."""
    if not start:
        return []
    sizes: dict[str, int] = defaultdict(int)
    for run in runs:
        sizes[run.group] += 1

    def residuals(theta: Floats, /) -> list[float]:
        parameters = [float(p) for p in theta]
        return [log(max(0.02, law(parameters, run)) / share(run)) / sizes[run.group] ** 0.5 for run in runs]

    return [float(p) for p in least_squares(residuals, start, loss="soft_l1", f_scale=0.2).x]


def share(run: Run) -> float:
    """Measured power over the limit."""
    assert run.gpu.tdp_w is not None
    return run.watts / run.gpu.tdp_w.value


def errors(law: Law, start: list[float], runs: list[Run], key: Callable[[Run], str]) -> dict[Run, float]:
    """Relative error of each run, predicted by a fit without those that share its *key*."""
    found: dict[Run, float] = {}
    for left_out in {key(run) for run in runs}:
        parameters = fitted(law, start, [run for run in runs if key(run) != left_out])
        found |= {run: law(parameters, run) / share(run) - 1 for run in runs if key(run) == left_out}
    return found


def summary(found: dict[Run, float]) -> str:
    """Median and 90th percentile over groups of their median absolute error."""
    groups: dict[str, list[float]] = defaultdict(list)
    for run, error in found.items():
        groups[run.group].append(abs(error))
    medians = [float(np.median(of)) for of in groups.values()]
    return f"{np.median(medians):6.1%} {np.quantile(medians, 0.9):6.1%}"


def main() -> None:
    """Print the parameters and the errors of all laws, then of this one by source and GPU."""
    catalog = load_catalog()
    every = list(read_runs(Path(sys.argv[1]), catalog))
    runs = [run for run in every if not run.checked]
    keys: dict[str, Callable[[Run], str]] = {"group": lambda run: run.group, "GPU": lambda run: run.gpu.id}
    print(f"{len(runs)} rows in {len({run.group for run in runs})} groups; median, 90th percentile of |error|")
    for name, (law, start) in LAWS.items():
        parameters = fitted(law, start, runs)
        print(f"{name:14s} all {summary({run: law(parameters, run) / share(run) - 1 for run in runs})}", end="")
        for left_out, key in keys.items():
            print(f"  without its {left_out} {summary(errors(law, start, runs, key))}", end="")
        checks = {run: law(parameters, run) / share(run) - 1 for run in every if run.checked}
        print(f"  checks {summary(checks)}  ", " ".join(f"{p:.3g}" for p in parameters))
    coefficients = load_power_coefficients(catalog.root / "power.yaml")
    used = [
        coefficients.per_flop_j.value * 1e12,
        coefficients.per_byte_j.value * 1e10,
        coefficients.per_byte_growth.value,
    ]
    for gpu in sorted({run.gpu.id for run in runs}):
        others = fitted(by_energy, used, [run for run in runs if run.gpu.id != gpu])
        print(f"without {gpu}: {others[0]:.2f} pJ/FLOP, {others[1] * 100:.0f} pJ/byte, {others[2]:.2f} per doubling")
    print("\ndata/power.yaml, with measured steps; with simulated ones; before")
    by_class: dict[str, list[Run]] = defaultdict(list)
    for run in every:
        by_class[f"{run.source} {run.gpu.id}{' (check)' if run.checked else ''}"].append(run)
    for name, members in sorted(by_class.items()):
        law_errors = {run: in_watts(run, 1.0, coefficients) / run.watts - 1 for run in members}
        simulated = {run: in_watts(run, run.slower, coefficients) / run.watts - 1 for run in members}
        earlier = {run: before([], run) / share(run) - 1 for run in members}
        bias = f"bias {np.median(list(law_errors.values())):+.1%}"
        line = "; ".join([summary(law_errors), bias, summary(simulated), summary(earlier)])
        print(f"{name:38s} {len(members):4d} rows {line}")


def in_watts(run: Run, faster: float, coefficients: PowerCoefficients) -> float:
    """Power of the run by the simulator's own classes, its step so much *faster* than measured."""
    law, power = LoadLaw.of(run.gpu, coefficients), GpuPower.of(run.gpu, coefficients)
    assert law is not None
    assert power is not None
    return power.energy_j(1.0, law(run.compute * faster, run.memory * faster, run.tokens))


if __name__ == "__main__":
    main()
