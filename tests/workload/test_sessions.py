"""Sessions: each depends on its number only, and each prompt contains the preceding conversation."""

import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from sim.rng import stream
from sim.workload import HASH_BLOCK_TOKENS, CsvTrace, TraceError, Workload
from sim.workload.sessions import Session, SessionDraws, Turn, sample

STREAMS = partial(stream, 7, 0)
HEAD = "arrival_s,prompt_tokens,output_tokens"
SYSTEM = 100
OWN = SYSTEM // HASH_BLOCK_TOKENS
"""The first block that a context has for itself."""
AGENTS = {
    "turns": {"distribution": "geometric", "mean": 4},
    "think_s": {"distribution": "lognormal", "mean": 20, "cv": 1},
    "system_prompt_tokens": SYSTEM,
    "tool_calls": {
        "share": 0.5,
        "calls": {"distribution": "uniform", "min": 1, "max": 3},
        "delay_s": {"distribution": "exponential", "mean": 2},
        "result_tokens": {"distribution": "fixed", "value": 40},
    },
    "sub_agents": {
        "share": 0.25,
        "agents": {"distribution": "uniform", "min": 2, "max": 4},
        "task_tokens": {"distribution": "fixed", "value": 70},
    },
}


def workload(**over: Any) -> Workload:
    return Workload.model_validate(
        {
            "arrivals": {"process": "poisson", "rate_rps": 2.0},
            "lengths": {
                "prompt": {"distribution": "uniform", "min": 30, "max": 70},
                "output": {"distribution": "geometric", "mean": 80},
            },
            "sessions": AGENTS,
        }
        | over
    )


def drawn(count: int) -> list[Session]:
    spec = workload()
    assert spec.sessions is not None
    assert spec.lengths is not None
    draws = SessionDraws(spec.sessions, spec.lengths, STREAMS)
    return [draws.session(i) for i in range(count)]


@pytest.fixture(scope="module")
def sessions() -> list[Session]:
    return drawn(150)


@pytest.mark.slow
def test_prompt_continues_from_the_preceding_response(sessions: list[Session]) -> None:
    for session in sessions:
        for turn in session.turns:
            assert len(turn.block_hashes) == (turn.prompt_tokens + turn.output_tokens) // HASH_BLOCK_TOKENS
            before = [session.turns[place] for place in turn.after]
            if len(before) == 1 and before[0].block_hashes[OWN] == turn.block_hashes[OWN]:
                assert turn.prompt_tokens > before[0].prompt_tokens + before[0].output_tokens
                assert tuple(turn.block_hashes[: len(before[0].block_hashes)]) == tuple(before[0].block_hashes)


def test_only_the_system_prompt_is_common_to_all(sessions: list[Session]) -> None:
    owner: dict[int, str] = {}
    for session in sessions:
        for block in {block for turn in session.turns for block in turn.block_hashes[OWN:]}:
            assert owner.setdefault(block, session.name) == session.name
    assert len({tuple(s.turns[0].block_hashes[:OWN]) for s in sessions}) == 1


def test_delegating_turn_continues_with_the_responses_of_all_agents(sessions: list[Session]) -> None:
    joins = [(session, turn) for session in sessions for turn in session.turns if len(turn.after) > 1]
    assert joins
    for session, turn in joins:
        answers = sum(session.turns[place].output_tokens for place in turn.after)
        asked = first(session, turn.after[0])
        assert all(first(session, place) is asked for place in turn.after)
        assert turn.prompt_tokens == asked.prompt_tokens + asked.output_tokens + answers


def first(session: Session, place: int) -> Turn:
    """Return the request that asked the agent whose request is at *place*."""
    own = session.turns[place].block_hashes[OWN]
    while session.turns[place].block_hashes[OWN] == own:
        (place,) = session.turns[place].after
    return session.turns[place]


