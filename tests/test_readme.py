"""README and docs do what they say: every command runs, every file that they name is there, every link leads to it."""

import os
import re
import shutil
import stat
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import TestCase

import pytest
import yaml
from pydantic import TypeAdapter
from warm import Warm

from sim.api import public
from sim.catalogue.catalog import Catalog
from sim.scenario.reading.load import load
from sim.workload.arrivals import Arrivals

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
PAGES = {
    page.relative_to(ROOT).as_posix(): page.read_text()
    for page in (*ROOT.glob("*.md"), *sorted(ROOT.glob("docs/*.md")))
}

CATALOG = Catalog(ROOT / "data")

NOT_HERE = ("git clone", "cd gpufleet", "make test", "make lint", "make language", ".venv/bin/python -m pytest")
"""Lines that a test does not run: it stands in the clone already, and it is part of the tests."""


def blocks(text: str) -> list[str]:
    """The ```sh blocks of *text*."""
    return re.findall(r"^```sh\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def runnable(block: str) -> str:
    return "".join(line for line in block.splitlines(keepends=True) if not line.startswith(NOT_HERE))


SHORT_S, SHORT_WARMUP_S, FEW = 10, 2, 2
"""Horizon, warm-up and most replications of the commands here: whether a command runs does not depend on them."""

IMPORTS = f"""
import os, sys
import scipy.optimize
import sim.api.public, sim.cli
from sim.study import breakeven, cost_gap
sys.path.append({str(ROOT / "tests")!r})
from coarse_answers import answer_coarsely
from sketches import sketch
from sim.report.charts.chart import Chart
Chart._render = sketch
cost_gap.FULL_HORIZON_S = {SHORT_S}
answer_coarsely()
breakeven.STEPS = breakeven.HALVINGS = 3
os.cpu_count = lambda: 1  # other tests run on the other cores
os.fsync = lambda _: None
# what a first command imports and builds, as later ones in forks
import tempfile
from contextlib import suppress
from contextvars import copy_context
from sim import cli
sys.argv = ["gpufleet", "run", {str(ROOT / "scenarios/4x4090-vs-2xa100.yaml")!r}, "--quiet"]
sys.argv += ["--set", "horizon_s=2", "--set", "warmup_s=0", "--set", "sweep=null", "--replications", "1"]
with tempfile.TemporaryDirectory() as out, suppress(SystemExit), open(os.devnull, "w") as sys.stdout:
    sys.argv += ["--out", out]
    copy_context().run(cli.main)
sys.stdout = sys.__stdout__
from sim.catalogue import catalog
catalog._shipped_catalog.cache_clear()  # commands add entries
build, built = cli.typer.main.get_command, cli.typer.main.get_command(cli.app)
cli.typer.main.get_command = lambda app: built if cli.current() == cli.ENGLISH else build(app)
"""


def shortened(text: str) -> str:
    """*text* of a scenario or a block, short and coarse; where the run itself decides how long, as it is."""
    text = re.sub(r"(--|\b)relative(:?) [\d.]+", r"\1relative\2 0.5", text)
    text = re.sub(r"\breplications: (?:[3-9]|\d\d+)\b", f"replications: {FEW}", text)
    text = re.sub(r"\b(rate_rps: \[)0.25, 0.5, 1, 2, 4\]", r"\g<1>0.25, 2]", text)
    text = re.sub(r",512,128,\d+,", ",512,8,4,", text)  # runs of a benchmark
    text = re.sub(r"\btensor_parallel_sizes: \[1, 2.*\]", "tensor_parallel_sizes: [2]", text)
    text = re.sub(r"\b(quantizations|batching): \[([\w-]+|{}), .*\]", r"\1: [\2]", text)
    if "warmup_s=auto" in text:
        return text
    text = re.sub(r'\b(horizon_s"?(?:: |=))[1-9]\d*', rf"\g<1>{SHORT_S}", text)
    return re.sub(r'\b(warmup_s"?(?:: |=))[1-9]\d*', rf"\g<1>{SHORT_WARMUP_S}", text)


def linked(source: str, target: str) -> None:
    """*target* as another name of *source*, which costs nothing; a copy where the disk is another one."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the working tree with an environment as after a first `make`, for one block after the other."""
    copy = tmp_path_factory.mktemp("readme") / "clone"
    # compiled modules travel, or each command would compile them all; another worker may be writing one (*.pyc.*), or
    # kept methods (*.cpython-311.<process>)
    left_out = shutil.ignore_patterns(".*", "outputs", "dist", "*.pyc.*", "*.cpython-*.[0-9]*")
    copy.mkdir()
    shutil.copytree(ROOT / "sim", copy / "sim", ignore=left_out, copy_function=linked)
    for folder in ("data", "scenarios", "docs"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=left_out)
    for file in ("Makefile", "pyproject.toml"):
        shutil.copy2(ROOT / file, copy / file)
    for scenario in (copy / "scenarios").glob("*.yaml"):
        scenario.write_text(shortened(scenario.read_text()))
    with (copy / "scenarios/futures-4x4090-vs-2xa100.yaml").open("a") as file:
        file.write("futures: {draws: 100}\n")
    programs = copy / ".venv" / "bin"
    programs.mkdir(parents=True)
    program = Warm(copy, IMPORTS)
    for name, module in {"gpufleet": "sim", "snippet": "snippet"}.items():
        command = programs / name
        command.write_text(program.client(module))
        command.chmod(command.stat().st_mode | stat.S_IXUSR)
    (programs / "activate").write_text(f'PATH="{programs}:$PATH"\n')
    for stamp in (".stamp-venv", ".stamp-run"):
        (copy / ".venv" / stamp).touch()
    yield copy
    program.stop()


@pytest.mark.slow
def test_the_python_of_the_readme(clone: Path) -> None:
    (snippet,) = re.findall(r"^```python\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    (clone / "snippet.py").write_text(shortened(snippet))
    command = [clone / ".venv" / "bin" / "snippet"]
    printed = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=True)
    assert "2x A100 80GB" in printed.stdout


def test_the_start_without_a_clone_names_an_extra_and_a_command_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    start = r"^(?:uvx --from|pipx run --spec) '(\w+)\[(\w+)\]' (\w+) serve$"
    for name, extra, command in (found := re.findall(start, README, flags=re.MULTILINE)):
        assert name == project["name"]
        assert extra in project["optional-dependencies"]
        assert command in project["scripts"]
    assert len(found) == 2


BLOCKS = {block: f"{page}: {block.splitlines()[0]}" for page, text in PAGES.items() for block in blocks(text)}
"""Blocks of commands; a block that is on two pages runs once."""


@pytest.mark.slow
@pytest.mark.parametrize("block", [pytest.param(block, id=name) for block, name in BLOCKS.items()])
def test_every_command_runs(clone: Path, block: str) -> None:
    path = f"{clone / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["/bin/sh", "-e"],
        input=shortened(runnable(block)),
        cwd=clone,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES)
