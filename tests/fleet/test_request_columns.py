"""Requests as arrays: narrow types hold every value, and sums of two."""

import numpy as np
import pytest

from sim.fleet.request_columns import RequestColumns
from sim.workload.requests import RequestTable


@pytest.mark.parametrize("most", [2**14 - 1, 2**14, 2**30 - 1, 2**30])
def test_sums_of_two_columns_are_exact(most: int) -> None:
    tokens = np.array([1, most])
    columns = RequestColumns(RequestTable(np.zeros(2), tokens, tokens))
    columns.set("replica", np.array([-1, most]))
    assert (columns.column("prompt_tokens") + columns.column("output_tokens")).tolist() == [2, 2 * most]
    assert columns.column("replica").tolist() == [-1, most]
    assert [request.prompt_tokens for request in columns] == [1, most]
