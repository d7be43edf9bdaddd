"""Systematic errors: signed errors of classes of rows with the pair of GPU and model left out, as a Markdown table.

    python benchmarks/fit/systematic.py MEASURED outputs/fit

The folder has left_out.csv of steptime.py, training.csv of training.py (--cross-validate) and left_out_power.csv of
power.py; a line whose file or rows are absent says so. Errors are predicted / measured - 1, medians over pairs of the
medians of their rows. Prompts of llama.cpp and replays are predicted anew with the figures in data/.
"""

import csv
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from fidelity import TABLES, Line, joint_errors
from llama_cpp import rows as single_streams
from llama_cpp import shipped_prompt_s
from rows import read_rows

from sim.benchdata import BenchRow
from sim.catalogue.catalog import load_catalog
from sim.fidelity.bench_scenario import layout, layout_name
from sim.fidelity.prediction import campaigns_of, predict

Errors = Mapping[str, Sequence[float]]
"""Name of a pair -> signed errors of its rows."""
Belongs = Callable[[BenchRow], bool]
RTX_BLACKWELL = r"\b50[5-9]0\b|PRO.?[4-6][05]00|GB10|Spark"
"""Pattern of RTX 50, RTX PRO and DGX Spark (sm_120, sm_121)."""
SMALL = r"RTX|GeForce|GTX|Titan|Radeon|\bRX\b|W7900|R9700|Arc|GB10|Spark|Apple|Ryzen|Jetson"
"""Pattern of graphics cards, workstations and systems on a chip."""
SERVER_CARDS = ("h100", "a100", "l40s", "a40", "rtx-a6000", "rtx-6000-ada")
MAY_2024 = "llama.cpp-0.2900"
NO_ROWS = "no rows in the project's tables"


def rows_of(gpu: str = "", engine: str = "", precision: str = "") -> Belongs:
    """Return the choice of rows by patterns: *gpu* anywhere in the name, the start of engine and precision."""
    return lambda row: (
        re.search(gpu, row.gpu, re.IGNORECASE) is not None
        and re.match(engine, row.engine, re.IGNORECASE) is not None
        and re.match(precision, row.precision, re.IGNORECASE) is not None
    )


def laid_out(name: str) -> Belongs:
    """Return the choice of rows in the layout *name* (EP, attention DP)."""
    campaigns = campaigns_of(load_catalog())
    return lambda row: layout_name(*layout(row, campaigns.setup(row))) == name


def without_peers(row: BenchRow) -> bool:
    """Return whether a row has several RTX PRO 6000 over PCIe with tensor parallelism."""
    return "PRO-6000" in row.gpu.replace(" ", "-") and (row.tp or 1) > 1


CLASSES: tuple[tuple[str, Belongs, tuple[str, ...]], ...] = (
    (
        "SGLang, several requests",
        lambda row: row.engine == "SGLang" and row.load != "single" and row.concurrency != 1,
        ("ttft", "tpot"),
    ),
    ("expert parallel", laid_out("EP"), ("ttft", "tpot")),
    ("attention DP", laid_out("attention DP"), ("ttft", "tpot")),
    *(
        (f"{engine}, {precision}", rows_of(engine=engine, precision=precision), ("ttft", "tpot"))
        for engine in ("TensorRT-LLM", "vLLM")
        for precision in ("fp8", "nvfp4")
    ),
    *(
        (
            f"RTX 50, RTX PRO, Spark (sm_120, sm_121): {precision}",
            rows_of(RTX_BLACKWELL, precision=precision),
            ("ttft", "tpot"),
        )
        for precision in ("fp8", "nvfp4", "bf16")
    ),
    ("delta net or experts, llama.cpp, Ollama, MLX on Metal", rows_of("Apple", "(llama|ollama|mlx)"), ("tpot",)),
    ("Turing (T4)", rows_of(r"\bT4\b"), ("tpot",)),
    ("RDNA 3.5", rows_of("Ryzen|8060S|Strix"), ("tpot",)),
    ("several Sparks over RoCE", lambda row: rows_of("Spark|GB10")(row) and row.n_gpus > 1, ("tpot",)),
    ("RTX PRO 6000, tensor parallel over PCIe", without_peers, ("tput", "tpot")),
)
"""Label, rows, and metrics of each class of serving rows."""


def errors_by_pair(lines: Iterable[Line], rows: Mapping[str, BenchRow], metric: str, belongs: Belongs) -> Errors:
    """Return the errors of each pair's rows that belong; bursts are left out."""
    found: dict[str, list[float]] = defaultdict(list)
    for line in lines:
        row = rows[line["id"]]
        if line["metric"] == metric and row.load != "burst" and belongs(row):
            found[f"{row.gpu} {row.model_family}"].append(float(line["predicted"]) / float(line["measured"]) - 1)
    return found


def bias(errors: Errors, what: str = "") -> str:
    """Return the median over pairs of their median signed errors: `TTFT -11 % (14 pairs)`."""
    return f"{what} {median(map(median, errors.values())):+.0%} ({len(errors)} pairs)".strip() if errors else ""


def size(errors: Errors, what: str = "") -> str:
    """Return the median over pairs of their median absolute errors: `TTFT 17.2 % of 30 pairs`."""
    sizes = [median(map(abs, of)) for of in errors.values()]
    return f"{what} {median(sizes):.1%} of {len(sizes)} pairs".strip() if sizes else ""


