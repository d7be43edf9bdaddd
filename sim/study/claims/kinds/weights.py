"""How many bytes the weights of a language model are."""

from sim.catalogue.entries.model import matrices
from sim.catalogue.entries.quantization import native_quantization, padded
from sim.memory import Layout, stage_weight_bytes
from sim.scenario.claims.figures import Weights
from sim.study.claims.asked import Asked
from sim.study.claims.figure import Figure
from sim.study.claims.kinds.registry import finds


@finds(Weights)
def weights(spec: Weights, asked: Asked) -> Figure:
    """On one GPU that holds them all: scales, embeddings and what stays at 16 bit included."""
    model = asked.catalog.model(spec.model)
    formats = asked.catalog.quantization
    quantization = native_quantization(formats(spec.quantization), model, formats)
    stored = padded(quantization, model)
    return Figure(stage_weight_bytes(stored, quantization, matrices(stored), Layout(), 0) / spec.per)
