"""What the service counts, in the text format that Prometheus reads."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Counters:
    """Requests by path and status, their times, and the batches they were computed in."""

    def __init__(self) -> None:
        disable_created_metrics()  # a second series for each of these
        self._registry = own = CollectorRegistry()
        self._requests = Counter(
            "kscn_requests", "Requests answered.", ("path", "status"), registry=own
        )
        self._seconds = Histogram(
            "kscn_request_seconds",
            "Time from the request to its answer.",
            buckets=_BOUNDS,
            registry=own,
        )
        self._batches = Counter("kscn_batches", "Batches computed.", registry=own)
        self._batched = Counter("kscn_batched_requests", "Requests in them.", registry=own)
        self._samples = Counter("kscn_samples", "Samples in them.", registry=own)

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.observe(seconds)

    def batch(self, requests: int, samples: int) -> None:
        """Count a batch that goes to the model."""
        self._batches.inc()
        self._batched.inc(requests)
        self._samples.inc(samples)

    def text(self) -> str:
        """All of it."""
        return generate_latest(self._registry).decode()
