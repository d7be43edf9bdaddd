"""Scenarios that are shipped with the program."""

from pathlib import Path


def scenario_file(path: Path) -> Path:
    """Return *path* if it exists, else the shipped scenario of that name."""
    if path.exists():
        return path
    inside = Path(*path.parts[1:]) if path.parts[:1] == ("scenarios",) else path
    for folder in _folders():
        for shipped in (folder / inside, folder / f"{inside}.yaml"):
            if not path.is_absolute() and shipped.is_file():
                return shipped
    return path


def shipped_folder() -> Path:
    """Return the folder of shipped scenarios: inside the installed package, else at the repository root."""
    return next(folder for folder in _folders() if folder.is_dir())


def shipped_names() -> list[str]:
    """Return the names of all shipped scenarios."""
    return [found.stem for folder in _folders() for found in folder.glob("*.yaml")]


def _folders() -> tuple[Path, Path]:
    package = Path(__file__).resolve().parents[2]
    return package / "scenarios", package.parent / "scenarios"
