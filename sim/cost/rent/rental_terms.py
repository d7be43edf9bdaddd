"""What a tenant can agree with a landlord beyond the hourly price: a commitment, or capacity that may be taken away."""

from typing import Annotated

from pydantic import Field

from sim.spec import Count, Fraction, Positive, Spec


class Commitment(Spec):
    """Reserved GPUs: cheaper by the hour, paid for the whole term whether used or not."""

    gpus: Count
    """GPUs committed; instances are committed whole."""
    months: Positive
    """Term."""
    discount: Fraction
    """Share that the committed price is below the hourly price, which GPUs beyond the commitment pay."""


class Spot(Spec):
    """Capacity that the landlord may reclaim. Interruptions are not simulated: more is rented to make up for them."""

    availability: Annotated[Positive, Field(le=1)]
    """Share of the rented hours that serve; the rest goes into notice periods, restarts and loading weights."""
    discount: Fraction = 0.0
    """Share that spot is below the hourly price; 0 where the price is a spot price."""
