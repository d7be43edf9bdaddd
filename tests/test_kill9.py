"""Six of the random moments of tests/kill9.py, which takes as many as it is asked for."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


def test_killed_at_six_moments_every_command_ends_as_undisturbed(root) -> None:
    done = subprocess.run([sys.executable, str(root / "tests" / "kill9.py"), "6"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("6 kills, every file equal byte for byte\n")
