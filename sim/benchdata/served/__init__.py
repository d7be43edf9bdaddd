"""What a server tells of the traffic that it answers: /metrics, spans, reports of load generators."""

from sim.benchdata.served.read import read_rows, read_served
from sim.benchdata.served.seen import Seen, fragment, traffic_text, why_not_written

__all__ = ["Seen", "fragment", "read_rows", "read_served", "traffic_text", "why_not_written"]
