"""Bytecode of compiled templates, kept between starts beside this module's own bytecode."""

import hashlib
import sys
from importlib.util import cache_from_source
from io import BytesIO
from pathlib import Path
from typing import Any

from sim.infile import keep_beside_bytecode, kept_beside_bytecode


class KeptTemplates:
    """Cache of compiled templates in *folder*; by default the folder of this module's bytecode.

    It has the methods of jinja2.BytecodeCache that an environment calls, so that jinja2 is imported with the first
    page. A damaged file is replaced.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or Path(cache_from_source(__file__)).parent

    def get_bucket(self, environment: Any, name: str, filename: str | None, source: str) -> Any:
        """Return the bytecode of the template *name*; empty where none is of this *source*, compiled in this way."""
        from importlib.metadata import version

        from jinja2.bccache import Bucket

        options = environment.autoescape, environment.trim_blocks, environment.lstrip_blocks
        compiled_from = repr((version("jinja2"), options, source))
        bucket = Bucket(environment, name, hashlib.sha256(compiled_from.encode()).hexdigest())
        if kept := kept_beside_bytecode(self._file(name)):
            bucket.load_bytecode(BytesIO(kept))
        return bucket

    def set_bucket(self, bucket: Any) -> None:
        """Write the bytecode in *bucket*."""
        keep_beside_bytecode(self._file(bucket.key), bucket.bytecode_to_string())

    def _file(self, name: str) -> Path:
        return self.folder / f"{name.replace('/', '.')}.{sys.implementation.cache_tag}.template"
