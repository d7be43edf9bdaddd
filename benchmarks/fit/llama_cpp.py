"""Fit of llama.cpp's host time and kernels to published single-stream rates, for data/engines and data/kernels.

    python benchmarks/fit/llama_cpp.py MEASURED/single_stream.csv

A decode step of one request on one GPU reads all weights once, so that t = weights / bandwidth * factor + cache +
host. Three numbers are fitted over all GPUs with GDDR memory: host time per layer, time factor of the dequantising
kernels, and read time of the cache relative to weights. A rate over n generated tokens has a mean context of n/2
tokens. The reported error is that of GPUs left out in turn. The kernels keep too few bytes in flight for HBM: the read
time of weights there is a fourth number, fitted to the GPUs with HBM alone.

Prompts: traffic of the kernels between products, of stored scores and of converted weights, and the rate of GeForce
cards with sums in 16 bit (`PromptKernels`), fitted to prompts of 512 to 8,192 tokens on NVIDIA cards in passes of 512.
"""

import csv
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
from scipy.optimize import least_squares

from sim.catalogue.catalog import Catalog, load_catalog
from sim.catalogue.data_folder import UnknownId
from sim.catalogue.engine import PromptKernels, SlowCards
from sim.catalogue.value import Value
from sim.records import Batch
from sim.scenario.resolving.bind import bind
from sim.scenario.resolving.resolve import roofline_inputs
from sim.scenario.schema import Scenario
from sim.steptime.inputs import RooflineInputs
from sim.steptime.options import Roofline
from sim.steptime.roofline import RooflineStepTime

START = np.log([5e-5, 1.2, 1.0])
PASS = 512
HBM = ("a100", "h100", "h200", "b200", "v100", "a30")
PRIOR_SD = np.array([0.7, 0.3, 0.4])
PROMPT_START = np.log([12, 22, 2.5, 2.0])
PROMPT_SD = np.array([0.5, 0.5, 0.5, 0.3])
"""Priors of the prompts' four numbers: bytes counted in ggml-cuda of May 2024, and the datasheets' ratio."""
FORMATS = {"F16": "fp16", "Q4_K_M": "gguf-q4_k_m", "Q4_0": "gguf-q4_0", "Q8_0": "gguf-q8_0"}


def rows(
    path: Path, catalog: Catalog, phase: str = "decode", engine: str = "llama.cpp"
) -> Iterator[tuple[str, RooflineInputs, int, float]]:
    """Yield (GPU, inputs, mean context or prompt [tokens], measured seconds per token) of each usable row."""
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["engine"] != "llama.cpp" or row["phase"] != phase or row["n_gpus"] != "1":
                continue
            if row["quant"] not in FORMATS or "Apple" in row["gpu"]:
                continue
            if phase == "prefill" and row["gpu"].startswith("A100-SXM") and row["quant"] == "F16":
                continue  # a tenth of the rate of A100 PCIe
            try:
                inputs = inputs_of(row["gpu"], row["model"], FORMATS[row["quant"]], catalog, engine)
            except UnknownId:
                continue
            tokens = int(float(row["context_tokens"]))
            yield inputs.gpu.id, inputs, tokens // 2 if phase == "decode" else tokens, 1 / float(row["tok_s"])


def inputs_of(gpu: str, model: str, quantization: str, catalog: Catalog, engine: str) -> RooflineInputs:
    """Return the step-time inputs of llama.cpp on one GPU."""
    scenario = Scenario.model_validate(
        {
            "name": "row", "model": model, "quantization": quantization, "engine": engine, "horizon_s": 1,
            "workload": {
                "arrivals": {"process": "burst", "num_requests": 1},
                "lengths": {side: {"distribution": "fixed", "value": 1} for side in ("prompt", "output")},
            },
            "fleets": [{"name": "one", "pools": [{"gpu": gpu}]}],
        }
    )  # fmt: skip
    fleet = scenario.fleets[0]
    return roofline_inputs(bind(scenario, fleet, fleet.pools[0], catalog), catalog)


def step_s(inputs: RooflineInputs, context: int, theta: np.ndarray, slow: float = 1.0) -> float:
    """Return the time of a decode step under trial parameters [s]; *slow* is the read time factor of weights."""
    per_layer_s, weight_factor, cache_factor = np.exp(theta)
    engine, kernel = inputs.engine, inputs.kernel
    assert engine.overheads is not None
    overheads = engine.overheads.model_copy(
        update={
            "per_layer_s": fitted(per_layer_s), "per_step_s": fitted(0),
            "per_sequence_s": fitted(0), "per_sequence_in_process_s": fitted(0),
            "kv_read_time_factor": fitted(cache_factor),
            "slow_cards": SlowCards(gpus=("",), factor=fitted(slow)),
        }
    )  # fmt: skip
    if inputs.quantization.id.startswith("gguf"):
        kernel = kernel.model_copy(update={"weight_time_factor": fitted(weight_factor)})
    trial = replace(inputs, engine=engine.model_copy(update={"overheads": overheads}), kernel=kernel)
    return RooflineStepTime(Roofline(), trial).leap(Batch(decode_seqs=1, sampled_seqs=1, kv_tokens=context)).first_s


def fitted(value: float) -> Value:
    """Return *value* as a catalogue entry."""
    return Value(value=value, source="gpufleet-study", where="trial", kind="fitted")


