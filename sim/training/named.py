"""From the name of a model to what training it costs."""

from difflib import get_close_matches

from sim.catalogue.catalog import Catalog, UnknownId
from sim.catalogue.entries.model import OtherModel
from sim.training.figures import TrainedNetwork, TrainingData
from sim.training.network import Network, of_dimensions, of_model


class NotTrainable(ValueError):
    """Nobody knows what training that model costs; the message says which models are known."""


def network_named(name: str, catalog: Catalog, data: TrainingData) -> Network:
    """The network called *name*: one of data/training/networks.yaml, a language model, or a path of its config.json.

    Raises UnknownId, NotTrainable, ValueError for a config.json that cannot be read.
    """
    for key, one in data.networks.items():
        if name.lower() in (key, *(alias.lower() for alias in one.aliases)):
            return trained_network(key, one)
    try:
        model = catalog.any_model(name)
    except UnknownId as error:
        near = get_close_matches(name.lower(), data.networks, n=1)
        if near and not error.suggestions:
            raise UnknownId("model", name, tuple(near)) from None
        raise
    if isinstance(model, OtherModel):
        known = ", ".join(key for key, one in data.networks.items() if not one.dimensions)
        raise NotTrainable(f"what training {model.id} costs is not known; known are language models, BERT and {known}")
    return of_model(model)


def trained_network(id: str, one: TrainedNetwork) -> Network:
    """A network of data/training/networks.yaml."""
    if one.dimensions:
        return of_dimensions(id, one.dimensions, one.causal)
    # a test reads every entry
    assert one.params
    assert one.forward_flop
    assert one.stream_bytes
    return Network(
        id=id,
        unit="sample",
        params=one.params.value,
        layers=one.kernels,
        hidden=0,
        forward_flop=one.forward_flop.value,
        sharded_bytes=one.stream_bytes.value,
        stream_bytes=one.stream_bytes.value,
        tokens_per_sample=one.tokens_per_sample.value if one.tokens_per_sample else 1.0,
    )
