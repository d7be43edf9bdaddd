"""A GPU (or another accelerator with its own memory): data/gpus/<id>.yaml."""

from datetime import date
from typing import Literal

from sim.catalogue.entries.slices.mig import Mig
from sim.catalogue.value import Value
from sim.spec import Spec

Vendor = Literal["nvidia", "amd", "intel", "apple", "google", "aws", "huawei"]


class Gpu(Spec):
    """Datasheet and driver facts of one device.

    FLOPS and int8 operations are dense; sparse figures have their own fields.
    """

    id: str
    name: str
    aliases: tuple[str, ...] = ()
    """Other names under which benchmarks and articles know it."""
    vendor: Vendor
    architecture: str
    form_factor: str = ""
    release_date: date | None = None
    geforce: bool = False
    """A consumer card: no peer-to-peer over PCIe, fp16 with fp32 accumulate at half rate."""
    link: str
    """Id in data/links of the link between such GPUs when no server says otherwise."""
    memory_bytes: Value
    """What the driver reports as total, before the CUDA context."""
    memory_nominal_gib: Value
    memory_bytes_per_s: Value
    """Datasheet bandwidth of the device memory."""
    tdp_w: Value | None = None
    idle_w: Value | None = None
    """Card powered, no work, nothing loaded."""
    loaded_idle_w: Value | None = None
    """Weights resident, no work."""
    fp16_flops: Value
    """Dense fp16/bf16 tensor rate with fp32 accumulate."""
    fp16_fp16acc_flops: Value | None = None
    fp32_flops: Value | None = None
    fp64_flops: Value | None = None
    tf32_flops: Value | None = None
    fp8_flops: Value | None = None
    """Dense fp8 with fp32 accumulate; absent where the tensor cores have no fp8."""
    fp8_fp16acc_flops: Value | None = None
    int8_ops_per_s: Value | None = None
    fp4_flops: Value | None = None
    fp16_sparse_flops: Value | None = None
    fp16_fp16acc_sparse_flops: Value | None = None
    fp8_sparse_flops: Value | None = None
    fp8_fp16acc_sparse_flops: Value | None = None
    int8_sparse_ops_per_s: Value | None = None
    fp4_sparse_flops: Value | None = None
    sm_count: Value | None = None
    """Streaming multiprocessors; on Apple, GPU cores; elsewhere what the maker counts as cores."""
    cuda_cores: Value | None = None
    """CUDA cores; on AMD, stream processors."""
    boost_clock_hz: Value | None = None
    l2_bytes: Value | None = None
    pcie_gen: Value | None = None
    pcie_lanes: Value | None = None
    nvlink_total_bytes_per_s: Value | None = None
    """Both directions together, as vendors print it; absent: no NVLink."""
    slots: Value | None = None
    usable_memory_fraction: Value | None = None
    """Unified memory only: the share that the GPU may use."""
    mig: Mig | None = None
    """Into which slices the driver can cut it; absent: it cannot, or nobody has written down how."""

    @property
    def pcie_card(self) -> bool:
        """A card in a slot, with or without a bridge, rather than a module on a board with NVLink or its like."""
        return self.form_factor == "PCIe card"

    @property
    def hopper(self) -> bool:
        """H100, H200 and their kin."""
        return self.architecture.startswith("Hopper")

    @property
    def ada(self) -> bool:
        """L4, L40S, RTX 4090 and their kin."""
        return self.architecture.startswith("Ada")

    @property
    def blackwell(self) -> bool:
        """Any chip of the family: B200, B300 and the GB20x cards."""
        return self.architecture.lower().startswith("blackwell")

    @property
    def cdna(self) -> bool:
        """AMD's Instinct cards."""
        return self.architecture.startswith("CDNA")

    @property
    def is_host(self) -> bool:
        """A system on chip: its price and its power are those of the whole machine."""
        return self.form_factor == "system on chip"
