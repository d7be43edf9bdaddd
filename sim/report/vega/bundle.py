"""The JavaScript that draws charts in a page: Vega and Vega-Lite, as vl-convert carries them.

Bundling takes seconds, so the text is kept in the user's cache, by the versions that it was made of.
"""

import os
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

SNIPPET = "window.vegaEmbed=vegaEmbed;"


@cache
def bundle() -> str:
    """A script that defines `vegaEmbed`; nothing is fetched."""
    import vl_convert

    name = f"vega-{vl_convert.get_vega_version()}-lite-{vl_convert.get_vegalite_versions()[-1]}.js"
    kept = _cache() / name
    with suppress(OSError, UnicodeDecodeError):
        return kept.read_text(encoding="utf-8")
    text: str = vl_convert.javascript_bundle(SNIPPET).replace("</script", r"<\/script")
    with suppress(OSError):  # a cache that cannot be written is none
        kept.parent.mkdir(parents=True, exist_ok=True)
        handle, aside = tempfile.mkstemp(dir=kept.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(aside).replace(kept)
    return text


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpufleet"
