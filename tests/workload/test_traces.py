"""Trace readers: small typed-in files of each format, and one clear line for each thing that can be wrong."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from sim.decimals import number, numbers
from sim.workload.traces import Trace, TraceError

TRACE: TypeAdapter[Trace] = TypeAdapter(Trace)

CSV = "arrival_s,prompt_tokens,output_tokens\n"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURSTGPT = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
LIKE = "TIMESTAMP must look like 2023-11-16 18:17:03.97996"
FROM_THE_START = "counts from the start of the trace: take the first request's time from all of them"

Open = Callable[..., Trace]


@pytest.fixture
def trace(tmp_path: Path) -> Open:
    """Write a file and open it as a trace; the file's name is `t`."""

    def open_trace(format: str, text: str | bytes, **fields: object) -> Trace:
        path = tmp_path / "t"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return TRACE.validate_python({"path": str(path), "format": format, **fields})

    return open_trace


@pytest.fixture
def complaints(trace: Open, tmp_path: Path) -> Callable[..., list[str]]:
    """Errors of a wrong trace file, as `line: message`."""

    def complain(format: str, text: str | bytes, **fields: object) -> list[str]:
        with pytest.raises(TraceError) as caught:
            trace(format, text, **fields).reading()
        assert {path for path, _, _ in caught.value.errors} == {str(tmp_path / "t")}
        return str(caught.value).replace(f"{tmp_path / 't'}:", "").splitlines()

    return complain


