"""Output of all_reduce_perf: its times, what is refused, and how it is told from other files."""

from pathlib import Path

import pytest

from sim.benchdata.errors import BenchdataError
from sim.benchdata.nccl_tests import all_reduces_in, is_nccl_tests, read_all_reduce
from sim.catalogue.catalog import load_catalog

HEAD = """\
# nThread 1 nGpus 2 minBytes 1024 maxBytes 4096 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#
# Using devices
#  Rank  0 Group  0 Pid   4242 on       host device  0 [0000:01:00] NVIDIA RTX PRO 6000 Blackwell Server Edition
#  Rank  1 Group  0 Pid   4242 on       host device  1 [0000:21:00] NVIDIA RTX PRO 6000 Blackwell Server Edition
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
TIMES = """\
        1024           256     float     sum      -1    20.50    0.05    0.05      0    20.10    0.05    0.05      0
        2048           512     float     sum      -1    21.00    0.10    0.10      0    20.60    0.10    0.10      0
        4096          1024     float     sum      -1    24.00    0.17    0.17      0    23.90    0.17    0.17      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 0.107
"""


def test_times_out_of_place_by_size() -> None:
    run = read_all_reduce(Path("a.txt"), HEAD + TIMES)
    assert (run.gpus, run.bytes) == (2, (1024, 2048, 4096))
    assert run.time_s == pytest.approx((20.5e-6, 21e-6, 24e-6))


def test_release_without_roots_has_its_time_one_column_earlier() -> None:
    old = (HEAD + TIMES).replace("  root ", "").replace("sum      -1", "sum").replace("#wrong", "error")
    assert read_all_reduce(Path("a.txt"), old) == read_all_reduce(Path("a.txt"), HEAD + TIMES)


def test_appended_runs_of_the_same_gpus_are_one() -> None:
    assert read_all_reduce(Path("a.txt"), 2 * (HEAD + TIMES)).gpus == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (HEAD + TIMES.replace("sum", "none"), "a.txt:10: holds no time of an all-reduce"),
        (HEAD + TIMES.replace(" -1 ", "  0 "), "a.txt:10: holds no time of an all-reduce"),  # reduce_perf
        (HEAD + TIMES.replace("21.00", "N/A", 1), "a.txt:11: is not a line of all_reduce_perf"),
        (HEAD + TIMES.replace("24.00", "0.00"), "a.txt:12: holds no time"),
        (HEAD + TIMES[: TIMES.index(".00    0.17") - 1], "a.txt:12: is not a line of all_reduce_perf"),
        (HEAD + TIMES.replace(": 0 OK", ": 7 FAILED"), "a.txt: has 7 wrong sums"),
        (HEAD.replace("#  Rank  1", "# R") + TIMES, "a.txt: names 1 GPUs"),
        (HEAD.replace("#  Rank  1", "#  Rank  0") + TIMES, "a.txt: names 1 GPUs"),
        (HEAD + TIMES + HEAD.replace("#  Rank  1", "# R") + TIMES, "a.txt: holds runs between different numbers"),
        (HEAD + "".join(TIMES.splitlines(keepends=True)[:2]), "a.txt: holds 2 message sizes; 3 are needed"),
    ],
)
def test_every_mistake_has_its_line(text: str, problem: str) -> None:
    with pytest.raises(BenchdataError) as error:
        read_all_reduce(Path("a.txt"), text)
    assert str(error.value).startswith(problem)


@pytest.mark.parametrize(
    ("time", "algorithm", "bus", "read"),
    [
        ("1000.0", "1.05", "1.05", True),
        ("1000.0", "1.05", "0.52", False),  # a reduce-scatter
        ("1.000", "1.05", "1.05", False),  # a time in ms
        ("0.000", "1.05", "1.05", False),
        ("1000.0", "inf", "inf", False),
        ("1000.0", "N/A", "N/A", False),
    ],
)
def test_bandwidths_of_another_test_or_unit_are_refused(time: str, algorithm: str, bus: str, read: bool) -> None:
    text = HEAD + TIMES + f"  1048576  262144  float  sum  -1  {time}  {algorithm}  {bus}  0\n"
    if read:
        assert read_all_reduce(Path("a.txt"), text).time_s[-1] == 1e-3
    else:
        with pytest.raises(BenchdataError, match=r"a.txt:15: "):
            read_all_reduce(Path("a.txt"), text)


SENT = TIMES.replace("  0\n", "N/A\n")
"""Times of sendrecv_perf between two GPUs, which checks no result in place."""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (HEAD + SENT, "a.txt:10: holds no time of an all-reduce"),
        (
            f"# Collective test starting: ./build/sendrecv_perf\n{HEAD + TIMES}",
            "a.txt: holds times of sendrecv_perf: measure with all_reduce_perf",
        ),
        (HEAD + SENT.replace("      0    ", "    N/A    "), "a.txt: does not tell all_reduce_perf from sendrecv_perf"),
    ],
)
def test_messages_between_two_gpus_are_no_all_reduces(text: str, problem: str) -> None:
    with pytest.raises(BenchdataError) as error:
        read_all_reduce(Path("a.txt"), text)
    assert str(error.value).startswith(problem)
    unchecked = "# Collective test starting: all_reduce_perf_mpi\n" + HEAD + SENT.replace("      0    ", "    N/A    ")
    assert read_all_reduce(Path("a.txt"), unchecked).gpus == 2


def test_times_of_another_gpu_are_refused(tmp_path: Path) -> None:
    catalog, card = load_catalog(), "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    (tmp_path / "a.txt").write_text(HEAD + TIMES)
    (tmp_path / "b.txt").write_text((HEAD + TIMES).replace(card, "NVIDIA Graphics Device"))
    with pytest.raises(BenchdataError, match=f"was measured on {card}, not on l40s: name its GPU with --gpu"):
        all_reduces_in([tmp_path / "a.txt"], "l40s", catalog)
    for name, gpu in (("a.txt", "rtx-pro-6000-server"), ("b.txt", "l40s")):
        [run], _ = all_reduces_in([tmp_path / name], gpu, catalog)
        assert (len(run.cards), run.hosts) == (1, 1)
    between = (HEAD + TIMES).replace("host device  1", "next device  1")
    assert read_all_reduce(Path("a.txt"), between).hosts == 2


def test_all_reduces_are_told_from_results(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(HEAD + TIMES)
    (tmp_path / "b.json").write_text('{"completed": 1}')
    (tmp_path / "c.csv").write_text("gpu,model\n")
    paths = [tmp_path / name for name in ("a.txt", "b.json", "c.csv", "missing.json")]
    [run], others = all_reduces_in(paths, "rtx-pro-6000-server", load_catalog())
    assert (run.gpus, others) == (2, paths[1:])
    assert is_nccl_tests(HEAD.split("\n", 1)[1])
