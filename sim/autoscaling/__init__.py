"""Autoscaling policies: the number of replicas of a pool, decided during the run.

A new policy needs a file here and a name in `Autoscaling`.
"""

from typing import Annotated

from sim.autoscaling.knative import Kpa
from sim.autoscaling.kubernetes import Hpa, Keda
from sim.autoscaling.llm_platforms import Aibrix, Dynamo
from sim.autoscaling.predictive import Predictive
from sim.autoscaling.protocol import Gauge, Latency, PoolMetrics, RegisteredAutoscaling, Scaler
from sim.autoscaling.slo import SloScaler
from sim.registry import Registry
from sim.spec import Tagged

BuiltinAutoscaling = Hpa | Kpa | Keda | SloScaler | Predictive | Dynamo | Aibrix
Autoscaling = Annotated[
    BuiltinAutoscaling,
    Tagged("policy"),
    Registry("autoscaling", RegisteredAutoscaling, BuiltinAutoscaling),
]

__all__ = ["Autoscaling", "Gauge", "Hpa", "Keda", "Kpa", "Latency", "PoolMetrics", "Predictive", "Scaler", "SloScaler"]
