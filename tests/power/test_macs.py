"""Power of Macs: the maker's figures at both ends, and what a small one takes while it decodes."""

import pytest

from sim.catalogue.catalog import load_catalog
from sim.power import Power, load_law, load_power_coefficients, pool_power

CATALOG = load_catalog()
COEFFICIENTS = load_power_coefficients(CATALOG.root / "power.yaml")


def test_a_mac_studio_draws_the_idle_and_peak_power_that_apple_states() -> None:
    server = CATALOG.server("mac-studio-m2-ultra")
    mac = pool_power(Power(), CATALOG.gpu("apple-m2-ultra-192gb"), COEFFICIENTS, 1, server)
    assert mac is not None
    assert server.idle_power_w is not None
    assert server.max_power_w is not None
    assert mac.least_w == pytest.approx(server.idle_power_w.value, rel=0.01)
    assert mac.peak_w == pytest.approx(server.max_power_w.value, rel=0.01)


def test_a_notebook_stays_within_its_assumed_span() -> None:
    server = CATALOG.server("macbook-pro-16-m3-max")
    mac = pool_power(Power(), CATALOG.gpu("apple-m3-max-128gb"), COEFFICIENTS, 1, server)
    assert mac is not None
    assert server.max_power_w is not None
    assert 15 < mac.least_w < 25
    assert mac.peak_w <= server.max_power_w.value


def test_the_factor_of_apple_s_chips_gives_the_mac_mini_s_reading() -> None:
    """M4: 120 GB/s, 6 W idle and 65 W at most at the wall, 30.1 and 31.4 W while it decodes."""
    chip = CATALOG.gpu("apple-m3-max-128gb")
    assert chip.tdp_w is not None
    limit_w, idle_w, efficiency = 65 * 0.9, 6 * 0.9, 0.9
    mini = chip.model_copy(
        update={
            "tdp_w": chip.tdp_w.model_copy(update={"value": limit_w, "range": None}),
            "memory_bytes_per_s": chip.memory_bytes_per_s.model_copy(update={"value": 120e9}),
        }
    )
    law = load_law(mini, COEFFICIENTS, unpacked=True)
    assert law is not None
    wall_w = (idle_w + law.load(0.0, 0.95, 0.0) * (limit_w - idle_w)) / efficiency
    assert wall_w == pytest.approx(30.7, rel=0.05)
