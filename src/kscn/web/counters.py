"""What the service counts, in the text format that Prometheus reads."""

from __future__ import annotations

from collections import Counter

_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Counters:
    """Requests by path and status, their times, and the batches they were computed in."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._within: Counter[float] = Counter()
        self._seconds = 0.0
        self._timed = 0
        self._batches = self._batched = self._samples = 0

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self._requests[path, status] += 1
        self._seconds += seconds
        self._timed += 1
        for bound in _BOUNDS:
            self._within[bound] += seconds <= bound

    def batch(self, requests: int, samples: int) -> None:
        """Count a batch that goes to the model."""
        self._batches += 1
        self._batched += requests
        self._samples += samples

    def text(self) -> str:
        """All of it."""
        lines = _head("kscn_requests_total", "counter", "Requests answered.")
        for (path, status), count in sorted(self._requests.items()):
            lines.append(f'kscn_requests_total{{path="{path}",status="{status}"}} {count}')
        name = "kscn_request_seconds"
        lines += _head(name, "histogram", "Time from the request to its answer.")
        lines += [f'{name}_bucket{{le="{b:g}"}} {self._within[b]}' for b in _BOUNDS]
        lines.append(f'{name}_bucket{{le="+Inf"}} {self._timed}')
        lines += [f"{name}_sum {self._seconds:.6f}", f"{name}_count {self._timed}"]
        for name, text, count in (
            ("kscn_batches_total", "Batches computed.", self._batches),
            ("kscn_batched_requests_total", "Requests in them.", self._batched),
            ("kscn_samples_total", "Samples in them.", self._samples),
        ):
            lines += [*_head(name, "counter", text), f"{name} {count}"]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
