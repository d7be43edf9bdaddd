"""Measured power of serving GPUs with the simulated composition of their steps: the rows that power.py fits."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.fit.rows import publisher, read_rows
from sim.catalogue.catalog import Catalog
from sim.catalogue.engine import Engine
from sim.catalogue.gpu import Gpu
from sim.catalogue.model import Model, activations_per_token
from sim.catalogue.quantization import Quantization, native_quantization, padded
from sim.fidelity.bench_scenario import host_of, layout
from sim.fidelity.names import NotCovered, match
from sim.fidelity.prediction import campaigns_of
from sim.power import unpacks
from sim.records import Batch
from sim.steptime.attention import window_of
from sim.steptime.coefficients import load_coefficients
from sim.steptime.inputs import RooflineInputs
from sim.steptime.options import Roofline
from sim.steptime.roofline import RooflineStepTime

SOURCES = ("argonne_power", "mlenergy_v2", "mlenergy_v3")
CHECKED = ("gemma3-12b", "gemma3-27b", "llama4-scout", "starcoder2-15b")
"""Models that are not fitted."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Measured row with the simulated composition of its step."""

    group: str
    source: str
    id: str
    pair: str
    """GPU and model family."""
    checked: bool
    gpu: Gpu
    tokens: int
    """Tokens per step."""
    tokens_per_s: float
    """Token rate at the measured step time [1/s]."""
    activations: float
    """Activations per token and GPU."""
    narrow: bool
    """True if weights are unpacked to 16 bits."""
    watts: float
    """Measured power per GPU [W]."""
    compute: float
    """Fraction of the measured step at the dense peak."""
    memory: float
    """Fraction of the measured step at full memory bandwidth."""
    busy: float
    """Fraction of the measured step in which the GPU does not wait for the host."""
    linked: float
    """Fraction of the measured step in all-reduces."""
    turns: int
    """Number of stages that take turns."""
    slower: float
    """Measured step time relative to the simulated one."""


@dataclass(frozen=True, slots=True)
class Server:
    """Hardware, model and engine of a measured row."""

    gpu: Gpu
    model: Model
    weights: Quantization
    engine: Engine
    link: str
    tp: int = 1
    stages: int = 1
    """Number of stages that work one after the other."""
    experts: bool = False
    """True if whole experts are spread over the GPUs."""
    spec: Roofline = field(default_factory=Roofline)

    def run(self, catalog: Catalog, step: Batch, step_s: float, **row: Any) -> Run:
        """Return the run whose *step* took *step_s*, with the other values of *row*."""
        shares: list[tuple[float, float, float, float]] = []

        def note(compute: float, memory: float, tokens_per_s: float, busy: float, linked: float) -> float:
            shares.append((compute, memory, busy, linked))
            return 1.0

        steptime = RooflineStepTime(
            self.spec,
            RooflineInputs(
                gpu=self.gpu,
                model=padded(self.weights, self.model),
                quantization=self.weights,
                kernel=catalog.kernel(self.weights.kernel),
                engine=self.engine,
                link=catalog.link(self.link),
                coefficients=load_coefficients(catalog.root / "steptime.yaml"),
                tensor_parallel_size=self.tp,
                pipeline_parallel_size=self.stages,
                serial_stages=self.stages > 1,
                enable_expert_parallel=self.experts,
                load=SimpleNamespace(load=note),  # type: ignore[arg-type]
            ),
        )
        slower, tokens = step_s / steptime.leap(step).first_s, step.decode_seqs + step.prefill_tokens
        compute, memory, busy, linked = shares[-1]
        return Run(
            pair=f"{self.gpu.id} {self.model.family or self.model.id}",
            gpu=self.gpu,
            tokens=tokens,
            tokens_per_s=tokens / step_s,
            activations=activations_per_token(self.model) / (self.tp * self.stages),
            narrow=unpacks(self.gpu, self.weights),
            compute=compute / slower,
            memory=memory / slower,
            busy=busy / slower,
            linked=linked / slower,
            turns=self.stages,
            slower=slower,
            **row,
        )


def read_runs(measured: Path, catalog: Catalog) -> Iterator[Run]:
    """Yield the usable rows of *measured*/serving.csv, with the campaigns' facts about servers and lengths."""
    campaigns = campaigns_of(catalog)
    for plain in read_rows(measured):
        if plain.source_key not in SOURCES or "power_w" not in plain.measured or not plain.avg_batch:
            continue
        setup = campaigns.setup(plain)
        row = replace(plain, isl=setup.isl, osl=setup.osl)
        try:
            names = match(row, catalog, campaigns)
        except NotCovered:
            continue
        tp, pp, dp, experts = layout(row, setup)
        assert row.isl is not None
        assert row.osl is not None
        assert row.avg_batch is not None
        weights = native_quantization(catalog.quantization(names.quantization), names.model, catalog.quantization)
        server = Server(
            gpu=names.gpu,
            model=names.model,
            weights=weights,
            engine=names.engine,
            link=names.link,
            tp=tp * pp * dp,
            experts=experts and names.model.moe is not None,
            spec=Roofline(**host_of(row, setup)),
        )
        yield server.run(
            catalog,
            even_batch(row.avg_batch, row.isl, row.osl, window_of(names.model)),
            row.avg_batch / row.measured["output_tok_s"],
            group=" ".join([row.source_key, row.gpu, row.model, str(row.n_gpus), row.workload.partition("(")[2]]),
            source=row.source_key,
            id=row.id,
            checked=names.model.id in CHECKED,
            watts=row.measured["power_w"] / server.tp,
        )


CARDS = Path(__file__).parent / "power_cards.csv"


def read_cards(catalog: Catalog) -> Iterator[Run]:
    """Yield published runs of graphics cards; no power cap limits them."""
    with CARDS.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        gpu, model, weights = (
            catalog.gpu(row["gpu"]),
            catalog.model(row["model"]),
            catalog.quantization(row["quantization"]),
        )
        engine, link = catalog.engine(row["engine"]), row["link"] or gpu.link
        layout = {"stages" if engine.id == "llama.cpp" else "tp": int(row["n_gpus"])}
        server = Server(gpu, model, weights, engine, link, **layout)
        requests, prompt, answer = int(row["requests"]), float(row["prompt"]), float(row["answer"])
        if row["phase"] == "decode":
            step = even_batch(requests, prompt, answer, window_of(model))
            step_s = requests / (float(row["tok_s"]) * float(row["steps_per_token"])) / server.stages
        else:
            step, step_s = prompt_chunk(prompt), CHUNK / float(row["tok_s"])
        yield server.run(
            catalog,
            step,
            step_s,
            group=row["id"],
            source=publisher(row["source"]),
            id=row["id"],
            checked=row["fit"] == "0",
            watts=float(row["watts_per_gpu"]),
        )


CHUNK = 512


def prompt_chunk(prompt: float) -> Batch:
    """Return a step in the middle of *prompt*."""
    earlier = round(prompt / 2)
    return Batch(
        prefill_seqs=1,
        prefill_tokens=CHUNK,
        prefill_context_tokens=earlier,
        prefill_attention_pairs=CHUNK * earlier + CHUNK * CHUNK // 2,
    )


def even_batch(sequences: float, prompt: float, answer: float, window: int | None) -> Batch:
    """Return a step of *sequences* decodes and the prompt tokens that arrive per decoded token of each."""
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
