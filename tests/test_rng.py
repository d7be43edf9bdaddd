"""Functions of scipy.special, imported without the package around them."""

import sys

import pytest
import scipy.special

from sim.rng import special_function


@pytest.mark.parametrize("name", ["ndtr", "ndtri", "stdtrit"])
def test_special_functions_are_those_of_scipy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = getattr(scipy.special, name)
    assert special_function.__wrapped__(name) is expected
    monkeypatch.delitem(sys.modules, "scipy.special")
    assert special_function.__wrapped__(name) is expected
    assert "scipy.special" not in sys.modules