def fit(
    data: list[tuple[str, RooflineInputs, int, float]],
    seconds: Callable[[RooflineInputs, int, np.ndarray], float],
    start: np.ndarray,
    sd: np.ndarray,
    **tolerances: float,
) -> np.ndarray:
    """Return the logarithms of the parameters of *seconds*, with priors *start* and *sd*; GPUs have equal weights."""
    cards = [gpu for gpu, *_ in data]
    weight = np.array([1 / np.sqrt(cards.count(gpu)) for gpu in cards])

    def residuals(theta: np.ndarray) -> np.ndarray:
        errors = [np.log(seconds(inputs, tokens, theta) / measured) for _, inputs, tokens, measured in data]
        return np.concatenate([weight * errors / 0.1, (theta - start) / sd])

    return least_squares(residuals, start, loss="soft_l1", **tolerances).x


def decode_fit(data: list[tuple[str, RooflineInputs, int, float]]) -> np.ndarray:
    """Return the logarithms of the three parameters of single-stream decoding."""
    return fit(data, step_s, START, PRIOR_SD)


def slowness(data: list[tuple[str, RooflineInputs, int, float]], theta: np.ndarray) -> float:
    """Return the read time factor of weights on GPUs with HBM; each GPU has the same weight."""
    cards = [gpu for gpu, *_ in data]

    def residuals(slow: np.ndarray) -> list[float]:
        return [
            np.log(step_s(inputs, context, theta, float(slow[0])) / measured) / np.sqrt(cards.count(gpu))
            for gpu, inputs, context, measured in data
        ]

    return float(least_squares(residuals, [1.3]).x[0])


def prompt_s(inputs: RooflineInputs, tokens: int, theta: np.ndarray) -> float:
    """Return the time per token of a prompt under trial parameters, as llama.cpp of May 2024 computes it [s]."""
    between, scores, converted, half = (fitted(value) for value in np.exp(theta))
    assert inputs.engine.overheads is not None
    kernels = PromptKernels(
        micro_batch_tokens=fitted(PASS), activation_bytes=between, score_bytes=scores, dequantised_bytes=converted,
        half_accumulation_factor=half,
    )  # fmt: skip
    overheads = inputs.engine.overheads.model_copy(update={"prompt_kernels": kernels})
    return shipped_prompt_s(replace(inputs, engine=inputs.engine.model_copy(update={"overheads": overheads})), tokens)


def shipped_prompt_s(inputs: RooflineInputs, tokens: int) -> float:
    """Return the time per token of a prompt with the figures of *inputs* [s]."""
    model, total_s = RooflineStepTime(Roofline(), inputs), 0.0
    for done in range(0, tokens, PASS):
        pairs = PASS * done + PASS * (PASS + 1) // 2
        batch = Batch(prefill_seqs=1, prefill_tokens=PASS, prefill_context_tokens=done, prefill_attention_pairs=pairs)
        total_s += model.leap(batch).first_s
    return total_s / tokens


def prompt_fit(data: list[tuple[str, RooflineInputs, int, float]]) -> np.ndarray:
    """Return the logarithms of the prompts' four numbers."""
    return fit(data, prompt_s, PROMPT_START, PROMPT_SD, xtol=1e-3, ftol=1e-3)


def prompts(path: Path, catalog: Catalog) -> None:
    """Print the fit of prompts and the error of every GPU when it is left out."""
    data = list(rows(path, catalog, "prefill"))
    print("bytes between products, of scores, of converted weights; sums in 16 bit:", np.exp(prompt_fit(data)))
    scored = []
    for card in sorted({gpu for gpu, *_ in data}):
        own, errors = prompt_fit([row for row in data if row[0] != card]), defaultdict(list)
        for gpu, inputs, tokens, measured in data:
            if gpu == card:
                errors[inputs.model.id, inputs.quantization.id].append(prompt_s(inputs, tokens, own) / measured - 1)
        for (model, quantization), found in errors.items():
            print(f"{card:20} {model:12} {quantization:12} left out:", *(f"{error:+.0%}" for error in found))
            scored.append(median(map(abs, found)))
    print(f"prompts, median |error| over cards, models and formats left out: {median(scored):.1%}")


def main() -> None:
    """Print the fit and the error of every GPU when it is left out."""
    data = list(rows(Path(sys.argv[1]), load_catalog()))
    gddr = [row for row in data if not row[0].startswith(HBM)]
    theta = decode_fit(gddr)
    print("per layer [s], weight factor, cache factor:", np.exp(theta))
    errors: dict[str, list[float]] = {}
    for card in sorted({gpu for gpu, *_ in data}):
        own = decode_fit([row for row in gddr if row[0] != card])
        for gpu, inputs, context, measured in data:
            if gpu == card:
                errors.setdefault(card, []).append(step_s(inputs, context, own) / measured - 1)
    for card, found in errors.items():
        print(f"{card:24} {len(found):3} rows, left out: {median(found):+.1%}")
    scored = [abs(median(found)) for card, found in errors.items() if not card.startswith(HBM)]
    print(f"median |error| over GDDR cards left out: {median(scored):.1%}")
    stacked = [row for row in data if row[0].startswith(HBM)]
    print(f"cards with HBM read weights {slowness(stacked, theta):.2f} times as slowly; each left out:")
    for card in sorted({gpu for gpu, *_ in stacked}):
        slow = slowness([row for row in stacked if row[0] != card], theta)
        off = [step_s(row[1], row[2], theta, slow) / row[3] - 1 for row in stacked if row[0] == card]
        print(f"{card:24} {len(off):3} rows, factor {slow:.2f}: {median(off):+.1%}")
    prompts(Path(sys.argv[1]), load_catalog())


if __name__ == "__main__":
    main()
