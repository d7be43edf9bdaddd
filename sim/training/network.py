"""Cost of a network per token or sample in training, independent of hardware.

Costs of a transformer follow from its dimensions; convolutional and recurrent networks have measured ones. Activations
stored for the backward pass follow Korthikanti et al. (arXiv 2205.05198, section 4.1): 34 s b h bytes per layer of
GPT's plain feed-forward block, and 5 a s^2 b more if attention stores its scores.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from sim.catalogue.model import Model, matrices, params_total
from sim.message import Message

FLOP_PER_WEIGHT = 2
"""FLOP per weight: a multiplication and an addition."""
SCORE_BYTES = 5
"""Bytes per head, query and key: 16-bit outputs of softmax and dropout, and the dropout mask."""
DENSE_LAYER_NORM_BYTES, INPUT_BYTES, MASK_BYTES = 4, 4, 2
"""Bytes per hidden unit of a layer: inputs of two norms, inputs of the two blocks, masks of two dropouts."""
LOGIT_BYTES = 2
"""Bytes of a logit, which the loss reads and its gradient overwrites like any other activation."""
COPY_BYTES, COPIES = 2, 2
"""Bytes per number of a token's copy in the order of its experts, and copies per routed token: expert input, stored
for the backward pass, and output.
"""
STATE_PROJECTIONS = 4
"""Stored numbers of a linear attention layer per value and key: projected, convolved, mixed and gated."""
TYPICAL_ASPECT = 100
"""Hidden units per layer of a typical decoder, for networks of which only the size is known."""


@dataclass(frozen=True, slots=True)
class ForwardCost:
    """Cost of a forward pass per unit (token or sample) [FLOP, bytes of 16-bit numbers]."""

    id: str
    unit: Literal["token", "sample"]
    params: float
    layers: int
    """Depth: blocks of a transformer, kernel groups of other networks."""
    hidden: int
    """Width of the activations that model-parallel ranks exchange; 0 if the network cannot be split."""
    forward_flop: float
    """FLOP of matrix products and convolutions of all layers, without attention scores and output layer."""
    head_flop: float = 0.0
    """FLOP of the output layer."""
    vocab: int = 0
    expert_flop: float = 0.0
    """Part of `forward_flop` in routed experts."""
    expert_params: float = 0.0
    """Part of `params` in routed experts, active or not."""
    lookup_params: float = 0.0
    """Part of `params` in tables besides the token embedding, of which a pass reads a few rows only."""
    routed_width: float = 0.0
    """Numbers sent to routed experts per unit: hidden size x experts per token, summed over layers."""
    routed_copies: int = 0
    """Number of active experts per token."""
    attention_width: float = 0.0
    """Query width summed over layers; attention costs 4 FLOP per element and attended token."""
    heads: int = 0
    """Attention heads per layer, which tensor-parallel ranks divide."""
    causal: bool = True
    convolutional: bool = False
    """True if convolutions, not matrix products, determine the time."""
    sharded_bytes: float = 0.0
    """Activation bytes that tensor parallelism divides."""
    replicated_bytes: float = 0.0
    """Activation bytes that every tensor-parallel rank holds whole, unless sequence parallelism divides them."""
    score_bytes: float = 0.0
    """Bytes of attention scores per attended token, if they are stored."""
    stream_bytes: float = 0.0
    """Bytes moved by norms, activation functions, dropout and residuals."""
    image_tokens: int = 0
    """Tokens per image of a vision transformer, whose throughput is counted in samples; 0 for other networks."""
    tokens_per_sample: float = 1.0
    """Tokens per sample of networks whose throughput is counted in tokens but whose unit is a sample."""

    @property
    def activation_bytes(self) -> float:
        """Activations stored for the backward pass, without attention scores [bytes]."""
        return self.sharded_bytes + self.replicated_bytes

    @property
    def is_transformer(self) -> bool:
        """True if the network is a transformer, whose batches have a sequence length."""
        return self.unit == "token"


TOKENS = "embed_tokens"
"""Name of the matrix of the token embedding."""


def of_model(model: Model) -> ForwardCost:
    """Return the forward cost of a language model of the catalogue."""
    roles = ("attention", "mlp", "shared_expert", "expert", "router")
    layers = [one for one in matrices(model) if one.role in roles]
    active = [_active_params(one.params, one.role == "expert", model) for one in layers]
    attending = model.cached_layers / model.layers
    queries, keys = model.heads * model.head_dim * attending, model.kv_heads * model.head_dim * attending
    moe = model.moe
    wide = model.intermediate
    if moe is not None:
        wide = moe.moe_intermediate * (moe.experts_per_token + moe.shared_experts)
    return transformer(
        id=model.id,
        params=params_total(model),
        layers=model.layers,
        hidden=model.hidden,
        layer_params=sum(active),
        expert_params_active=sum(used for one, used in zip(layers, active, strict=True) if one.role == "expert"),
        expert_params=sum(one.params for one in layers if one.role == "expert"),
        lookup_params=sum(one.params for one in matrices(model) if one.role == "embedding" and one.name != TOKENS),
        routed_copies=moe.experts_per_token if moe else 0,
        routed_layers=model.expert_layers,
        routed_hidden=moe.latent if moe else 0,
        vocab=model.vocab,
        heads=model.heads,
        scored_heads=model.heads * attending,
        queries=queries,
        keys=keys,
        state_width=_state_width(model) * model.linear_attention_layers / model.layers,
        intermediate=wide * model.feed_forward_layers / model.layers,
        gated=model.gated_mlp,
    )


def _state_width(model: Model) -> float:
    """Return the numbers that a linear attention layer stores per token: projections, convolution, values and gate."""
    linear = model.linear_attention
    if linear is None:
        return 0.0
    values = linear.value_heads * linear.value_head_dim
    return STATE_PROJECTIONS * (values + linear.key_heads * linear.key_head_dim)


def _active_params(params: int, expert: bool, model: Model) -> float:
    if not expert or model.moe is None:
        return params
    return params * model.moe.experts_per_token / model.moe.experts


def transformer(
    id: str,
    params: float,
    layers: int,
    hidden: int,
    layer_params: float,
    vocab: int,
    heads: int,
    scored_heads: float,
    queries: float,
    keys: float,
    intermediate: float,
    gated: bool,
    expert_params_active: float = 0.0,
    expert_params: float = 0.0,
    lookup_params: float = 0.0,
    routed_copies: int = 0,
    routed_layers: int = 0,
    routed_hidden: int = 0,
    causal: bool = True,
    attention_factor: float = 1.0,
    score_factor: float = 1.0,
    state_width: float = 0.0,
) -> ForwardCost:
    """Return the forward cost of a transformer with the given dimensions.

    *layer_params* are the weights that a token is multiplied with; *scored_heads* is the number of heads that compute
    scores, averaged over all layers. *routed_hidden* is the width at which experts receive tokens; 0: *hidden*.
    *state_width* is the number of values that linear attention stores per layer and token, averaged over all layers.
    *attention_factor* and *score_factor* are arithmetic and stored scores of attention relative to plain attention over
    the sequence.
    """
    inner = (3 if gated else 2) * intermediate
    sharded = 2 * (2 * queries + 2 * keys + inner + state_width)
    replicated = (DENSE_LAYER_NORM_BYTES + INPUT_BYTES + MASK_BYTES) * hidden
    routed_width = routed_layers * routed_copies * (routed_hidden or hidden)
    copied = COPY_BYTES * routed_width
    return ForwardCost(
        id=id,
        unit="token",
        params=params,
        layers=layers,
        hidden=hidden,
        forward_flop=FLOP_PER_WEIGHT * layer_params,
        head_flop=FLOP_PER_WEIGHT * vocab * hidden,
        vocab=vocab,
        expert_flop=FLOP_PER_WEIGHT * expert_params_active,
        expert_params=expert_params,
        lookup_params=lookup_params,
        routed_width=routed_width,
        routed_copies=routed_copies,
        attention_width=layers * queries * attention_factor,
        heads=heads,
        causal=causal,
        sharded_bytes=layers * sharded + copied,
        replicated_bytes=layers * replicated,
        score_bytes=layers * SCORE_BYTES * scored_heads * score_factor,
        stream_bytes=layers * (sharded + replicated) + COPIES * copied + LOGIT_BYTES * vocab,
    )


def of_dimensions(id: str, dimensions: Mapping[str, float], causal: bool = True) -> ForwardCost:
    """Return the forward cost of a transformer with the dimensions layers, hidden, heads and vocab.

    Optional keys of *dimensions*: kv_heads, intermediate, gated (0 or 1), params, layer_params_active, expert_params,
    expert_params_active, experts_per_token, expert_layers, attention_factor and score_factor.
    """
    layers, hidden, heads = int(dimensions["layers"]), int(dimensions["hidden"]), dimensions["heads"]
    vocab = int(dimensions["vocab"])
    keys = hidden * dimensions.get("kv_heads", heads) / heads
    intermediate = dimensions.get("intermediate", 4 * hidden)
    gated = bool(dimensions.get("gated", 0))
    weights = layers * hidden * (2 * hidden + 2 * keys + (3 if gated else 2) * intermediate)
    layer_params = dimensions.get("layer_params_active", weights)
    return transformer(
        id=id,
        params=dimensions.get("params", weights + vocab * hidden),
        layers=layers,
        hidden=hidden,
        layer_params=layer_params,
        vocab=vocab,
        heads=int(heads),
        scored_heads=heads,
        queries=hidden,
        keys=keys,
        intermediate=intermediate,
        gated=gated,
        expert_params_active=dimensions.get("expert_params_active", 0.0),
        expert_params=dimensions.get("expert_params", 0.0),
        routed_copies=int(dimensions.get("experts_per_token", 0)),
        routed_layers=int(dimensions.get("expert_layers", layers)),
        causal=causal,
        attention_factor=dimensions.get("attention_factor", 1.0),
        score_factor=dimensions.get("score_factor", 1.0),
    )


COLOURS = 3
"""Numbers per pixel of an image."""
NORMS_PER_LAYER = 2


def of_images(id: str, dimensions: Mapping[str, float]) -> ForwardCost:
    """Return the forward cost of a vision transformer with the keys of `of_dimensions`, image, patch and classes.

    Each patch of *patch* x *patch* pixels is a token, and the class is one more. At another size of image the shares
    of patch projection and classifier remain those of *image*; both are below 1 % of the arithmetic.

    Notes
    -----
    Parameters are those of patch projection, class token, positions, layers, last norm and classifier, with biases.

    References
    ----------
    .. [1] Dosovitskiy et al., "An image is worth 16x16 words", arXiv 2010.11929: equations 1 to 4, table 1.

    Examples
    --------
    >>> base = {"layers": 12, "hidden": 768, "heads": 12, "image": 224, "patch": 16, "classes": 1000}
    >>> vit = of_images("vit", base)
    >>> vit.image_tokens, int(vit.params)
    (197, 86567656)

    """
    encoder = of_dimensions(id, {"vocab": 0, **dimensions}, causal=False)
    hidden, classes, layers = encoder.hidden, dimensions["classes"], encoder.layers
    pixels = COLOURS * dimensions["patch"] ** 2
    patches = int(dimensions["image"] // dimensions["patch"]) ** 2
    tokens = patches + 1
    biases = 5 * hidden + dimensions.get("intermediate", 4 * hidden)
    body = encoder.params + layers * (biases + NORMS_PER_LAYER * 2 * hidden) + 2 * hidden
    ends = (pixels + 1) * hidden + (1 + tokens) * hidden + (hidden + 1) * classes
    return replace(
        encoder,
        params=body + ends,
        image_tokens=tokens,
        forward_flop=encoder.forward_flop + FLOP_PER_WEIGHT * pixels * hidden * patches / tokens,
        head_flop=FLOP_PER_WEIGHT * hidden * classes / tokens,
    )


def of_size(
    id: str, params: float, hidden: int = 0, heads: int = 0, layers: int = 0, vocab: int = 51200
) -> ForwardCost:
    """Return the forward cost of a GPT of *params* parameters.

    Dimensions that are 0 follow from the size: 12 L h^2 parameters, heads of 128 units.

    Raises
    ------
    ValueError
        The embedding of *vocab* tokens alone has more parameters than the network.

    """
    body = params - vocab * (hidden or (params / 1e9) ** (1 / 3) * 2000)
    if body <= 0 and not (layers and hidden):
        raise ValueError(
            Message("{params:.3g} parameters are fewer than an embedding of {vocab} tokens has", params, vocab)
        )
    if layers and not hidden:
        hidden = round((body / 12 / layers) ** 0.5 / 128) * 128
    hidden = hidden or max(128, round((body * TYPICAL_ASPECT / 12) ** (1 / 3) / 128) * 128)
    layers = layers or max(1, round(body / 12 / hidden**2))
    heads = heads or max(1, hidden // 128)
    return of_dimensions(id, {"layers": layers, "hidden": hidden, "heads": heads, "vocab": vocab, "params": params})
