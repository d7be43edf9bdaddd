"""A made-up watched fleet: its counters by hour, a Prometheus API over them, and a workplace in this process."""

import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from math import ceil, exp, pi, sin
from typing import Any
from urllib.parse import parse_qs

import numpy as np

from sim.benchdata.served.scrapes import Series, read_name
from sim.study.execution.cases import CaseJob
from sim.watch.prometheus import Prometheus

START = 1_767_571_200
"""A Monday's midnight."""
HOUR_S = 3600
BOUNDS = (0.01, 0.05, 0.1, 0.5, 1.0, float("inf"))


@dataclass
class MadeUpFleet:
    """Source of `Watch`, in place of a Prometheus server."""

    hours: int = 24
    rate_rps: float = 5.0
    growth_per_week: float = 0.0
    daily: float = 0.0
    """Amplitude of the day in the logarithm of the rate."""
    slower_from: int = 10**6
    ttft_s: float = 0.02
    tpot_s: float = 0.006
    restart_at: int = 10**6
    """Minute after which counters begin again."""
    gap: range = range(0)
    """Minutes without samples."""
    ahead_s: float = 300.0
    shown: str = "http://made.up:9090"
    match: str = ""
    without: str = ""
    """Kind of metrics that are missing."""
    asked: list[tuple[float, float]] = field(default_factory=list)

    def rate(self, hour: int) -> float:
        day = self.daily * sin(2 * pi * (hour % 24 - 9) / 24)
        return self.rate_rps * exp(self.growth_per_week * hour / 168 + day + 0.01 * sin(hour * 12.9898))

    def counts(self) -> dict[str, np.ndarray]:
        """Values at each minute from the start."""
        minutes = np.arange(self.hours * 60 + 1)
        hour = np.maximum(minutes - 1, 0) // 60  # of the minute that ends there
        rates = np.array([self.rate(int(one)) for one in range(self.hours)])
        begun = np.concatenate([[0.0], np.cumsum(60 * rates[hour[1:]])])
        slower = np.where(hour >= self.slower_from, 1.3, 1.0) * (1 + 0.01 * np.sin(hour * 78.233))
        gained = np.diff(begun, prepend=0.0)
        found = {
            "time_to_first_token_seconds_count": begun,
            "time_to_first_token_seconds_sum": np.cumsum(gained * self.ttft_s * slower),
            "inter_token_latency_seconds_count": 9 * begun,
            "inter_token_latency_seconds_sum": np.cumsum(9 * gained * self.tpot_s * slower),
            "e2e_request_latency_seconds_count": begun,
            "e2e_request_latency_seconds_sum": np.cumsum(gained * (self.ttft_s + 9 * self.tpot_s) * slower),
            "request_prompt_tokens_count": begun,
            "request_prompt_tokens_sum": 100 * begun,
            "prompt_tokens_total": 100 * begun,
            "generation_tokens_total": 10 * begun,
            "num_requests_running": np.full(len(minutes), 1.0),
        }
        found |= {f'time_to_first_token_seconds_bucket{{le="{bound}"}}': begun * (bound >= 0.05) for bound in BOUNDS}
        for bound in ("50", "100", "200", "inf"):
            found[f'request_prompt_tokens_bucket{{le="{bound}"}}'] = begun * (float(bound) >= 100)
        if self.restart_at < len(minutes):
            for name in found:
                if name != "num_requests_running":
                    found[name] = found[name] - np.where(minutes >= self.restart_at, found[name][self.restart_at], 0.0)
        return {name: values for name, values in found.items() if not self.without or self.without not in name}

    def now_s(self) -> float:
        return START + self.hours * HOUR_S + self.ahead_s

    clock_notes = Prometheus.clock_notes

    def first_s(self, start_s: float, end_s: float) -> float | None:
        return max(start_s, START)

    def gpu_power(self, *_: float) -> list[Mapping[float, float]]:
        return []

    def engine_series(
        self, start_s: float, end_s: float, step_s: float, every: bool = True
    ) -> dict[Series, Mapping[float, float]]:
        self.asked.append((start_s, end_s))
        found: dict[Series, Mapping[float, float]] = {}
        asked = range(max(0, ceil((start_s - START) / 60)), min(self.hours * 60, int((end_s - START) // 60)) + 1)
        places = [place for place in asked if place not in self.gap]
        for name, values in self.counts().items():
            bare, _, label = name.partition("{")
            labels = (("instance", "a:8000"), *((("le", label.split('"')[1]),) if label else ()), ("model_name", "m"))
            own = read_name(f"vllm:{bare}")
            assert own is not None
            found[own, labels] = {START + 60.0 * place: float(values[place]) for place in places}
        return {series: points for series, points in found.items() if points}


class Here:
    """Workplace that simulates in this process."""

    def __init__(self) -> None:
        self._done: list[CaseJob] = []
        self.simulated = 0

    def submit(self, job: CaseJob) -> None:
        job.run()
        self.simulated += 1
        self._done.append(job)

    def finished(self) -> CaseJob:
        return self._done.pop()


@contextmanager
def served(fleet: MadeUpFleet, answer: bytes | None = None, code: int = 200, wait_s: float = 0.0) -> Iterator[Any]:
    """Serve *fleet* by the HTTP API of Prometheus; with *answer*, these bytes in place of all answers."""
    seen: list[Any] = []

    class Api(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            query = asked["query"][0]
            seen.append((self.path, query, self.headers.get("Authorization")))
            stop.wait(wait_s)
            body = (
                answer
                if answer is not None
                else json.dumps({"status": "success", "data": self._data(query, asked)}).encode()
            )
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _data(self, query: str, asked: Mapping[str, list[str]]) -> Any:
            if query == "time()":
                return {"resultType": "scalar", "result": [0, str(fleet.now_s())]}
            names = re.search(r'__name__=~"([^"]+)"', query)
            start, end = (float(asked[name][0]) for name in ("start", "end"))
            rows = []
            for (name, labels), points in fleet.engine_series(start, end, 60.0).items() if names else ():
                assert names is not None
                if re.fullmatch(names[1], name):
                    values = [[at, str(value)] for at, value in points.items()]
                    rows.append({"metric": {"__name__": name, **dict(labels)}, "values": values})
            return {"resultType": "matrix", "result": rows}

        def log_message(self, *_: object) -> None:
            pass

    stop = threading.Event()
    server = HTTPServer(("127.0.0.1", 0), Api)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", seen
    finally:
        stop.set()
        server.shutdown()
        server.server_close()
        thread.join()
