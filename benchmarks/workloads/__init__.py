"""The workloads by name; each takes a scale, 1 being the size that is published."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.workload import Workload
from benchmarks.workloads import images, mixed, tabular, toy

WORKLOADS: dict[str, Callable[[float], Workload]] = {
    "toy": toy.workload,
    "tabular": tabular.workload,
    "images": images.workload,
    "mixed": mixed.workload,
}
