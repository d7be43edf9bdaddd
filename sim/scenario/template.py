"""Files that `gpufleet init` writes: a commented scenario, and a JSON schema for editors."""

import ast
import inspect
import json
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from textwrap import dedent
from types import NoneType
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from sim.scenario.reading.layers import RENAMED, SCHEMA_VERSION, VERSION_KEY
from sim.scenario.schema import SECTIONS, Scenario
from sim.spec import Deferred, Spec

PRICES = "sim.cost"
"""Package in which all numbers are prices and terms, which may be distributions."""
SCHEMA_FILE = "gpufleet.schema.json"
SCHEMA_ID = f"https://gpufleet.github.io/gpufleet/reference/scenario-{SCHEMA_VERSION}.schema.json"
"""Address of the JSON schema among the pages of docs/; each schema version keeps its own."""
SIMPLE = (NoneType, bool, int, float, str)
"""Types whose values are the same in JSON."""

_TEMPLATE = """\
# Two RTX 4090 or one L40S for a chat service with an 8B model?

# yaml-language-server: $schema={schema}
# Editors that know this line complete keys and mark mistakes. `gpufleet check {name}.yaml` shows the resolved plan;
# `gpufleet list gpus` (models, quantizations, engines, servers, links, prices) lists the ids.
name: {name}
schema_version: {version}             # of the keys; `gpufleet migrate {name}.yaml` renews them when they change

# model, quantization, kv_cache_dtype, engine, max_model_len may also stand in a fleet or in a pool: the nearest wins.
model: llama3.1-8b            # or the path of a Hugging Face config.json
quantization: none            # none: the model's own 16 bit; gptq-int4, fp8, ...
engine: vllm

workload:
  arrivals: {{process: poisson, rate_rps: 4}}
  # {{process: gamma, rate_rps: 4, cv: 2}}                  bursty
  # {{process: constant, rate_rps: 4}}
  # {{process: closed_loop, concurrency: 32, think_s: 20}}  as many users, each waits for its answer and pauses
  # {{process: burst, num_requests: 1000}}                  all at once
  # {{process: profile, hourly_rps: [1, 2, 5, 3]}}          hour by hour, then again
  lengths:                    # tokens; also fixed (value), uniform (min, max), geometric (mean)
    prompt: {{distribution: lognormal, mean: 512, cv: 1.0, max: 4096}}
    output: {{distribution: lognormal, mean: 256, cv: 0.8, max: 2048}}
  # shared_prefix: {{tokens: 800}}   starts of all prompts; batching: {{enable_prefix_caching: true}} reuses them
  # instead of all that:
  # trace: {{path: requests.csv, format: csv}}   # arrival_s,prompt_tokens,output_tokens or similar headers

horizon_s: 900                # arrivals stop then, and the fleet drains
warmup_s: 60                  # requests that arrive before are simulated but not measured; auto: until it has settled
seed: 1
replications: 3               # runs with other random numbers: they give the confidence intervals

slo: {{ttft_s: 1.0, tpot_s: 0.05, attainment: 0.95}}   # also e2e_s; a percentile: ttft_s: {{p99: 2.0}}

fleets:                       # the candidates
  - name: 2x RTX 4090
    pools:
      - gpu: rtx-4090
        replicas: 2           # copies of the model, each with GPUs of its own
        server: workstation-2x4090
        # tensor_parallel_size: 2, pipeline_parallel_size, data_parallel_size, enable_expert_parallel
        batching: {{policy: vllm, max_num_seqs: 256, max_num_batched_tokens: 2048, gpu_memory_utilization: 0.9}}
    routing: {{policy: least_outstanding}}   # round_robin, random, power_of_two, by_length
    cost: {{acquisition: buy, quotes: {{rtx-4090: 1900, workstation-2x4090: 2000}}}}   # no `cost`: no money columns
  - name: 1x L40S rented
    pools: [{{gpu: l40s, batching: {{policy: vllm}}}}]
    # also in a pool: autoscaling: {{policy: hpa, metric: outstanding_per_replica, target: 8, max_replicas: 4}},
    #   or kpa, keda, slo, predictive, dynamo, aibrix; cold_start: {{total_s: 60}}, or
    #   {{cached: true, weights_from: network_store, image_gb: 10}}
    cost: {{acquisition: rent, quotes: {{l40s: 0.9}}}}   # dollars per GPU-hour; or price: <item>/<offer>
    # also in `cost`: commitment: {{gpus: 1, months: 12, discount: 0.3}}; spot: {{availability: 0.9, discount: 0.6}}

site:                         # where bought servers run
  electricity_usd_per_kwh: 0.12
  pue: 1.4
  hosting: {{per: kw_month, usd: 200, kw: nameplate, electricity: metered}}
  # or {{per: rack, usd_per_month: 1500, power_limit_kw: 20, units: 42, reserved_units: 2, count: whole}}
  # in place of electricity_usd_per_kwh, by the hour: electricity: {{hourly_usd_per_kwh: [24 prices], seasons:
  #   [{{months: [6, 7, 8], hourly_usd_per_kwh: [24 prices]}}]}}; with starts_at: 2026-07-01T08:00:00 above
  #   weekends: saturday_usd_per_kwh, sunday_usd_per_kwh; timezone: Europe/Berlin for local time with summer time
  # demand_usd_per_kw_month: 15    on the highest mean power over 15 minutes
  # power_contracts: [{{kw: 5, usd_per_kwh: 0.07, take_or_pay: 0.9}}]
  # cooling: {{cop: 4}}         if the PUE leaves cooling out
finance: {{method: annuity, discount_rate: 0.08, life_years: 4, residual_fraction: 0.2}}   # or straight_line
  # in place of residual_fraction: resale: {{loss_per_year: 0.3}}
  # every price may be {{price: 90, currency: EUR}} with fx: {{EUR: 1.08}}; currency: EUR shows all money in euros
operations:                   # what else is paid; each line is charged only if it is stated
  network_storage: {{fraction_of_hardware: 0.1}}
  maintenance: {{fraction_per_year: 0.05}}
  # sales_tax: {{fraction_of_purchases: 0.1}}, spares: {{fraction_of_gpus: 0.05}}, failures: {{per_gpu_year: 0.09}},
  # deployment and decommissioning: {{usd_per_server: 300}}, software: {{usd_per_gpu_year: 100}},
  # staff: {{fte: 1, usd_per_fte_year: 110000, over_gpus: 400}},
  # egress: {{usd_per_gb: 0.05, bytes_per_output_token: 200}}
api: {{input: 0.18, output: 0.18}}   # dollars per million tokens elsewhere, or <item>/<offer>; cached_discount: 0.5
carbon:                       # kg CO2e of the electricity, and of making the machines
  grid: usa                   # gpufleet list grids; or grid_g_per_kwh: 400, or 24 values from midnight on
  # embodied: {{gpu_kg: 164, server_kg: 5700, life_years: 4}}   # EcoLogits has these figures for H100
  # market: {{certified: 0.5}}    scopes 2 and 3; usd_per_t: 100 prices emissions as a line of the bill

sweep:                        # every combination is a point, every axis a column; or a list of explicit points
  workload.arrivals.rate_rps: [1, 2, 4, 8]
  # fleets.2x RTX 4090.pools.0.replicas: [2, 4]
# cost_per_request: true      # each request's part of the bill
{sections}
"""


