"""Which rows of a published campaign a fact speaks of."""

import re

from sim.benchdata.row import BenchRow
from sim.spec import Count, Positive, Spec


class Match(Spec):
    """Which rows a fact speaks of; what is left out does not matter."""

    source_key: str
    loads: tuple[str, ...] = ()
    isl_from: Positive | None = None
    """Rows with prompts of at least this number of tokens."""
    isl_to: Positive | None = None
    """Rows with prompts of at most this number of tokens."""
    osl_to: Positive | None = None
    """Rows with answers of at most this number of tokens."""
    versions: tuple[str, ...] = ()
    """Engine versions that begin with one of these."""
    workloads: tuple[str, ...] = ()
    """Workloads, in the source's words, that contain one of these."""
    engines: tuple[str, ...] = ()
    """Engines whose name begins with one of these."""
    notes: tuple[str, ...] = ()
    """Notes that contain one of these."""
    models: tuple[str, ...] = ()
    """Models whose name begins with one of these."""
    gpus: tuple[str, ...] = ()
    """GPUs whose name begins with one of these."""
    precisions: tuple[str, ...] = ()
    """Precisions, in the source's words, that begin with one of these."""
    clients_from: Count | None = None
    """Rows with at least this concurrency."""
    tp: Count | None = None
    """Rows with this tensor-parallel size."""
    tp_to: Count | None = None
    """Rows with at most this tensor-parallel size."""
    ep_from: Count | None = None
    """Rows with at least this expert-parallel size."""
    ids: str = ""
    """Rows in whose id this regular expression is found."""

    def holds(self, row: BenchRow) -> bool:
        """Whether *row* is meant."""
        return (
            row.source_key == self.source_key
            and (not self.loads or row.load in self.loads)
            and (self.isl_from is None or (row.isl or 0.0) >= self.isl_from)
            and (self.isl_to is None or (row.isl or 0.0) <= self.isl_to)
            and (self.osl_to is None or (row.osl or 0.0) <= self.osl_to)
            and (not self.versions or row.engine_version.startswith(self.versions))
            and (not self.models or row.model.startswith(self.models))
            and (not self.engines or row.engine.startswith(self.engines))
            and (not self.gpus or row.gpu.startswith(self.gpus))
            and (not self.precisions or row.precision.startswith(self.precisions))
            and (self.clients_from is None or (row.concurrency or 0) >= self.clients_from)
            and (self.tp is None or row.tp == self.tp)
            and (self.tp_to is None or (row.tp or 1) <= self.tp_to)
            and (self.ep_from is None or (row.ep or 1) >= self.ep_from)
            and (not self.notes or any(words in row.note for words in self.notes))
            and (not self.workloads or any(words in row.workload for words in self.workloads))
            and (not self.ids or re.search(self.ids, row.id) is not None)
        )
