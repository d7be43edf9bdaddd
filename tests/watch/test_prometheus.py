"""Client of Prometheus: what it asks, and a line for each way in which a server fails."""

import socket
import threading
import time
from contextlib import suppress

import pytest
from made_up_fleet import HOUR_S, START, MadeUpFleet, served

from sim.watch.prometheus import Prometheus, PrometheusError, why_not_address
from sim.watch.source import MixedSeries


def test_series_come_under_the_engines_own_names() -> None:
    with served(MadeUpFleet(hours=1)) as (url, seen):
        source = Prometheus(url, match='namespace="chat"', token="secret")
        found = source.engine_series(START, START + HOUR_S, 60.0, every=False)
        assert source.now_s() == START + HOUR_S + 300
        assert source.first_s(START, START + HOUR_S) == START
    assert ("vllm:prompt_tokens_total", (("instance", "a:8000"), ("model_name", "m"))) in found
    assert all('namespace="chat"' in query for _, query, _ in seen if query != "time()")
    assert {token for _, _, token in seen} == {"Bearer secret"}


@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        (b"<html>", 200, "is no Prometheus"),
        (b'{"status": "error", "error": "too many samples"}', 200, "refuses the query: too many samples"),
        (b'{"status": "error", "error": "bad matcher"}', 400, "HTTP 400: bad matcher"),
        (b"", 302, "HTTP 302"),
        (b'{"status": "success", "data": {"result": [{"metric": 1}]}}', 200, "a form that is not Prometheus'"),
        (b"[" * 100_000, 200, "is no Prometheus"),
    ],
)
def test_an_answer_that_cannot_be_used_is_a_line(answer: bytes, code: int, text: str) -> None:
    with served(MadeUpFleet(), answer, code) as (url, _), pytest.raises(PrometheusError, match=text):
        Prometheus(url).engine_series(START, START + 60, 60.0)


@pytest.mark.parametrize("text", ["NaN", "-5", "1e30"])
def test_a_clock_that_shows_no_time_is_a_line(text: str) -> None:
    answer = b'{"status": "success", "data": {"resultType": "scalar", "result": [0, "%s"]}}' % text.encode()
    with served(MadeUpFleet(), answer) as (url, _), pytest.raises(PrometheusError, match="answers `time"):
        Prometheus(url).now_s()


def test_samples_without_a_time_or_a_value_are_left_out() -> None:
    rows = b'[{"metric": {}, "values": [["NaN", "1"], [60, "+Inf"], [120, "NaN"], [180, "7"]]}]'
    with served(MadeUpFleet(), b'{"status": "success", "data": {"result": %s}}' % rows) as (url, _):
        assert Prometheus(url).gpu_power(0.0, 300.0, 60.0) == [{180.0: 7.0}]


@pytest.mark.parametrize(
    ("head", "is_cut", "timeout_s", "text"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", False, 0.1, r"no answer within 0\.1 s"),
        (b"HTTP/1.1 200 OK\r\nX-Drip:", False, 0.1, r"no answer within 0\.1 s"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", True, 60.0, "breaks the connection off"),
    ],
)
def test_an_answer_that_drips_or_is_cut_is_a_line(head: bytes, is_cut: bool, timeout_s: float, text: str) -> None:
    def drip() -> None:
        connection, _ = server.accept()
        with connection, suppress(OSError):  # the client has hung up
            connection.recv(2**16)
            connection.sendall(head)
            while not is_cut:
                connection.sendall(b" ")
                time.sleep(0.02)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=drip)
        thread.start()
        with pytest.raises(PrometheusError, match=text):
            Prometheus(f"http://127.0.0.1:{server.getsockname()[1]}", timeout_s=timeout_s).now_s()
        thread.join()


def test_several_models_are_refused_before_hours_are_read() -> None:
    name = "vllm:e2e_request_latency_seconds_count"
    rows = ", ".join(f'{{"metric": {{"__name__": "{name}", "model_name": "{one}"}}, "values": []}}' for one in "ab")
    answer = f'{{"status": "success", "data": {{"result": [{rows}]}}}}'.encode()
    with served(MadeUpFleet(), answer) as (url, _), pytest.raises(MixedSeries, match=r"several models \(a, b\)"):
        Prometheus(url).first_s(0.0, 3600.0)


def test_a_server_that_is_slow_or_gone_is_a_line() -> None:
    with (
        served(MadeUpFleet(), wait_s=60.0) as (url, _),
        pytest.raises(PrometheusError, match=r"no answer within 0\.05 s"),
    ):
        Prometheus(url, timeout_s=0.05).now_s()
    with socket.socket() as silent:  # bound, so that no other program gets the port
        silent.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(PrometheusError, match=f"{url}: cannot be reached"):
            Prometheus(url).now_s()


@pytest.mark.parametrize("url", ["localhost:9090", "ftp://here", "http://", "http://user:word@here:9090", "http://a:b"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    assert why_not_address(url)
    assert not why_not_address("http://localhost:9090/prometheus")
