"""`sim.register`: registration of a policy that scenarios name like a built-in policy."""

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from sim.registry import Registration, enter

Make = TypeVar("Make", bound=Callable[..., Any])


def register(kind: Literal["routing", "batching", "steptime", "autoscaling"], name: str) -> Callable[[Make], Make]:
    """Return a decorator that registers a class as the policy *name* of a *kind*.

    A scenario names it like a built-in policy: `routing: {policy: NAME}`, `batching: {policy: NAME}`, `steptime:
    {model: NAME}` or `autoscaling: {policy: NAME}`, in YAML and in dicts, also in worker processes. The parameters of
    the class are options beside `policy` or `model`, except those that the program supplies:

    - routing: `pools` (the pool's name for each replica) and `rng`. `choose(request)` returns a replica's index;
    `joined(replica)`, `left(replica)`, `opened(replica, outstanding)` and `closed(replica)` are optional.
    - batching: no parameters for a class with `order(request)`, the key by which vLLM's scheduler orders waiting
    requests, lowest first; `limits`, `pool` and `waiting` for a `sim.engine.schedulers.scheduler.Scheduler`.
    - steptime: `hardware` (None without a GPU or a model). `leap(batch)` returns a `sim.Leap`; `breakdown(batch)` and
    `window` are optional.
    - autoscaling: no parameters. `wanted(seen)` returns the target number of replicas of the pool; `seen` is a
    `sim.autoscaling.protocol.PoolMetrics`.

    Stored results are reused only with the same version of the class or its package. A package registers a policy
    without this call by an entry point in the group `gpufleet.policies`, named `KIND.NAME`.

    Raises
    ------
    ValueError
        For an unknown kind, the name of a built-in policy, a class without the methods of its kind, or a parameter with
        the name of an option that every policy has.

    Examples
    --------
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
