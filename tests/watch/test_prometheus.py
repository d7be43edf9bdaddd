"""Client of Prometheus: what it asks, and a line for each way in which a server fails."""

import socket

import pytest
from made_up_fleet import HOUR_S, START, MadeUpFleet, served

from sim.watch.prometheus import Prometheus, PrometheusError, why_not_address


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
    ],
)
def test_an_answer_that_cannot_be_used_is_a_line(answer: bytes, code: int, text: str) -> None:
    with served(MadeUpFleet(), answer, code) as (url, _), pytest.raises(PrometheusError, match=text):
        Prometheus(url).engine_series(START, START + 60, 60.0)


def test_a_server_that_is_slow_or_gone_is_a_line() -> None:
    with (
        served(MadeUpFleet(), wait_s=5.0) as (url, _),
        pytest.raises(PrometheusError, match=r"no answer within 0\.05 s"),
    ):
        Prometheus(url, timeout_s=0.05).now_s()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(PrometheusError, match=f"{url}: cannot be reached"):
        Prometheus(url).now_s()


@pytest.mark.parametrize("url", ["localhost:9090", "ftp://here", "http://", "http://user:word@here:9090", "http://a:b"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    assert why_not_address(url)
    assert not why_not_address("http://localhost:9090/prometheus")
