"""Figures and picture of the fit of services."""

import re
from collections.abc import Mapping, Sequence
from math import exp
from pathlib import Path

import numpy as np

from sim.fidelity.services import Case

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
"""Family of a model -> the service that stands for those without a fit of their own."""
WIDE = 1.645
"""Standard deviations of a range: 5th to 95th percentile."""
HEAD = """\
# How much of the datasheet services that answer in one pass reach: the batch time (sim/batchtime). Written by
# benchmarks/fit/services.py; ranges are the 5th to 95th percentile of the posterior.
"""


def write_data(data: Path, theta: Mapping[str, float], spread: Mapping[str, float]) -> None:
    """Writes data/batchtime.yaml, and the fitted figures of data/mlperf.yaml."""

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


def picture(path: Path, points: Sequence[tuple[Case, str, float, float]]) -> None:
    """Predicted against measured, one panel for throughput and one for latency, a colour a service."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(10, 4.8), dpi=110)
    models = sorted({case.model.id for case, *_ in points})
    colours = dict(zip(models, pyplot.get_cmap("tab10").colors, strict=False))
    titles = {"samples_s": "Samples per second and device", "mean_latency_ms": "Latency of a query [ms]"}
    for panel, (metric, title) in zip(panels, titles.items(), strict=True):
        for model in models:
            mine = [(exp(y), error) for case, name, y, error in points if case.model.id == model and name == metric]
            if mine:
                measured = np.array([1 / s if metric == "samples_s" else 1e3 * s for s, _ in mine])
                predicted = measured * (1 + np.array([error for _, error in mine]))
                panel.plot(measured, predicted, "o", markersize=4, alpha=0.7, color=colours[model], label=model)
        line = np.array([0.5 * min(panel.get_xlim()[0] or 1e-2, 1e-1), panel.get_xlim()[1] * 2])
        line = np.array([max(line[0], 1e-2), line[1]])
        for half, dark in ((0.2, 0.10), (0.1, 0.16)):
            panel.fill_between(line, line * (1 - half), line * (1 + half), color="black", alpha=dark, linewidth=0)
        panel.set(xscale="log", yscale="log", xlabel="measured", title=title)
        panel.set_ylabel("predicted, pair left out")
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(color="0.9", linewidth=0.6)
    panels[0].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    figure.savefig(path)