def test_every_named_file_is_there(page: str) -> None:
    named = re.findall(r"`((?:sim|tests|data|scenarios|docs|benchmarks)/[\w./-]*)`", PAGES[page])
    links = re.findall(r"\]\(((?!http)[\w./-]+)[)#]", PAGES[page])
    missing = [name for name in named if not (ROOT / name).exists()]
    missing += [link for link in links if not (ROOT / page).parent.joinpath(link).exists()]
    assert missing == []


def test_the_readme_leads_to_every_page() -> None:
    assert [page for page in PAGES if page.startswith("docs/") and f"]({page})" not in README] == []


def test_every_arrival_process_is_one() -> None:
    texts = [*PAGES.values(), (ROOT / "sim/scenario/template.py").read_text()]
    written = {found for text in texts for found in re.findall(r"\{(process: \w+, [^{}]*)\}", text)}
    for process in sorted(written):
        data = yaml.safe_load(f"{{{process}}}".replace("[24 rates]", str([1] * 24)))
        TypeAdapter(Arrivals).validate_python(data)
    assert len(written) > 10


@pytest.mark.parametrize(
    "answer", re.findall(r"^\| [^|]+\? \| (`.+`) \|$", PAGES["docs/finance.md"], flags=re.MULTILINE)
)
def test_answers_of_finance_are_settings_of_its_example(answer: str) -> None:
    file = ROOT / "scenarios" / "breakeven-4x4090-vs-2xa100.yaml"
    scenario = load(file, re.findall("`(.+?)`", answer), catalog=CATALOG)
    assert scenario.breakeven is not None


OFFERED = [getattr(public, name) for name in public.__all__]
MODULES = {one.__module__ for offered in OFFERED for one in getattr(offered, "__mro__", (offered,))} | {public.__name__}
DOCUMENTED = {name[:end] for one in MODULES for name in [f"{one}."] for end, mark in enumerate(name) if mark == "."}
"""Modules of what `import sim` offers, and their packages: to read all others takes seconds."""


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_the_site_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strictly: a link or an anchor that leads nowhere is an error. Without the search, which indexes every word."""
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    import griffe
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    submodules = griffe.ModuleFinder.submodules

    def of_documented(finder: Any, module: Any) -> list[Any]:
        return [one for one in submodules(finder, module) if ".".join((module.path, *one[0])) in DOCUMENTED]

    monkeypatch.setattr(griffe.ModuleFinder, "submodules", of_documented)
    settings = ROOT / "mkdocs.yml"
    plugins = [plugin for plugin in yaml.safe_load(settings.read_text())["plugins"] if plugin != "search"]
    config = load_config(str(settings), site_dir=str(tmp_path), plugins=plugins, strict=False)
    config.plugins.on_startup(command="build", dirty=False)
    with TestCase().assertNoLogs("mkdocs", "WARNING"):
        build(config)
    assert "rtx-4090" in (tmp_path / "reference" / "catalogue" / "index.html").read_text()
    assert "rate_<wbr>rps" in (tmp_path / "reference" / "scenario" / "index.html").read_text()
    assert "requests_cost" in (tmp_path / "reference" / "scenario-1.schema.json").read_text()
    assert "sim.api.public.capacity" in (tmp_path / "reference" / "python" / "index.html").read_text()


@pytest.mark.slow
def test_every_dependency_has_its_line(root: Path) -> None:
    project = (root / "pyproject.toml").read_text()
    declared = re.findall(r'^    "([\w-]+)>=', project, flags=re.MULTILINE)
    page = (root / "CONTRIBUTING.md").read_text()
    assert [name for name in declared if f"| {name} |" not in page] == []