def mooncake(*rows: dict[str, object]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def row(timestamp: float, prompt: int, output: int, ids: object) -> dict[str, object]:
    return {"timestamp": timestamp, "input_length": prompt, "output_length": output, "hash_ids": ids}


def test_csv_times_are_as_given(trace: Open) -> None:
    requests = trace("csv", CSV + "1.5,10,20\n1.5,3,1\n\n2.25,7,9\n").requests(None)
    assert requests.arrived_s.tolist() == [1.5, 1.5, 2.25]
    assert requests.prompt_tokens.tolist() == [10, 3, 7]
    assert requests.output_tokens.tolist() == [20, 1, 9]
    assert requests.priority is None
    assert requests.block_hashes is None


def test_csv_columns_may_be_in_any_order_and_priorities_have_either_sign(trace: Open) -> None:
    text = "\ufeffpriority, output_tokens ,arrival_s,prompt_tokens\r\n-1,2,0,3.0\r\n4,5,6e0,7\r\n"
    requests = trace("csv", text).requests(None)
    assert requests.priority is not None
    assert requests.priority.tolist() == [-1, 4]
    assert (requests.arrived_s.tolist(), requests.prompt_tokens.tolist()) == ([0.0, 6.0], [3, 7])


def named(column: str) -> str:
    """Return what the error of a missing *column* advises."""
    return f"name its header with columns: {{{column}: <header>}}, in init with --columns {column}=<header>"


HEADERS = [
    "timestamp,input_tokens,output_tokens",
    "Arrival Time,Prompt Len,Completion Tokens",
    "requestTimestamp,promptTokens,completionTokens",
    "TIMESTAMP,ContextTokens,GeneratedTokens",
    "created_at;isl;osl",
    "ts\tnum_prompt_tokens\tnum_output_tokens",
    "start_time,usage.prompt_tokens,usage.completion_tokens",
]


@pytest.mark.parametrize("headers", HEADERS)
@pytest.mark.parametrize(
    "times",
    [
        ("100", "100.5", "103"),
        ("2026-11-28T09:30:00Z", "2026-11-28T10:30:00.5+01:00", "2026-11-28 09:30:03Z"),
        ("1795858200", "1795858200.5", "1795858203"),
        ("1795858200000", "1795858200500", "1795858203000"),
        ("1795858200000000000", "1795858200500000000", "1795858203000000000"),
    ],
)
def test_logs_of_other_programs_are_read_as_they_are(trace: Open, headers: str, times: tuple[str, ...]) -> None:
    mark = next(mark for mark in "\t;," if mark in headers)
    text = headers + "\n" + "".join(mark.join((time, "10", "20")) + "\n" for time in times)
    reading = trace("csv", text).reading()
    assert reading.requests.arrived_s == pytest.approx([0.0, 0.5, 3.0], abs=1e-6)
    assert reading.requests.prompt_tokens.tolist() == [10] * 3
    assert reading.requests.output_tokens.tolist() == [20] * 3
    names = headers.split(mark)
    read = ", ".join(f"{name!r} as {own}" for own, name in zip(CSV[:-1].split(","), names, strict=True) if own != name)
    assert reading.notes[0] == f"t: columns read under other names: {read}"
    assert len(reading.notes) == (1 if times[0] == "100" else 2)


def test_ignored_columns_failures_and_the_order_of_a_log_are_reported(trace: Open) -> None:
    text = "model,end_ts,ts_ms,isl,osl,sesion\na,1,3000,5,6,x\nb,2,1000,7,,y\nb,2,2000,8,9,y\n"
    reading = trace("csv", text).reading()
    assert reading.requests.arrived_s.tolist() == [0.0, 1.0]
    assert reading.requests.output_tokens.tolist() == [9, 6]
    assert reading.notes == (
        "t: columns read under other names: 'ts_ms' as arrival_s, 'isl' as prompt_tokens, 'osl' as output_tokens",
        "t: ignored columns: 'model', 'end_ts', 'sesion' (nearly 'session')",
        "t: 'ts_ms' holds ms",
        "t: 1 of 3 requests have no output tokens (failures); left out",
        "t: requests are out of order (1 before an earlier request); sorted by time",
    )


def test_stated_columns_win_over_names_and_synonyms(trace: Open) -> None:
    text = "arrival_s,when,isl,prompt_tokens,osl\n9,1,5,6,7\n9,2,5,6,7\n"
    stated = {"arrival_s": "when", "prompt_tokens": "isl"}
    requests = trace("csv", text, columns=stated).requests(None)
    assert (requests.arrived_s.tolist(), requests.prompt_tokens.tolist()) == ([0.0, 1.0], [5, 5])
    with pytest.raises(TraceError) as caught:
        trace("csv", text, columns={"arrival_s": "whem", "prompts": "isl"}).reading()
    assert [text for _, _, text in caught.value.errors] == [
        "columns: arrival_s: there is no column 'whem'; did you mean 'when'?",
        "columns: unknown column 'prompts'; a trace has arrival_s, prompt_tokens, output_tokens, priority, session, "
        "turn, tenant, service",
    ]


def test_json_lines_with_usage_objects(trace: Open) -> None:
    rows = [{"created": 1795858200 + i, "tags": ["a"], "usage": {"prompt_tokens": 3 + i, "completion_tokens": 4}}
            for i in range(2)]  # fmt: skip
    requests = trace("jsonl", mooncake(*rows)).requests(None)
    assert (requests.arrived_s.tolist(), requests.prompt_tokens.tolist()) == ([0.0, 1.0], [3, 4])


@pytest.mark.slow
@given(
    gaps=st.lists(st.floats(0, 1e6), min_size=1),
    rate_scale=st.floats(0.01, 100),
    limit=st.integers(1, 50),
    horizon_s=st.floats(0, 1e6),
)
def test_limit_rate_and_horizon_work_together(
    tmp_path_factory: pytest.TempPathFactory, gaps: list[float], rate_scale: float, limit: int, horizon_s: float
) -> None:
    times = np.cumsum(gaps)
    path = tmp_path_factory.mktemp("trace") / "t.csv"
    path.write_text(CSV + "".join(f"{time!r},{index + 1},1\n" for index, time in enumerate(times.tolist())))
    fields = {"path": str(path), "format": "csv", "rate_scale": rate_scale, "limit": limit}
    requests = TRACE.validate_python(fields).requests(horizon_s)
    expected = times[:limit] / rate_scale
    assert requests.arrived_s.tolist() == expected[expected < horizon_s].tolist()
    assert requests.prompt_tokens.tolist() == list(range(1, len(requests.arrived_s) + 1))


def test_a_file_that_has_changed_is_read_again(trace: Open) -> None:
    assert len(trace("csv", CSV + "0,1,1\n").requests(None).arrived_s) == 1
    assert len(trace("csv", CSV + "0,1,1\n1,1,1\n").requests(None).arrived_s) == 2


def test_changed_file_of_the_same_size_and_time_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(CSV + "0,1,1\n")
    file = TRACE.validate_python({"path": str(path), "format": "csv"})
    tokens, times = [file.requests(None).prompt_tokens.tolist()], path.stat()
    while path.stat().st_ctime_ns == times.st_ctime_ns:  # changes within one tick of the system have the same time
        path.write_text(CSV + "0,2,1\n")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert [*tokens, file.requests(None).prompt_tokens.tolist()] == [[1], [2]]


def test_azure_dates_become_seconds_after_the_first(trace: Open) -> None:
    text = (
        AZURE
        + "2023-11-16 23:59:59.9799600,374,44\r\n2023-11-17 00:00:00.0800601,396,109\r\n2023-11-17 00:00:02,1,1\r\n"
    )
    requests = trace("azure", text).requests(None)
    assert requests.arrived_s == pytest.approx([0, 0.1001001, 2.02004], abs=1e-12)
    assert (requests.prompt_tokens.tolist(), requests.output_tokens.tolist()) == ([374, 396, 1], [44, 109, 1])


def test_azure_dates_may_carry_a_utc_offset_of_zero(trace: Open) -> None:
    text = AZURE + "2024-05-10 00:00:00.009930+00:00,5,5\n2024-05-10 00:00:01+00:00,5,5\n"
    assert trace("azure", text).requests(None).arrived_s == pytest.approx([0, 0.99007])


def test_mooncake_milliseconds_become_seconds_and_only_whole_blocks_have_ids(trace: Open) -> None:
    text = mooncake(row(500, 10, 3, [7, 8, 9]), row(500.5, 8, 1, [7, 8]), row(2000, 11, 2, [7, 8]), row(2000, 2, 2, []))
    requests = trace("mooncake", text, hash_block_tokens=4).requests(None)
    assert requests.arrived_s.tolist() == [0.5, 0.5005, 2.0, 2.0]
    assert requests.block_hashes == [(7, 8), (7, 8), (7, 8), ()]
    assert requests.hash_block_tokens == 4


def test_a_mooncake_line_may_have_a_priority(trace: Open) -> None:
    lines = mooncake(row(0, 4, 1, []), {**row(0, 4, 1, []), "priority": -2})
    assert trace("mooncake", lines, hash_block_tokens=8).requests(None).priority.tolist() == [0, -2]
    assert trace("mooncake", mooncake(row(0, 4, 1, [])), hash_block_tokens=8).requests(None).priority is None
    with pytest.raises(TraceError, match="priority must be a whole number"):
        trace("mooncake", mooncake({**row(0, 4, 1, []), "priority": 1.5}), hash_block_tokens=8).requests(None)


def test_mooncake_line_may_contain_response_blocks(trace: Open) -> None:
    # 12 + 9 tokens fill two blocks of 8; the first holds prompt alone, the third id stands for a block that is not full
    lines = mooncake({**row(0, 12, 9, [1, 2]), "output_hash_ids": [3, 4]}, row(0, 12, 9, [1]))
    assert trace("mooncake", lines, hash_block_tokens=8).requests(None).block_hashes == [(1, 3), (1,)]
    for ids, message in (([3, 4, 5], "3 output_hash_ids behind 1 whole blocks"), ("3", "must be a list of whole")):
        lines = mooncake({**row(0, 12, 9, [1]), "output_hash_ids": ids})
        with pytest.raises(TraceError, match=message):
            trace("mooncake", lines, hash_block_tokens=8).requests(None)


def test_mooncake_blocks_have_512_tokens_by_default(trace: Open) -> None:
    requests = trace("mooncake", mooncake(row(0, 6758, 500, list(range(14))))).requests(None)
    assert requests.block_hashes == [tuple(range(13))]
    assert requests.hash_block_tokens == 512


def test_burstgpt_failures_are_left_out_and_counted(trace: Open) -> None:
    text = BURSTGPT + (
        "5,ChatGPT,472,0,472,Conversation log\n"
        "45,ChatGPT,1087,230,1317,Conversation log\n"
        "118,GPT-4,417,276,693,API log\n"
    )
    reading = trace("burstgpt", text).reading()
    assert reading.requests.arrived_s.tolist() == [0.0, 73.0]
    assert reading.requests.prompt_tokens.tolist() == [1087, 417]
    assert reading.requests.output_tokens.tolist() == [230, 276]
    assert reading.notes == ("t: 1 of 3 requests have no response tokens (failures); they are ignored",)


def test_burstgpt_with_session_columns_and_without_failures_has_no_note(trace: Open) -> None:
    header = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    reading = trace("burstgpt", header + "5,3,1.5,ChatGPT,472,18,490,Conversation log\n").reading()
    assert (reading.requests.arrived_s.tolist(), reading.notes) == ([0.0], ())


@pytest.mark.parametrize(
    ("format", "text", "expected"),
    [
        ("csv", "", [" is empty; its first line must name the columns arrival_s,prompt_tokens,output_tokens"]),
        ("csv", CSV, [" holds no requests"]),
        ("csv", CSV + "2,1,1\n1,1,1\n", ["3: not sorted: arrival_s 1 comes after 2 (line 2)"]),
        ("csv", CSV + "nan,1,1\n", ["2: arrival_s must be a number, not 'nan'"]),
        ("csv", CSV + "0,1,1\n\ninf,1,1\n", ["4: arrival_s must be a number, not 'inf'"]),
        ("csv", CSV + "-1,1,1\n", ["2: arrival_s must not be negative: -1"]),
        ("mooncake", mooncake(row(1.7e12, 1, 1, [1])), [f"1: timestamp {FROM_THE_START}, not 1700000000000.0"]),
        ("csv", CSV + "0,0,1\n", ["2: prompt_tokens must be a whole number of at least 1, not 0"]),
        ("csv", CSV + "0,1,2.5\n", ["2: output_tokens must be a whole number of at least 1, not 2.5"]),
        ("csv", CSV + "0,1,1e300\n", ["2: output_tokens must be a whole number of at least 1, not 1e300"]),
        ("csv", CSV + "0,,1\n", ["2: prompt_tokens must be a number, not empty"]),
        ("csv", CSV + "0,1,1\n1,ten,1\n", ["3: prompt_tokens must be a number, not 'ten'"]),
        ("csv", CSV + "0,1\n1,1,1\n2,1,1,\n",
         ["2: 2 fields where the first line names 3", "4: 4 fields where the first line names 3"]),
        ("csv", CSV + '0,1,"1\n', ["2: at or after this line: unexpected end of data"]),
        ("csv", b"\xff\xfe\x00", [" is not UTF-8 text"]),
        ("csv", CSV.replace("prompt", "promt"), [
            "1: missing column 'prompt_tokens'; is 'promt_tokens' meant? "
            "Name it with columns: {prompt_tokens: promt_tokens}, in init with --columns "
            "prompt_tokens=promt_tokens"]),
        ("csv", "time,isl,osl\n2026-02-03T00:00:00Z,1,1\n2026-02-03T00:00:01,1,1\n2026-02-03T00:00:02Z,1,1\n", [
            "3: dates with and without a time zone are mixed: '2026-02-03T00:00:00Z' (line 2) and "
            "'2026-02-03T00:00:01' (line 3); give all of them a zone, or none"]),
        ("csv", "arrival_s,prompt_tokens\n", [
            f"1: missing column 'output_tokens': {named('output_tokens')}; "
            "the file has arrival_s, prompt_tokens"]),
        ("csv", "when,input_tokens,osl\n5,1,1\n", [
            f"1: missing column 'arrival_s': {named('arrival_s')}; "
            "the file has input_tokens, osl, when"]),
        ("csv", "time,input_tokens,osl\n2026-02-30T00:00:00,1,1\n2026-02-03,1,1\n", [
            "2: time must be a date like 2026-11-28T09:30:00Z, not '2026-02-30T00:00:00'"]),
        ("csv", "ts,isl,osl\n5,x,1\n", ["2: isl must be a number, not 'x'"]),
        ("csv", "ts,isl,osl\n5,7,0\n", [" holds no request with output tokens"]),
        ("jsonl", '{"ts": 1, "isl": 2}\n[1]\n', [
            f"1: missing column 'output_tokens': {named('output_tokens')}; the file has ts, isl"]),
        ("jsonl", '{"ts": 1, "isl": 2, "osl": 3}\n[1]\n{"ts"\n', [f"{line}: is not a JSON object" for line in (2, 3)]),
        ("jsonl", "", [" holds no requests"]),
        ("csv", CSV[:-1] + ",priority,priority\n", ["1: the column 'priority' is given twice"]),
        ("csv", AZURE, [" holds no requests"]),
        ("csv", CSV[:-1] + ",priority\n0,1,1,0.5\n", ["2: priority must be a whole number, not 0.5"]),
        ("azure", AZURE + "9999-12-31 00:00:00,1,1\n", [f"2: {LIKE}, not '9999-12-31 00:00:00'"]),
        ("azure", AZURE + "yesterday\n", ["2: 1 fields where the first line names 3"]),
        ("azure", AZURE + "yesterday,1,1\n", [f"2: {LIKE}, not 'yesterday'"]),
        ("azure", AZURE + "2023-02-30 00:00:00,1,1\n",
         [f"2: {LIKE}, not '2023-02-30 00:00:00'"]),
        ("azure", AZURE + "2023-11-16 18:17:04,1,1\n2023-11-16 18:17:03,1,1\n",
         ["3: not sorted: TIMESTAMP 2023-11-16 18:17:03 comes after 2023-11-16 18:17:04 (line 2)"]),
        ("azure", AZURE + "2023-11-16 18:17:04,0,1\n",
         ["2: ContextTokens must be a whole number of at least 1, not 0"]),
        ("burstgpt", BURSTGPT + "1,m,5,0,5,l\n", [" holds no request with response tokens"]),
        ("burstgpt", BURSTGPT + "1,m,0,7,7,l\n", ["2: Request tokens are 0 although there was a response"]),
        ("burstgpt", BURSTGPT + "1,m,5,-7,7,l\n", ["2: Response tokens must be a whole number of at least 0, not -7"]),
        ("mooncake", "", [" holds no requests"]),
        ("mooncake", "\n{\n", ["2: is not JSON: Expecting property name enclosed in double quotes"]),
        ("mooncake", "[1]\n", ["1: is not a JSON object"]),
        ("mooncake", '{"timestamp": 0, "input_len": 1, "output_length": 1, "hash_ids": [1]}',
         ["1: missing key 'input_length'; is 'input_len' meant?"]),
        ("mooncake", mooncake({**row(0, 1, 1, [1]), "chat_id": 1}), ["1: unknown key 'chat_id'"]),
        ("mooncake", mooncake({**row(0, 1, 1, [1]), "input_length": "1"}),
         ["1: input_length must be a number, not '\"1\"'"]),
        ("mooncake", mooncake({**row(0, 1, 1, [1]), "input_length": True}),
         ["1: input_length must be a number, not 'true'"]),
        ("mooncake", '{"timestamp": NaN, "input_length": 1, "output_length": 1, "hash_ids": [1]}',
         ["1: timestamp must be a number, not 'nan'"]),
        ("mooncake", mooncake(row(5, 1, 1, [1]), row(4, 1, 1, [1])),
         ["2: not sorted: timestamp 4 comes after 5 (line 1)"]),
        ("mooncake", mooncake(row(0, 1, 1, "1")), ["1: hash_ids must be a list of whole numbers"]),
        ("mooncake", mooncake(row(0, 1100, 1, [1])),
         ["1: 1 hash_ids for 1100 tokens in blocks of 512; is hash_block_tokens right?"]),
        ("mooncake", mooncake(row(0, 1024, 1, [1, 2, 3])),
         ["1: 3 hash_ids for 1024 tokens in blocks of 512; is hash_block_tokens right?"]),
    ],
)  # fmt: skip
def test_each_fault_has_its_line_and_its_words(
    complaints: Callable[..., list[str]], format: str, text: str | bytes, expected: list[str]
) -> None:
    assert complaints(format, text) == expected


def test_invalid_time_does_not_hide_an_unsorted_one(complaints: Callable[..., list[str]]) -> None:
    assert complaints("csv", CSV + "5,1,1\nnan,1,0\n4,1,1\n") == [
        "3: arrival_s must be a number, not 'nan'",
        "3: output_tokens must be a whole number of at least 1, not 0",
        "4: not sorted: arrival_s 4 comes after 5 (line 2)",
    ]


def test_all_faults_are_found_at_once_and_the_first_20_are_shown(complaints: Callable[..., list[str]]) -> None:
    found = complaints("csv", CSV + "0,0,x\n" * 1000)
    assert len(found) == 21
    assert found[:2] == [
        "2: output_tokens must be a number, not 'x'",
        "2: prompt_tokens must be a whole number of at least 1, not 0",
    ]
    assert found[-1] == " and 1980 more"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    path = str(tmp_path / "none.csv")
    with pytest.raises(TraceError) as caught:
        TRACE.validate_python({"path": path, "format": "csv"}).requests(None)
    assert caught.value.errors == [(path, 0, "cannot be read: no such file or directory")]


def test_a_folder_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read: is a directory"):
        TRACE.validate_python({"path": str(tmp_path), "format": "csv"}).requests(None)


def test_rates_and_descriptions(trace: Open) -> None:
    many = trace("csv", CSV + "10,1,1\n11,1,1\n14,1,1\n", rate_scale=2.0)
    assert many.mean_rate_rps() == 1.5
    assert many.describe() == "3 requests of t at 1.5 requests/s on average"
    one = trace("csv", CSV + "10,1,1\n")
    assert one.mean_rate_rps() is None
    assert one.describe() == "1 request of t at once"


@pytest.mark.parametrize(
    "cell", ["1_000", "\uff11\uff12", "\u0663", "1\u0662", "0x10", "1e400", "1,5", "\u00a01", "infinity", "+-1"]
)
def test_only_plain_decimal_numbers_count(complaints: Callable[..., list[str]], cell: str) -> None:
    for format, head, name in (("csv", CSV, "prompt_tokens"), ("burstgpt", BURSTGPT, "Request tokens")):
        quoted = f'"{cell}"' if "," in cell else cell
        text = head + (f"0,1,1\n1,{quoted},1\n" if format == "csv" else f"0,m,1,1,2,c\n1,m,{quoted},1,2,c\n")
        assert f"3: {name} must be a number, not {cell!r}" in complaints(format, text)


def test_spaces_and_exponents_are_part_of_a_number(trace: Open) -> None:
    requests = trace("csv", CSV + " 1.50 , 1e1,+20\n").requests(None)
    assert (requests.arrived_s.tolist(), requests.prompt_tokens.tolist(), requests.output_tokens.tolist()) == (
        [1.5],
        [10],
        [20],
    )


def test_a_column_is_read_as_its_cells_are() -> None:
    cells = ["1", "2.5", " 7 ", ".5", "-3", "1_0", "nan", "\u0661", "", "1e999"]
    one_by_one = [number(cell) for cell in cells]
    for part in (cells, cells[:5], cells[5:], [1, 2.5, 10**400], [1, "2", True, None]):
        expected = [np.nan if (value := number(cell)) is None else value for cell in part]
        assert np.array_equal(numbers(part), expected, equal_nan=True)
    assert one_by_one == [1, 2.5, 7, 0.5, -3, None, None, None, None, None]


def otlp(*spans: dict[str, object]) -> str:
    """An export of *spans*, each given as its attributes."""
    held = [
        {
            "traceId": str(place),
            "startTimeUnixNano": str(1_700_000_000_000_000_001 + place),
            "endTimeUnixNano": str(1_700_000_001_000_000_001 + place),
            "attributes": [{"key": key, "value": {"intValue": value}} for key, value in one.items()],
        }
        for place, one in enumerate(spans)
    ]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": held}]}]}) + "\n"


def test_a_span_with_a_misspelt_token_key_is_named(complaints: Callable[..., list[str]]) -> None:
    good = {"gen_ai.usage.input_tokens": "5", "gen_ai.usage.output_tokens": 7}
    wrong = {"gen_ai.usage.input_token": "5", "gen_ai.usage.output_tokens": "7"}
    openinference = {"llm.token_count.prompt": 5, "llm.token_count.completion": 3, "llm.token_count.total": 8}
    assert complaints("otel", otlp(good) + otlp(wrong, wrong, openinference)) == [
        "2: unknown token key 'gen_ai.usage.input_token' in a span; did you mean 'gen_ai.usage.input_tokens'?",
        "2: unknown token key 'llm.token_count.completion' in a span; did you mean 'gen_ai.usage.completion_tokens'?",
        "2: unknown token key 'llm.token_count.prompt' in a span; did you mean 'gen_ai.usage.prompt_tokens'?",
    ]


def test_tools_and_parts_of_counts_are_no_token_keys(trace: Open) -> None:
    good = {"gen_ai.usage.prompt_tokens": "5", "gen_ai.usage.completion_tokens": 7, "gen_ai.usage.audio_tokens": 1}
    tool = {"gen_ai.request.max_tokens": 100, "gen_ai.usage.total_tokens": 12, "http.auth.token": "secret"}
    reading = trace("otel", otlp(good, tool)).reading()
    assert reading.requests.prompt_tokens.tolist() == [5]
    assert reading.notes == ("t: ignored unknown token key 'gen_ai.usage.audio_tokens' of 1 span",)


@pytest.mark.parametrize("value", ["1_0", "\u0665", "2.5", "nan", str(10**25), True, "", None])
def test_token_counts_of_spans_are_whole_numbers(complaints: Callable[..., list[str]], value: object) -> None:
    (error,) = complaints("otel", otlp({"gen_ai.usage.input_tokens": value or "0", "gen_ai.usage.output_tokens": 7}))
    assert error.startswith("1: a span ")
