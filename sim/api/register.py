"""`sim.register`: a policy of your own, which scenarios name as they name a built-in one."""

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from sim.registry import Registration, enter

Make = TypeVar("Make", bound=Callable[..., Any])


def register(kind: Literal["routing", "batching", "steptime", "autoscaling"], name: str) -> Callable[[Make], Make]:
    """A decorator that makes a class known as the policy *name* of a *kind*.

    A scenario names it as it names a built-in policy: `routing: {policy: NAME}`, `batching: {policy: NAME}`,
    `steptime: {model: NAME}` or `autoscaling: {policy: NAME}`, in YAML and in dicts, also in worker processes. The
    parameters of the class are its options there, but for those that the program gives:

    - routing: `pools` (the pool's name for each replica) and `rng`. `choose(request)` returns a replica's index;
      `joined(replica)`, `left(replica)`, `opened(replica, outstanding)` and `closed(replica)` may follow along.
    - batching: nothing, and `order(request)` is the key by which vLLM's scheduler takes waiting requests, lowest first;
      or `limits`, `pool` and `waiting`, and the class is a `sim.engine.schedulers.scheduler.RankSchedule`.
    - steptime: `hardware` (None without a GPU or a model). `leap(batch)` returns a `sim.Leap`; `breakdown(batch)` and
      `window` may be there, too.
    - autoscaling: nothing, and `wanted(seen)` returns how many replicas the pool shall have from now on; `seen` is a
      `sim.autoscaling.Seen`.

    The class, or its package, is part of what a result rests on: another version of it is simulated anew. A package
    offers a policy without a call as an entry point of the group `gpufleet.policies`, called `KIND.NAME`.

    Raises ValueError for an unknown kind, the name of a built-in policy, a class without the methods of its kind, or an
    option that every policy has.

    >>> import sim
    >>> @sim.register("routing", "first_few")
    ... class FirstFew:
    ...     def __init__(self, pools, few: int = 1):
    ...         self.few, self.turn = few, 0
    ...     def choose(self, request):
    ...         self.turn += 1
    ...         return self.turn % self.few
    >>> pool = {"replicas": 3, "steptime": {"model": "affine", "base_s": 1, "per_token_s": 0, "per_context_token_s": 0},
    ...         "batching": {"max_num_seqs": 4, "max_num_batched_tokens": 100, "num_gpu_blocks": 100}}
    >>> asked = {"arrived_s": [0, 0, 0, 0], "prompt_tokens": [9, 9, 9, 9], "output_tokens": [1, 1, 1, 1]}
    >>> sim.simulate(asked, {"pools": [pool], "routing": {"policy": "first_few", "few": 2}}).replica.tolist()
    [1, 0, 1, 0]
    """

    def entered(make: Make) -> Make:
        enter([Registration(kind, name, make)])
        return make

    return entered
