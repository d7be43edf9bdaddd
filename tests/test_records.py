"""What a request says, and what it only would say."""

import pickle

from sim.records import DEFAULT_OPTIONS, Request


def test_rare_fields_are_shared_until_one_is_set() -> None:
    default, other = Request(0, 0.0, 8, 4), Request(1, 0.0, 8, 4, tenant="b")
    assert default.options is DEFAULT_OPTIONS is pickle.loads(pickle.dumps(default)).options
    other.kept_tokens = 3
    assert (other.tenant, other.kept_tokens, default.tenant, default.kept_tokens) == ("b", 3, "", 0)
    assert pickle.loads(pickle.dumps(other)).tenant == "b"
