"""Draft of one scenario from several files, with defaults for values that no file states."""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from os.path import relpath
from pathlib import Path
from typing import Any

from sim.answers.from_files.gpu_labels import gpu_of
from sim.answers.from_files.kinds import sources_of
from sim.answers.from_files.source import FileErrors, ScalerDraft, ServerDraft, SourceFile
from sim.catalogue.catalog import Catalog
from sim.catalogue.checkpoint_names import is_of, model_of, stored_in, weight_format
from sim.catalogue.data_folder import UnknownId
from sim.catalogue.hf_config.config import ConfigError
from sim.catalogue.hf_config.load import is_config, model_from_config
from sim.catalogue.market import USD
from sim.catalogue.model import Model
from sim.message import Message, placed
from sim.scenario.reading.errors import ScenarioErrors
from sim.scenario.reading.load import load
from sim.scenario.resolving.case import resolve
from sim.scenario.resolving.hardware import start_figures
from sim.scenario.resolving.resolved import PoolPlan
from sim.scenario.sweep import cases
from sim.yamlio import dump, dump_line, read_text

CREDENTIALS = re.compile(r"//[^/@\s]*@")
"""Pattern of the user and password of an address, which no message repeats."""
ASSUMED_MODEL = "llama3.1-8b"
ASSUMED_GPUS = ("h100-80gb-sxm", "h200-141gb-sxm", "b200-180gb-sxm", "b300-288gb-sxm")
"""GPUs to try in this order where no file names one."""
SIZES = (1, 2, 4, 8)
"""Tensor-parallel sizes to try in this order where no file states one."""
ASSUMED_TRAFFIC = {
    "arrivals": {"process": "poisson", "rate_rps": 4},
    "lengths": {
        "prompt": {"distribution": "lognormal", "mean": 512, "cv": 1.0, "max": 4096},
        "output": {"distribution": "lognormal", "mean": 256, "cv": 0.8, "max": 2048},
    },
}
ASSUMED_LINK = "infiniband-ndr"
"""Network between prefill and decode servers where no file names it."""
ASSUMED_SERVER, SLOTS = "server-8gpu", 8
"""Server and its number of GPUs, assumed for a replica over several servers where no file names the server."""
SHOWN = (
    *("max_num_seqs", "max_num_batched_tokens", "chunked_prefill_size", "max_model_len", "gpu_memory_utilization"),
    *("block_size", "enable_prefix_caching", "enable_chunked_prefill", "async_scheduling", "overlap_schedule"),
)
"""Scheduler options whose defaults a draft lists."""
ASSUMED_START_S = 60
"""Assumed start time of an autoscaled engine without loading weights, where it was never measured [s]."""
ASSUMED_SLO = {"ttft_s": 2.0, "tpot_s": 0.05, "attainment": 0.95}
FACTORS = (0.5, 1, 2, 4)
"""Multiples of the observed load that a draft simulates."""
REQUESTS, SHORTEST_S, LONGEST_S = 1000, 600, 3600
"""Target number of requests within the horizon, and lower and upper bound of the horizon [s]."""


@dataclass(slots=True)
class Draft:
    """Scenario from files: its keys, and sentences on where they come from."""

    name: str
    question: str
    sources: list[SourceFile]
    data: dict[str, Any] = field(default_factory=dict)
    """Keys of the scenario in the order of the file."""
    assumed: dict[str, str] = field(default_factory=dict)
    """Key -> sentence on a value that no file states."""
    defaulted: list[str] = field(default_factory=list)
    """Sentences on options that no file states, so that the engine or the autoscaler sets them."""
    notes: list[str] = field(default_factory=list)
    """Sentences on contradictions between files."""


