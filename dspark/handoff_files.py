"""A hand-off as the files that container tools read: Docker Compose and Kubernetes."""

from __future__ import annotations

import shlex
from typing import Any

import yaml

from dspark.handed_over import HandOff
from dspark.handoff_command import PORT, commands, rank, serve

HTTP = 8000
"""The port that the engine serves on."""
# A service called vllm would set VLLM_PORT in every pod, which the engine reads as its own.
_NAME = "llm"
_HUB = "/root/.cache/huggingface"


def compose(handoff: HandOff) -> str:
    """A compose file; of several nodes each runs its own profile (`--profile node-1`)."""
    services = {}
    for command in commands(handoff):
        several = handoff.cluster.nodes > 1
        service: dict[str, Any] = {
            "image": handoff.table.image,
            "entrypoint": [_literal(word) for word in command.argv],
            "environment": ["HF_TOKEN"],
            "ipc": "host",
            "volumes": [
                f"${{HF_HOME:-~/.cache/huggingface}}:{_HUB}",
                *({"type": "bind", "read_only": True, **_same_place(f)} for f in _folders(handoff)),
            ],
            "deploy": {"resources": {"reservations": {"devices": [_gpus(handoff)]}}},
        }
        if several:
            service |= {"network_mode": "host", "profiles": [f"node-{command.node}"]}
        else:
            service |= {"ports": [f"{HTTP}:{HTTP}"]}
        services[f"{_NAME}-{command.node}" if several else _NAME] = service
    return _dump({"services": services})


def _same_place(folder: str) -> dict[str, str]:
    return {"source": _literal(folder), "target": _literal(folder)}


def _literal(text: str) -> str:
    """Compose puts a variable wherever it sees a dollar sign."""
    return text.replace("$", "$$")


def _gpus(handoff: HandOff) -> dict[str, Any]:
    return {"driver": "nvidia", "count": handoff.cluster.gpus, "capabilities": ["gpu"]}


def kubernetes(handoff: HandOff) -> str:
    """Kubernetes objects: a Deployment for one node, a StatefulSet with its own names for several.

    The nodes of a StatefulSet find the first by its name, so `master_address` is not used.
    """
    several = handoff.cluster.nodes > 1
    template = {"metadata": {"labels": _labels()}, "spec": _pod(handoff)}
    spec: dict[str, Any] = {
        "replicas": handoff.cluster.nodes,
        "selector": {"matchLabels": _labels()},
        "template": template,
    }
    web = {"name": "http", "port": HTTP}
    served = _labels()
    documents: list[dict[str, Any]] = []
    if several:
        spec = {"serviceName": f"{_NAME}-nodes", "podManagementPolicy": "Parallel", **spec}
        # Nodes must find one another before any of them is ready.
        alone = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": _labels()}
        alone |= {"ports": [{"name": "nodes", "port": PORT}]}
        documents.append(_document("v1", "Service", f"{_NAME}-nodes", alone))
        served = {"statefulset.kubernetes.io/pod-name": f"{_NAME}-0"}
    documents += [
        _document("v1", "Service", _NAME, {"selector": served, "ports": [web]}),
        _document("apps/v1", "StatefulSet" if several else "Deployment", _NAME, spec),
    ]
    return "---\n".join(map(_dump, documents))


def _labels() -> dict[str, str]:
    """Made anew each time, or YAML would write the second one as a reference to the first."""
    return {"app": _NAME}


def _document(version: str, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _pod(handoff: HandOff) -> dict[str, Any]:
    several = handoff.cluster.nodes > 1
    limits = {"nvidia.com/gpu": handoff.cluster.gpus}
    token = {"secretKeyRef": {"name": "huggingface", "key": "token", "optional": True}}
    environment: list[dict[str, Any]] = [{"name": "HF_TOKEN", "valueFrom": token}]
    mounts = [{"name": "shm", "mountPath": "/dev/shm"}]
    volumes: list[dict[str, Any]] = [{"name": "shm", "emptyDir": {"medium": "Memory"}}]
    for number, folder in enumerate(_folders(handoff)):
        mounts.append({"name": f"model-{number}", "mountPath": folder})
        volumes.append({"name": f"model-{number}", "hostPath": {"path": folder}})
    container: dict[str, Any] = {
        "name": _NAME,
        "image": handoff.table.image,
        "command": list(serve(handoff)),
    }
    if several:
        index = "metadata.labels['apps.kubernetes.io/pod-index']"
        environment.append({"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": index}}})
        container["command"] = ["sh", "-c", _ranked(handoff)]
    container |= {
        "env": environment,
        "ports": [{"name": "http", "containerPort": HTTP}],
        "resources": {"limits": limits},
        "volumeMounts": mounts,
    }
    if not several:
        # The other nodes serve nothing, and would never be ready.
        probe = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 10}
        container["readinessProbe"] = probe
    return {"containers": [container], "volumes": volumes}


def _ranked(handoff: HandOff) -> str:
    """A line for the shell in which each pod takes its own number for its rank."""
    first = rank(handoff.cluster, 0)
    words = list(first)
    words[words.index("--master-addr") + 1] = f"{_NAME}-0.{_NAME}-nodes"
    at = words.index("--node-rank") + 1
    before, after = [*serve(handoff), *words[:at]], words[at + 1 :]
    headless = '$([ "$NODE" = 0 ] || echo --headless)'
    return f'exec {shlex.join(before)} "$NODE" {shlex.join(after)} {headless}'


def _folders(handoff: HandOff) -> list[str]:
    models = [handoff.target, *([handoff.draft] if handoff.draft else [])]
    return sorted({model.name for model in models if model.local})


def _dump(document: dict[str, Any]) -> str:
    text: str = yaml.safe_dump(document, sort_keys=False, width=10_000)
    return text
