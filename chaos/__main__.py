"""Kill what trains at random moments, resume, and compare the results to the bit.

    python -m chaos [--kills 100] [--stops 40] [--seed 1] [--victims worker,driver,...] [--strategy hopper] [--json FILE]

One run of a small grid with Adam, dropout and batch normalisation is left alone. Each trial then
begins the same run, kills its victim with SIGKILL at a random moment, resumes the run, and compares
what it has left; in a quarter of the trials there is a second kill. Every third run is a search. A server of its own is started
in a temporary folder and removed at the end. The exit status is 1 where anything deviates.

Then every function is interrupted at random moments: a cancel, a terminate, a fast shutdown. The call must end and all be
quiet within seconds, nothing may be left, and what is resumed or called once more must give the same results.

Victims: driver-process, trainer and keeper are processes beside the server, whose end no session may notice; worker
and driver are processes of the server that work for a run; client, postmaster; outside-worker is a worker of "cerebro fit", whose
process has to go on by itself; outside-driver is that process. With --server segments:
segment-reader, segment-writer are a worker's processes on a segment; postmaster is the coordinator's,
and restart restarts it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from cerebro_db.decide.strategies import DEFAULT, STRATEGIES
from chaos import grid, report, stops, suite
from chaos.segments import VARIABLE, segments
from chaos.server import Embedded, Server, server
from chaos.trial import Plan, Report
from chaos.victims import VICTIMS, VICTIMS_WITH_SEGMENTS

_EPOCHS = 8
_ALL = tuple(dict.fromkeys((*VICTIMS, *VICTIMS_WITH_SEGMENTS)))


def main() -> None:
    """Kill, and show tables."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # and clean up
    planned = suite.plans(arguments.seed, arguments.kills, arguments.victims)
    if arguments.trial is not None:
        victim = arguments.victims[arguments.trial % len(arguments.victims)]
        planned = [Plan.of(arguments.seed, arguments.trial, victim)]
    reports = _run(planned, arguments) if planned else []
    if reports:
        report.show(reports)
    stopped = _stopped(arguments)
    if stopped:
        report.show_stops(stopped)
    sys.exit(1 if any(found.deviations for found in (*reports, *stopped)) else 0)


def _stopped(arguments: argparse.Namespace) -> list[stops.Stopped]:
    """Interrupt calls on a server of their own."""
    if arguments.server != "embedded" or arguments.trial is not None:
        return []
    numbers = range(arguments.stops) if arguments.stop is None else [arguments.stop]
    planned = [stops.Stop.of(arguments.seed, number) for number in numbers]
    if not planned:
        return []
    found: list[stops.Stopped] = []
    with server() as running:
        assert isinstance(running, Embedded)
        grid.load(running)
        stops.load(running)
        for one in report.followed(stops.trials(running, planned), len(planned), report.stop_line):
            found.append(one)
            if arguments.stops_json:
                facts = [one.to_json() for one in found]
                arguments.stops_json.write_text(json.dumps(facts, indent=2) + "\n")
    return found


def _run(planned: Sequence[Plan], arguments: argparse.Namespace) -> list[Report]:
    reports: list[Report] = []
    with _server(arguments.server) as running:
        grid.load(running)
        calm = suite.Reference.of(running, arguments.epochs, strategy=arguments.strategy)
        reference = calm
        if arguments.strategy == DEFAULT:
            search = suite.Reference.of(running, arguments.epochs, searches=True)
            reference = replace(calm, search=search)
        trials = suite.trials(running, reference, planned)
        for found in report.followed(trials, len(planned), report.line):
            reports.append(found)
            if arguments.json:
                facts = suite.summary(running, reference, arguments.seed, reports)
                arguments.json.write_text(json.dumps(facts, indent=2) + "\n")
    return reports


def _server(kind: str) -> AbstractContextManager[Server]:
    if kind == "embedded":
        return server()
    return segments(os.environ[VARIABLE])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m chaos",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kills", type=int, default=100, help="how many trials (default: 100)")
    parser.add_argument(
        "--stops", type=int, default=40, help="how many interruptions (default: 40)"
    )
    parser.add_argument("--stop", type=int, help="only the interruption of this number")
    parser.add_argument("--stops-json", type=Path, help="where their results are written")
    parser.add_argument("--seed", type=int, default=1, help="of the moments (default: 1)")
    parser.add_argument("--trial", type=int, help="only the trial of this number")
    parser.add_argument("--victims", type=_victims, help=f"of {', '.join(_ALL)}")
    parser.add_argument(
        "--server",
        choices=("embedded", "segments"),
        default="embedded",
        help=f"segments: the cluster that {VARIABLE} names, whose processes are on this machine",
    )
    parser.add_argument(
        "--strategy",
        choices=sorted(STRATEGIES),
        default=DEFAULT,
        help="of all runs; others have no searches",
    )
    parser.add_argument("--epochs", type=int, default=_EPOCHS, help=f"default: {_EPOCHS}")
    parser.add_argument("--json", type=Path, help="where the results are written")
    arguments = parser.parse_args()
    if arguments.server == "segments" and VARIABLE not in os.environ:
        parser.error(f"{VARIABLE} names no cluster")
    own = VICTIMS if arguments.server == "embedded" else VICTIMS_WITH_SEGMENTS
    arguments.victims = arguments.victims or list(own)
    if strange := set(arguments.victims) - set(own):
        parser.error(f"--victims: got {', '.join(sorted(strange))}; allowed: {', '.join(own)}")
    return arguments


def _victims(text: str) -> list[str]:
    names = text.split(",")
    if unknown := set(names) - set(_ALL):
        raise argparse.ArgumentTypeError(f"got {', '.join(sorted(unknown))}")
    return names


if __name__ == "__main__":
    main()
