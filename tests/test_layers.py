"""The arrow of the architecture, read off the source: a module imports only what stands to the right of it.

{cli -> serve, agents, api} -> answers -> {jobs -> training} -> report -> study -> case -> fleet -> {engine, scenario}
cli -> {claims -> {jobs, training}, watch -> fidelity -> training} -> answers
scenario -> {workload steptime batchtime memory power routing batching cost} -> catalogue
scenario -> {coldstart autoscaling failures} -> catalogue
catalogue -> {validation -> registry -> spec, records} -> {csvio, yamlio, units, rng, decimals, native, otel}
{csvio yamlio} -> {infile, message}
engine -> {batching, records, units, rng, native}
study -> benchdata -> catalogue
{cli serve api answers report scenario} -> language -> message
{cli agents answers study} -> build
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest

import sim

BASE = frozenset({"csvio", "yamlio", "units", "rng", "infile", "decimals", "otel", "message", "native", "build"})
RECORDS = BASE | {"spec", "records", "registry", "validation"}
CATALOG = RECORDS | {"catalogue"}
PARTS = frozenset(
    {"workload", "steptime", "batchtime", "memory", "power", "routing", "batching", "cost", "coldstart"}
    | {"autoscaling", "failures"}
)
FLEET = CATALOG | PARTS | {"scenario", "engine"}
SPOKEN = frozenset({"language"})
"""Packages whose texts reach readers of the program."""
CORE = FLEET | SPOKEN | {"fleet", "case", "study", "report", "benchdata"}
WORK = CORE | {"training", "jobs"}

MAY_IMPORT: dict[str, frozenset[str]] = {
    "csvio": frozenset(),
    "infile": frozenset(),
    "decimals": frozenset(),
    "native": frozenset(),
    "build": frozenset(),
    "otel": frozenset(),
    "language": frozenset({"message"}),
    "message": frozenset(),
    "yamlio": frozenset({"infile", "message"}),
    "units": frozenset(),
    "rng": frozenset(),
    "spec": BASE,
    "records": BASE,
    "registry": BASE | {"spec"},
    "validation": BASE | {"spec", "registry"},
    "catalogue": RECORDS,
    "benchdata": CATALOG,
    **dict.fromkeys(PARTS, CATALOG),
    "scenario": CATALOG | PARTS | SPOKEN,
    "engine": frozenset({"batching", "records", "units", "rng", "native"}),
    "fleet": FLEET,
    "case": FLEET | {"fleet"},
    "study": FLEET | {"fleet", "case", "benchdata"},
    "report": FLEET | SPOKEN | {"fleet", "case", "study", "benchdata"},
    "training": CORE,
    "jobs": CORE | {"training"},
    "answers": WORK,
    "claims": WORK | {"answers"},
    "fidelity": CORE | {"training", "answers"},
    "serve": WORK | {"answers"},
    "api": WORK | {"answers"},
    "agents": WORK | {"answers"},
    "watch": WORK | {"answers", "fidelity"},
    "cli": WORK | {"answers", "serve", "claims", "fidelity", "agents", "watch"},
    "__main__": frozenset({"cli"}),
    "__init__": frozenset({"api", "answers"}),
}

WHO_KNOWS: dict[str, frozenset[str]] = {
    "yaml": frozenset({"yamlio"}),
    "simpy": frozenset({"fleet"}),
    "pandas": frozenset({"report", "api"}),
    "jinja2": frozenset({"report"}),
    "vl_convert": frozenset({"report"}),
    "xlsxwriter": frozenset({"report"}),
    "pydantic": frozenset(
        {"api", "claims", "spec", "registry", "validation", "catalogue", "scenario", "training", "jobs", "agents"}
    )
    | PARTS,
    "pydantic_core": frozenset({"spec", "registry", "validation", "catalogue", "scenario", "training"}) | PARTS,
    "pyarrow": frozenset({"csvio", "workload", "study", "report"}),
    "joblib": frozenset({"study", "claims", "fidelity"}),
    "distributed": frozenset({"study"}),
    "fsspec": frozenset({"answers"}),
    "typer": frozenset({"cli"}),
    "starlette": frozenset({"serve", "agents"}),
    "uvicorn": frozenset({"serve", "agents"}),
    "mcp": frozenset({"agents"}),
    "rich": frozenset({"report", "training", "jobs", "cli"}),
}

SLOW_TO_IMPORT = frozenset({"scipy", "joblib", "pyarrow", "fsspec"})
"""A command that does not need them starts without them, so any function may import them."""
LISTS = frozenset({"answers/questions.py"})
"""Lists that `gpufleet --help` and `import sim` read: they import messages; entries import the rest when called."""
HIDING = frozenset({"TYPE_CHECKING", "import_module", "__import__"})


@dataclass(frozen=True)
class Import:
    line: int
    module: str
    """Dotted and absolute: `sim.cost.ledger`, `numpy`."""
    inside_function: bool


def imports(tree: ast.AST, inside_function: bool = False) -> Iterator[Import]:
    """Every import of a file; `from sim import cost` counts as an import of sim.cost."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name, inside_function)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for name in [f"sim.{alias.name}" for alias in node.names] if module == "sim" else [module]:
                yield Import(node.lineno, name, inside_function)
        if not isinstance(node, ast.expr):  # most of a file, and none of its imports
            yield from imports(node, inside_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


IMPORT = re.compile(r"^(?:from|import) [^(\n]*(?:\([^)]*\))?", re.MULTILINE)
INDENTED = re.compile(rf"^ +(?:from \S+ )?import |{'|'.join(HIDING)}", re.MULTILINE)


def tree_of(text: str) -> ast.Module:
    """Return the syntax tree of *text*: of all if an import may stand or hide in a block, else up to the last import.

    To parse all of each file takes seconds, and ruff gives each import a line.
    """
    ends = [0] + [found.end() for found in IMPORT.finditer(text)]
    return ast.parse(text if INDENTED.search(text) else text[: ends[-1]])


def layer_of(package: Path, file: Path) -> str:
    return file.relative_to(package).parts[0].removesuffix(".py")


def complaints(package: Path) -> list[str]:
    """Return the violations of the rules in *package*, one line each; empty if there are none."""
    return [line for file in sorted(package.rglob("*.py")) for line in complaints_of(package, file)]


def complaints_of(package: Path, file: Path) -> Iterator[str]:
    layer, text = layer_of(package, file), file.read_text()
    where = file.relative_to(package.parent)
    if layer not in MAY_IMPORT:
        yield f"{where}: {layer} has no place in the arrow"
        return
    is_list, tree = file.relative_to(package).as_posix() in LISTS, tree_of(text)
    for found in imports(tree):
        if complaint := complaint_about(layer, found, is_list):
            yield f"{where}:{found.line}: {complaint}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute | ast.alias) and name_of(node) in HIDING:
            yield f"{where}:{node.lineno}: {name_of(node)} hides an import"


def name_of(node: ast.Name | ast.Attribute | ast.alias) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else node.name


def complaint_about(layer: str, found: Import, is_list: bool) -> str | None:
    first, _, rest = found.module.partition(".")
    if not first:
        return "imports are absolute"
    if first == "sim":
        target = rest.partition(".")[0]
        if target != layer and target not in MAY_IMPORT[layer]:
            return f"{layer} may not import {target or 'sim'}"
    elif layer not in WHO_KNOWS.get(first, {layer}):
        return f"{layer} may not import {first}"
    if is_list and first == "sim" and found.module != "sim.message" and not found.inside_function:
        return f"{found.module} is imported at the top of a list"
    lazily = is_list or (
        layer in ("cli", "__init__") or (layer in ("report", "fidelity") and first != "sim") or first in SLOW_TO_IMPORT
    )
    if found.inside_function and not lazily:
        return f"{found.module} is imported inside a function"
    return None


@pytest.mark.slow
def test_packages_import_only_from_lower_layers(root: Path) -> None:
    assert complaints(root / "sim") == []
    told = " ".join((root / "sim/__init__.py").read_text().split())
    assert [line for line in str(__doc__).splitlines()[2:] if line not in told] == []


def test_every_layer_of_the_arrow_exists(root: Path) -> None:
    assert {layer_of(root / "sim", file) for file in (root / "sim").rglob("*.py")} == MAY_IMPORT.keys()


@pytest.mark.slow
def test_the_picture_shows_every_room(root: Path) -> None:
    shown = re.findall(r'class="n">(\w+)<', (root / "docs/images/rooms.svg").read_text())
    assert sorted(shown) == sorted(MAY_IMPORT.keys() - {"__init__", "__main__"})


def test_what_is_imported_is_what_is_declared(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    declared = project["dependencies"] + [
        line for extra in ("cloud", "cluster", "mcp", "serve") for line in project["optional-dependencies"][extra]
    ]
    names = {re.split(r"[<>=~!\[; ]", line)[0] for line in declared}
    distributions = {"yaml": "pyyaml", "pydantic_core": "pydantic", "vl_convert": "vl-convert-python"}
    statement = re.compile(r"^ *(?:import|from) (\w+)(?:\.[\w.]+)?(?: import .*| as .*|)$", re.MULTILINE)
    imported = {name for file in (root / "sim").rglob("*.py") for name in statement.findall(file.read_text())}
    third_party = imported - sys.stdlib_module_names - {"sim", "mypy_extensions"}  # the latter where it is compiled
    third_party |= {"s3fs"}  # fsspec imports it for s3://
    assert {distributions.get(name, name) for name in third_party} == names


@pytest.mark.parametrize(
    ("file", "line", "complaint"),
    [
        ("cost/energy.py", "from sim.fleet.fleet import Fleet", "cost may not import fleet"),
        ("cost/energy.py", "from sim.workload import Workload", "cost may not import workload"),
        ("cost/energy.py", "from sim import power", "cost may not import power"),
        ("cost/energy.py", "import sim.case.run", "cost may not import case"),
        ("cost/energy.py", "import sim", "cost may not import sim"),
        ("engine/synchronous.py", "from sim.memory import fit", "engine may not import memory"),
        ("engine/synchronous.py", "from pydantic import BaseModel", "engine may not import pydantic"),
        ("engine/synchronous.py", "import simpy", "engine may not import simpy"),
        ("catalogue/gpu.py", "import yaml", "catalogue may not import yaml"),
        ("study/store.py", "import pandas as pd", "study may not import pandas"),
        ("case.py", "import vl_convert", "case may not import vl_convert"),
        ("case.py", "from .fleet import Fleet", "imports are absolute"),
        ("case.py", "def f():\n    from sim.fleet import fleet", "sim.fleet is imported inside a function"),
        ("report/html.py", "def f():\n    from sim.study import store", "sim.study is imported inside a function"),
        ("answers/run.py", "def f():\n    from sim.study import store", "sim.study is imported inside a function"),
        ("answers/questions.py", "from sim.study import store", "sim.study is imported at the top of a list"),
        ("answers/questions.py", "def f():\n    from sim.serve import jobs", "answers may not import serve"),
        ("case.py", "from typing import TYPE_CHECKING", "TYPE_CHECKING hides an import"),
        ("case.py", "import importlib\nimportlib.import_module('sim.cli')", "import_module hides an import"),
        ("elsewhere.py", "", "elsewhere has no place in the arrow"),
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, file: str, line: str, complaint: str) -> None:
    planted = tmp_path / "sim" / file
    planted.parent.mkdir(parents=True)
    planted.write_text(line)
    assert [text.split(": ", 1)[1] for text in complaints(tmp_path / "sim")] == [complaint]


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("cli.py", "def run():\n    from sim.report import write\n    from sim.study import execute"),
        ("answers/questions.py", "def compute():\n    from sim.study.capacity import capacities"),
        ("report/curves.py", "def draw():\n    import vl_convert"),
        ("scenario/plan.py", "from sim.cost import CostPlan\nfrom sim.records import Batch\nimport numpy as np"),
        ("cost/ledger.py", "from sim.cost.electricity import Energy\nfrom pydantic import Field"),
        ("engine/synchronous.py", "from sim.records import Batch, Leap"),
        ("fleet/replica.py", "import simpy\nfrom sim.engine.protocol import Engine"),
    ],
)
def test_what_the_design_allows_passes(tmp_path: Path, file: str, line: str) -> None:
    allowed = tmp_path / "sim" / file
    allowed.parent.mkdir(parents=True)
    allowed.write_text(line)
    assert complaints(tmp_path / "sim") == []


MOST_ANCESTORS = 3
DEEP_OPTIONS = frozenset(
    {"VllmLimits", "Vllm", "PrefillFirstLimits", "PrefillFirst", "ReserveLimits", "Reserve", "OfEngine"}
    | {"EngineOptions"}
    | {"RegisteredBatching", "RegisteredAutoscaling"}
)
"""Options of batching and autoscaling policies: pydantic inherits their fields, and no rule overrides another."""


def classes_of_sim() -> Iterator[type]:
    for module in walk_packages(sim.__path__, "sim."):
        if not module.name.endswith("__main__"):
            members = vars(import_module(module.name)).values()
            yield from (one for one in members if isinstance(one, type) and one.__module__ == module.name)


def tangled(one: type) -> list[str]:
    """Return what is wrong with the ancestors of *one* that this project defines; protocols are exempt."""

    def ways(start: type, ancestor: type) -> int:
        return 1 if start is ancestor else sum(ways(base, ancestor) for base in start.__bases__)

    project = one.__module__.partition(".")[0]
    ancestors = [
        base
        for base in one.__mro__[1:]
        if base.__module__.partition(".")[0] == project and not getattr(base, "_is_protocol", False)
    ]
    found = [f"{one.__name__} has {len(ancestors)} ancestors"] if len(ancestors) > MOST_ANCESTORS else []
    twice = [base.__name__ for base in ancestors if ways(one, base) > 1]
    return found + [f"{one.__name__} inherits {name} on two paths" for name in twice]


@pytest.mark.slow
def test_a_class_has_few_ancestors_and_each_on_one_path() -> None:
    found = [text for one in classes_of_sim() if one.__name__ not in DEEP_OPTIONS for text in tangled(one)]
    assert found == []


def test_a_long_line_and_a_diamond_are_found() -> None:
    top = type("Top", (), {})
    left, right = type("Left", (top,), {}), type("Right", (top,), {})
    assert tangled(left) == []
    assert tangled(type("Both", (left, right), {})) == ["Both inherits Top on two paths"]
    deep = type("Fourth", (type("Third", (type("Second", (left,), {}),), {}),), {})
    assert tangled(deep) == ["Fourth has 4 ancestors"]
