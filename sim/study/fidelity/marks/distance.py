"""How far a setting is from what was measured, in six directions: GPU, model, format, layout, engine and load.

measured near here: in each direction something like it was measured on the same GPU, and so together. interpolated: it
lies between measurements (another model of its kind and size, another card of its architecture, a format or an engine
that was measured elsewhere). extrapolated: in at least one direction it lies outside of all measurements.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from sim.catalogue.entries.link import Link
from sim.catalogue.entries.model import Model
from sim.study.fidelity.marks.measured import Entry
from sim.study.fidelity.marks.own import Calibrated

Mark = Literal["measured near here", "interpolated", "extrapolated"]
MARKS: tuple[Mark, ...] = ("measured near here", "interpolated", "extrapolated")
"""From the nearest to the farthest."""
SAME_SIZE = 1.25
"""Models of one family are alike where the larger has at most this many times the parameters of the smaller."""
ROUNDED = 1.01
"""The index has sizes to three or four digits."""
NEAR_LOAD = 2.0
"""A load is near a measured one within this factor."""
Finding = tuple[int, str]
"""(place in MARKS, why)."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is predicted, in the terms of the index."""

    gpu: str
    architecture: str
    family: str
    kind: str
    params_billion: float
    kernel: str
    engine: str
    link: str
    tp: int = 1
    pp: int = 1
    dp: int = 1
    sequences: float | None = None
    """In flight on a replica; None: not known before a simulation."""
    prompt: float | None = None
    """Mean prompt [tokens]; None: not known."""
    beyond: tuple[str, ...] = ()
    """What the setting has that no measurement has."""
    calibrated: bool = False
    """The GPU's factors were fitted to the user's own runs."""
    own: Calibrated | None = None
    """Those of this very server, if there are any."""

    @property
    def measured_by_its_owner(self) -> bool:
        """The user's own runs tell of this server and this load."""
        return self.own is not None and not self.beyond and self.own.near(self.sequences, self.prompt)

    @property
    def gpus(self) -> int:
        """Of a replica."""
        return self.tp * self.pp * self.dp


def model_kind(model: Model) -> str:
    """The parts of a model that take their own kernels."""
    parts = ["mixture of experts" if model.moe else "dense"]
    parts += ["latent attention"] if model.mla else []
    parts += ["sparse attention"] if model.indexer and not model.compressed else []
    if model.linear_attention is not None:
        parts += ["Mamba-2"] if model.linear_attention.rule == "mamba2" else ["linear attention"]
    parts += ["compressed attention"] if model.compressed else []
    return ", ".join(parts)


def link_class(link: Link | None, gpus: int) -> str:
    """What stands between the GPUs of a replica; empty on one GPU."""
    if gpus == 1 or link is None:
        return ""
    if not link.id.startswith("pcie"):
        return "fabric"
    return "PCIe" if link.peer_to_peer else "PCIe without peer-to-peer"


def mark_of(setting: Setting, index: Sequence[Entry]) -> tuple[Mark, tuple[str, ...]]:
    """(the mark of *setting*, why: a phrase for each direction in which nothing near was measured, or own runs)."""
    if setting.measured_by_its_owner:
        return MARKS[0], ("it is calibrated on your own runs of this server",)
    # a GPU that somebody calibrated counts as measured, so that the other directions are looked up on all GPUs
    here = [entry for entry in index if entry.gpu == setting.gpu and not setting.calibrated]
    findings = [look(setting, here or index, index) for look in DIRECTIONS]
    findings = [finding for finding in (_gpu(setting, here, index), *findings) if finding[0]]
    findings += [(2, reason) for reason in setting.beyond]
    if not findings and here and not any(_together(setting, entry) for entry in here):
        findings = [(1, "each part was measured on this GPU, but not all of them together")]
    worst = max((place for place, _ in findings), default=0)
    return MARKS[worst], tuple(why for place, why in findings if place == worst)


def _gpu(setting: Setting, here: Sequence[Entry], index: Sequence[Entry]) -> Finding:
    if here or setting.calibrated:
        return 0, ""
    if any(entry.architecture == setting.architecture for entry in index):
        return 1, "this GPU was not measured, others of its architecture were"
    return 2, "no GPU of its architecture was measured"


