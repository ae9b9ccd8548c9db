"""The metrics of several replicas as one page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.parser import text_string_to_metric_families


def merged(pages: Sequence[tuple[str, str]]) -> tuple[bytes, str]:
    """One page and its type, from each replica's name and its page; `replica` tells them apart."""
    registry = CollectorRegistry()
    registry.register(_Pages(pages))
    return generate_latest(registry), CONTENT_TYPE_LATEST


class _Pages:
    def __init__(self, pages: Sequence[tuple[str, str]]) -> None:
        self._pages = pages

    def collect(self) -> Iterator[Metric]:
        """Each metric once, with the samples of all replicas."""
        found: dict[str, Metric] = {}
        for replica, page in self._pages:
            for family in text_string_to_metric_families(page):
                metric = found.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                for sample in family.samples:
                    labels = {**sample.labels, "replica": replica}
                    metric.samples.append(sample._replace(labels=labels))
        yield from found.values()
