"""The normal quantile for whole arrays, without the start-up time of a statistics package."""

import numpy as np
from numpy.typing import NDArray

# Wichura, "Algorithm AS 241", Applied Statistics 37(3), 1988, routine PPND16: numerators and denominators, highest
# power first.
_CENTRE = (
    (2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457,
     13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.387132872796366608),
    (5226.495278852545925, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867,
     5394.1960214247511077, 687.1870074920579083, 42.313330701600911252, 1.0),
)  # fmt: skip
_SHOULDER = (
    (7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258,
     3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734),
    (1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459,
     0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1.0),
)  # fmt: skip
_TAIL = (
    (2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386, 0.026532189526576123093,
     0.29656057182850489123, 1.7848265399172913358, 5.4637849111641143699, 6.6579046435011037772),
    (2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4,
     0.0148753612908506148525, 0.13692988092273580531, 0.59983220655588793769, 1.0),
)  # fmt: skip


def normal_quantile(u: NDArray[np.float64]) -> NDArray[np.float64]:
    """Z with P(Z < z) = u for 0 < u < 1, to about 1e-15 of itself (AS 241).

    >>> [round(float(z), 6) for z in normal_quantile(np.array([0.025, 0.5, 0.999]))]
    [-1.959964, 0.0, 3.090232]
    """
    q = u - 0.5
    z = q * _ratio(_CENTRE, 0.180625 - q * q)
    outer = np.abs(q) > 0.425
    r = np.sqrt(-np.log(np.where(q[outer] < 0, u[outer], 1 - u[outer])))
    magnitude = np.where(r <= 5, _ratio(_SHOULDER, r - 1.6), _ratio(_TAIL, r - 5))
    z[outer] = np.copysign(magnitude, q[outer])
    return z


def _ratio(polynomials: tuple[tuple[float, ...], tuple[float, ...]], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numerator over denominator at *x*, both by Horner's rule."""
    above, below = (np.full_like(x, polynomial[0]) for polynomial in polynomials)
    for value, polynomial in ((above, polynomials[0]), (below, polynomials[1])):
        for coefficient in polynomial[1:]:
            value *= x
            value += coefficient
    return above / below
