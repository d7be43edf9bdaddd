"""Execution of gpufleet commands as child processes, with their output, progress and a time limit."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from sim.agents.workspace import Refused
from sim.message import Message

Progress = Callable[[float, str], Awaitable[None]]
"""Receiver of (seconds since the start, line of progress)."""
LONGEST_LINE = 1_000_000
"""Longest line of progress [bytes]."""


@dataclass(frozen=True, slots=True)
class Finished:
    """Exit code and output of a command that has ended."""

    code: int
    stdout: str
    stderr: str


Execute = Callable[[Sequence[str], Path, float, Progress], Awaitable[Finished]]
"""Function (words of the command, working directory, time limit [s], receiver of progress) that runs a command."""


async def in_child(words: Sequence[str], root: Path, limit_s: float, progress: Progress) -> Finished:
    """Run `gpufleet` with *words* in a child process, which has ended when this call returns.

    Raises
    ------
    Refused
        The command takes longer than *limit_s*.

    """
    source = str(Path(__file__).resolve().parents[2])
    known = os.environ.get("PYTHONPATH")
    environment = os.environ | {"PYTHONPATH": f"{source}{os.pathsep}{known}" if known else source, "NO_COLOR": "1"}
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "sim", "--lang", "en", *words),
        cwd=root,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=LONGEST_LINE,
        start_new_session=True,
    )
    began, lines = monotonic(), list[str]()

    async def follow() -> None:
        assert child.stderr is not None
        async for line in child.stderr:
            lines.append(line.decode(errors="replace").rstrip())
            await progress(monotonic() - began, lines[-1])

    async def output() -> bytes:
        assert child.stdout is not None
        return await child.stdout.read()

    try:
        async with asyncio.timeout(limit_s):
            _, stdout = await asyncio.gather(follow(), output())
            code = await child.wait()
    except TimeoutError:
        raise Refused(
            Message("stopped after {limit:g} s; a shorter horizon_s, fewer points or replications take less", limit_s)
        ) from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        await child.communicate()  # reads the output left in the pipes
    return Finished(code, stdout.decode(errors="replace"), "\n".join(lines))