def draft_of(
    paths: Sequence[Path],
    target: Path,
    catalog: Catalog,
    gpu: str | None = None,
    seconds: float | None = None,
    columns: Mapping[str, str] | None = None,
    watched: SourceFile | None = None,
) -> Draft:
    """Return a scenario from the files *paths*, which `check` accepts.

    Parameters
    ----------
    paths
        Input files, each of a supported kind.
    target
        Scenario file that will be written; paths in the scenario are relative to its folder.
    catalog
        Catalogue of ids.
    gpu
        GPU of all servers, in place of those that the files name.
    seconds
        Time between pages of /metrics [s].
    columns
        Column of a trace -> header of the request log, for headers that are not recognised.
    watched
        Traffic that was read from a running fleet, beside the files.

    Raises
    ------
    FileErrors
        Mistakes in the files, contradictions between them, and a model that does not fit on its GPUs.

    """
    sources, problems = sources_of(paths, seconds, catalog, columns or {})
    sources += [watched] if watched is not None else []
    return _Drafting(sources, problems, target, catalog, gpu).draft()


class _Drafting:
    def __init__(
        self,
        sources: list[SourceFile],
        problems: list[tuple[str, int, str]],
        target: Path,
        catalog: Catalog,
        gpu: str | None,
    ) -> None:
        self.sources, self.target, self.catalog = sources, target, catalog
        self.folder = target.resolve().parent
        self.problems = problems
        self.model_name = ""
        self.result = Draft(target.stem, "", sources)
        self.gpu = ""
        if gpu is not None:
            try:
                self.gpu = gpu_of(gpu, catalog)
            except UnknownId as error:
                self.problems.append(("--gpu", 0, str(error)))

    def draft(self) -> Draft:
        """Return the draft. Raises FileErrors."""
        traffic = self._single([one for one in self.sources if one.workload is not None], "traffic")
        config = self._single([one for one in self.sources if one.kind.startswith("config.json")], "model")
        servers = [server for one in self.sources for server in one.servers]
        if not servers and not self.problems:
            engine = traffic.engine if traffic is not None else ""
            servers = [
                ServerDraft("", engine or "vllm", model=traffic.model if traffic is not None and config is None else "")
            ]
            if not engine:
                if traffic is None and config is None and not any(one.scalers for one in self.sources):
                    text = "states no servers: add their file with --from"
                    self.problems.append((self.sources[0].name, 0, text))
                self.result.assumed["engine"] = "no file names an engine"
        scaled = self._scaled(servers)
        models = [self._model(server, config, traffic) for server in servers]
        if len({key for key, _ in models if key}) > 1:
            named = ", ".join(dict.fromkeys(f"{one.model} ({one.place})" for one in servers))
            self.problems.append(
                (
                    self.sources[0].name,
                    0,
                    Message("servers of different models: {named}; name the files of one model", named),
                )
            )
        if self.problems:
            raise FileErrors(self.problems)
        self._fill(servers, models, traffic, scaled)
        return self.result

    def _scaled(self, servers: list[ServerDraft]) -> dict[int, ScalerDraft]:
        """Return the autoscaler of each server by its index, and add autoscalers without servers to the mistakes."""
        found: dict[int, ScalerDraft] = {}
        for scaler in (one for source in self.sources for one in source.scalers):
            places = [index for index, server in enumerate(servers) if scaler.scales(server)]
            if not any(server.place for server in servers) and not self.problems:
                text = Message("scales {target}: add the file of these servers with --from", scaler.target or "servers")
                self.problems.append((scaler.path, scaler.line, text))
            elif not places and len(servers) == 1:
                places = [0]
                self.result.notes.append(
                    Message(
                        "the autoscaler of {target} is that of {name}", scaler.target, servers[0].name or "the servers"
                    )
                )
            elif not places and not self.problems:
                known = ", ".join(server.name for server in servers)
                self.problems.append(
                    (
                        scaler.path,
                        scaler.line,
                        Message("scales {target}, and the servers are {known}", scaler.target, known),
                    )
                )
            for index in places:
                if index in found:
                    self.problems.append(
                        (scaler.path, scaler.line, Message("is a second autoscaler of {target}", scaler.target))
                    )
                found[index] = scaler
        return found

    def _single(self, found: list[SourceFile], noun: str) -> SourceFile | None:
        if len(found) > 1:
            names = " and ".join(one.name for one in found)
            self.problems.append(
                (
                    found[1].name,
                    0,
                    Message("{names} both state the {noun}; a scenario has one: name one of them", names, noun),
                )
            )
        return found[0] if found else None

    def _model(self, server: ServerDraft, config: SourceFile | None, traffic: SourceFile | None) -> tuple[str, str]:
        """Return the scenario's `model` and `quantization` of *server*; empty texts after a mistake."""
        name, catalog = server.model, self.catalog
        where = _file_and_line(server)
        try:
            catalog.quantization(server.precision or "none")
        except UnknownId as error:
            self.problems.append((*where, Message("--quantization: {error}", error)))
            server.precision = ""
        own = self._own_config(server)
        if config is not None or own is not None:
            path = config.model if config is not None else str(own)
            try:
                model = model_from_config(Path(path))
            except ConfigError as error:
                self.problems.append((str(error.path), 0, f"{error.key}: {error.message}".removeprefix(": ")))
                return "", ""
            key = _relative(Path(path), self.folder)
        elif not name and server.place:
            self.problems.append((*where, "the command names no model; add the config.json of the model with --from"))
            return "", ""
        elif not name:
            self.result.assumed["model"] = "no file names a model"
            model, key = catalog.model(ASSUMED_MODEL), ASSUMED_MODEL
        else:
            try:
                model = model_of(CREDENTIALS.sub("//", name), catalog)
            except UnknownId as error:
                hint = "add the config.json of the model with --from"
                if not server.place:
                    where = (traffic.name if traffic is not None else "", 0)
                    hint = "add the server's command line, or the config.json of the model, with --from"
                self.problems.append((*where, f"{error} ({hint})"))
                return "", ""
            key = model.id
        self.model_name = model.name
        if server.model and server.place:
            self._source_at(server).read.insert(0, f"model {server.model}: {key}")
        return key, self._format(server, model)

    def _source_at(self, server: ServerDraft) -> SourceFile:
        return next(one for one in self.sources if any(server is own for own in one.servers))

    def _own_config(self, server: ServerDraft) -> Path | None:
        """Return the local folder of the model that *server* names; None if there is none."""
        path = server.folder / server.model
        return path.resolve() if server.model and is_config(path) else None

    def _format(self, server: ServerDraft, model: Model) -> str:
        """Return the scenario's `quantization` of *server*."""
        # a checkpoint's name is more exact than the option: GPTQ-Int8 also runs with --quantization gptq
        named = stored_in(server.model, self.catalog) or server.precision
        return weight_format(named, "", model, self.catalog)

    def _fill(
        self,
        servers: list[ServerDraft],
        models: list[tuple[str, str]],
        traffic: SourceFile | None,
        scaled: dict[int, ScalerDraft],
    ) -> None:
        data, assumed = self.result.data, self.result.assumed
        data["model"] = models[0][0]
        if name := self._checkpoint(servers[0], models[0][0]):
            data["checkpoint"] = name
        data["quantization"] = models[0][1]
        data["engine"] = self._engine(servers[0])
        data["workload"] = self._workload(traffic)
        if traffic is None:
            assumed["workload"] = "no file states the traffic"
        if adapters := self._adapters(servers):
            data["workload"]["adapters"] = adapters
        trace = "trace" in data["workload"]
        rate = (traffic.rate_rps if traffic is not None else None) or 4.0
        if not trace:
            data["horizon_s"] = int(float(f"{min(LONGEST_S, max(SHORTEST_S, REQUESTS / rate)):.2g}"))
            data["warmup_s"] = 60
            data["replications"] = 3
        data["seed"] = 1
        data["slo"] = ASSUMED_SLO
        assumed["slo"] = "limits are yours to set"
        sweep = {"workload.trace.rate_scale": list(FACTORS)} if trace else {"workload.arrivals.rate_rps": _rates(rate)}
        self._fleet(servers, models, scaled)
        data["sweep"] = sweep
        self.result.question = self._question(traffic)
        self._compare(servers, traffic)

    def _adapters(self, servers: list[ServerDraft]) -> dict[str, Any]:
        """Return the adapters of requests, all equally popular; empty for servers without slots for adapters."""
        slots = [one.keys.get("lora", one.own.get("lora")) for one in servers]
        if not any(one is not None for one in slots):
            return {}
        names = list(dict.fromkeys(name for one in servers for name in one.adapters))
        if names:
            self.result.assumed["workload.adapters"] = "no file states how often each adapter is used: equal shares"
            return {"weights": dict.fromkeys(names, 1)}
        most = max(int(one.get("max_loras", 1)) for one in slots if isinstance(one, dict))
        self.result.assumed["workload.adapters"] = "no file names the adapters: one per slot, in equal shares"
        return {"count": most, "zipf": 0}

    def _checkpoint(self, server: ServerDraft, model_id: str) -> str:
        """Return the checkpoint that *server* loads; empty for that of the catalogue and for a file."""
        if model_id not in self.catalog.ids("models") or server.model == self.catalog.model(model_id).hf_id:
            return ""
        return (
            server.model
            if "/" in server.model and is_of(server.model, self.catalog.model(model_id), self.catalog)
            else ""
        )

    def _engine(self, server: ServerDraft) -> str:
        if server.version:
            named = f"{server.engine}-{server.version}"
            with suppress(UnknownId):
                self.catalog.engine(named)
                return named
            self.result.notes.append(
                Message(
                    "{engine} {version} is not a release in the catalogue; the newest is used",
                    server.engine,
                    server.version,
                )
            )
        return server.engine

    def _workload(self, traffic: SourceFile | None) -> dict[str, Any]:
        if traffic is None or traffic.workload is None:
            return dict(ASSUMED_TRAFFIC)
        if "trace" not in traffic.workload:
            return traffic.workload
        trace = dict(traffic.workload["trace"])
        trace["path"] = _relative(Path(trace["path"]), self.folder)
        return {"trace": trace}

    def _fleet(self, servers: list[ServerDraft], models: list[tuple[str, str]], scaled: dict[int, ScalerDraft]) -> None:
        """Set the fleet, on GPUs that hold the model. Raises FileErrors if none do."""
        reasons: dict[str, str] = {}
        keys = self._of_fleet(servers)
        if self._leave_unusable(servers, models, scaled, keys):
            keys = self._of_fleet(servers)
        for gpu, size in self._candidates(servers):
            pools = [
                self._pool(one, gpu, size, quantization, scaled.get(index))
                for index, (one, (_, quantization)) in enumerate(zip(servers, models, strict=True))
            ]
            count = sum(_most_replicas(pool) * max(1, _product(pool)) for pool in pools)
            first = str(pools[0]["gpu"])
            name = f"{count}x {first}" + (f" ({pools[0]['mig']})" if "mig" in pools[0] else "")
            cost = self._cost({str(pool["gpu"]) for pool in pools})
            fleet = {"name": name, **keys, "pools": pools}
            self.result.data["fleets"] = [fleet | ({"cost": cost} if cost else {})]
            reason = self._why_not(servers)
            if not reason:
                return
            reasons.setdefault(name, reason)
        shown = (
            next(iter(reasons.items())) if any(one.gpu for one in servers) or self.gpu else list(reasons.items())[-1]
        )
        place = servers[0].place or self.sources[0].name
        raise FileErrors(
            [
                (
                    place,
                    0,
                    Message(
                        "the model does not fit on {gpu}: {reason}; name other GPUs with --gpu", shown[0], shown[1]
                    ),
                )
            ]
        )

    def _leave_unusable(
        self,
        servers: list[ServerDraft],
        models: list[tuple[str, str]],
        scaled: dict[int, ScalerDraft],
        keys: dict[str, Any],
    ) -> bool:
        """Remove annotation keys that do not fit the traffic, and list them; return whether there were any."""
        if not any(server.own or server.fleet for server in servers):
            return False
        gpu, size = next(iter(self._candidates(servers)))
        pools = [
            self._pool(one, gpu, size, quantization, scaled.get(index))
            for index, (one, (_, quantization)) in enumerate(zip(servers, models, strict=True))
        ]
        self.result.data["fleets"] = [{"name": "annotated", **keys, "pools": pools}]
        try:
            self._loaded()
        except ScenarioErrors as errors:
            removed = [self._remove(one.where.split("."), one.message, servers) for one in errors.errors]
            return any(removed)
        return False

    def _remove(self, place: list[str], reason: str, servers: list[ServerDraft]) -> bool:
        """Remove the key at *place* of the scenario from the annotation that states it; return whether one does."""
        if len(place) > 4 and place[:3] == ["fleets", "0", "pools"] and place[3].isdecimal():
            server, key = servers[int(place[3])], place[4]
            holder = server.own
        elif len(place) > 2 and place[:2] == ["fleets", "0"]:
            server = next((one for one in servers if place[2] in one.fleet), servers[0])
            holder, key = server.fleet, place[2]
        else:
            return False
        if holder.pop(key, None) is None:
            return False
        self._source_at(server).not_simulated.append(Message("{key} ({reason})", key, reason))
        return True

    def _of_fleet(self, servers: list[ServerDraft]) -> dict[str, Any]:
        """Return the keys of the fleet: those of annotations, and the network between prefill and decode servers."""
        keys: dict[str, Any] = {}
        for server in servers:
            keys |= server.fleet
        roles = {server.role for server in servers}
        split = [one for one in servers if one.role and one.engine != "vllm"]
        if split and "prefill" in roles and len(roles) > 1:
            text = (
                "prefill and decode servers are simulated for vLLM alone; leave out their mode to simulate them whole"
            )
            raise FileErrors([(*_file_and_line(one), text) for one in split])
        if "prefill" not in roles or roles == {"prefill"}:
            if roles - {""}:
                self.result.notes.append("servers of a single role are simulated as servers of whole requests")
            for server in servers:
                server.role = ""
            keys.pop("kv_transfer", None)
        elif "kv_transfer" not in keys:
            keys["kv_transfer"] = {"link": ASSUMED_LINK}
            self.result.assumed["kv_transfer"] = "no file states the network between prefill and decode servers"
        return keys

    def _candidates(self, servers: list[ServerDraft]) -> Iterable[tuple[str, int]]:
        """Yield (GPU, tensor-parallel size) for servers that lack them, in the order in which they are tried."""
        stated = self.gpu or next((one.gpu for one in servers if one.gpu), "")
        if not stated:
            self.result.assumed["gpu"] = "no file names a GPU; --gpu or this key states yours"
        sized = any(one.parallel > 1 or one.place for one in servers)
        for gpu in (stated,) if stated else ASSUMED_GPUS:
            for size in (0,) if sized else SIZES:
                yield gpu, size

    def _pool(
        self, server: ServerDraft, gpu: str, size: int, quantization: str, scaler: ScalerDraft | None
    ) -> dict[str, Any]:
        pool: dict[str, Any] = {"gpu": self.gpu or server.gpu or gpu}
        if scaler is None:
            pool["replicas"] = server.replicas or 1
        elif server.replicas:
            pool["replicas"] = max(
                scaler.keys.get("min_replicas", 1), min(server.replicas, scaler.keys["max_replicas"])
            )
        if server.name:
            pool["name"] = server.own.get("name", server.name)
        if server.role:
            pool["role"] = server.role
        if size > 1:
            pool["tensor_parallel_size"] = size
            self.result.assumed["tensor_parallel_size"] = "the fewest GPUs that hold the model"
        if quantization != self.result.data["quantization"]:
            pool["quantization"] = quantization
        name = self._checkpoint(server, self.result.data["model"])
        if name and name != self.result.data.get("checkpoint"):
            pool["checkpoint"] = name
        pool |= server.keys
        batching, steptime, lora = (server.own.get(key) for key in ("batching", "steptime", "lora"))
        pool = server.own | pool
        if isinstance(lora, dict):
            pool["lora"] = lora | pool["lora"]
        if self._needs_network(pool):
            chassis = (self.catalog.server(one) for one in self.catalog.ids("servers"))
            fitting = [one for one in chassis if one.gpu == pool["gpu"] and int(one.gpu_slots.value) == SLOTS]
            pool["server"] = min((one.id for one in fitting), default=ASSUMED_SERVER)
            pool["network"] = {"link": ASSUMED_LINK}
            self.result.assumed["server"] = "a replica is larger than one server, and no file names its servers"
            self.result.assumed["network"] = "no file states the network between the servers of a replica"
        if server.batching or batching:
            pool["batching"] = (batching if isinstance(batching, dict) else {}) | server.batching
        if server.steptime or steptime:
            pool["steptime"] = (steptime if isinstance(steptime, dict) else {"model": "roofline"}) | server.steptime
        if scaler is not None:
            kept = server.own.get("autoscaling")
            pool["autoscaling"] = (kept if isinstance(kept, dict) else {}) | scaler.keys
            engine = self.catalog.engine(self.result.data["engine"]).id
            if "cold_start" not in pool and start_figures(self.catalog).of_engine(engine) is None:
                pool["cold_start"] = {"engine_s": ASSUMED_START_S}
                self.result.assumed["cold_start"] = "the start time of this engine was never measured"
        return pool

    def _needs_network(self, pool: dict[str, Any]) -> bool:
        """Return whether a replica of *pool* spans several servers and no key states the network between them."""
        if not {"server", "network", "link"}.isdisjoint(pool):
            return False
        link = self.catalog.link(self.catalog.gpu(pool["gpu"]).link)
        sizes = ("tensor_parallel_size", "pipeline_parallel_size")
        gpus = _product(pool) if pool.get("enable_expert_parallel") else prod(int(pool.get(size, 1)) for size in sizes)
        return gpus > max(link.allreduce_latency_s)

    def _cost(self, gpus: set[str]) -> dict[str, Any]:
        """Return a rental at the newest offer of the catalogue for a single kind of GPU; empty if it has none."""
        prices = self.catalog.prices(next(iter(gpus))) if len(gpus) == 1 else None
        offers = [
            (offer.price.as_of, name)
            for name, offer in (prices.offers.items() if prices is not None else ())
            if offer.what == "rental" and offer.unit == "gpu_hour" and offer.currency == USD and "demand" in offer.terms
        ]
        if prices is None or not offers:
            self.result.assumed.pop("cost", None)
            return {}
        name = max(offers, key=lambda one: (str(one[0]), one[1]))[1]
        self.result.assumed["cost"] = (
            "the newest offer of the catalogue; quotes: {<gpu>: dollars per GPU-hour} states yours"
        )
        return {"acquisition": "rent", "price": f"{prices.item}/{name}"}

    def _why_not(self, servers: Sequence[ServerDraft]) -> str:
        """Return why the fleet cannot run; empty if it can."""
        try:
            scenario = self._loaded()
        except ScenarioErrors as errors:
            raise FileErrors([self._located(one.where, one.message, servers) for one in errors.errors]) from None
        plans = [resolve(scenario, case, self.catalog) for case in cases(scenario) if case.replication == 0]
        reason = next((str(plan.infeasible) for plan in plans if plan.infeasible), "")
        if not reason:
            drafts = self.result.data["fleets"][0]["pools"]
            self.result.defaulted = [
                line for pool, plan in zip(drafts, plans[0].pools, strict=True) if (line := _defaults(pool, plan))
            ]
        return reason

    def _located(self, where: str, mistake: str, servers: Sequence[ServerDraft]) -> tuple[str, int, str]:
        """Return *mistake* at the key *where* of the draft as a mistake at the place of the file that states it."""
        found = re.fullmatch(r"fleets\.0\.pools\.(\d+)\.(.+)", where)
        if found is None:
            return self.sources[0].name, 0, placed(where, mistake)
        return (*_file_and_line(servers[int(found[1])]), placed(found[2], mistake))

    def _loaded(self) -> Any:
        """Return the scenario of the draft without its sweep. Raises ScenarioErrors."""
        text = dump({key: value for key, value in self.result.data.items() if key != "sweep"})
        return load(read_text(text, str(self.target)), catalog=self.catalog)

    def _question(self, traffic: SourceFile | None) -> str:
        fleet = self.result.data["fleets"][0]["name"]
        load_text = Message("with the requests of {name}", traffic.name) if traffic is not None else "at these rates"
        return Message(
            "Which latency and which cost does {model_name} have on {fleet} {load_text}?",
            self.model_name,
            fleet,
            load_text,
        )

    def _compare(self, servers: list[ServerDraft], traffic: SourceFile | None) -> None:
        """Note where files contradict each other."""
        notes = self.result.notes
        if named := ", ".join(dict.fromkeys(one.gpu for one in servers if self.gpu and one.gpu not in ("", self.gpu))):
            notes.append(Message("GPU in the files: {named}; simulated: {gpu}, as --gpu states", named, self.gpu))
        for server in servers:
            if server.gpus is not None and server.gpus != server.parallel and "mig" not in server.keys:
                notes.append(
                    Message(
                        "GPUs in the files: {gpus}; simulated: {parallel}, as the server's command states",
                        server.gpus,
                        server.parallel,
                    )
                )
            longest = server.keys.get("max_model_len")
            if traffic is not None and longest and traffic.longest > longest:
                notes.append(
                    Message(
                        "the longest request has {longest:,} tokens; "
                        "those above {limit:,} (max_model_len) are rejected",
                        traffic.longest,
                        longest,
                    )
                )
        served = [one.served for one in servers]
        if traffic is not None and traffic.model and servers[0].model and traffic.model not in served:
            with suppress(UnknownId):
                if (seen := model_of(traffic.model, self.catalog).id) != self.result.data["model"]:
                    notes.append(
                        Message(
                            "the metrics are those of {measured}, and {model} is simulated",
                            seen,
                            self.result.data["model"],
                        )
                    )
        replicas = sum(one.replicas or 1 for one in servers)
        if traffic is not None and traffic.observed_servers and traffic.observed_servers < replicas:
            notes.append(
                Message(
                    "the metrics are those of {observed} of {replicas} servers: "
                    "multiply rate_rps if the pages leave some out",
                    traffic.observed_servers,
                    replicas,
                )
            )


