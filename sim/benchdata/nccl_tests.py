"""Times of all-reduces in the output of nccl-tests (`all_reduce_perf`)."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose
from pathlib import Path

from sim.benchdata.errors import BenchdataError
from sim.benchdata.served.files import TABLES
from sim.benchdata.served.scrapes import text_of
from sim.catalogue.catalog import Catalog
from sim.catalogue.data_folder import UnknownId
from sim.message import Message

US_PER_S = 1e6
RANK = re.compile(r"#\s+Rank\s+(\d+) ")
CARD = re.compile(r"#\s+Rank\s+\d+ .*\bdevice\s+\S+\s+\[\S+\]\s+(\S.*)")
"""Name of the GPU of a rank, as the driver reports it."""
HOST = re.compile(r"#\s+Rank\s+\d+ .*\bon\s+(\S+)\s+device\b")
TEST = re.compile(r"#\s*Collective test starting: (?:\S*/)?(\S+)")
"""Name of the test, in releases from 2.17 on."""
ALL_REDUCE = "all_reduce_perf"
HEADS = re.compile(r"#(\s+size\s+count\s+type\b.*)")
WRONG = re.compile(r"#\s+Out of bounds values\s*:\s*(\d+)\s+FAILED")
USUAL_HEADS = ("size", "count", "type", "redop", "root", "time")
"""Heads of the columns up to the out-of-place time [us]; releases before 2.11 have no root."""
SUM = "sum"
"""Reduction operation of all_reduce_perf; other tests print another or none."""
NO_ROOT = "-1"
"""Root of tests whose results all GPUs hold; reduce_perf sums as well, on one of them."""
UNCHECKED = "N/A"
"""Number of wrong results where the test checks none: in place in sendrecv_perf and alltoall_perf, all with -c 0."""
MEMORY = re.compile(r"-\d+gb")
"""Part of a GPU's id with its memory, which the driver's name may lack."""
LEAST_SIZES = 3
LEAST_BANDWIDTH, ROUNDING = 0.5, 0.05
"""Bandwidth from which a line is checked against its time [GB/s], and the relative deviation that is accepted."""


@dataclass(frozen=True, slots=True)
class AllReduceRun:
    """All-reduce times between the GPUs of one server."""

    gpus: int
    bytes: tuple[float, ...]
    """Message sizes in ascending order [B]."""
    time_s: tuple[float, ...]
    cards: tuple[str, ...] = ()
    """Names of the GPUs as the driver reports them, each once."""
    hosts: int = 1
    """Number of servers with GPUs of the run."""


def is_nccl_tests(text: str) -> bool:
    """Return whether *text* is the output of nccl-tests.

    >>> is_nccl_tests("# nThread 1 nGpus 2 minBytes 1024 maxBytes 2048"), is_nccl_tests("vllm:num_requests 3")
    (True, False)
    """
    return text.lstrip().startswith("# nThread") or HEADS.search(text) is not None


def read_all_reduce(path: Path, text: str) -> AllReduceRun:
    """Return the times in *text*, the content of *path*. Raises BenchdataError with all mistakes."""
    counts = Counter(RANK.findall(text))
    ranks, runs = len(counts), len({*counts.values()})
    cards = tuple(sorted({name.strip() for name in CARD.findall(text)}))
    found = HEADS.search(text)
    heads = found[1].split() if found else USUAL_HEADS
    time_column = heads.index("time") if "time" in heads else len(USUAL_HEADS) - 1
    problems: list[tuple[str, int, str]] = []
    times: dict[float, float] = {}
    tests, undecided = {*TEST.findall(text)}, False
    problems += [
        (str(path), 0, Message("holds times of {test}: measure with all_reduce_perf", test))
        for test in sorted(tests)
        if not test.startswith(ALL_REDUCE)  # builds with MPI may be called all_reduce_perf_mpi (NAME_SUFFIX)
    ]
    for number, line in enumerate(text.splitlines(), 1):
        cells = line.split()
        if not cells or cells[0].startswith("#") or not cells[0].isdigit():
            continue
        try:
            # a bandwidth follows each time; a line without it was cut off, perhaps within the time
            operation, time_us, bandwidths = cells[3], float(cells[time_column]), cells[time_column + 1 :]
            agrees = _of_all_reduce(float(cells[0]), time_us, bandwidths, ranks) and not _unchecked_in_place(bandwidths)
            agrees = agrees and ("root" not in heads or cells[heads.index("root")] == NO_ROOT)
            undecided |= ranks == 2 and bandwidths[2] == UNCHECKED and not tests
        except (IndexError, ValueError):
            problems.append(
                (str(path), number, "is not a line of all_reduce_perf: size, count, type, redop, root, time")
            )
            continue
        if operation != SUM or not 0 < time_us < float("inf") or not agrees:
            problems.append((str(path), number, "holds no time of an all-reduce that sums (all_reduce_perf)"))
        elif float(cells[0]) > 0:
            times[float(cells[0])] = time_us / US_PER_S
    if ranks < 2:
        problems.append(
            (str(path), 0, Message("names {ranks} GPUs; an all-reduce needs two: all_reduce_perf -g 2", ranks))
        )
    if undecided:
        reason = "does not tell all_reduce_perf from sendrecv_perf between two GPUs: measure without -c 0"
        problems.append((str(path), 0, reason))
    if runs > 1:
        problems.append((str(path), 0, "holds runs between different numbers of GPUs; each needs a file of its own"))
    if wrong := WRONG.search(text):
        problems.append((str(path), 0, Message("has {count} wrong sums: repair the link and measure again", wrong[1])))
    if not problems and len(times) < LEAST_SIZES:
        problems.append(
            (str(path), 0, Message("holds {count} message sizes; {least} are needed", len(times), LEAST_SIZES))
        )
    if problems:
        raise BenchdataError(problems)
    sizes: Sequence[float] = sorted(times)
    return AllReduceRun(
        ranks, tuple(sizes), tuple(times[size] for size in sizes), cards, max(1, len({*HOST.findall(text)}))
    )


def _of_all_reduce(size: float, time_us: float, bandwidths: Sequence[str], ranks: int) -> bool:
    """Return whether the printed *bandwidths* are those of an all-reduce between *ranks* GPUs, with a time in us.

    Other sums have the same columns: the bus bandwidth of a reduce-scatter is half of an all-reduce's.
    """
    algorithm, bus = float(bandwidths[0]), float(bandwidths[1])
    if algorithm < LEAST_BANDWIDTH or ranks < 2:
        return True
    same = isclose(algorithm * time_us * 1e3, size, rel_tol=ROUNDING)
    return same and isclose(bus, algorithm * 2 * (ranks - 1) / ranks, rel_tol=ROUNDING)


def _unchecked_in_place(bandwidths: Sequence[str]) -> bool:
    """Return whether the cells after a time are those of a test that checks its results out of place only.

    Between two GPUs sendrecv_perf has the columns and bandwidths of an all-reduce, which is checked in place, too.
    """
    return len(bandwidths) > 6 and bandwidths[2] != UNCHECKED and bandwidths[6] == UNCHECKED


def _other_card(card: str, gpu: str, catalog: Catalog) -> bool:
    """Return whether *card*, as the driver names it, is another GPU than *gpu* (an id), whatever its memory."""
    try:
        known = catalog.gpu(card).id
    except UnknownId:
        return False
    return MEMORY.sub("", known) != MEMORY.sub("", gpu)


def all_reduces_in(paths: Sequence[Path], gpu: str, catalog: Catalog) -> tuple[list[AllReduceRun], list[Path]]:
    """Return the runs of nccl-tests among *paths*, all on GPUs *gpu* (an id), and the other paths.

    Folders and files that cannot be read count as others. Raises BenchdataError with all mistakes.
    """
    runs: list[AllReduceRun] = []
    others: list[Path] = []
    problems: list[tuple[str, int, str]] = []
    for path in paths:
        try:
            text = text_of(path) if path.is_file() and path.suffix not in TABLES else ""
        except BenchdataError:
            text = ""
        if not is_nccl_tests(text):
            others.append(path)
            continue
        try:
            runs.append(read_all_reduce(path, text))
            problems += [
                (str(path), 0, Message("was measured on {card}, not on {gpu}: name its GPU with --gpu", card, gpu))
                for card in runs[-1].cards
                if _other_card(card, gpu, catalog)
            ]
        except BenchdataError as error:
            problems += error.problems
    if problems:
        raise BenchdataError(problems)
    return runs, others
