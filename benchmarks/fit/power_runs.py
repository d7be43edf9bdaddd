"""Measured watts of serving GPUs with what the simulator makes of their steps: the rows that power.py fits."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.catalogue.entries.gpu import Gpu
from sim.catalogue.entries.model import Model, activations_per_token
from sim.catalogue.entries.quantization import Quantization, native_quantization, padded
from sim.power.power import FULL_BITS
from sim.records import Batch
from sim.steptime import Roofline, RooflineInputs, load_coefficients
from sim.steptime.attention.stack import window_of

ENGINES = {"argonne": "vllm-0.6", "mlenergy_v2": "vllm-0.5", "mlenergy_v3": "vllm-0.11"}
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


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A measured row and what the simulator makes of its step."""

    group: str
    source: str
    id: str
    pair: str
    """GPU and model family."""
    checked: bool
    gpu: Gpu
    tokens: int
    """In a step."""
    tokens_per_s: float
    """At the measured step."""
    activations: float
    """Of a token, on each GPU."""
    narrow: bool
    """Weights of fewer than 16 bits."""
    watts: float
    """Of one GPU."""
    compute: float
    """Measured step's share at the dense peak."""
    memory: float
    """Its share of reading memory."""
    busy: float
    """Its share in which the GPU does not wait for the host."""
    slower: float
    """Measured step over the simulated one."""


@dataclass(frozen=True, slots=True)
class Server:
    """What a row was measured on."""

    gpu: Gpu
    gpus: int
    model: Model
    weights: Quantization
    engine: str
    link: str | None = None

    def run(self, catalog: Catalog, step: Batch, step_s: float, **row: Any) -> Run:
        """The run whose measured *step* took *step_s*, with *row*'s other figures."""
        shares: list[tuple[float, float, float]] = []

        def note(compute: float, memory: float, tokens_per_s: float, busy: float) -> float:
            shares.append((compute, memory, busy))
            return 1.0

        steptime = Roofline().build(
            RooflineInputs(
                gpu=self.gpu,
                model=padded(self.weights, self.model),
                quantization=self.weights,
                kernel=catalog.kernel(self.weights.kernel),
                engine=catalog.engine(self.engine),
                link=catalog.link(self.link or self.gpu.link),
                coefficients=load_coefficients(catalog.root / "steptime.yaml"),
                tensor_parallel_size=self.gpus,
                load=note,
            )
        )
        slower, tokens = step_s / steptime.leap(step).first_s, step.decode_seqs + step.prefill_tokens
        compute, memory, busy = shares[0]
        return Run(
            pair=f"{self.gpu.id} {self.model.family or self.model.id}",
            gpu=self.gpu,
            tokens=tokens,
            tokens_per_s=tokens / step_s,
            activations=activations_per_token(self.model) / self.gpus,
            narrow=self.weights.bits_per_weight.value < FULL_BITS,
            compute=compute / slower,
            memory=memory / slower,
            busy=busy / slower,
            slower=slower,
            **row,
        )


def lengths(row: dict[str, str]) -> tuple[float, float] | None:
    """Prompt and answer tokens, prompts assumed where the source has none."""
    assumed = {"gpqa": 230.0, "lm-arena": 100.0, "llm code": 130.0, "llm": 150.0}
    prompts = [tokens for name, tokens in assumed.items() if f"({name}" in row["workload"]]
    prompt = float(row["isl"]) if row["isl"] else next(iter(prompts), None)
    return None if prompt is None or not row["osl"] else (prompt, float(row["osl"]))


def read_runs(measured: Path, catalog: Catalog) -> Iterator[Run]:
    """The usable rows of *measured*/serving.csv."""
    with (measured / "serving.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["power_w"] and row["avg_batch"]]
    for row in rows:
        engine, tokens = ENGINES.get(row["source_key"].removesuffix("_power")), lengths(row)
        if engine is None or tokens is None or row["gpu"] not in GPUS:
            continue
        if row["model"] not in MODELS | CHECKED:
            continue
        named = catalog.model((MODELS | CHECKED)[row["model"]])
        weights = native_quantization(catalog.quantization("none"), named, catalog.quantization)
        server = Server(catalog.gpu(GPUS[row["gpu"]]), int(row["n_gpus"]), named, weights, engine)
        workload = row["workload"].partition("(")[2]
        yield server.run(
            catalog,
            even_batch(float(row["avg_batch"]), *tokens, window_of(named)),
            float(row["avg_batch"]) / float(row["output_tok_s"]),
            group=" ".join([row["source_key"], row["gpu"], row["model"], row["n_gpus"], workload]),
            source=row["source_key"],
            id=row["id"],
            checked=row["model"] in CHECKED,
            watts=float(row["power_w"]) / server.gpus,
        )


CARDS = Path(__file__).parent / "power_cards.csv"


def read_cards(catalog: Catalog) -> Iterator[Run]:
    """Runs of graphics cards that their users published; no power cap binds in them."""
    with CARDS.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        model, weights = catalog.model(row["model"]), catalog.quantization(row["quantization"])
        server = Server(catalog.gpu(row["gpu"]), int(row["n_gpus"]), model, weights, row["engine"], row["link"] or None)
        requests, prompt, answer = int(row["requests"]), float(row["prompt"]), float(row["answer"])
        if row["phase"] == "decode":
            step = even_batch(requests, prompt, answer, window_of(model))
            step_s = requests / (float(row["tok_s"]) * float(row["steps_per_token"]))
        else:
            step, step_s = prompt_chunk(prompt), CHUNK / float(row["tok_s"])
        yield server.run(
            catalog,
            step,
            step_s,
            group=row["id"],
            source=row["source"],
            id=row["id"],
            checked=row["fit"] == "0",
            watts=float(row["watts_per_gpu"]),
        )


CHUNK = 512


def prompt_chunk(prompt: float) -> Batch:
    """A step in the middle of one *prompt*."""
    earlier = round(prompt / 2)
    return Batch(
        prefill_seqs=1,
        prefill_tokens=CHUNK,
        prefill_context_tokens=earlier,
        prefill_attention_pairs=CHUNK * earlier + CHUNK * CHUNK // 2,
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
