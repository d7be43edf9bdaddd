"""What a request says, and what it only would say."""

import pickle

from sim.records import USUAL, Request


def test_what_few_requests_say_is_shared_until_somebody_says_it() -> None:
    usual, other = Request(0, 0.0, 8, 4), Request(1, 0.0, 8, 4, tenant="b")
    assert usual.aside is USUAL is pickle.loads(pickle.dumps(usual)).aside
    other.kept_tokens = 3
    assert (other.tenant, other.kept_tokens, usual.tenant, usual.kept_tokens) == ("b", 3, "", 0)
    assert pickle.loads(pickle.dumps(other)).tenant == "b"
