"""Scenarios that came with the program."""

from pathlib import Path


def scenario_file(path: Path) -> Path:
    """*path*, or the scenario of that name that came with the program."""
    if path.exists():
        return path
    inside = Path(*path.parts[1:]) if path.parts[:1] == ("scenarios",) else path
    for folder in _folders():
        for shipped in (folder / inside, folder / f"{inside}.yaml"):
            if not path.is_absolute() and shipped.is_file():
                return shipped
    return path


def shipped_folder() -> Path:
    """Where the scenarios lie: inside the installed package, else at the repository root."""
    return next(folder for folder in _folders() if folder.is_dir())


def meant(path: Path) -> str:
    """`; did you mean ...?` for a *path* where no file is: one beside it, or a shipped scenario; else nothing."""
    from sim.scenario.reading.errors import did_you_mean  # brings pydantic, which --help does without

    beside = [found.name for found in path.parent.glob("*.yaml")]
    shipped = [found.stem for folder in _folders() for found in folder.glob("*.yaml")]
    return did_you_mean(path.name, beside, listed=0) or did_you_mean(path.stem, shipped, listed=0)


def _folders() -> tuple[Path, Path]:
    package = Path(__file__).resolve().parents[2]
    return package / "scenarios", package.parent / "scenarios"
