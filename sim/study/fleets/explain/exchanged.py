"""What the GPUs of its replicas sent one another while they computed a request."""

from collections import defaultdict
from dataclasses import dataclass, field

from sim.steptime import ComputedStepTime
from sim.study.fleets.explain.journal import Journal, takes_part


@dataclass(slots=True)
class Exchanged:
    """Seconds of the steps that a request took part in."""

    steps_s: float = 0.0
    by_message: dict[tuple[str, bool], float] = field(default_factory=lambda: defaultdict(float))
    """By what is sent, and whether the engine's own kernel does it; see sim.steptime.links.between.Exchange."""
    links: set[str] = field(default_factory=set)
    """Names of the links that it went over."""


def exchanged(journal: Journal) -> Exchanged:
    """Of all stages of a pipeline together; nothing of step times that are given."""
    found = Exchanged()
    for replica, span in journal.spans:
        if not takes_part(span, journal.request.index):
            continue
        found.steps_s += span.end_s - span.start_s
        steptime, batch = journal.plan.pools[journal.pool_of_replica[replica]].steptime, span.batch
        if not isinstance(steptime, ComputedStepTime):
            continue
        passes = span.steps * steptime.inputs.pipeline_parallel_size
        tokens = batch.decode_seqs + batch.draft_tokens + batch.prefill_tokens
        for one in steptime.exchanges(tokens, batch.replica_tokens):
            if one.calls * one.each_s:
                found.by_message[one.what, one.own] += passes * one.calls * one.each_s
                found.links.update(one.over)
    return found
