"""Benchmark tables: what is read, and every mistake told at once with its line."""

from pathlib import Path

import pytest

from sim.benchdata import BenchdataError, read_benchmarks
from sim.benchdata.row import LOADS

GOOD = """\
id,gpu,model,load,isl,osl,concurrency,rate_req_s,tp,output_tok_s,ttft_mean_ms,batch_note
a,rtx-4090,llama3.1-8b,closed_loop,512,128,8,,1,700.5,,x
b,h100,llama3.1-8b,poisson,512,128,,2.5,2,,88,y
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "table.csv"
    path.write_text(text, encoding="utf-8")
    return path


def problems(path: Path) -> list[tuple[int, str]]:
    with pytest.raises(BenchdataError) as caught:
        read_benchmarks(path)
    assert all(file == str(path) for file, _, _ in caught.value.problems)
    return [(line, text) for _, line, text in caught.value.problems]


def test_a_table_is_read(tmp_path: Path) -> None:
    first, second = read_benchmarks(written(tmp_path, GOOD))
    assert (first.line, first.id, first.concurrency, first.tp, first.isl) == (2, "a", 8, 1, 512)
    assert (first.n_gpus, first.pp, first.dp, first.ep, first.rate_req_s) == (1, 1, 1, None, None)
    assert first.measured == {"output_tok_s": 700.5}
    assert (second.load, second.rate_req_s, second.measured) == ("poisson", 2.5, {"ttft_mean_ms": 88})


def test_case_of_columns_does_not_count(tmp_path: Path) -> None:
    named = GOOD.replace("gpu,model", "GPU,Model", 1)
    assert read_benchmarks(written(tmp_path, named)) == read_benchmarks(written(tmp_path, GOOD))


@pytest.mark.parametrize("mark", [";", "\t"])
def test_other_separators_are_named(tmp_path: Path, mark: str) -> None:
    told = [(1, f"columns must be separated by commas, not by {mark!r}")]
    assert problems(written(tmp_path, GOOD.replace(",", mark))) == told


def test_the_load_may_be_left_out_where_the_numbers_tell(tmp_path: Path) -> None:
    rows = read_benchmarks(written(tmp_path, "gpu,model,concurrency,rate_req_s\ng,m,4,\ng,m,,2\n"))
    assert [(row.load, row.id) for row in rows] == [("closed_loop", "line 2"), ("poisson", "line 3")]


def test_a_figure_of_zero_was_not_measured(tmp_path: Path) -> None:
    (row,) = read_benchmarks(written(tmp_path, "gpu,model,concurrency,tpot_mean_ms\ng,m,1,0\n"))
    assert row.measured == {}


def test_all_mistakes_come_at_once_with_their_lines(tmp_path: Path) -> None:
    text = (
        "id,gpu,model,load,isl,concurrency,rate_req_s,tp\n"
        "a,g,m,closed_loop,many,8,,1\n"
        "a,g,m,closed_loop,10,8,,1.5\n"
        "c,,m,poisson,10,,,1\n"
        "d,g,m,bursts,10,,,1\n"
        "e,g,m,closed_loop,-3,1,,\n"
        "f,g,m\n"
        "g,g,m,static_batch,5,,,\n"
    )
    assert problems(written(tmp_path, text)) == [
        (2, "isl must be a number, not 'many'"),
        (3, "tp must be a whole number, not 1.5"),
        (4, "gpu is missing"),
        (4, "load poisson needs rate_req_s"),
        (5, "unknown load 'bursts'; one of closed_loop, poisson, constant, burst, static_batch, single, trace"),
        (6, "isl must be more than 0, not -3"),
        (7, "3 fields where the first line names 8"),
        (8, "load static_batch needs concurrency or avg_batch"),
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", [(1, "is empty; its first line must name the columns, gpu, model at least")]),
        ("gpu,model\n", [(1, "holds no rows")]),
        ("gpu,isl\ng,1\n", [(1, "the column 'model' is missing")]),
        ("gpu,model,gpu\n", [(1, "the column 'gpu' is given twice")]),
        ("gpu,model,concurency\ng,m,1\n", [(1, "unknown column 'concurency'; did you mean concurrency?")]),
        (
            "id,gpu,model,concurrency\na,g,m,1\na,g,m,1\n",
            [(3, "the id 'a' is in line 2 too")],
        ),
        ("gpu,model,concurrency\ng,m,inf\n", [(2, "concurrency must be a number, not 'inf'")]),
        (
            "gpu,model,concurrency,measured_at\ng,m,1,server\n",
            [(2, "measured_at must be client or engine, not 'server'")],
        ),
        (
            "gpu,model,concurrency,gpu_memory_utilization\ng,m,1,90\n",
            [(2, "gpu_memory_utilization must be at most 1, not 90")],
        ),
        (
            "gpu,model,load,concurrency,isl\n,m,closedloop,4,x\n",
            [
                (2, "gpu is missing"),
                (2, "isl must be a number, not 'x'"),
                (2, f"unknown load 'closedloop'; one of {', '.join(LOADS)}"),
            ],
        ),
        ("gpu,model,load,concurrency\ng,m,closed_loop,x\n", [(2, "concurrency must be a number, not 'x'")]),
    ],
)
def test_a_bad_table(tmp_path: Path, text: str, found: list[tuple[int, str]]) -> None:
    assert problems(written(tmp_path, text)) == found


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BenchdataError, match=r"missing\.csv: cannot be read: no such file or directory"):
        read_benchmarks(tmp_path / "missing.csv")
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00gpu")
    with pytest.raises(BenchdataError, match="cannot be read"):
        read_benchmarks(tmp_path / "bytes.csv")


def test_the_replay_beside_the_table_is_found(tmp_path: Path) -> None:
    (tmp_path / "replay_G_M.csv").write_text("arrival_s,prompt_tokens,output_tokens\n")
    table = written(tmp_path, "id,gpu,model,load\na,G,M,trace\nb,H,M,trace\n")
    assert [row.replay for row in read_benchmarks(table)] == [str(tmp_path / "replay_G_M.csv"), ""]
