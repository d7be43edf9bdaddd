"""Search space of `size`: kinds of replicas with host, spares and purchase option, in any number.

A GPU that is purchased without a named server is combined with every server of the catalogue that can host it. Warm or
cold spares may be added to the replicas that serve.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from sim.catalogue.catalog import Catalog
from sim.catalogue.gpu import Gpu
from sim.catalogue.server import Server
from sim.cost.buying import Buy
from sim.message import Message
from sim.scenario.schema import Fleet, InheritedKeys, Scenario, nearest
from sim.scenario.sections.size import OWNED, WHOLE, Size, SplitFleets


@dataclass(frozen=True, slots=True)
class StandBy:
    """Warm or cold spares beside the replicas that serve."""

    kind: str
    count: int
    machine: str
    """Key of the hardware of the replicas without spares."""
    pool: dict[str, Any]
    """Keys that the spares add to a pool."""

    @property
    def words(self) -> str:
        """Label in the name of a fleet: `1 warm`."""
        return f"{self.count} {self.kind}"

    @classmethod
    def of(cls, size: Size, kind: str, count: int, machine: str) -> "StandBy":
        """Return *count* spares of *kind*, with the failures and takeover time of *size*."""
        assert size.failures is not None
        assert size.spares is not None
        spares: dict[str, Any] = {"count": count, "kind": kind}
        if kind == "warm":
            spares["takeover_s"] = size.spares.takeover_s
        pool: dict[str, Any] = {"failures": _as_data(size.failures) | {"spares": spares}}
        if size.cold_start is not None:
            pool["cold_start"] = _as_data(size.cold_start)
        return cls(kind, count, machine, pool)


@dataclass(frozen=True, slots=True)
class OwnedReplicas:
    """All owned GPUs of one kind in one layout, as replicas beside which others are added."""

    unit: "Unit"
    replicas: int

    def fleet(self, name: str, pool: dict[str, Any], cost: dict[str, Any], replicas: int) -> Fleet:
        """Return the fleet of these replicas and *replicas* more of *pool*."""
        pools = [
            {"name": "owned", **self.unit.pool, "replicas": self.replicas, "cost": self.unit.cost},
            {"name": "added", **pool, "replicas": replicas, "cost": cost},
        ]
        return Fleet.model_validate({"name": name, "pools": pools})

    @property
    def name(self) -> str:
        """Label in the name of a fleet."""
        return f"{self.replicas}x ({self.unit.name})"


@dataclass(frozen=True, slots=True)
class ElasticBase:
    """Replicas that always run, beside which an autoscaler adds others."""

    replicas: int
    machine: str
    """Key of the hardware of the replicas without an autoscaler."""
    pool: dict[str, Any]
    """Keys that the autoscaler adds to a pool, without the bounds of the number of replicas."""
    commitment: dict[str, Any]
    """Keys of a commitment for the base, without its GPUs; empty without one."""
    most: int
    """Largest number of replicas that the autoscaler may run."""

    def scaled(self, pool: dict[str, Any], replicas: int) -> dict[str, Any]:
        """Return *pool* with an autoscaler that runs at most *replicas*."""
        bounds = {"min_replicas": self.replicas, "max_replicas": replicas}
        return pool | self.pool | {"autoscaling": self.pool["autoscaling"] | bounds}

    def cost(self, cost: dict[str, Any], gpus_per_replica: int) -> dict[str, Any]:
        """Return *cost* with the commitment for the base."""
        if not self.commitment or not self.replicas:
            return cost
        return cost | {"commitment": {"gpus": self.replicas * gpus_per_replica, **self.commitment}}


def _as_data(section: Any) -> dict[str, Any]:
    data: dict[str, Any] = section.model_dump(mode="json", exclude_unset=True)
    return data


@dataclass(frozen=True, slots=True)
class HostServer:
    """Server that hosts a replica's GPUs."""

    server: str | None
    """Id in data/servers; None where the GPU is a host itself, or where its owner has one."""
    link: str | None = None
    """Link between the GPUs, where it is not the server's own."""
    most_gpus: int | None = None
    """Largest number of GPUs in all, limited by the power supply; None: no limit, in several servers."""