def _file_and_line(server: ServerDraft) -> tuple[str, int]:
    place, _, line = server.place.rpartition(":")
    return (place, int(line)) if line.isdecimal() else (server.place, 0)


def _most_replicas(pool: dict[str, Any]) -> int:
    return int(pool["autoscaling"]["max_replicas"] if "autoscaling" in pool else pool.get("replicas", 1))


def _defaults(pool: dict[str, Any], plan: PoolPlan) -> str:
    """Return the options of scheduler and autoscaler that *pool* leaves out, with their values in its *plan*."""
    stated = {**pool, **pool.get("batching", {})}
    values = {key: getattr(plan.batching, key, None) for key in SHOWN if key not in stated}
    scaling = plan.autoscaling.model_dump() if plan.autoscaling is not None else {}
    values |= {key: one for key, one in scaling.items() if key not in pool.get("autoscaling", {})}
    shown = [f"{key} {dump_line(one)}" for key, one in values.items() if one is not None and not isinstance(one, dict)]
    return f"{plan.name}: {', '.join(shown)}" if shown else ""


def _product(pool: dict[str, Any]) -> int:
    sizes = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
    return prod(int(pool.get(size, 1)) for size in sizes)


def _rates(rate: float) -> list[float]:
    return [float(f"{factor * rate:.3g}") for factor in FACTORS]


def _relative(path: Path, folder: Path) -> str:
    """Return *path* as it is written in a scenario in *folder*."""
    try:
        return Path(relpath(path, folder)).as_posix()
    except ValueError:  # path and folder are on different drives
        return str(path)
