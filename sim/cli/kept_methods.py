"""Bytecode of the methods that dataclasses generate, kept between starts beside this module's own bytecode.

`dataclasses` compiles some 1,000 methods from text at each start of a command, which takes a sixth of a short one.
"""

import dataclasses
from importlib.util import cache_from_source
from pathlib import Path
from types import CodeType
from typing import Any

from sim.infile import KeptResults


def keep_generated_methods(file: Path | None = None) -> None:
    """Read the methods of dataclasses from *file* from now on, and add those that it lacks at exit."""
    kept = KeptResults(file or Path(cache_from_source(__file__)).with_suffix(".methods"))

    def run(source: str, scope: dict[str, Any] | None, names: dict[str, Any]) -> None:
        """Execute *source* as the built-in function `exec` does."""
        exec(kept.result(source, _compiled), scope, names)

    vars(dataclasses)["exec"] = run


def _compiled(source: str) -> CodeType:
    return compile(source, "<string>", "exec", dont_inherit=True)
