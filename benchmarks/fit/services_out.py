"""Output of the fit of services: figures and picture."""

import re
from collections.abc import Mapping, Sequence
from math import exp
from pathlib import Path

from sim.fidelity.picture import Points, key_of, scatter
from sim.fidelity.services import ServiceCase
from sim.report.charts.panels import style
from sim.report.charts.picture import picture

WHERE = "benchmarks/fit/services.py on MLPerf results"
FAMILIES = {
    "encoder": "bert-large",
    "vision": "resnet-50",
    "detection": "retinanet",
    "segmentation": "3d-unet",
    "diffusion": "sdxl-base",
    "recommender": "dlrm-dcnv2",
    "speech": "rnn-t",
}
"""Services that represent the models of a family without a fit of their own."""
WIDE = 1.645
"""Standard deviations from the median to the ends of a range (5th to 95th percentile)."""
HEAD = """\
# How much of the datasheet services that answer in one pass reach: the batch time (sim/batchtime). Written by
# benchmarks/fit/services.py; ranges are the 5th to 95th percentile of the posterior.
"""


def write_data(data: Path, theta: Mapping[str, float], spread: Mapping[str, float]) -> None:
    """Write data/batchtime.yaml, and the fitted figures of data/mlperf.yaml."""

    def of(name: str) -> str:
        low, middle, high = (exp(theta[name] + shift * WIDE * spread[name]) for shift in (-1, 0, 1))
        figures = f"value: {middle:.4g}, range: [{low:.3g}, {high:.3g}]"
        return f'{{{figures}, source: mlperf_results, where: "{WHERE}", kind: fitted}}'

    def group(kind: str) -> list[str]:
        return sorted(name.partition(":")[2] for name in theta if name.startswith(f"{kind}:"))

    lines = [HEAD + "services:"]
    for model in group("compute"):
        lines += [
            f"  {model}:",
            *(f"    {what}: {of(f'{what}:{model}')}" for what in ("compute", "traffic", "kernels")),
        ]
    lines += ["families: {" + ", ".join(f"{family}: {model}" for family, model in FAMILIES.items()) + "}"]
    lines += ["other: retinanet", "architectures:", *(f'  "{one}": {of(f"arch:{one}")}' for one in group("arch"))]
    lines += ["gpus:", *(f"  {one}: {of(f'gpu:{one}')}" for one in group("gpu"))]
    names = {
        "memory": "memory",
        "launch_s": "launch",
        "wave": "wave",
        "power_exponent": "power",
        "slice_speed": "slice",
    }
    lines += [f"{field}: {of(name)}" for field, name in names.items()]
    (data / "batchtime.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")

    path = data / "mlperf.yaml"
    text, benchmark = [], ""
    for line in path.read_text(encoding="utf-8").splitlines():
        found = re.match(r"  (\S+):$", line)
        benchmark = found[1] if found else benchmark
        if "server_share:" in line and f"server:{benchmark}" in theta:
            line = f"    server_share: {of(f'server:{benchmark}')}"
        if line.startswith("power_limited_speed:"):
            line = f"power_limited_speed: {of('capped')}"
        text.append(line)
    path.write_text("\n".join(text) + "\n", encoding="utf-8")


def draw(path: Path, points: Sequence[tuple[ServiceCase, str, float, float]]) -> None:
    """Draw predicted against measured values: a panel each for throughput and latency, a colour per service."""
    marks = style(sorted({case.model.id for case, *_ in points}))
    figures = []
    for metric, title in {
        "samples_s": "Samples per second and device",
        "mean_latency_ms": "Latency of a query [ms]",
    }.items():
        found: Points = {}
        for case, name, y, error in points:
            if name == metric:
                measured = 1 / exp(y) if metric == "samples_s" else 1e3 * exp(y)
                found.setdefault(case.model.id, []).append((measured, measured * (1 + error)))
        figures.append(scatter(title, "predicted, pair left out", "measured", found, marks))
    picture(figures, "", [], key_of(marks)).save(path)
