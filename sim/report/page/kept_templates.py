"""Bytecode of compiled templates, kept between starts beside this module's own bytecode."""

import hashlib
import sys
from importlib.util import cache_from_source
from io import BytesIO
from pathlib import Path
from typing import Any

from sim.infile import keep_beside_bytecode


class KeptTemplates:
    """Cache of compiled templates in *folder*; by default the folder of this module's bytecode.

    It has the methods of jinja2.BytecodeCache that an environment calls, so that jinja2 is imported with the first
    page. A damaged file is replaced.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or Path(cache_from_source(__file__)).parent

    def get_bucket(self, environment: Any, name: str, filename: str | None, source: str) -> Any:
        """Return the bytecode of the template *name*; empty where there is none of this *source*."""
        from jinja2.bccache import Bucket

        bucket = Bucket(environment, name, hashlib.sha256(source.encode()).hexdigest())
        try:
            bucket.load_bytecode(BytesIO(self._file(name).read_bytes()))
        except Exception:  # pickle raises any error for a damaged file
            bucket.reset()
        return bucket

    def set_bucket(self, bucket: Any) -> None:
        """Write the bytecode in *bucket*."""
        keep_beside_bytecode(self._file(bucket.key), bucket.bytecode_to_string())

    def _file(self, name: str) -> Path:
        return self.folder / f"{name.replace('/', '.')}.{sys.implementation.cache_tag}.template"
