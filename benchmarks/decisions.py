"""Seconds of the decisions of searches of 1,000 configurations, without a server.

    python -m benchmarks.decisions [METHOD ...] [--configurations 1000]

The searches are those of the tests, over scripted learning curves: their configurations come to their epochs in an
order of their own, and nothing is trained. The time of a decision is that from when a result is told until the decision
is made, a proposal of the sampler included; what is proposed together counts as many times as there are configurations,
and what leads to no decision does not count.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.machine import pin

_TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(_TESTS), str(_TESTS / "decide" / "search")]

import courses  # noqa: E402

from cerebro_db.core.decisions import ADD  # noqa: E402
from cerebro_db.core.search import Space  # noqa: E402

_LOSS = "'loss': ['sparse_categorical_crossentropy'], 'metrics': [['accuracy']]"
# The parameters of an optimizer are there where it is chosen: TPE has a model of each group of them.
_CONDITIONAL = Space(
    (1, 2, 3),
    "{" + _LOSS + ", 'optimizer_params_list': ["
    "{'optimizer': ['Adam'], 'lr': [0.0001, 0.1, 'log'], 'beta_1': [0.8, 0.99, 'linear']}, "
    "{'optimizer': ['SGD'], 'lr': [0.0001, 0.1, 'log'], 'momentum': [0.0, 0.95, 'linear']}]}",
    "{'batch_size': [8, 16, 32]}",
)
_SPACES = {"plain": courses.SPACE, "conditional": _CONDITIONAL}


def _searches(count: int) -> dict[str, dict[str, Any]]:
    """Parameters of each method; brackets and populations have about 400 and 800 configurations."""
    # By default, with four partitions.
    places = {"concurrency": 8}
    return {
        "random": {"num_configs": count},
        "asha": {"num_configs": count, "R": 27, **places},
        "hyperband": {"R": 243, **places},
        "bohb": {"R": 243, **places},
        "tpe": {"num_configs": count, **places},
        "pbt": {"population": 40, "interval": 2, "num_iterations": 50},
    }


class _Timed(courses.Course):
    """A search whose decisions are timed."""

    def __post_init__(self) -> None:
        self.seconds: list[float] = []
        super().__post_init__()

    def _take(self, made: Iterable[Any]) -> int:
        return super()._take(self._timed(iter(made)))

    def _timed(self, made: Iterator[Any]) -> Iterator[Any]:
        waited = 0.0
        while True:
            started = time.perf_counter()
            one = next(made, None)
            waited += time.perf_counter() - started
            if one is None:
                return
            if not isinstance(one, courses.events.Allowance):
                count = len(one.changes) if one.action == ADD else 1
                self.seconds += [waited / count] * count
                waited = 0.0
            yield one


def main() -> None:
    """Measure, and print a table."""
    searches = _searches(1000)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("methods", nargs="*", choices=[*searches, []], metavar="METHOD")
    parser.add_argument("--configurations", type=int, default=1000, help="of random, asha and tpe")
    given = parser.parse_args()
    pin(1)
    searches = _searches(given.configurations)
    print(
        f"{'method':<10} {'space':<12} {'configs':>7} {'decisions':>9} {'median':>9} {'mean':>9} {'99 %':>9}"
    )
    for method in given.methods or searches:
        for space, found in _SPACES.items():
            course = _Timed(courses.spec(method, found, **searches[method]), courses.by_rate)
            course.run()
            ms = sorted(1e3 * one for one in course.seconds)
            print(
                f"{method:<10} {space:<12} {len(course.state.tracks):7d} {len(course.recorded):9d} "
                f"{statistics.median(ms):6.2f} ms {statistics.mean(ms):6.2f} ms {ms[len(ms) * 99 // 100]:6.2f} ms",
                flush=True,
            )


if __name__ == "__main__":
    main()