def test_the_mean_number_of_requests_is_that_of_the_laws(sessions: list[Session]) -> None:
    counts = [len(session.turns) for session in sessions]
    mean = sum(counts) / len(counts)
    error = (sum((count - mean) ** 2 for count in counts) / len(counts) ** 2) ** 0.5
    spec = workload().sessions
    assert spec is not None
    assert abs(mean - spec.mean_requests()) < 3 * error
    # 4 turns; half of them with 2 calls; a quarter hands over to 3 agents, who call tools, too
    assert spec.mean_requests() == pytest.approx(4 * (2 + 0.25 * (1 + 3 * 2)), rel=1e-3)


def test_a_sample_is_a_part_of_one_session_after_the_other(sessions: list[Session]) -> None:
    spec = workload()
    assert spec.sessions is not None
    assert spec.lengths is not None
    draws = SessionDraws(spec.sessions, spec.lengths, STREAMS)

    def sizes(turns: Iterable[Turn]) -> list[tuple[int, int, int]]:
        return [(turn.number, turn.prompt_tokens, turn.output_tokens) for turn in turns]

    turns = sizes(turn for session in sessions[:40] for turn in session.turns)
    first = len(sessions[0].turns)
    for start, count in ((0, 1), (0, first), (first - 1, 3), (first, 2), (17, 20)):
        assert sizes(sample(draws, start, count)) == turns[start : start + count]


def test_session_depends_on_its_number_only() -> None:
    spec = workload()
    assert spec.sessions is not None
    assert spec.lengths is not None
    alone = SessionDraws(spec.sessions, spec.lengths, STREAMS).session(37)
    among = drawn(38)[37]
    assert [(t.prompt_tokens, t.output_tokens, t.delay_s) for t in alone.turns] == [
        (t.prompt_tokens, t.output_tokens, t.delay_s) for t in among.turns
    ]


@pytest.mark.slow
def test_the_rate_counts_requests_and_stretches_the_same_sessions() -> None:
    slow = workload().offered_sessions(STREAMS, 2000.0)
    fast = workload(arrivals={"process": "poisson", "rate_rps": 4.0}).offered_sessions(STREAMS, 1000.0)
    assert slow is not None
    assert fast is not None
    starts, again = list(slow.starts()), list(fast.starts())
    assert [one.at_s for one in starts] == pytest.approx([2 * one.at_s for one in again])
    requests = sum(len(one.session.turns) for one in starts)
    assert requests == pytest.approx(4000, rel=0.25)


