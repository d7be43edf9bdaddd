"""KV that leaves layer by layer while its prompt is computed."""

from collections.abc import Iterable
from typing import Protocol

from sim.fleet.replica import Replica
from sim.records import Request, Span
from sim.routing.transfer import TransferPlan


class Stream(Protocol):
    """Takes tokens of a prompt that a replica computes up to `done_s`, whose KV leaves from `first_s` on."""

    def __call__(
        self, source: Replica, request: Request, tokens: int, first_s: float, done_s: float, now: float
    ) -> None:
        """*now* is the begin of the step."""
        ...


class LayerStreams:
    """Watches the steps of replicas that compute prompts.

    A step computes its layers one after the other, at an even pace. The KV of a layer may leave when the layer is done:
    of what a step computes, the last layer's part is left when it ends.
    """

    def __init__(self, plan: TransferPlan, stream: Stream, replicas: Iterable[Replica]) -> None:
        """*replicas* compute prompts only."""
        self._lead = 1 / plan.layers[0] if plan.layers[0] else 0.0
        self._send = stream
        self._prompts: dict[int, Request] = {}
        """By index: prompts at replicas that compute nothing else."""
        self._seen_s: dict[int, float] = {}
        """Replica -> begin of the last step that was looked at."""
        for replica in replicas:
            replica.formed = self._formed

    def offered(self, request: Request) -> None:
        """*request* is at a replica that computes its prompt."""
        if request.output_tokens > 1:  # who wants one token is answered there
            self._prompts[request.index] = request

    def _formed(self, replica: Replica) -> None:
        """*replica* may have begun another step."""
        for span in replica.engine.under_way():
            if span.prompts and span.start_s > self._seen_s.get(replica.index, -1.0):
                self._seen_s[replica.index] = span.start_s
                self._stream(replica, span)

    def _stream(self, replica: Replica, span: Span) -> None:
        duration_s = span.end_s - span.start_s
        for index, tokens in span.prompts.items():
            request = self._prompts.get(index)
            if request is None or request.replica != replica.index or request.preemptions:
                continue  # what is computed again has left already, or leaves when the prompt is done
            first_s = span.start_s + self._lead * duration_s
            self._send(replica, request, tokens, first_s, span.end_s, span.start_s)
