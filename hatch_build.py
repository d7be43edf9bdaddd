"""Compilation of the simulation's hot modules with mypyc: in place (`make fast`), and into wheels.

    python hatch_build.py                      # in place: beside their sources
    GPUFLEET_COMPILE=1 python -m build -w      # a wheel for this Python and platform

Both need a C compiler; the first one needs mypy and setuptools in the environment (`pip install -e '.[dev]'`), the
second installs what it needs. One source serves both: `GPUFLEET_PURE=1` imports it past the compiled modules.
"""

import argparse
import os
import shutil
import sysconfig
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
COMPILED = (
    "sim/records.py",
    "sim/engine/*.py",
    "sim/engine/kv/*.py",
    "sim/engine/schedulers/*.py",
    *(f"sim/fleet/{name}.py" for name in ("admission", "arrivals", "clock", "fleet", "intake", "kv_transfer")),
    *(f"sim/fleet/{name}.py" for name in ("metering", "replica", "routing", "run")),
    "sim/routing/buckets.py",
    *(f"sim/steptime/{name}.py" for name in ("affine_step_time", "attention", "gemm", "roofline")),
)
"""Modules that are compiled: those of the event loop, and those that their classes share fields with."""
GROUP = "gpufleet"
"""Name of the library that holds the code of all compiled modules, beside `sim`."""


def modules(root: Path) -> list[Path]:
    """Return the compiled modules below *root*, relative to it."""
    found = (file.relative_to(root) for pattern in COMPILED for file in root.glob(pattern))
    return sorted(file for file in found if file.name != "__init__.py")


def built(root: Path) -> list[Path]:
    """Return the files that a compilation in *root* has left, relative to it."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    files = [*root.glob(f"{GROUP}__mypyc*{suffix}"), *(root / "sim").rglob(f"*{suffix}")]
    return sorted(file.relative_to(root) for file in files)


def clean(root: Path) -> None:
    """Remove what a compilation in *root* has left."""
    for file in built(root):
        (root / file).unlink()


def compile_in_place(root: Path, jobs: int) -> None:
    """Compile the modules below *root* beside their sources, with *jobs* processes."""
    from mypyc.build import mypycify
    from setuptools import Distribution

    clean(root)
    before, scratch = Path.cwd(), tempfile.mkdtemp(prefix="gpufleet-compile-")
    os.chdir(root)  # mypy and the names of modules go by the working directory
    try:
        sources = ["--follow-imports=silent", *map(str, modules(root))]  # mistakes elsewhere are the linter's
        extensions = mypycify(sources, opt_level="2", multi_file=True, group_name=GROUP, target_dir=scratch)
        for one in extensions:
            one.extra_compile_args += ["-g0"]
        # a distribution of its own: setuptools would read, and refuse, hatch's pyproject.toml
        command: Any = Distribution({"name": GROUP, "ext_modules": extensions}).get_command_obj("build_ext")
        command.inplace, command.parallel, command.build_temp = True, jobs, scratch
        command.ensure_finalized()
        command.run()
    finally:
        os.chdir(before)
        shutil.rmtree(scratch, ignore_errors=True)


class CustomBuildHook(BuildHookInterface[Any]):
    """Build hook that compiles a wheel where GPUFLEET_COMPILE=1 asks for it."""

    def _is_asked(self) -> bool:
        return self.target_name == "wheel" and os.environ.get("GPUFLEET_COMPILE", "") not in ("", "0")

    def dependencies(self) -> list[str]:
        """Return what the build needs beside hatchling: mypy checks types against the packages themselves."""
        if not self._is_asked():
            return []
        project = tomllib.loads((Path(self.root) / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        own = [line for line in project["optional-dependencies"]["dev"] if line.startswith("mypy")]
        return [*own, *project["dependencies"]]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the modules into the wheel; an editable install imports the sources."""
        if not self._is_asked() or version == "editable":
            return
        root = Path(self.root)
        compile_in_place(root, os.cpu_count() or 1)
        build_data["pure_python"], build_data["infer_tag"] = False, True
        build_data["force_include"] |= {str(root / file): str(file) for file in built(root)}

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Leave the sources of a compiled wheel as they were."""
        if self._is_asked() and version != "editable":
            clean(Path(self.root))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes of the C compiler")
    compile_in_place(ROOT, parser.parse_args().jobs)
    print(f"compiled {len(modules(ROOT))} modules; GPUFLEET_PURE=1 runs their sources")