def _model(setting: Setting, here: Sequence[Entry], index: Sequence[Entry]) -> Finding:
    if any(_same_model(setting, entry) for entry in here):
        return 0, ""
    sizes = [entry.params_billion for entry in index if entry.kind == setting.kind]
    if not sizes:
        return 2, f"no model with its kind of layers ({setting.kind}) was measured"
    least, most = min(sizes), max(sizes)
    if not least / ROUNDED <= setting.params_billion <= most * ROUNDED:
        return (
            2,
            f"measured models of its kind ({setting.kind}) have {_billions(least)} to {_billions(most)} parameters",
        )
    return 1, "this model was not measured on this GPU, models of its kind and size were"


def _billions(count: float) -> str:
    return f"{count:,.0f}e9" if count >= 100 else f"{count:.3g}e9"


def _format(setting: Setting, here: Sequence[Entry], index: Sequence[Entry]) -> Finding:
    if any(entry.kernel == setting.kernel for entry in here):
        return 0, ""
    if any(entry.kernel == setting.kernel for entry in index):
        return 1, "weights in this format were not measured on this GPU, but on others"
    return 2, f"weights in this format ({setting.kernel}) were not measured"


def _layout(setting: Setting, here: Sequence[Entry], index: Sequence[Entry]) -> Finding:
    if any(_same_layout(setting, entry) for entry in here):
        return 0, ""
    most = max((entry.gpus for entry in index if entry.link == setting.link), default=0)
    if setting.gpus > most:
        return 2, f"replicas of {setting.gpus} GPUs over this kind of link were not measured, at most of {most}"
    return 1, "this parallel layout was not measured on this GPU"


def _engine(setting: Setting, here: Sequence[Entry], index: Sequence[Entry]) -> Finding:
    if any(entry.engine == setting.engine for entry in here):
        return 0, ""
    if any(entry.engine == setting.engine for entry in index):
        return 1, "this engine was not measured on this GPU, but on others"
    return 2, f"the engine {setting.engine} was not measured"


def _load(setting: Setting, here: Sequence[Entry], index: Sequence[Entry]) -> Finding:
    wanted = tuple(_loads(setting))
    if all(any(_within(value, *span(entry)) for entry in here) for _, value, span in wanted):
        return 0, ""
    far = [what for what, value, span in wanted if not any(_within(value, *span(entry)) for entry in index)]
    return (2, f"{far[0]} outside of all that was measured") if far else (1, "this load was not measured on this GPU")


DIRECTIONS: tuple[Callable[[Setting, Sequence[Entry], Sequence[Entry]], Finding], ...] = (
    _model,
    _format,
    _layout,
    _engine,
    _load,
)


def _loads(setting: Setting) -> Iterator[tuple[str, float, Callable[[Entry], tuple[float, float]]]]:
    """(what it is, how much, range in an entry) of what is known of the load."""
    if setting.sequences is not None:
        yield "sequences in flight", setting.sequences, lambda entry: (entry.sequences_low, entry.sequences_high)
    if setting.prompt is not None:
        yield "tokens in a prompt", setting.prompt, lambda entry: (entry.prompt_low, entry.prompt_high)


def _within(value: float, low: float, high: float) -> bool:
    return low / NEAR_LOAD <= value <= high * NEAR_LOAD


def _same_model(setting: Setting, entry: Entry) -> bool:
    sizes = sorted((setting.params_billion, entry.params_billion))
    same = (entry.family, entry.kind) == (setting.family, setting.kind)
    return same and sizes[1] <= SAME_SIZE * sizes[0]


def _same_layout(setting: Setting, entry: Entry) -> bool:
    return (entry.tp, entry.pp, entry.dp, entry.link) == (setting.tp, setting.pp, setting.dp, setting.link)


def _together(setting: Setting, entry: Entry) -> bool:
    """Whether *entry* is near in every direction at once, the engine's apart."""
    near_load = all(_within(value, *span(entry)) for _, value, span in _loads(setting))
    same = entry.kernel == setting.kernel and _same_model(setting, entry) and _same_layout(setting, entry)
    return same and near_load