def template(name: str) -> str:
    """Return an example scenario called *name* that passes `check` and runs unchanged."""
    examples = [section.example for section in SECTIONS.values() if section.example]
    return _TEMPLATE.format(name=name, schema=SCHEMA_FILE, version=SCHEMA_VERSION, sections="\n".join(examples))


@cache
def schema_text() -> str:
    """Return the JSON schema of scenario files; keys that a base may supply are not required."""
    schema = documented(Scenario)
    schema["required"] = []
    schema["properties"]["base"] = {
        "type": "string",
        "description": "Another scenario that this one changes: mappings merge, lists replace, null takes a key away.",
    }
    schema["properties"][VERSION_KEY] = {
        "type": "integer",
        "minimum": 1,
        "maximum": SCHEMA_VERSION,
        "description": "Version of the keys in this file; `gpufleet migrate` writes the newest.",
    }
    for (above, old), new in RENAMED.items():
        for part in _mappings(schema, above):
            _add_earlier_name(part, old, new)
    return json.dumps({"$id": SCHEMA_ID, **schema}, indent=1) + "\n"


def _mappings(schema: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the parts of *schema* that describe the mapping under *key*; the whole schema for an empty key."""
    parts = [schema, *schema["$defs"].values()]
    found = [schema] if not key else [part["properties"][key] for part in parts if key in part.get("properties", {})]
    options = [option for part in found for option in part.get("anyOf", [part])]
    named = [option["$ref"].rpartition("/")[2] if "$ref" in option else "" for option in options]
    return [schema["$defs"][name] if name else option for name, option in zip(named, options, strict=True)]


def _add_earlier_name(part: dict[str, Any], old: str, new: str) -> None:
    """Add the earlier name *old* of the key *new* to the mapping that *part* describes."""
    if "propertyNames" in part and old not in part["propertyNames"]["enum"]:
        part["propertyNames"]["enum"].append(old)
    elif new in part.get("properties", {}):
        part["properties"][old] = {
            **part["properties"][new],
            "deprecated": True,
            "description": f"Earlier name of {new}.",
        }


BOUNDS = {"gt": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "le": "maximum"}
"""Pydantic's names of bounds and those of JSON Schema, which pydantic leaves out where a function checks a number."""


class _SchemaOfSections(GenerateJsonSchema):
    """Generator of the JSON schema in which deferred sections are titled like all others, and all bounds hold."""

    def generate_inner(self, schema: Any) -> dict[str, Any]:
        """Return the JSON schema of *schema*."""
        return {BOUNDS.get(key, key): value for key, value in super().generate_inner(schema).items()}

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Return whether the field's name is its title: sections have titles of their own."""
        deferred = getattr(schema.get("function", {}).get("function"), "__self__", None)
        return super().field_title_should_be_set(
            deferred.compiled.core_schema if isinstance(deferred, Deferred) else schema
        )

    def encode_default(self, dft: Any) -> Any:
        """Return the default *dft* as it is in JSON; pydantic compiles a serializer for every one, simple or not."""
        return dft if type(dft) in SIMPLE else super().encode_default(dft)


def documented(kind: type[Spec]) -> dict[str, Any]:
    """Return the JSON schema of a *kind* of scenario, with field docstrings as descriptions.

    A key with one allowed value (`policy: fifo`) has the first line of its class's docstring.
    """
    schema: dict[str, Any] = kind.model_json_schema(schema_generator=_SchemaOfSections)
    specs = {spec.__name__: spec for spec in _nested_specs(Spec)}
    for name, part in [(kind.__name__, schema), *schema["$defs"].items()]:
        for field, text in (_documentation(specs[name]) if name in specs else {}).items():
            if field in part.get("properties", {}):
                part["properties"][field].setdefault("description", text)
        for field, value in part.get("properties", {}).items():
            if "const" in value:
                value.setdefault("description", part.get("description", "").partition("\n")[0])
            if field == "rate_rps" or (name in specs and specs[name].__module__.startswith(PRICES)):
                part["properties"][field] = _drawable(value)
    return schema


def _drawable(part: Any) -> Any:
    """Return the schema *part* with a distribution allowed wherever it has a number."""
    if isinstance(part, list):
        return [_drawable(item) for item in part]
    if not isinstance(part, dict):
        return part
    if part.get("type") == "number":
        texts = {key: part[key] for key in ("title", "description", "default") if key in part}
        number = {key: value for key, value in part.items() if key not in texts}
        return {"anyOf": [number, {"$ref": "#/$defs/Uncertain"}], **texts}
    return {key: _drawable(value) for key, value in part.items()}


def _nested_specs(spec: type[Spec]) -> Iterator[type[Spec]]:
    for child in spec.__subclasses__():
        yield child
        yield from _nested_specs(child)


def _documentation(spec: type[Spec]) -> dict[str, str]:
    """Return the docstrings of the fields of *spec*, inherited ones included."""
    found: dict[str, str] = {}
    for parent in reversed(spec.__mro__):
        if issubclass(parent, Spec):
            found |= _own_documentation(parent)
    return found


def _own_documentation(spec: type[Spec]) -> dict[str, str]:
    """Return the docstrings of the fields that *spec* itself defines."""
    found = _documentation_in(spec.__module__).get(spec.__qualname__)
    if found is None:  # a class within a function or another class
        [definition] = ast.parse(dedent(inspect.getsource(spec))).body
        assert isinstance(definition, ast.ClassDef)
        found = _documentation_of(definition)
    return found


@cache
def _documentation_in(module: str) -> dict[str, dict[str, str]]:
    """Return the docstrings of the fields of each class of *module*, by the class's name.

    Reading a source is slow, so only `init` does it, and once for all classes of a module.
    """
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {one.name: _documentation_of(one) for one in tree.body if isinstance(one, ast.ClassDef)}


def _documentation_of(definition: ast.ClassDef) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairwise(definition.body):
        match pair:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = inspect.cleandoc(text)
    return found
