"""What is wrong with the command line itself is one line too."""

import pytest


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["run", "--foo"], "No such option: --foo"),
        (["show", "gpu"], "Missing argument 'name'."),
        (["run", "s.yaml", "--workers", "0"], "Invalid value for '--workers'"),
        (["fly"], "No such command 'fly'."),
    ],
)
def test_usage_error_is_one_line(gpufleet, args: list[str], told: str) -> None:
    done = gpufleet(*args)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"gpufleet: {told}")


def test_nothing_asked_is_help(gpufleet) -> None:
    done = gpufleet()
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: ")
