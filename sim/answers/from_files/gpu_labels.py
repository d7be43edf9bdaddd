"""GPUs by the labels of Kubernetes nodes and by the instance types of clouds."""

import re
from contextlib import suppress

from sim.catalogue.catalog import Catalog
from sim.catalogue.data_folder import UnknownId

INSTANCES = (
    (r"p3dn\.", "v100-32gb-sxm2"),
    (r"p3\.", "v100-16gb-sxm2"),
    (r"p4d\.", "a100-40gb-sxm"),
    (r"p4de\.", "a100-80gb-sxm"),
    (r"p5\.", "h100-80gb-sxm"),
    (r"p5en?\.", "h200-141gb-sxm"),
    (r"p6-b200\.", "b200-180gb-sxm"),
    (r"p6-b300\.", "b300-288gb-sxm"),
    (r"g4dn\.", "t4"),
    (r"g5\.", "a10g"),
    (r"gr?6\.", "l4"),
    (r"g6e\.", "l40s"),
    (r"g2-standard", "l4"),
    (r"a2-highgpu|a2-megagpu", "a100-40gb-sxm"),
    (r"a2-ultragpu", "a100-80gb-sxm"),
    (r"a3-(high|mega|edge)gpu", "h100-80gb-sxm"),
    (r"a3-ultragpu", "h200-141gb-sxm"),
    (r"a4-highgpu", "b200-180gb-sxm"),
    (r"standard_nd\d+a?m?srs?_a100", "a100-80gb-sxm"),
    (r"standard_nd\d+asr_v4", "a100-40gb-sxm"),
    (r"standard_nd\d+amsr_a100", "a100-80gb-sxm"),
    (r"standard_nc\d+ads_a100", "a100-80gb-pcie"),
    (r"standard_nd\d+isr_h100", "h100-80gb-sxm"),
    (r"standard_nc\w+_h100", "h100-94gb-nvl"),
    (r"standard_nd\d+isr_h200", "h200-141gb-sxm"),
    (r"standard_nd\d+isr_mi300x", "mi300x"),
    (r"standard_nc\d+as_t4", "t4"),
    (r"standard_nv\d+ads_a10", "a10"),
)
"""Prefixes of the instance types of AWS, Google Cloud and Azure, with their GPUs."""
LABELS = {
    "nvidia-h100-80gb": "h100-80gb-sxm",
    "nvidia-h100-mega-80gb": "h100-80gb-sxm",
    "nvidia-h200-141gb": "h200-141gb-sxm",
    "nvidia-a100-80gb": "a100-80gb-sxm",
    "nvidia-tesla-a100": "a100-40gb-sxm",
    "nvidia-tesla-t4": "t4",
    "nvidia-tesla-v100": "v100-16gb-sxm2",
    "nvidia-l4": "l4",
    "tesla-v100-sxm2-16gb": "v100-16gb-sxm2",
    "tesla-v100-sxm2-32gb": "v100-32gb-sxm2",
    "a100-sxm4-40gb": "a100-40gb-sxm",
    "a100-sxm4-80gb": "a100-80gb-sxm",
    "h100": "h100-80gb-sxm",
    "h200": "h200-141gb-sxm",
    "h100_nvlink_80gb": "h100-80gb-sxm",
    "a100_nvlink_80gb": "a100-80gb-sxm",
    "a100_nvlink": "a100-40gb-sxm",
    "a100_pcie_80gb": "a100-80gb-pcie",
}
"""Labels of GKE, Karpenter and CoreWeave whose GPU the catalogue has under another name."""
KEYS = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "k8s.amazonaws.com/accelerator",
    "gpu.nvidia.com/class",
    "gpu.nvidia.com/model",
    "accelerator",
    "gpu",
    "gpu-type",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "kubernetes.azure.com/accelerator-product",
)
"""Node labels that name a GPU or an instance type, the most exact first."""
PLAIN = ("nvidia", "accelerator", "gpu", "true", "amd")
"""Values of these labels that do not name a product."""


def gpu_of(label: str, catalog: Catalog) -> str:
    """Return the id of the GPU that *label* names: an id or alias, a node label, an instance type. Raises UnknownId."""
    text = re.sub(r"-(SHARED|MIG-.*)$", "", label.strip())
    lower = text.lower()
    if lower in LABELS:
        return LABELS[lower]
    for pattern, gpu in INSTANCES:
        if re.match(pattern, lower):
            return gpu
    spaced = text.replace("-", " ").replace("_", " ")
    for spelling in (
        text,
        spaced,
        re.sub(r"^(nvidia|tesla|amd)[ -]", "", lower),
        f"NVIDIA {spaced}",
        text.replace("NVIDIA-", "NVIDIA "),
    ):
        with suppress(UnknownId):
            return catalog.gpu(spelling).id
    return catalog.gpu(text).id
