"""Splitting an amount of money so that no nano-dollar is lost or invented."""

from collections.abc import Sequence

_WEIGHT_BITS = 62


def split(amount_nano_usd: int, weights: Sequence[float]) -> list[int]:
    """Split *amount_nano_usd* in proportion to *weights* by the largest remainder (Hamilton's method).

    The parts sum to the amount exactly, and each differs from its exact share by less than one nano-USD. Equal
    remainders go to the earlier part, so the same input always gives the same parts. Weights are taken to 62 bits of
    the largest one and the arithmetic is in integers: float rounding cannot lose a unit. Raises ValueError for a
    negative amount or weight, and where there is an amount but no positive weight to carry it.

    >>> split(100, [1.0, 1.0, 1.0])
    [34, 33, 33]
    """
    largest = max(weights, default=0.0)
    if amount_nano_usd < 0 or min(weights, default=0.0) < 0:
        raise ValueError("only an amount of zero or more is split, by weights of zero or more")
    if largest == 0:
        if amount_nano_usd:
            raise ValueError("there is nothing to split the amount by: all weights are zero")
        return [0] * len(weights)
    whole = [int(weight / largest * 2**_WEIGHT_BITS) for weight in weights]
    total = sum(whole)
    parts, remainders = zip(*(divmod(amount_nano_usd * weight, total) for weight in whole), strict=True)
    result = list(parts)
    by_remainder = sorted(range(len(whole)), key=lambda index: -remainders[index])
    for index in by_remainder[: amount_nano_usd - sum(result)]:
        result[index] += 1
    return result
