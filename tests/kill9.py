"""Kills gpufleet with signal 9 at random moments and runs it again to the end: nothing of the answer may differ.

    python tests/kill9.py [MOMENTS] [SEED]

Each of run, capacity, size, breakeven and plan is first run undisturbed. Then each is begun anew MOMENTS / 5 times and
killed, up to four times in a row, at moments drawn uniformly over the time that it takes; what it leaves in the end is
compared byte for byte with the undisturbed folder, dates and durations in manifest.json aside.
"""

import gc
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from coarse_answers import answer_coarsely

from sim import cli
from sim.report.charts.chart import Chart
from sim.study import breakeven

SCENARIO = """\
# What is left of it?
name: tiny
model: llama3.1-8b
workload:
  arrivals: {process: poisson, rate_rps: 2}
  lengths: {prompt: {distribution: fixed, value: 200}, output: {distribution: geometric, mean: 20}}
horizon_s: 3
replications: 2
slo: {ttft_s: 1.0, attainment: 0.9}
site: {electricity_usd_per_kwh: 0.2, pue: 1.3}
finance: {method: straight_line, life_years: 3}
fleets:
  - name: own
    pools: [{gpu: rtx-4090, batching: {policy: vllm, max_num_seqs: 2}}]
    cost: {acquisition: buy, quotes: {rtx-4090: 2000}}
  - name: rented
    pools: [{gpu: l4, batching: {policy: vllm, max_num_seqs: 4}}]
    cost: {acquisition: rent, quotes: {l4: 0.5}}
size:
  gpus: [rtx-4090, l4]
  tensor_parallel_sizes: [1]
  batching: [{policy: vllm, max_num_seqs: 4}]
  rents: {rented: {rtx-4090: rtx-4090/runpod-on-demand-2025-10}}
  max_replicas: 2
plan: {years: 1, starts: 2027-01, demand: {growth_per_year: 0.5}}
"""
RENTED = """{name: rented, pools: [{gpu: l4, batching: {policy: vllm, max_num_seqs: 4}}],
  cost: {acquisition: rent, quotes: {l4: 0.5}}}"""
"""Fleet for a search at random loads, where one is enough."""
MORE = {
    "run": ("--set", "precision={max_replications: 5}"),
    "capacity": ("--relative", "0.5", "--set", "precision={max_replications: 5}", "--set", f"fleets=[{RENTED}]"),
    "breakeven": ("--replications", "1"),
    "plan": ("--relative", "0.5", "--set", "replications=1"),
}
REPORTING = ("run",)
"""A page takes most of a command's time: of few moments only those of one command are spent on it."""
MANY = 100
# neither long searches for tipping points nor longer horizons write other files
answer_coarsely()
breakeven.STEPS = breakeven.HALVINGS = breakeven.LOADS_SHOWN = 3
COMMANDS = ("run", "capacity", "size", "breakeven", "plan")
IN_A_ROW = 4
"""Kills of one folder before it is run to the end."""


