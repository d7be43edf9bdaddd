"""Content of one file, in the terms of a scenario."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sim.message import located


class FileErrors(ValueError):
    """Mistakes in the files of a draft; the message has a line `file:line: mistake` per mistake."""

    def __init__(self, problems: Sequence[tuple[str, int, str]]) -> None:
        names = list(dict.fromkeys(name for name, _, _ in problems))
        self.problems = tuple(sorted(dict.fromkeys(problems), key=lambda one: (names.index(one[0]), one[1])))
        """Mistakes as (file, line or 0, message), by file and line."""
        super().__init__(located(self.problems))

    def __reduce__(self) -> Any:
        return type(self), (self.problems,)


def slug(name: str) -> str:
    """Return *name* as Kubernetes names objects.

    >>> slug("2x A100 80GB (NVLink)")
    '2x-a100-80gb-nvlink'
    """
    found = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:50].rstrip("-")
    return found if found[:1].isalnum() else "server"


@dataclass(slots=True)
class ServerDraft:
    """Servers of one model that start with the same command."""

    place: str
    """File and line of the command."""
    engine: str
    """Family of the engine: vllm or sglang."""
    version: str = ""
    """Release of the engine; empty if the file does not state it."""
    model: str = ""
    """Model as the command names it; empty if it names none."""
    served: str = ""
    """Name of the model in requests and metrics; empty if the file does not state it."""
    folder: Path = field(default_factory=Path)
    """Folder to which a relative path of the model is relative."""
    precision: str = ""
    """Weight format as the command states it; empty if it states none."""
    keys: dict[str, Any] = field(default_factory=dict)
    """Keys of a pool."""
    batching: dict[str, Any] = field(default_factory=dict)
    """Keys of a pool's `batching`."""
    steptime: dict[str, Any] = field(default_factory=dict)
    """Keys of a pool's `steptime`, a roofline."""
    lora: dict[str, Any] = field(default_factory=dict)
    """Options of adapters, as read."""
    adapters: list[str] = field(default_factory=list)
    """Names of LoRA adapters."""
    gpu: str = ""
    """Id of the GPU; empty if the file does not name it."""
    gpus: int | None = None
    """GPUs that a replica may use; None if the file does not state it."""
    nodes: int = 1
    """Number of hosts of a replica, as its command states it."""
    replicas: int | None = None
    """Number of replicas; None if the file does not state it."""
    name: str = ""
    """Name of the pool; empty for the GPU's id."""
    names: tuple[str, ...] = ()
    """Further names by which autoscalers refer to the servers."""
    role: str = ""
    """Role of the servers: prefill or decode; empty for whole requests."""
    own: dict[str, Any] = field(default_factory=dict)
    """Further keys of the pool, which an exported manifest keeps in annotations."""
    fleet: dict[str, Any] = field(default_factory=dict)
    """Keys of the fleet from such annotations."""

    @property
    def parallel(self) -> int:
        """Number of GPUs of a replica."""
        sizes = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
        product = 1
        for size in sizes:
            product *= int(self.keys.get(size, 1))
        return product


@dataclass(slots=True)
class ScalerDraft:
    """Autoscaler of a file, with the servers that it scales."""

    path: str
    line: int
    target: str
    """Name of the servers; empty for the only ones."""
    keys: dict[str, Any]
    """Keys of a pool's `autoscaling`."""

    def scales(self, server: ServerDraft) -> bool:
        """Return whether *server* is the target, by one of its names or by the end of the target's name."""
        names = [one for one in (server.name, *server.names) if one]
        return not self.target or any(self.target == one or self.target.endswith(f"-{one}") for one in names)


@dataclass(slots=True)
class SourceFile:
    """File, or several pages of one recording, in terms of a scenario."""

    name: str
    """Name of the file."""
    kind: str
    """Noun for the kind of file."""
    read: list[str] = field(default_factory=list)
    """Sentences on what was read, and how."""
    not_simulated: list[str] = field(default_factory=list)
    """Options without a counterpart in a scenario, with the reason where it matters."""
    harmless: list[str] = field(default_factory=list)
    """Names of options that change no latency and no cost."""
    secrets: list[str] = field(default_factory=list)
    """Names of options and variables that hold secrets."""
    workload: dict[str, Any] | None = None
    """Section `workload`; a trace has an absolute path."""
    rate_rps: float | None = None
    """Mean rate of requests; None if unknown."""
    span_s: float | None = None
    """Time over which the rate was observed [s]."""
    longest: int = 0
    """Largest number of tokens of a request, prompt and output; 0 if unknown."""
    servers: list[ServerDraft] = field(default_factory=list)
    scalers: list[ScalerDraft] = field(default_factory=list)
    model: str = ""
    """Model that the file names for servers from other files: a served name, or the path of a config.json."""
    engine: str = ""
    """Engine of the server that was observed; empty if unknown."""
    observed_servers: int = 0
    """Number of servers in a recording."""
    problems: list[tuple[str, int, str]] = field(default_factory=list)
    """Mistakes in the file as (file, line or 0, message)."""
