"""Bytecode of the methods that dataclasses generate, kept between starts beside this module's own bytecode.

`dataclasses` compiles some 1,000 methods from text at each start of a command, which takes a sixth of a short one.
"""

import atexit
import dataclasses
import marshal
from importlib.util import cache_from_source
from pathlib import Path
from types import CodeType
from typing import Any

from sim.infile import keep_beside_bytecode, kept_beside_bytecode

MOST_KEPT = 10_000
"""Largest number of kept methods; beyond it, only those that the latest start lacked are kept."""


def keep_generated_methods(file: Path | None = None) -> None:
    """Read the methods of dataclasses from *file* from now on, and add those that it lacks at exit.

    A damaged file is replaced.
    """
    file = file or Path(cache_from_source(__file__)).with_suffix(".methods")
    found = kept_beside_bytecode(file)
    kept: dict[str, bytes] = marshal.loads(found) if found else {}
    added: dict[str, bytes] = {}

    def run(source: str, scope: dict[str, Any] | None, names: dict[str, Any]) -> None:
        """Execute *source* as the built-in function `exec` does."""
        code: CodeType
        if source in kept:
            code = marshal.loads(kept[source])
        else:
            code = compile(source, "<string>", "exec", dont_inherit=True)
            added[source] = marshal.dumps(code)
        exec(code, scope, names)

    def write() -> None:
        if added:
            both = kept | added
            keep_beside_bytecode(file, marshal.dumps(both if len(both) <= MOST_KEPT else added))

    vars(dataclasses)["exec"] = run
    atexit.register(write)