@dataclass
class Command:
    """Command of the program in a folder, started again and again."""

    name: str
    folder: Path
    more: tuple[str, ...] = ()
    """Options beside its own."""
    said: str = ""
    """Output on stderr at the end."""

    def imported(self, out: str) -> None:
        """Run it in this process, which then has what its forks need. It draws nothing: the threads of the program that
        draws do not live on in a fork.
        """
        assert self._ended(out) == 0

    def undisturbed(self, out: str) -> float:
        """Run it to the end; return the seconds that it took."""
        started = time.monotonic()
        self.finished(out)
        return time.monotonic() - started

    def _ended(self, out: str) -> int:
        """Run the command in this process, and return its exit code."""
        os.chdir(self.folder)
        sys.argv = ["gpufleet", self.name, "s.yaml", "--out", out, "--quiet", "--workers", "1"]
        sys.argv += (*MORE.get(self.name, ()), *self.more)
        try:
            cli.main()
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else 1
        return 0

    def begun(self, out: str) -> int:
        """Start the command in a fork of this process, and return its id; starting Python would take longest."""
        process = os.fork()
        if process:
            return process
        code = 1
        try:
            said = os.open(self.folder / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(said, 1)
            os.dup2(said, 2)
            code = self._ended(out)
        finally:
            sys.stderr.flush()
            os._exit(code)

    def finished(self, out: str) -> None:
        """Runs it to the end."""
        _, status = os.waitpid(self.begun(out), 0)
        said = (self.folder / "said").read_text()
        (self.folder / "said").unlink()
        assert status == 0, f"{self.name}: {said}"
        assert "damaged" not in said, said

    def killed(self, out: str, after_s: float) -> bool:
        """Kill the process after *after_s* seconds, and return whether it was still running."""
        process = self.begun(out)
        time.sleep(after_s)
        os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        return os.WIFSIGNALED(status)


def left_in(out: Path) -> dict[str, bytes]:
    """The content of every file, hidden ones too; the manifest without its times."""
    found = {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}
    manifest = json.loads(found["manifest.json"])
    for key in ("started_at", "wall_s", "command"):
        del manifest[key]
    found["manifest.json"] = json.dumps(manifest).encode()
    return found


def differing(one: dict[str, bytes], other: dict[str, bytes]) -> list[str]:
    return [name for name in sorted({**one, **other}) if one.get(name) != other.get(name)]


def moments(command: Command, count: int, chance: random.Random) -> Iterator[tuple[int, list[str]]]:
    """(kills, files that differ in the end) of one folder after the other, until there were *count* kills."""
    takes_s = command.undisturbed("undisturbed")
    expected = left_in(command.folder / "undisturbed")
    while count > 0:
        out, kills = command.folder / "out", 0
        for _ in range(min(IN_A_ROW, count)):
            kills += command.killed("out", chance.uniform(0, takes_s))
        command.finished("out")
        count -= kills
        yield kills, differing(left_in(out), expected)
        strangers = {path.name for path in command.folder.iterdir()} - {"s.yaml", "undisturbed", "out"}
        assert not strangers, strangers
        shutil.rmtree(out)


def without(name: str, count: int) -> tuple[str, ...]:
    """Options that leave out what *count* moments are too few for."""
    return () if count >= MANY or name in REPORTING else ("--no-report",)


def begun_anew(place: Path, name: str) -> Path:
    """A folder with the scenario."""
    folder = place / name
    folder.mkdir()
    (folder / "s.yaml").write_text(SCENARIO)
    return folder


def main(count: int, seed: int) -> int:
    if count < MANY:  # a picture of few moments is what would be drawn, for each fork would start the drawing program
        Chart._render = lambda self, *_: json.dumps(self.spec).encode()  # type: ignore[method-assign]
    chance, kills = random.Random(seed), Counter[str]()
    bad: list[str] = []
    with tempfile.TemporaryDirectory(prefix="kill9-") as place:
        for name in ("run", "size"):  # between them they import everything, which no later moment waits for
            Command(name, begun_anew(Path(place), f"warm-{name}"), ("--no-report",)).imported("out")
        built = cli.typer.main.get_command(cli.app)
        cli.typer.main.get_command = lambda _: built
        gc.freeze()  # or the first search for garbage in each fork would copy all of it
        for index, name in enumerate(COMMANDS):
            share = count // len(COMMANDS) + (index < count % len(COMMANDS))
            command = Command(name, begun_anew(Path(place), name), without(name, count))
            for killed, differ in moments(command, share, chance):
                kills[name] += killed
                bad += [f"{name}: {one} differs" for one in differ]
            print(f"{name}: killed {kills[name]} times", flush=True)
    print("\n".join(bad) or f"{kills.total()} kills, every file equal byte for byte")
    return 1 if bad else 0


if __name__ == "__main__":
    arguments = [int(word) for word in sys.argv[1:]]
    sys.exit(main(*(arguments + [500, 1][len(arguments) :])))
