"""Measure on an emulated network of four hosts what each strategy exchanges, and how long that takes.

    python -m benchmarks.network [--json FILE] [--megabits 1000,10000] [--delay-ms 0.2] [--steps 100]
                                 [--large-floats 4000000] [--step-ms images=20,tabular=0.5] [--rounds 3]

Each host is a process in a network namespace of its own; a switch, in one more, joins them with virtual links,
both ends of which have the rate (``tc``, tbf; full duplex, with queues so long that nothing is dropped). That takes
root; where it can't be made, the reason is told in place of figures. Nothing has a name in the system: the
namespaces end with the processes in them, which end when what has started them ends, however that happens.

The delay, one way, is kept by the hosts: what has come is used when its last byte, by the kernel's clock of arrivals,
is as old as that. netem is not used for it, as many kernels come without. So the delay is that of messages;
TCP's own acknowledgements are faster. Hosts also keep the rate of small messages, which tbf lets go at once. They
run before all other work of the machine (SCHED_RR), and share its processors: what the network reaches is
measured, and shown beside its nominal figures.

Hosts talk through plain sockets: the patterns are a few lines each, every byte is counted, and the kernel tells when
it came. A library for all-reduce would be gloo, which comes with PyTorch only, and ZeroMQ hides when a message came.
What is exchanged are arrays as large as those of real nets. Sums are made, and checked; parameters after each
all-reduce are coded as Cerebro-DB's peers code them. Computing a gradient is a time that a host waits, for four
hosts share the processors of one machine.

In an epoch of four models on four partitions each host computes as many gradients (``steps``) in every pattern:

- hopping: a model's weights and two slots of Adam go to the next host after each partition, all four models at once;
- averaging: once an epoch and model these are sent to one host, averaged there, and sent back;
- task: each host trains one model, and reads the three partitions that it doesn't have, each before it trains on it;
- allreduce: gradients are summed in a ring after each step, which is one of all four hosts;
- pipe: the same, during the computation of the next gradient, with 32, 16 or 8 bits a number;
- parameter_server: gradients go to one of the hosts, weights come back; synchronous: all at once; asynchronous: each
  host waits for its own only.

One step, hop or reading is measured, as the longest time of the four hosts, and an epoch is made of these times.
Bytes are those of arrays, sent and received, without headers.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.network.figures import NETS, measure
from benchmarks.network.host import serve
from benchmarks.network.tables import show


def main() -> None:
    """Measure, and show tables."""
    given = _arguments()
    if given.host:
        serve()
        return
    nets = {**NETS, "large": NETS["large"]._replace(floats=given.large_floats)}
    results = measure(
        nets,
        given.megabits,
        given.delay_ms,
        given.steps,
        given.step_ms,
        given.rounds,
        lambda line: print(line, file=sys.stderr),
    )
    if given.json:
        given.json.write_text(json.dumps(results, indent=2) + "\n")
    show(results)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.network",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--megabits", type=_rates, default=[1000, 10000], help="a second; several")
    parser.add_argument("--delay-ms", type=float, default=0.2, help="one way")
    parser.add_argument("--steps", type=int, default=100, help="of a host in an epoch of 4 models")
    parser.add_argument("--large-floats", type=int, default=NETS["large"].floats)
    parser.add_argument("--step-ms", type=_step_times, default={}, help="of a gradient: net=ms,...")
    parser.add_argument("--rounds", type=int, default=3, help="of each, of which the median counts")
    parser.add_argument("--json", type=Path, help="where the results are written")
    parser.add_argument("--host", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _rates(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


def _step_times(text: str) -> dict[str, float]:
    found = dict(one.split("=", 1) for one in text.split(","))
    if unknown := set(found) - set(NETS):
        raise argparse.ArgumentTypeError(f"got {', '.join(sorted(unknown))}")
    return {name: float(value) for name, value in found.items()}


if __name__ == "__main__":
    main()
