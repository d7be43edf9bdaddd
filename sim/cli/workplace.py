"""Processes or clusters on which commands simulate."""

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from sim.cli.frame import INTERRUPTED, OTHER_FAILURE, OWN_PROCESS, fail, print_to_stderr, process_count
from sim.message import Message, joined

Address = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="A dask scheduler that runs the points: tcp://host:8786 or tls://host:8786.",
    ),
]

Wait = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        metavar="SECONDS",
        help="With --cluster: how long to continue without any worker; default: 30.",
    ),
]
PLAIN = (
    "--cluster {address}: neither encrypted nor authenticated: anyone on the network can read it and run programs as "
    "you; use tls:// and certificates, or a network that only you reach (docs/cluster.md)"
)


@contextmanager
def workplace(
    workers: int | None, cluster: str | None, wait_s: float | None, out: Path, scenario: Any, file: Path
) -> Iterator[Any]:
    """Provide the cluster at address *cluster*, else *workers* processes of this machine, and lock the folder *out*.

    Parameters
    ----------
    workers
        Number of processes; None: one per CPU core.
    cluster
        Address of a dask scheduler; None: processes of this machine.
    wait_s
        Time to continue without any worker of the cluster [s]; None: 30.
    out
        Folder of the results, named in the message after an interrupt.
    scenario
        Scenario of the command.
    file
        File of the scenario; only files below its folder are sent to a cluster.

    """
    from sim.answers.folder import owned

    if cluster is not None:
        _refuse_files_elsewhere(scenario, file.absolute().parent)
    before = signal.signal(signal.SIGTERM, _terminate)  # batch systems send SIGTERM at the time limit
    try:
        with owned(out), _cores(workers) if cluster is None else _cluster(cluster, wait_s) as found:
            yield found
    except KeyboardInterrupt:
        fail(_interrupted(out), OTHER_FAILURE if _terminated else INTERRUPTED)
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def whole_or_nothing(folder: Path) -> Iterator[None]:
    """Lock *folder* for a command that leaves nothing there unless it completes."""
    from concurrent.futures.process import BrokenProcessPool

    from sim.answers.folder import owned

    try:
        with owned(folder):
            yield
    except BrokenProcessPool:
        fail("a worker process was killed, perhaps for lack of memory; nothing is kept", OTHER_FAILURE)
    except KeyboardInterrupt:
        fail("interrupted; nothing is kept", INTERRUPTED)


def _refuse_files_elsewhere(scenario: Any, folder: Path) -> None:
    """Refuse to send files from outside *folder* to a cluster, since a foreign scenario may name any file.

    A run of the workspace sends the files that it may read.
    """
    from sim.infile import allowed_folders
    from sim.study.execution.digest import files_outside

    lines = [
        Message(
            "--cluster: {path} does not lie below {folder}, and only files there are sent to workers: copy it there",
            path,
            folder,
        )
        for path in files_outside(scenario, *(allowed_folders() or [folder]))
    ]
    if lines:
        fail(joined("\n", lines))


_terminated: list[bool] = []
"""Non-empty once a SIGTERM has ended the command."""


def _terminate(*_: object) -> None:
    _terminated.append(True)
    raise KeyboardInterrupt


def _interrupted(out: Path) -> str:
    """Return what an interrupted command keeps in *out*, and how to go on."""
    # hidden folders belong to cases that were being written
    kept = sum(1 for _case in out.glob("points/[!.]*/case.json"))
    if not kept:
        return Message(
            "{out}: interrupted before a case was finished: nothing is kept; the same command starts again", out
        )
    if kept == 1:
        return Message("{out}: interrupted; 1 finished case is kept, and the same command continues from there", out)
    return Message(
        "{out}: interrupted; {kept:,} finished cases are kept, and the same command continues from there", out, kept
    )


@contextmanager
def _cores(workers: int | None) -> Iterator[Any]:
    from sim.study.execution.cases import WorkerLost
    from sim.study.execution.cores import ProcessPool

    try:
        with ProcessPool(process_count(workers), fork=OWN_PROCESS.get()) as cores:
            yield cores
    except WorkerLost as error:
        fail(str(error), OTHER_FAILURE)


@contextmanager
def pictures_beside(workers: int | None, report: bool) -> Iterator[None]:
    """Draw the pictures of a *report* in a process of its own, which starts at once, unless *workers* is 1."""
    if not report or not OWN_PROCESS.get() or process_count(workers) == 1:
        yield
        return
    from sim.report.charts.fonts import start_converter
    from sim.study.execution.forked import assisted

    with assisted(start_converter):
        yield


def check_cluster(address: str) -> None:
    """End the command unless dask is there and *address* is one of a scheduler; warn of an open connection."""
    if not re.fullmatch(r"[a-z]+://(\[[0-9a-f:]+\]|[^\s/:]+):\d+", address):
        shown = re.sub(r"//.*@", "//", address)  # no user and password
        fail(Message("--cluster {address}: an address such as tcp://host:8786 or tls://host:8786 is needed", shown))
    if find_spec("distributed") is None:
        fail("--cluster needs dask.distributed: pip install 'gpufleet[cluster]'")
    if not address.startswith("tls://"):
        print_to_stderr(PLAIN.format(address=address))


@contextmanager
def _cluster(address: str, wait_s: float | None) -> Iterator[Any]:
    from sim.infile import allowed_folders

    if allowed_folders() is None:  # the server of a run of the workspace has checked the address
        check_cluster(address)
    from sim.study.execution.cluster import Cluster, ClusterError

    try:
        with Cluster(
            address,
            wait_s,
            lambda sentence: print_to_stderr(Message("--cluster: {sentence}", sentence)),
        ) as machines:
            yield machines
    except ClusterError as error:
        fail(Message("--cluster: {error}", error), OTHER_FAILURE)
