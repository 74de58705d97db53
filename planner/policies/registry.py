"""The policies by name. Adding one is one module and one line here."""

from collections.abc import Mapping

from planner.simulation.policy import Factory
from variants.registry import Entry, load

POLICIES: Mapping[str, Entry] = {
    "modelless": Entry(
        target="planner.policies.several_gateways:make", about="ours, as in production"
    ),
    "infaas": Entry(target="planner.policies.published.infaas:make", about="INFaaS, ATC'21"),
    "proteus": Entry(target="planner.policies.published.proteus:make", about="Proteus, ASPLOS'24"),
    "loki": Entry(target="planner.policies.published.loki:make", about="Loki, HPDC'24"),
    "superserve": Entry(
        target="planner.policies.published.superserve:make", about="SuperServe, NSDI'25"
    ),
    "hadis": Entry(
        target="planner.policies.published.hadis:make",
        about="HADIS, 2025: light and heavy variants, routed",
    ),
    "clipper": Entry(
        target="planner.policies.static:clipper",
        about="Clipper, NSDI'17, on the most accurate variant that is feasible",
    ),
    "clipper-cheapest": Entry(
        target="planner.policies.static:clipper_cheapest",
        about="Clipper, NSDI'17, on the cheapest variant that is feasible",
    ),
    "static-best": Entry(
        target="planner.policies.static:best", about="the most accurate, by earliest deadline"
    ),
    "static-cheapest": Entry(
        target="planner.policies.static:cheapest", about="the cheapest, by earliest deadline"
    ),
    "ray-autoscaling": Entry(
        target="planner.policies.autoscalers.scaled:ray_autoscaling",
        about="the best static variant, Ray Serve's autoscaling on ongoing requests",
    ),
    "hpa": Entry(
        target="planner.policies.autoscalers.scaled:hpa",
        about="the best static variant, Kubernetes' autoscaler on utilisation",
    ),
    "dynamo": Entry(
        target="planner.policies.autoscalers.scaled:dynamo",
        about="the best static variant, NVIDIA Dynamo's SLA planner",
    ),
}


def make(name: str) -> Factory:
    """The factory of a policy; its module is imported now.

    Raises:
        ValueError: there is no such policy, or what it needs is not installed.
    """
    factory: Factory = load("policy", name, POLICIES, ValueError)
    return factory