@pytest.mark.parametrize(
    ("over", "why"),
    [
        ({"lengths": None}, "needs arrivals and lengths"),
        ({"shared_prefix": {"tokens": 32}}, "system_prompt_tokens"),
        ({"arrivals": {"process": "burst", "num_requests": 3}}, "arrivals must have a rate or be a closed loop"),
        ({"arrivals": {"process": "poisson", "rate_rps": 1, "num_requests": 3}}, "remove arrivals.num_requests"),
    ],
)
def test_what_sessions_cannot_have(over: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        workload(**over)


def trace(folder: Path, text: str, **keys: Any) -> CsvTrace:
    (folder / "t.csv").write_text(text)
    return CsvTrace(path=str(folder / "t.csv"), format="csv", **keys)


def test_conversation_of_a_trace_continues_if_it_fits_the_prompt(tmp_path: Path) -> None:
    text = HEAD + ",session,tenant\n0,32,16,a,x\n1,64,16,b,y\n2,64,32,a,x\n3,40,8,a,x\n4,99,9,,z\n"
    table = trace(tmp_path, text).requests(None)
    assert table.session == ["a", "b", "a", "a", ""]
    assert table.tenant == ["x", "y", "x", "x", "z"]
    assert table.turn is not None
    assert table.turn.tolist() == [1, 1, 2, 3, 0]
    assert table.block_hashes is not None
    one, other, later_stage, anew, alone = map(tuple, table.block_hashes)
    assert later_stage[:3] == one
    assert len(later_stage) == 6
    assert not set(one) & set(other)
    assert not set(anew) & {*one, *other, *later_stage}
    assert not alone


def test_faults_of_sessions_in_a_trace(tmp_path: Path) -> None:
    head = f"{HEAD},"
    with pytest.raises(TraceError, match=r"t\.csv:4: turn must rise within a session.*not 1"):
        trace(tmp_path, f"{head}session,turn\n0,1,1,a,1\n1,1,1,b,1\n2,1,1,a,1\n").reading()
    with pytest.raises(TraceError, match=r"t\.csv:3: tenant '\(nobody\)' is the row of costs that no request causes"):
        trace(tmp_path, f"{head}tenant\n0,1,1,a\n1,1,1,(nobody)\n").reading()
    with pytest.raises(TraceError, match="there is no column 'session'"):
        trace(tmp_path, f"{head}turn\n0,1,1,1\n").reading()


def test_the_rows_of_one_service(tmp_path: Path) -> None:
    text = "arrival_s,prompt_tokens,output_tokens,service\n0,1,1,chat\n1,2,1,code\n2,3,1,chat\n"
    assert trace(tmp_path, text, service="chat").requests(None).prompt_tokens.tolist() == [1, 3]
    assert trace(tmp_path, text).requests(1.5).service == ["chat", "code"]
    with pytest.raises(TraceError, match="service 'chta' has no requests: the column 'service' has chat, code"):
        trace(tmp_path, text, service="chta").requests(None)


def span(start_s: float, end_s: float, tokens: tuple[int, int] | None = None, conversation: str = "") -> dict[str, Any]:
    attributes: list[dict[str, Any]] = [{"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}}]
    for name, count in zip(("input", "output"), tokens or (), strict=False):
        attributes.append({"key": f"gen_ai.usage.{name}_tokens", "value": {"intValue": str(count)}})
    if conversation:
        attributes.append({"key": "gen_ai.conversation.id", "value": {"stringValue": conversation}})
    times = {"startTimeUnixNano": str(10**18 + int(start_s * 1e9)), "endTimeUnixNano": str(10**18 + int(end_s * 1e9))}
    return {"traceId": "t1", "spanId": "s", "attributes": attributes} | times


def test_spans_follow_the_one_that_ended_last(tmp_path: Path) -> None:
    spans = [
        span(0, 2, (32, 16), "c"),
        span(2, 9),  # a tool
        span(3, 5, (100, 8), "c"),  # two agents side by side
        span(3.5, 4, (64, 8), "c"),
        span(5.5, 6, (164, 8), "c"),
        span(1, 2, (16, 4)),  # without a conversation: its trace is one
    ]
    exports = [{"resourceSpans": [{"scopeSpans": [{"spans": part}]}]} for part in (spans[:3], spans[3:])]
    (tmp_path / "o.jsonl").write_text("\n".join(map(json.dumps, exports)))
    spec = Workload.model_validate({"trace": {"path": str(tmp_path / "o.jsonl"), "format": "otel"}})
    coming = spec.offered_sessions(STREAMS, None)
    assert coming is not None
    talk, other = [start.session for start in coming.starts()]
    assert (talk.name, other.name) == ("c", "t1")
    assert [(turn.after, turn.delay_s, turn.number) for turn in talk.turns] == [
        ((), 0.0, 1),
        ((0,), 1.0, 2),
        ((0,), 1.5, 3),
        ((1,), 0.5, 4),
    ]
    first_blocks, one, another, last = (tuple(turn.block_hashes) for turn in talk.turns)
    assert one[:3] == first_blocks
    assert last[: len(one)] == one
    assert not set(another) & set(one)


def test_faults_of_spans(tmp_path: Path) -> None:
    good = {"resourceSpans": [{"scopeSpans": [{"spans": [span(1, 2, (5, 0))]}]}]}
    (tmp_path / "o.jsonl").write_text('{"spans": []}\nnot json\n' + json.dumps(good) + "\n")
    trace = Workload.model_validate({"trace": {"path": str(tmp_path / "o.jsonl"), "format": "otel"}})
    with pytest.raises(TraceError) as caught:
        trace.verify()
    assert [line for _, line, _ in caught.value.errors] == [1, 2, 3]
