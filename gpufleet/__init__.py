"""`import gpufleet` is `import sim`: the package under the name with which it is installed."""

import sys

import sim

sys.modules[__name__] = sim