class NoHost(ValueError):
    """Error where no server of the catalogue can host the GPUs; the message gives the reasons."""


def hosts(gpu: Gpu, gpus: int, cap_w: float | None, catalog: Catalog) -> list[HostServer]:
    """Return the servers with slots, power and link for replicas of *gpus* GPUs, at a power cap of *cap_w* [W].

    A server built for the GPU suits it. A server for any GPU takes PCIe cards: they use the slower of its link and
    their own, and no more cards are purchased than its power supply feeds in one server.

    Raises
    ------
    NoHost
        Where no server suits.

    """
    found = [HostServer(None)] if gpu.is_host else []
    reasons = []
    for server in map(catalog.server, catalog.ids("servers")):
        if server.gpu == gpu.id or (server.gpu is None and gpu.pcie_card):
            try:
                found.append(_host(server, gpu, gpus, cap_w, catalog))
            except NoHost as error:
                reasons.append(f"{server.id} {error}")
    if not found:
        why = f": {'; '.join(reasons)}" if reasons else ""
        raise NoHost(Message("no server in data/servers carries {gpus}x {id}{why}", gpus, gpu.id, why))
    return found


def _host(server: Server, gpu: Gpu, gpus: int, cap_w: float | None, catalog: Catalog) -> HostServer:
    """Return *server* as a host; raises NoHost with the predicate of a sentence."""
    slots = int(server.gpu_slots.value)
    if slots < gpus:
        raise NoHost(Message("has {slots} slot{plural}", slots, "s" * (slots > 1)))
    if server.base_power_w is None and not gpu.is_host:
        raise NoHost("draws an unknown power")
    if server.gpu is not None:
        return HostServer(server.id)
    fed = _fed(server, gpu, cap_w)
    if fed < gpus:
        raise NoHost(Message("has power for {fed} of them", fed))
    return HostServer(server.id, _link(server, gpu, catalog), fed if fed < slots else None)


