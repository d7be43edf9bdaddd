"""Figures of a case under other prices: what was simulated stays."""

from dataclasses import replace

from sim.case import CaseResult, of_services
from sim.study.metrics.case_metrics import CaseMetrics
from sim.study.metrics.replicas import held
from sim.study.money.price.bill import bill


def with_bill(metrics: CaseMetrics, billed: CaseResult) -> CaseMetrics:
    """*metrics*, and those of each service, with what *billed* says of site, money and greenhouse gases."""
    parts = of_services(billed) if metrics.services else {}
    services = {name: _with_bill(own, parts[name]) for name, own in metrics.services.items()}
    return replace(_with_bill(metrics, billed), services=services)


def _with_bill(metrics: CaseMetrics, billed: CaseResult) -> CaseMetrics:
    site, money, carbon = bill(billed)
    having = held(billed)
    machines = replace(
        metrics.machines, gpus=having.gpus, servers=having.servers, gpu_hours_per_day=having.gpu_hours_per_day
    )
    return replace(metrics, machines=machines, site=site, money=money, carbon=carbon)
