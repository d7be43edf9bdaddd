"""What a pool drafts with, bound to what the catalogue knows: the model that drafts, what it takes, what holds."""

from dataclasses import dataclass, replace

from sim.batching import Scheduler, Vllm
from sim.catalogue.catalog import Catalog
from sim.catalogue.entries.kernel import Kernel
from sim.catalogue.entries.model import Model
from sim.catalogue.entries.quantization import KvCacheDtype, Quantization, native_quantization, padded
from sim.catalogue.value import Value
from sim.memory import DraftMemory, Layout
from sim.steptime import RooflineInputs


@dataclass(frozen=True, slots=True)
class DraftModelPlan:
    """A model that drafts, in its own dtype."""

    model: Model
    quantization: Quantization
    kernel: Kernel

    def inputs(self, target: RooflineInputs) -> RooflineInputs:
        """What its step time is built from, beside the *target* on the same GPUs."""
        return replace(
            target,
            model=padded(self.quantization, self.model),
            quantization=self.quantization,
            kernel=self.kernel,
            load=None,
            host=None,
            forms_ahead=False,
        )


def bind_drafts(
    batching: Scheduler, unquantized: str, catalog: Catalog
) -> tuple[Scheduler, DraftModelPlan | None, Value | None]:
    """*batching* with a number in place of a measured acceptance; the model that drafts; the measurement.

    Raises UnknownId.
    """
    drafts = batching.speculative if isinstance(batching, Vllm) else None
    if drafts is None:
        return batching, None, None
    plan = None
    if drafts.draft_model is not None:
        model = catalog.model(drafts.draft_model)
        stored = native_quantization(catalog.quantization(unquantized), model, catalog.quantization)
        plan = DraftModelPlan(model, stored, catalog.kernel(stored.kernel))
    if not isinstance(drafts.acceptance, str):
        return batching, plan, None
    drafter, task = catalog.accepted(drafts.acceptance)
    drafts = drafts.model_copy(update={"acceptance": drafter.acceptance(task)})
    return batching.model_copy(update={"speculative": drafts}), plan, drafter.accepted_per_step[task]


def draft_memory(
    batching: Scheduler,
    drafter: DraftModelPlan | None,
    model: Model | None,
    quantization: Quantization | None,
    layout: Layout,
    dtype: KvCacheDtype,
) -> DraftMemory | None:
    """Weights and KV cache of what drafts for *model*; None where nothing does."""
    drafts = batching.speculative if isinstance(batching, Vllm) else None
    if drafts is None or drafts.method == "ngram" or model is None or quantization is None:
        return None
    if drafter is None:
        return DraftMemory.of_heads(model, quantization, layout, dtype)
    return DraftMemory.of_model(drafter.model, drafter.quantization, layout, dtype)