def _fed(server: Server, gpu: Gpu, cap_w: float | None) -> int:
    """Return the number of GPUs that the server's power supply feeds, at most its slots."""
    slots = int(server.gpu_slots.value)
    if server.max_power_w is None or server.base_power_w is None:
        return slots
    if gpu.tdp_w is None:
        raise NoHost(Message("may not have enough power for them: the power limit of {id} is not known", gpu.id))
    left_w = server.max_power_w.value * server.psu_efficiency.value - server.base_power_w.value
    return min(slots, int(left_w // min(gpu.tdp_w.value, cap_w or gpu.tdp_w.value)))


def _link(server: Server, gpu: Gpu, catalog: Catalog) -> str | None:
    """Return the card's link where the server's is as fast; else None, if the card can use the server's fully."""
    own, its = catalog.link(gpu.link), catalog.link(server.link)
    if its.theoretical_bytes_per_s.value >= own.theoretical_bytes_per_s.value:
        return gpu.link
    if its.peer_to_peer and not own.peer_to_peer:
        raise NoHost(Message("has {name}, of which the card cannot use all: that link is not in data/links", its.name))
    return None


@dataclass(frozen=True, slots=True)
class DecodeReplicas:
    """Decode replicas of a fleet in which other replicas compute the prompts."""

    name: str
    pool: dict[str, Any]
    """Keys of the pool in a scenario, without `replicas`."""
    cost: dict[str, Any]
    replicas: int
    kv_transfer: dict[str, Any]
    kinds: str
    """Key of the hardware of prefill and decode replicas, whatever their numbers."""

    def fleet(self, name: str, prompts: dict[str, Any], cost: dict[str, Any], replicas: int, spare: int) -> Fleet:
        """Return the fleet of *replicas* prefill replicas *prompts* before these, with *spare* spares of both."""
        pools = [
            {"name": "prompts", "role": "prefill", **prompts, "replicas": replicas + spare, "cost": cost},
            {"name": "answers", "role": "decode", **self.pool, "replicas": self.replicas + spare, "cost": self.cost},
        ]
        return Fleet.model_validate({"name": name, "pools": pools, "kv_transfer": self.kv_transfer})

    def named(self, prompts: str, replicas: int, spare: int) -> str:
        """Return the name of a fleet with *replicas* prefill replicas."""
        more = f"+{spare}" if spare else ""
        return Message(
            "{replicas}{more}x ({prompts}) for prompts, {answer_replicas}{more}x ({answers}) for answers",
            replicas,
            more,
            prompts,
            self.replicas,
            self.name,
        )


@dataclass(frozen=True, slots=True)
class Unit:
    """Kind of replica with its purchase option; or a fleet of the scenario, which is not varied."""

    name: str
    pool: dict[str, Any]
    """Keys of the pool in a scenario, without `replicas`; empty for a fleet of the scenario."""
    cost: dict[str, Any]
    machine: str
    """Key of the hardware: equal for units that differ only in purchase option."""
    own: Fleet | None = None
    own_spares: int = 0
    """Number of replicas in each pool of `own` that are spares."""
    refusal: str = ""
    """Reason why the unit cannot be simulated."""
    most: int | None = None
    """Largest number of replicas, spares included, that the host carries; None: no limit."""
    choice: str = ""
    """Key equal for units that differ only in the host chosen by the search; empty for all other units."""
    way: str = ""
    """Label of the purchase option; empty for a fleet of the scenario."""
    beside: DecodeReplicas | None = None
    """Decode replicas, where `pool` computes prompts only."""
    standby: StandBy | None = None
    """Warm or cold spares, which do not serve with the other replicas."""
    owned: "OwnedReplicas | None" = None
    """Owned replicas that serve beside those of `pool`."""
    elastic: ElasticBase | None = None
    """Replicas that always run, where an autoscaler starts and stops the others."""

    @property
    def fewest(self) -> int:
        """Smallest number of replicas that makes a valid fleet; an autoscaled one has more than its base."""
        return 1 if self.elastic is None else self.elastic.replicas + 1

    @property
    def steady(self) -> "Unit":
        """Unit with the same replicas and no autoscaler."""
        return self if self.elastic is None else replace(self, machine=self.elastic.machine, elastic=None)

    @property
    def gpus_per_replica(self) -> int:
        """GPUs of one replica of `pool`."""
        return int(self.pool.get("tensor_parallel_size", 1) * self.pool.get("pipeline_parallel_size", 1))

    def total(self, replicas: int) -> int:
        """Return the number of all replicas of a fleet with *replicas* of `pool`."""
        beside = self.beside.replicas if self.beside is not None else 0
        return replicas + beside + (self.owned.replicas if self.owned is not None else 0)

    def fleet(self, replicas: int, spare: int = 0) -> Fleet:
        """Return the fleet of *replicas* and *spare* more; from the scenario's own fleet, spares are removed."""
        if self.own is not None:
            out = self.own_spares - spare
            pools = [pool.model_copy(update={"replicas": pool.replicas - out}) for pool in self.own.pools]
            return self.own.model_copy(update={"pools": tuple(pools)}) if out else self.own
        if self.owned is not None:
            return self.owned.fleet(self.counted(replicas, spare), self.pool, self.cost, replicas)
        if self.beside is not None:
            return self.beside.fleet(self.counted(replicas, spare), self.pool, self.cost, replicas, spare)
        pool, cost = self.pool | {"replicas": replicas + spare}, self.cost
        if self.elastic is not None:
            pool, cost = self.elastic.scaled(self.pool, replicas), self.elastic.cost(cost, self.gpus_per_replica)
        if self.standby is not None:
            pool |= self.standby.pool | {"replicas": replicas + self.standby.count}
        data = {
            "name": self.counted(replicas, spare),
            "pools": [pool],
            "cost": cost,
        }
        return Fleet.model_validate(data)

    def counted(self, replicas: int, spare: int = 0) -> str:
        """Return the name of the fleet with *replicas* and *spare* more."""
        if self.beside is not None:
            return self.beside.named(self.name, replicas, spare)
        if self.standby is not None:
            return f"{replicas}+{self.standby.words} x ({self.name})"
        if self.owned is not None:
            return f"{self.owned.name} and {replicas}x ({self.name})"
        if self.elastic is not None:
            return f"{self.elastic.replicas} to {replicas}x ({self.name})"
        count = f"{replicas}+{spare}" if spare else str(replicas)
        return f"{count}x ({self.name})" if replicas + spare > 1 else self.name


def units(scenario: Scenario, size: Size, catalog: Catalog) -> Iterator[Unit]:
    """Yield the units of the search.

    In order: the scenario's fleets, owned GPUs, every combination of the section, all owned GPUs with each of them,
    each rented one with an autoscaler above every base, and, where prompts are computed by replicas of their own, every
    pair of combinations with the same purchase option.
    """
    for fleet in scenario.fleets:
        yield Unit(fleet.name, {}, {}, f"fleet {fleet.name}", fleet, size.spare_replicas)
    single = list(_of_one_kind(scenario, size, catalog))
    owned = list(_owned(scenario, size, catalog))
    yield from owned
    yield from single
    for one, unit in product(owned, single):
        if not (one.refusal or unit.refusal) and one.most:
            machine = f"{one.most}x {one.machine} and {unit.machine}"
            choice = f"{one.choice or one.name} and {unit.choice or unit.name}" if one.choice or unit.choice else ""
            yield replace(unit, machine=machine, choice=choice, owned=OwnedReplicas(one, one.most))
    for unit in single:
        yield from _autoscaled(unit, size)
    if size.split is not None:
        yield from _of_two_roles([unit for unit in single if not unit.refusal], size, size.split)


def _owned(scenario: Scenario, size: Size, catalog: Catalog) -> Iterator[Unit]:
    """Yield every layout of the owned GPUs, which cost the running costs of the GPUs in use only.

    Servers and their space are paid for whichever fleet is chosen, and unused slots can serve other loads.
    """
    for gpu, count in size.owned.items():
        servers = {gpu: size.servers[gpu]} if gpu in size.servers else {}
        cost = {OWNED: Buy(acquisition="buy", owned=True, share=True)}
        changed = {"gpus": (gpu,), "servers": servers, "costs": cost, "rents": {}, "mig": (WHOLE,)}
        for unit in _of_one_kind(scenario, size.model_copy(update=changed), catalog):
            most = count // unit.gpus_per_replica
            most = most if unit.most is None else min(most, unit.most)
            yield replace(unit, machine=f"{unit.machine}, owned", most=most)


def _autoscaled(unit: Unit, size: Size) -> Iterator[Unit]:
    """Yield *unit* with the section's autoscaler above each base, if it is rented."""
    scaler = size.autoscaling
    if scaler is None or unit.refusal or unit.cost["acquisition"] != "rent":
        return
    stated = "min_replicas" in scaler.model_fields_set
    pool = {"autoscaling": _as_data(scaler)} | (
        {"cold_start": _as_data(size.cold_start)} if size.cold_start is not None else {}
    )
    commitment = {} if size.committed_base is None else _as_data(size.committed_base)
    most = min(size.max_replicas, scaler.max_replicas)
    for base in [scaler.min_replicas] if stated else range(1, most):
        elastic = ElasticBase(base, unit.machine, pool, commitment, most)
        machine = Message("{machine}, autoscaled from {base}", unit.machine, base)
        yield replace(unit, machine=machine, choice="", elastic=elastic)


def _of_two_roles(single: Sequence[Unit], size: Size, split: SplitFleets) -> Iterator[Unit]:
    """Yield each of *single* as prefill replicas, with each as decode replicas in every number."""
    transfer = split.kv_transfer.model_dump(mode="json", exclude_unset=True)
    for prompts, answers in product(single, single):
        if prompts.way != answers.way:
            continue
        kinds = Message("{prompts} for prompts, {answers} for answers", prompts.machine, answers.machine)
        most = size.max_replicas - 1 if answers.most is None else min(size.max_replicas - 1, answers.most)
        for number in range(1, most + 1):
            beside = DecodeReplicas(answers.name, answers.pool, answers.cost, number, transfer, kinds)
            yield replace(prompts, machine=f"{kinds}, {number}", choice="", beside=beside)


def _of_one_kind(scenario: Scenario, size: Size, catalog: Catalog) -> Iterator[Unit]:
    """Yield every combination of the section.

    GPUs that are purchased and have no server in the section are combined with every server of the catalogue that can
    host them.
    """
    formats = size.quantizations or (None,)
    layouts = product(_with_slices(size, catalog), size.tensor_parallel_sizes, size.pipeline_parallel_sizes)
    refused: set[str] = set()
    choices = product(layouts, formats, size.batching, size.lora or (None,))
    for ((gpu, profile), tensor, pipeline), quantization, batching, lora in choices:
        if profile is not None and tensor * pipeline > 1:
            continue  # slices have no link between them
        limits = batching.model_dump(mode="json", exclude_unset=True)
        slots = None
        if lora is not None:
            slots = {"max_loras": lora.max_loras} | lora.model_dump(mode="json", exclude_unset=True)
        wanted = {
            "gpu": gpu,
            "mig": profile,
            "tensor_parallel_size": tensor,
            "pipeline_parallel_size": pipeline,
            "quantization": quantization,
            "batching": limits,
            "lora": slots,
            **_served(scenario, quantization),
        }
        words = [f"{tensor * pipeline}x {gpu}" if profile is None else f"{profile} of {gpu}"]
        words += [quantization] if quantization else []
        words += [Message("in {pipeline} stages", pipeline)] if pipeline > 1 else []
        more = _limits(limits) if len(size.batching) > 1 else []
        more += _limits(slots) if slots is not None and len(size.lora) > 1 else []
        if gpu in size.servers:
            servers = size.servers[gpu]
            for server in servers:
                what = " ".join([*words, *([f"in {server}"] if len(servers) > 1 else []), *more])
                pool = _without_empty(wanted | {"server": server})
                for label, cost in _ways(size, gpu, server):
                    yield Unit(f"{what}, {label}", pool, cost, what, way=label)
            continue
        what, pool = " ".join([*words, *more]), _without_empty(wanted)
        for label, cost in _ways(size, gpu, None):
            if cost["acquisition"] == "rent":
                yield Unit(f"{what}, {label}", pool, cost, what, way=label)
        yield from _hosted(scenario, size, catalog, pool, (words, more), refused)


def _served(scenario: Scenario, quantization: str | None) -> dict[str, Any]:
    """Return the keys of a pool that serves all services: their names, and that several models are in memory together.

    A *quantization* of the pool applies to all services.
    """
    names = [one.name for one in scenario.services]
    if len(names) < 2:
        return {"service": names[0]} if names else {}
    keys = [key for key in InheritedKeys.model_fields if quantization is None or key != "quantization"]
    what_runs = {
        repr([nearest(getattr(one, key), getattr(scenario, key)) for key in keys]) for one in scenario.services
    }
    return {"services": names} | ({"sharing": {"models": "resident"}} if len(what_runs) > 1 else {})


def _with_slices(size: Size, catalog: Catalog) -> Iterator[tuple[str, str | None]]:
    """Yield every GPU whole and in each requested MIG profile that it has."""
    for gpu in size.gpus:
        cut = catalog.gpu(gpu).mig
        for profile in size.mig:
            if profile == WHOLE:
                yield gpu, None
            elif cut is not None and profile in cut.profiles:
                yield gpu, profile


def _hosted(
    scenario: Scenario,
    size: Size,
    catalog: Catalog,
    pool: dict[str, Any],
    words: tuple[list[str], list[str]],
    refused: set[str],
) -> Iterator[Unit]:
    """Yield *pool* purchased with every server that can host it; else one unit with the reason, unless in *refused*."""
    gpu, gpus = pool["gpu"], pool["tensor_parallel_size"] * pool["pipeline_parallel_size"]
    cap_w = scenario.power.cap_w if scenario.power is not None else None
    bought = [label for label, cost in size.costs.items() if cost.acquisition == "buy"]
    try:
        found = hosts(catalog.gpu(gpu), gpus, cap_w, catalog)
    except NoHost as error:
        for label in bought:
            name = f"{gpus}x {gpu}, {label}"
            if name not in refused:
                refused.add(name)
                yield Unit(name, pool, {"acquisition": "buy"}, name, refusal=str(error))
        return
    what = " ".join([*words[0], *words[1]])
    for host in found:
        there = [f"in {host.server}"] if host.server else []
        name = " ".join([*words[0], *there, *words[1]])
        inside = _without_empty(pool | {"server": host.server, "link": host.link})
        most = None if host.most_gpus is None else host.most_gpus * _slices(pool, catalog) // gpus
        # of the host, the speed of a replica depends on the link alone
        machine = f"{what}, {host.link or (catalog.server(host.server).link if host.server else '')}"
        for label, cost in _ways(size, gpu, host.server):
            if label in bought:
                yield Unit(f"{name}, {label}", inside, cost, machine, most=most, choice=f"{what}, {label}", way=label)


def _slices(pool: dict[str, Any], catalog: Catalog) -> int:
    """Return the number of replicas on one GPU; 1 where it is not partitioned."""
    cut = catalog.gpu(pool["gpu"]).mig if "mig" in pool else None
    return 1 if cut is None else cut.profiles[pool["mig"]].instances


def _without_empty(pool: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in pool.items() if value is not None and value != {}}


def _limits(limits: dict[str, Any]) -> list[str]:
    return [str(value) if key == "policy" else f"{key} {value}" for key, value in limits.items() if value != "engine"]


def _ways(size: Size, gpu: str, server: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield label and `cost` of each purchase option, with only the quotes for *gpu* and *server*."""
    for label, cost in size.costs.items():
        data = cost.model_dump(mode="json", exclude_unset=True)
        quotes = {item: quote for item, quote in data.pop("quotes", {}).items() if item in (gpu, server)}
        yield label, data | ({"quotes": quotes} if quotes else {})
    for label, offers in size.rents.items():
        offer = {"price": offers[gpu]} if gpu in offers else {}
        yield label, {"acquisition": "rent", **offer}


def dominated(place: int, units: Sequence[Unit], costs: dict[int, tuple[float, ...]]) -> bool:
    """Return whether another purchase option of the same machine never costs more (equal ones: the first is kept)."""
    mine = costs[place]
    for other, its in costs.items():
        if other == place or units[other].machine != units[place].machine or len(its) < len(mine):
            continue
        if units[other].cost["acquisition"] != units[place].cost["acquisition"] or units[other].choice:
            continue  # `its` lacks most of the electricity, which only an owner pays and which differs between hosts
        if all(a <= b for a, b in zip(its, mine, strict=False)) and (its != mine or other < place):
            return True
    return False


def family(unit: Unit) -> str:
    """Return a key equal for units that differ only in server or limits: one fleet has no need of two."""
    if unit.most is not None:  # a server with a limit of GPUs shares it with no other kind
        return f"{unit.pool['gpu']} in {unit.pool['server']}"
    kept = {key: value for key, value in unit.pool.items() if key not in ("server", "link", "batching")}
    return repr((kept, unit.cost))


def with_spares(unit: Unit, size: Size, kind: str, count: int) -> Unit:
    """Return *unit* with *count* spares of *kind* in place of its own."""
    machine = unit.machine if unit.standby is None else unit.standby.machine
    spares = StandBy.of(size, kind, count, machine)
    choice = f"{unit.way}, {machine}, {spares.words}" if unit.choice else ""
    return replace(unit, machine=f"{machine}, {spares.words}", choice=choice, standby=spares)


def spares_differ(unit: Unit, other: Unit, kind: str) -> bool:
    """Return whether *unit* equals *other* in purchase option and hardware but has spares of *kind*."""
    has = "hot" if unit.standby is None else unit.standby.kind
    return has == kind and unit.name == other.name
