"""Draws of tenants by their shares."""

import numpy as np

from sim.workload.tenants import Tenant, drawn_names


def test_a_tenant_has_its_share_of_the_unit_interval() -> None:
    tenants = [Tenant(name="a", share=1), Tenant(name="none", share=0), Tenant(name="b", share=2), Tenant(name="c")]
    u = np.array([0.0, 0.2, 0.25, 0.7, 0.75, 0.999, 1.0])
    assert drawn_names(tenants, u) == ["a", "a", "b", "b", "c", "c", "c"]
