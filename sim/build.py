"""The program itself: its version, and whether its modules are compiled; found without importing them."""

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec


def program_version() -> str:
    """Return the version of the installed package; `source tree` where none is installed."""
    try:
        return version("gpufleet")
    except PackageNotFoundError:
        return "source tree"


def is_compiled() -> bool:
    """Return whether the modules that a compiler may build are imported as compiled ones."""
    spec = find_spec("sim.records")
    return spec is not None and not str(spec.origin).endswith(".py")
