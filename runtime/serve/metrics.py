"""What Prometheus can read from the service; `docs/serving.md` says what each figure means.

What the engine counts is read from it when it is asked for, so that the two cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import APIRouter
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from starlette.responses import Response

from dspark.runtime.engine import Engine
from dspark.runtime.serve.admission import Admission
from dspark.runtime.serve.health import Health

_SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_LONG = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_PROBLEMS = ("draft_ineffective", "draft_nonfinite")


class Metrics:
    """The figures of one service, in a registry of its own: a process may hold several."""

    def __init__(
        self, engine: Engine, admission: Admission, health: Health, info: dict[str, str]
    ) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self.requests = Counter(
            "dspark_http_requests",
            "Answered requests by path and status.",
            ["path", "status"],
            registry=registry,
        )
        self.errors = Counter(
            "dspark_errors", "Requests that ended in an error, by its code.", ["code"],
            registry=registry,
        )  # fmt: skip
        self.refusals = Counter(
            "dspark_refusals", "Checkpoints refused by /v1/route, by rule.", ["rule_id"],
            registry=registry,
        )  # fmt: skip
        self.returned = Counter(
            "dspark_returned_tokens", "Tokens handed to callers.", registry=registry
        )
        self.first_token = Histogram(
            "dspark_time_to_first_token_seconds",
            "From the arrival of a request to each choice's first token.",
            buckets=_LONG,
            registry=registry,
        )
        self.inter_token = Histogram(
            "dspark_inter_token_seconds",
            "Between two tokens of a choice; those of one round share its time.",
            buckets=_SHORT,
            registry=registry,
        )
        self.seconds = Histogram(
            "dspark_request_seconds",
            "From the arrival of a text request to its end.",
            ["path"],
            buckets=_LONG,
            registry=registry,
        )
        registry.register(_EngineFigures(engine, admission, health, info))


class _EngineFigures(Collector):
    def __init__(
        self, engine: Engine, admission: Admission, health: Health, info: dict[str, str]
    ) -> None:
        self._engine = engine
        self._admission = admission
        self._health = health
        self._info = info

    def collect(self) -> Iterator[Metric]:
        yield from self._state()
        yield from self._counts()
        yield from self._acceptance()

    def _state(self) -> Iterator[Metric]:
        engine, pages = self._engine, self._engine.cache_statistics
        about = GaugeMetricFamily("dspark_info", "What is served.", labels=list(self._info))
        about.add_metric(list(self._info.values()), 1)
        yield about
        held = GaugeMetricFamily("dspark_kv_pages", "KV pages by state.", labels=["state"])
        held.add_metric(["held"], pages.held)
        held.add_metric(["kept"], pages.kept)
        held.add_metric(["free"], pages.pages - pages.held - pages.kept)
        yield held
        yield GaugeMetricFamily(
            "dspark_queue_depth", "Choices that wait for pages or a place.", engine.waiting
        )
        yield GaugeMetricFamily("dspark_running", "Choices that are decoded.", engine.running)
        yield GaugeMetricFamily(
            "dspark_under_way", "Choices that hold a place.", self._admission.under_way
        )
        yield GaugeMetricFamily(
            "dspark_capacity", "Places, running and waiting.", self._admission.capacity
        )
        yield GaugeMetricFamily(
            "dspark_ready", "Whether requests should be sent here.", self._health.ready
        )
        problems = engine.statistics.health
        found = GaugeMetricFamily(
            "dspark_draft_problem", "1 while the draft is of no use.", labels=["problem"]
        )
        for problem in _PROBLEMS:
            found.add_metric([problem], problem in problems)
        yield found

    def _counts(self) -> Iterator[Metric]:
        counts = self._engine.statistics
        for name, help_text, value in (
            ("requests", "Choices that the engine was asked for.", counts.requests),
            ("finished", "Choices that ended, cancelled ones included.", counts.finished),
            ("prompt_tokens", "Tokens of prompts.", counts.prompt_tokens),
            ("cached_tokens", "Of those, tokens taken over from the cache.", counts.cached_tokens),
            ("completion_tokens", "Tokens decoded.", counts.completion_tokens),
            ("passes", "Passes of the target.", counts.passes),
            ("graph_rounds", "Rounds on a GPU that ran as a graph.", counts.graph_rounds),
            ("eager_rounds", "Rounds on a GPU that ran launch by launch.", counts.eager_rounds),
        ):
            yield CounterMetricFamily(f"dspark_engine_{name}", help_text, value)
        spent = CounterMetricFamily(
            "dspark_engine_seconds", "Time of the passes, by what for.", labels=["phase"]
        )
        spent.add_metric(["draft"], counts.draft_s)
        spent.add_metric(["verify"], counts.verify_s)
        spent.add_metric(["host"], counts.host_s)
        yield spent

    def _acceptance(self) -> Iterator[Metric]:
        counts = self._engine.statistics.acceptance
        yield CounterMetricFamily(
            "dspark_rounds", "Decoding rounds of choices that have ended.", counts.rounds
        )
        yield CounterMetricFamily(
            "dspark_round_tokens", "Tokens of those rounds.", counts.round_tokens
        )
        for name, help_text, each in (
            ("verified", "Drafts verified, by position in the round.", counts.verified),
            ("accepted", "Drafts accepted, by position in the round.", counts.accepted),
        ):
            family = CounterMetricFamily(f"dspark_drafts_{name}", help_text, labels=["position"])
            # A copy: the engine's thread may be adding to it.
            for position, count in enumerate(list(each), 1):
                family.add_metric([str(position)], count)
            yield family
        skipped = CounterMetricFamily(
            "dspark_draft_skipped", "Rounds with no or fewer drafts, by reason.", labels=["reason"]
        )
        for reason, count in dict(counts.draft_skipped).items():
            skipped.add_metric([reason], count)
        yield skipped


def metrics_route(metrics: Metrics) -> APIRouter:
    """`/metrics`."""
    router = APIRouter(tags=["metrics"])

    @router.get("/metrics", response_class=Response)
    async def figures() -> Response:
        """All figures, in Prometheus' text format."""
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return router
