"""Memory that training needs on the fullest GPU.

    weights + gradients + optimizer states (Rajbhandari et al., arXiv 1910.02054: 2 + 2 + 12 bytes a parameter with
    mixed-precision Adam, sharded by the ZeRO stage) + activations (Korthikanti et al., arXiv 2205.05198) + logits

The first stage of a 1F1B pipeline holds activations of as many micro-batches as there are stages; full recomputation
keeps a layer's input only, and one layer whole while it runs again.
"""

from dataclasses import dataclass

from sim.training.job import OptimizerStep
from sim.training.network import INPUT_BYTES, ForwardCost
from sim.training.steptime import FOUR_BIT_BYTES, WEIGHT_BYTES, trained_params

EIGHT_BIT, EIGHT_BIT_BYTES = ("fp8", "nvfp4"), 1.0
"""Precisions in which frozen weights may be stored at 8 bits, and their bytes per weight."""
LAYER_INPUT_BYTES = 2
LOGIT_BYTES = 6
"""Bytes per logit: 16-bit logits and their fp32 softmax, whose memory the gradient reuses."""


@dataclass(frozen=True, slots=True)
class FrameworkMemory:
    """Memory layout of a training framework."""

    gradient_bytes: float = 2.0
    state_bytes: float = 12.0
    """Bytes of master weight and moments per trained parameter."""
    keeps_scores: bool = False
    eight_bit_weights: bool = False
    """True if frozen weights are stored at 8 bits if matrix products use 8 bits or fewer."""
    four_bit_bytes: float = FOUR_BIT_BYTES
    """Bytes per frozen parameter of QLoRA."""
    whole_weights: bool = False
    """True if every rank holds the whole model once before it is sharded."""
    activation_factor: float = 1.0
    """Measured memory of activations and logits, relative to the formula."""
    reserve_bytes: float = 0.0
    """Memory of the CUDA context, communication buffers and the matrix library's workspace [bytes]."""


@dataclass(frozen=True, slots=True)
class TrainingMemory:
    """Memory on the fullest GPU by use [bytes]."""

    weights_bytes: float
    gradients_bytes: float
    states_bytes: float
    activations_bytes: float
    logits_bytes: float
    reserve_bytes: float

    @property
    def total_bytes(self) -> float:
        """Total memory [bytes]."""
        return (
            self.weights_bytes
            + self.gradients_bytes
            + self.states_bytes
            + self.activations_bytes
            + self.logits_bytes
            + self.reserve_bytes
        )


def activation_bytes(
    network: ForwardCost, units: float, sequence: float, tensor: int = 1, keeps_scores: bool = True
) -> float:
    """Return the activations of all layers that the backward pass needs, for a micro-batch of *units* tokens [bytes].

    >>> from sim.training.network import of_dimensions
    >>> gpt = of_dimensions("gpt", {"layers": 12, "hidden": 2048, "heads": 16, "vocab": 0})
    >>> int(activation_bytes(gpt, units=8 * 512, sequence=512, keeps_scores=False))
    3422552064
    """
    scores = network.score_bytes * sequence if keeps_scores else 0.0
    return units * (network.replicated_bytes + (network.sharded_bytes + scores) / tensor)


def memory(job: OptimizerStep, layout: FrameworkMemory) -> TrainingMemory:
    """Return the memory of *job* on the fullest GPU.

    References
    ----------
    .. [1] Rajbhandari et al., "ZeRO", arXiv 1910.02054: weights, gradients and optimizer states.
    .. [2] Korthikanti et al., "Reducing activation recomputation", arXiv 2205.05198: activations.

    """
    parallel = job.parallel
    resident = _resident_params(job, job.held_params)
    sharded = _resident_params(job, job.network.params) / (parallel.data * parallel.context)
    trained = trained_params(job) / job.held_params
    wide = 2 * WEIGHT_BYTES if job.precision in ("fp32", "tf32") else WEIGHT_BYTES
    weight_bytes = layout.four_bit_bytes if job.method == "qlora" else wide
    if job.method == "lora" and layout.eight_bit_weights and job.precision in EIGHT_BIT:
        weight_bytes = EIGHT_BIT_BYTES
    on_host = bool(job.host_bytes_per_s)
    return TrainingMemory(
        weights_bytes=(sharded if parallel.zero == 3 and not layout.whole_weights else resident) * weight_bytes,
        gradients_bytes=(sharded if parallel.zero >= 2 else resident) * trained * layout.gradient_bytes,
        states_bytes=0.0 if on_host else (sharded if parallel.zero >= 1 else resident) * trained * layout.state_bytes,
        activations_bytes=_activations(job, layout) * layout.activation_factor,
        logits_bytes=_logits(job) * layout.activation_factor,
        reserve_bytes=layout.reserve_bytes,
    )


def _resident_params(job: OptimizerStep, held_params: float) -> float:
    """Return the parameters of *held_params* on the fullest model-parallel rank: its layers and the embeddings."""
    network, parallel = job.network, job.parallel
    embedding = network.vocab * network.hidden + network.lookup_params
    body = max(0.0, held_params - embedding)
    stages = min(parallel.pipeline, network.layers)
    deepest = -(-network.layers // stages) / network.layers
    return (body * deepest + embedding) / parallel.tensor


def _activations(job: OptimizerStep, layout: FrameworkMemory) -> float:
    network, parallel = job.network, job.parallel
    sequence, tensor = job.sequence * job.fill, parallel.tensor
    width = 2 if job.precision in ("fp32", "tf32") else 1
    if parallel.sequence:
        whole = activation_bytes(network, job.units, sequence, 1, layout.keeps_scores) / tensor
    else:
        whole = activation_bytes(network, job.units, sequence, tensor, layout.keeps_scores)
    if job.method != "full":
        # matrices without gradients need no inputs for the backward pass; norms, activations and attention do
        whole -= job.units * network.layers * network.hidden * INPUT_BYTES / tensor
    if job.recompute == "selective":
        # Korthikanti et al. drop the scores; with fused attention PyTorch keeps every second matrix product
        whole = whole - job.units * network.score_bytes * sequence / tensor if layout.keeps_scores else whole / 2
    in_flight = min(parallel.pipeline, job.micro_batches)
    interleaved = 1 + (parallel.pipeline - 1) / (parallel.pipeline * parallel.virtual_stages)
    extra = interleaved if parallel.virtual_stages > 1 else 1.0
    kept = whole * in_flight / parallel.pipeline * extra
    if job.recompute == "full" and network.layers:
        inputs = job.units * network.layers * network.hidden * LAYER_INPUT_BYTES
        inputs /= tensor if parallel.sequence else 1
        repeated = inputs * in_flight / parallel.pipeline + whole / network.layers
        kept = job.recomputed_layers * repeated + (1 - job.recomputed_layers) * kept
    return width * kept


def _logits(job: OptimizerStep) -> float:
    """Return the bytes of the logits, or 0 with pipeline stages.

    The last stage, which has the logits, holds activations of one micro-batch only and is not the fullest.
    """
    if job.parallel.pipeline > 1:
        return 0.0
    return job.units * job.network.vocab * LOGIT_BYTES / job.parallel.tensor
