"""A simulator of Azure's Scheduled Events endpoint, for tests and for the demo.

It plays scenarios from data files and shares no logic with the exporter.
"""

from exporter.simulator.engine import EventChange, EventPlan, Scenario, load_scenarios
from exporter.simulator.server import SimulatorServer
from exporter.simulator.simulation import Fault, Simulator

__all__ = ["EventChange", "EventPlan", "Fault", "Scenario", "Simulator", "SimulatorServer", "load_scenarios"]
