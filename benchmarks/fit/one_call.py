"""Attention of decodes in one call with prompts: error of the law against measured kernels, and time of idle blocks.

    python benchmarks/fit/one_call.py TABLES

TABLES is LLMServingSim's folder profiler/perf: attention.csv by GPU, model, format and tensor parallelism. Each line
is one step's attention in a layer of vLLM 0.19: a prompt chunk after a number of tokens, and a number of decodes with
a number of tokens each.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from sim.catalogue.catalog import Catalog, load_catalog
from sim.records import Batch
from sim.steptime.coefficients import load_coefficients
from sim.steptime.inputs import RooflineInputs
from sim.steptime.options import Roofline
from sim.steptime.roofline import RooflineStepTime

CARDS = {"RTX4090": "rtx-4090", "RTXPRO6000": "rtx-pro-6000"}
MODELS = {"Llama-3.1-8B": "llama3.1-8b", "Qwen3-32B": "qwen3-32b", "Qwen3-30B-A3B-Instruct-2507": "qwen3-30b-a3b"}
ENGINE, KERNEL, FORMAT = "vllm-0.14", "dense-16bit", "none"
LEAST_SEQUENCES, LEAST_CONTEXT = 4, 256
"""Sequences and context below which a kernel's launch dominates, which the law does not describe."""
MANY_SEQUENCES, LONG_CHUNK, SHORT_CHUNK = 128, 1024, 64
"""Steps from which the time of idle blocks is derived: sequences, long and short chunks."""
FEW = 4000
"""Number of lines of each table that are compared, drawn at random."""


def main() -> None:
    """Print both results."""
    catalog, frames, idle = load_catalog(), [], []
    for path in sorted(Path(sys.argv[1]).glob("*/*/*/bf16/tp*/attention.csv")):
        card, _, model, _, ranks = path.parts[-6:-1]
        if model in MODELS:
            steptime = _steptime(catalog, CARDS[card], MODELS[model], int(ranks[2:]))
            table = pd.read_csv(path)
            frames.append(_judged(table, steptime).assign(card=card, model=model, ranks=ranks))
            idle.append(_idle_us(table, steptime))
    lines = pd.concat(frames)
    for label, some in [*lines.groupby(["card", "model", "ranks"]), ("all", lines)]:
        one, two = some.one_call / some.time_us - 1, some.two_calls / some.time_us - 1
        print(f"{label}: {len(some)} steps, one call {_error(one)}, as if in two {_error(two)}")
    each = pd.concat(idle)
    low, middle, high = each.quantile([0.1, 0.5, 0.9])
    print(f"an idle block on a multiprocessor: {middle:.3f} us ({low:.3f} to {high:.3f})")


def _steptime(catalog: Catalog, gpu: str, model: str, ranks: int) -> RooflineStepTime:
    card = catalog.gpu(gpu)
    inputs = RooflineInputs(
        gpu=card,
        model=catalog.model(model),
        quantization=catalog.quantization(FORMAT),
        kernel=catalog.kernel(KERNEL),
        engine=catalog.engine(ENGINE),
        link=catalog.link(card.link),
        coefficients=load_coefficients(catalog.root / "steptime.yaml"),
        tensor_parallel_size=ranks,
    )
    return RooflineStepTime(Roofline(), inputs)


def _judged(table: pd.DataFrame, steptime: RooflineStepTime) -> pd.DataFrame:
    """Return measured times, times of the law, and times with decodes in a separate call, for mixed steps [us].

    The last two include the measured time of the prompts.
    """
    both, call = _both(table), steptime._one_call
    assert call is not None
    both = both[(both.n_decode >= LEAST_SEQUENCES) & (both.kv_decode >= LEAST_CONTEXT)]
    some, layers = both.sample(min(FEW, len(both)), random_state=1), steptime.inputs.model.layers
    tokens = some.n_decode * some.kv_decode
    steps = zip(some.n_decode, tokens, some.prefill_chunk, some.prompt_us, strict=True)
    in_one = [
        sum(call.parts(Batch(decode_seqs=n, kv_tokens=kv, prefill_seqs=1, prefill_tokens=chunk), us * 1e-6 * layers))
        for n, kv, chunk, us in steps
    ]
    one_us, own_us = np.array(in_one) * 1e6 / layers, steptime._decode_s * tokens * 1e6 / layers
    return some.assign(one_call=some.prompt_us + one_us, two_calls=some.prompt_us + own_us)


def _both(table: pd.DataFrame) -> pd.DataFrame:
    """Return the steps with prompts and decodes, with the time of the same prompts alone."""
    prompts = table[table.n_decode == 0].set_index(["prefill_chunk", "kv_prefill"]).time_us
    both = table[(table.prefill_chunk > 0) & (table.n_decode > 0)]
    return both.join(prompts.rename("prompt_us"), on=["prefill_chunk", "kv_prefill"]).dropna()


def _idle_us(table: pd.DataFrame, steptime: RooflineStepTime) -> pd.Series:
    """Return the time of a block without queries on one multiprocessor, from long and short chunks [us]."""
    both, call = _both(table), steptime._one_call
    assert call is not None
    many = both[(both.n_decode == MANY_SEQUENCES) & (both.kv_prefill == 0)]
    more = many.assign(more=many.time_us - many.prompt_us).pivot(
        index="kv_decode", columns="prefill_chunk", values="more"
    )
    blocks = MANY_SEQUENCES * call.blocks * (LONG_CHUNK - SHORT_CHUNK) / call.rows
    return (more[LONG_CHUNK] - more[SHORT_CHUNK]) * call.processors / blocks


def _error(errors: pd.Series) -> str:
    return f"{100 * errors.abs().median():.1f} % (median), bias {100 * errors.median():+.1f} %"


if __name__ == "__main__":
    main()
