"""Where results may go."""

import tempfile
from pathlib import Path


def why_not(out: Path) -> str:
    """Why results may not go to *out*; empty if it is new, empty or an earlier run's, and can be written."""
    if out.is_dir():
        names = {child.name for child in out.iterdir()}
        manifest = out / "manifest.json"
        ours = manifest.is_file() and "gpufleet" in manifest.read_text(encoding="utf-8", errors="replace")
        if names and not ours and names != {"points"}:
            return "holds files that are no gpufleet run (no manifest.json of ours); name another folder"
    elif out.exists() or out.is_symlink():
        return "is no folder"
    above = out.absolute().parent
    while not above.exists() and above != above.parent:
        above = above.parent
    try:
        for folder in {above, out} if out.is_dir() else {above}:
            Path(tempfile.mkdtemp(prefix=".gpufleet-", dir=folder)).rmdir()
    except OSError as error:
        return f"cannot be written: {(error.strerror or str(error)).lower()}"
    return ""
