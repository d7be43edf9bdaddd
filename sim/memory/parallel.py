"""Layouts that an engine refuses, said before anything runs."""

from sim.catalogue.entries.model import Model
from sim.catalogue.entries.quantization import Quantization, padded
from sim.memory.shard import Layout


def check_parallel(model: Model, quantization: Quantization, layout: Layout) -> list[str]:
    """What is wrong with *layout* for *model*, one line each; empty if nothing is.

    Heads must divide evenly. KV heads may be replicated when there are fewer than ranks, which needs an even division
    as well. A quantised rank holds whole scale groups.
    """
    tp = layout.tensor_parallel_size
    found = _head_problems(model, tp) if tp > 1 else []
    if layout.pipeline_parallel_size > model.layers:
        found.append(
            f"pipeline_parallel_size {layout.pipeline_parallel_size} exceeds the {model.layers} layers of {model.id}"
        )
    if layout.enable_expert_parallel and model.moe is None:
        found.append(f"enable_expert_parallel: {model.id} has no experts")
    for name, size in _split_sizes(padded(quantization, model), layout):
        found += _size_problems(model, quantization, name, size, tp)
    return found


def _head_problems(model: Model, tp: int) -> list[str]:
    if model.heads % tp:
        usable = ", ".join(str(n) for n in range(1, min(model.heads, 16) + 1) if model.heads % n == 0)
        return [
            f"tensor_parallel_size {tp} does not divide {model.heads} attention heads of {model.id} "
            f"(it could be {usable})"
        ]
    if model.mla is None and model.kv_heads % tp and tp % model.kv_heads:
        return [
            f"tensor_parallel_size {tp} neither divides nor is a multiple of {model.kv_heads} KV heads of {model.id}"
        ]
    return []


def _split_sizes(model: Model, layout: Layout) -> list[tuple[str, int]]:
    """Input sizes that tensor parallelism cuts."""
    sizes = []
    if model.feed_forward_layers > model.expert_layers:
        sizes.append(("intermediate size", model.intermediate))
    if model.moe is not None and not layout.enable_expert_parallel:
        sizes.append(("expert intermediate size", model.moe.moe_intermediate))
    values = model.head_dim if model.mla is None else model.mla.v_head_dim
    return [*sizes, ("attention output size", model.heads * values)]


def _size_problems(model: Model, quantization: Quantization, name: str, size: int, tp: int) -> list[str]:
    if tp > 1 and size % tp:
        return [f"tensor_parallel_size {tp} does not divide the {name} {size} of {model.id}"]
    group = quantization.group_size
    if tp == 1 or group is None or not quantization.whole_groups_per_rank or (size // tp) % group == 0:
        return []
    if quantization.applies_to == "experts" and "expert" not in name:
        return []
    return [
        f"tensor_parallel_size {tp} cuts the {name} {size} of {model.id} into {size // tp}, "
        f"which is not a multiple of the group of {group} in {quantization.id}"
    ]