def shared_rows(lines: Iterable[Line], rows: Mapping[str, BenchRow]) -> str:
    """Return how many InferenceX rows have TTFT too short and TPOT too long, and the bias of the whole answer."""
    both = list(joint_errors((line for line in lines if rows[line["id"]].source_key == "inferencex"), rows))
    answers: dict[str, list[float]] = defaultdict(list)
    for one in both:
        answers[" ".join(one.pair)].append(one.answer)
    return f"{sum(one.ttft < 0 < one.tpot for one in both)} of {len(both)} rows; {bias(answers, 'answer')}"


def training(path: Path, measured: Path) -> Iterable[tuple[str, str]]:
    """Yield the lines of training: classes of left-out pairs."""
    if not path.exists():
        yield "training", f"needs {path}"
        return
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    with (measured / "training.csv").open(newline="", encoding="utf-8") as file:
        tasks = {row["id"]: row["task"] for row in csv.DictReader(file)}

    def of(keep: Callable[[dict[str, str]], bool]) -> Errors:
        found: dict[str, list[float]] = defaultdict(list)
        for line in lines:
            if keep(line):
                found[f"{line['gpu']} {line['family']}"].append(float(line["error"]))
        return found

    def adapters(line: dict[str, str]) -> bool:
        return "lora" in tasks.get(line["id"], "") and line["gpu"].startswith("a100")

    blackwell = ("b200", "b300", "gb200", "gb300")
    classes: dict[str, Callable[[dict[str, str]], bool]] = {
        "mixtures of experts on Blackwell": lambda line: line["family"] == "moe" and line["gpu"].startswith(blackwell),
        "LoRA and QLoRA on A100": adapters,
        "RTX PRO 6000": lambda line: line["gpu"].startswith("rtx-pro-6000"),
        "V100, language models": lambda line: line["gpu"].startswith("v100") and line["class"] == "LLM",
        "transformer-XL": lambda line: line["class"] == "transformer-xl",
    }
    for label, keep in classes.items():
        yield f"training: {label}", bias(of(keep)) or NO_ROWS
    yield "training: language models, error", size(of(lambda line: line["class"] == "LLM"))
    yield "training: other networks, error", size(of(lambda line: line["class"] != "LLM"))


def prompts_of_llama_cpp(path: Path) -> str:
    """Return the bias of prompts on server cards with llama.cpp of May 2024, over cards, models and formats."""
    found: dict[str, list[float]] = defaultdict(list)
    for gpu, inputs, tokens, measured in single_streams(path, load_catalog(), "prefill", MAY_2024):
        if gpu.startswith(SERVER_CARDS):
            name = f"{gpu} {inputs.model.id} {inputs.quantization.id}"
            found[name].append(measured_error(shipped_prompt_s(inputs, tokens), measured))
    return bias(found, "TTFT") or NO_ROWS


def measured_error(predicted: float, measured: float) -> float:
    """Return predicted / measured - 1."""
    return predicted / measured - 1


def replays(rows: Iterable[BenchRow]) -> str:
    """Return the errors of replayed traces, metric by metric."""
    texts = []
    for row in rows:
        if row.load == "trace" and row.replay:
            found = predict(row, load_catalog()).metrics
            errors = [
                f"{name.partition('_')[0].upper()} {measured_error(found[name], row.measured[name]):+.1%}"
                for name in ("ttft_mean_ms", "tpot_mean_ms", "e2e_mean_ms")
                if name in found and row.measured.get(name)
            ]
            texts.append(f"{row.gpu} {row.model}: {', '.join(errors)}")
    return "; ".join(texts) or NO_ROWS


def power(path: Path) -> str:
    """Return the median error of power, campaigns left out."""
    if not path.exists():
        return f"needs {path}"
    found: dict[str, list[float]] = defaultdict(list)
    with path.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            found[line["id"]].append(measured_error(float(line["predicted"]), float(line["measured"])))
    return size(found).replace("pairs", "rows")


def table(measured: Path, folder: Path) -> Iterable[tuple[str, str]]:
    """Yield (label, figures) of every line."""
    rows = {row.id: row for row in read_rows(measured)}
    with (folder / "left_out.csv").open(newline="", encoding="utf-8") as file:
        lines = [line for line in csv.DictReader(file) if line["scheme"] == "pairs" and line["table"] in TABLES]
    of = partial(errors_by_pair, lines, rows)
    names = {"tput": "throughput", "tpot": "TPOT", "ttft": "TTFT"}
    for label, belongs, metrics in CLASSES:
        found = [bias(of(metric, belongs), names[metric]) for metric in metrics]
        yield label, "; ".join(filter(None, found)) or NO_ROWS
    yield "TTFT short and TPOT long in one row, InferenceX", shared_rows(lines, rows)
    small = [size(of(metric, rows_of(SMALL)), names[metric]) for metric in ("tpot", "ttft")]
    yield "small machines, error", "; ".join(filter(None, small))
    yield "llama.cpp of May 2024, prompts on server cards", prompts_of_llama_cpp(measured / "single_stream.csv")
    yield from training(folder / "training.csv", measured)
    yield "power, error", power(folder / "left_out_power.csv")
    yield "replays", replays(rows.values())


def main(measured: Path, folder: Path) -> None:
    """Print the table."""
    print("| where | error |\n| --- | --- |")
    for label, figures in table(measured, folder):
        print(f"| {label} | {figures} |", flush=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
