"""Replicas of the native engine on a Ray cluster, behind one OpenAI endpoint.

`serve run dspark.runtime.handoff.ray_serve:app target=... draft=...`, or a config file that names
`dspark.runtime.handoff.ray_serve:app` and its `args`: docs/handoff.md. Requests of one conversation
meet the same replica, whose cache holds the beginning; a full replica's go to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray import serve
from ray.serve.config import AutoscalingConfig, RequestRouterConfig

from dspark.runtime.handoff.ray_front import ENGINE, build
from dspark.runtime.handoff.ray_replica import Arguments, Replica

_AFFINE = "ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"


def app(args: Mapping[str, Any]) -> serve.Application:
    """The application that Ray Serve is to run; `args` are those of `Arguments`.

    Raises pydantic's ValidationError, a ValueError, for an argument that is not there or is wrong.
    """
    given = Arguments.model_validate(dict(args))
    gpus = given.gpus if given.gpus is not None else float(given.device == "cuda")
    engines = serve.deployment(
        Replica,
        name=ENGINE,
        autoscaling_config=AutoscalingConfig(
            min_replicas=given.min_replicas,
            max_replicas=given.max_replicas,
            target_ongoing_requests=given.target_ongoing_requests or given.max_batch,
        ),
        ray_actor_options={"num_cpus": given.cpus, "num_gpus": gpus},
        # A replica takes what fills its batch; the rest waits where it can still go elsewhere.
        max_ongoing_requests=given.max_batch,
        max_queued_requests=given.max_queue,
        request_router_config=RequestRouterConfig(request_router_class=_AFFINE),
        graceful_shutdown_timeout_s=given.drain_timeout,
        health_check_period_s=5,
        health_check_timeout_s=30,
    )
    front = serve.deployment(
        serve.ingress(build)(),
        name="front",
        ray_actor_options={"num_cpus": 0},
        # It waits for the replicas and does nothing else.
        max_ongoing_requests=10_000,
    )
    return front.bind(engines.bind(given))
