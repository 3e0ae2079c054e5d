"""What a Kubernetes manifest refers to and does not have. No cluster and no schema is asked: only names are followed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
_NAMED_BY = {  # where a pod names another object: the field, its kind, and the key of the name in it
    "configMapRef": ("ConfigMap", "name"),
    "configMapKeyRef": ("ConfigMap", "name"),
    "configMap": ("ConfigMap", "name"),
    "secretRef": ("Secret", "name"),
    "secretKeyRef": ("Secret", "name"),
    "secret": ("Secret", "secretName"),
    "persistentVolumeClaim": ("PersistentVolumeClaim", "claimName"),
}


def loose_ends(documents: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each reference of the manifest's StatefulSets and Services that resolves to nothing in it."""
    there = {(one["kind"], one["metadata"]["name"]) for one in documents}
    sets = [one for one in documents if one["kind"] == "StatefulSet"]
    services = [one for one in documents if one["kind"] == "Service"]
    pods = [one["spec"]["template"] for one in sets]
    found = [end for one in sets for end in _of_set(one, services)]
    found += [end for one in services for end in _of_service(one, pods)]
    found += [f"{kind} {name}" for pod in pods for kind, name in _named(pod["spec"]) if (kind, name) not in there]
    return found


def _of_set(one: Mapping[str, Any], services: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    spec = one["spec"]
    template = spec["template"]
    if not _selects(spec["selector"]["matchLabels"], template):
        yield f"selector {spec['selector']}"
    named = [service for service in services if service["metadata"]["name"] == spec["serviceName"]]
    if not any(service["spec"].get("clusterIP") == "None" for service in named):  # a pod has a name of its own by no other
        yield f"headless service {spec['serviceName']}"
    volumes = [volume["name"] for volume in template["spec"].get("volumes", ())]
    volumes += [claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", ())]
    for container in template["spec"]["containers"]:
        ports = _ports(container)
        yield from (f"volume {at['name']}" for at in container.get("volumeMounts", ()) if at["name"] not in volumes)
        for probe in PROBES:
            port = container[probe]["httpGet"]["port"]
            if port not in ports:
                yield f"{probe} port {port}"


def _of_service(service: Mapping[str, Any], pods: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    chosen = [pod for pod in pods if _selects(service["spec"]["selector"], pod)]
    if not chosen:
        yield f"service selector {service['spec']['selector']}"
    for pod in chosen:
        ports = {port for container in pod["spec"]["containers"] for port in _ports(container)}
        wanted = [port["targetPort"] for port in service["spec"]["ports"]]
        yield from (f"service port {port}" for port in wanted if port not in ports)


def _ports(container: Mapping[str, Any]) -> set[object]:
    return {port[key] for port in container.get("ports", ()) for key in ("name", "containerPort")}


def _selects(labels: Mapping[str, str], pod: Mapping[str, Any]) -> bool:
    return bool(labels) and labels.items() <= pod["metadata"]["labels"].items()


def _named(value: object) -> Iterator[tuple[str, str]]:
    """Kind and name of all that a pod names outside of it, at any depth."""
    if isinstance(value, Mapping):
        for field, inner in value.items():
            if field in _NAMED_BY and isinstance(inner, Mapping):
                kind, key = _NAMED_BY[field]
                yield kind, str(inner[key])
            elif field == "serviceAccountName":
                yield "ServiceAccount", str(inner)
            yield from _named(inner)
    elif isinstance(value, list):
        for one in value:
            yield from _named(one)
