"""The JavaScript that draws charts in a page: Vega and Vega-Lite, as vl-convert carries them.

Bundling takes seconds, so the text is kept in the user's cache, by the versions that it was made of.
"""

import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from zlib import crc32

from sim.study.cases.durable import write_whole

SNIPPET = "window.vegaEmbed=vegaEmbed;"


@cache
def bundle() -> str:
    """A script that defines `vegaEmbed`; nothing is fetched."""
    import vl_convert

    made_of = (vl_convert.get_vega_version(), vl_convert.get_vegalite_versions()[-1], f"{crc32(SNIPPET.encode()):x}")
    name = f"vega-{'-'.join(made_of)}.js"
    with suppress(OSError, RuntimeError, UnicodeDecodeError):  # there may be no home
        return (_cache() / name).read_text(encoding="utf-8")
    text: str = vl_convert.javascript_bundle(SNIPPET).replace("</script", r"<\/script")
    with suppress(OSError, RuntimeError):  # a cache that cannot be written is none
        write_whole(_cache() / name, text)
    return text


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpufleet"
