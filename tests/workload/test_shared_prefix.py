"""Prompts that begin alike, and what a prefix cache makes of them."""

from collections import Counter

import numpy as np
import pytest

from sim.rng import Streams
from sim.workload import HASH_BLOCK_TOKENS, Workload
