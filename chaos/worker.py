"""Kill direct workers at random moments, by default in another network namespace, and compare what is trained to the bit.

    python -m chaos.worker [--kills 20] [--seed 1] [--cuts 1] [--epochs 10] [--server embedded]

A server in a temporary folder listens on the address of a bridge, and asks for passwords. Behind the bridge is a
network namespace, from which "cerebro worker" reaches it, as a role that is a member of the owner of the runs. A
run is left alone first. Then the same run is begun again and again; its worker is killed with SIGKILL at a random
moment and started anew, until all kills are made; last, its network is cut without a word. Every run must end,
with the states, weights, metrics and hops of the calm one. The exit status is 1 where anything deviates. Where
namespaces cannot be made nothing is tried, and the reason is printed.

With --server segments the server is the cluster that CEREBRO_GREENPLUM_DSN names, as whose superuser both work. There
is no namespace, and no network to cut.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg2.extensions

from chaos import grid
from chaos.grid import Job
from chaos.outcome import Outcome, differences, miscounted, outcome
from chaos.segments import VARIABLE, segments
from chaos.server import Embedded, Server, TookTooLong, server, until

_PROGRAM = str(Path(sys.executable).with_name("cerebro"))
_NUMBER = os.getpid() % 10_000
_NAMESPACE, _BRIDGE, _OUTER = f"cerebro-{_NUMBER}", f"cbr{_NUMBER}", f"cve{_NUMBER}"
_NET, _HERE, _THERE = "10.231.77.0/24", "10.231.77.1", "10.231.77.2"
_OWNER, _HELPER = "modeller", "modeller_outside"
# Long hops: most kills shall come in the middle of one.
_FIT = "batch_size=2, epochs=3"
_RUN_SECONDS, _UP_SECONDS = 600.0, 120.0
_LONGEST_LIFE = 5.0
_LEAST_HOPS = 3


@dataclass
class Tally:
    """Counts of the trial so far.

    Attributes:
        moments: kills by what the worker was at.
        hops: made by workers of the namespace.
        deviations: what is not as it must be.
    """

    moments: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    hops: int = 0
    deviations: list[str] = field(default_factory=list)


def main() -> int:
    """Returns the exit status."""
    arguments = _arguments()
    if arguments.server == "segments":
        with segments(os.environ[VARIABLE], "cerebro_chaos_worker") as cluster:
            return _report(Trial(Place(cluster, cluster, cluster.dsn), arguments).run())
    reason = _unable()
    if reason is not None:
        print(f"skipped: {reason}")  # noqa: T201
        return 0
    with _network(), server() as running:
        assert isinstance(running, Embedded)
        with _opened(running) as place:
            return _report(Trial(place, arguments).run())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m chaos.worker",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kills", type=int, default=20, help="of workers (default: 20)")
    parser.add_argument(
        "--cuts", type=int, help="of the network (default: 1, or none with segments)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the moments (default: 1)")
    parser.add_argument("--epochs", type=int, default=10, help="of each run (default: 10)")
    parser.add_argument(
        "--server",
        choices=("embedded", "segments"),
        default="embedded",
        help=f"segments: the cluster that {VARIABLE} names",
    )
    arguments = parser.parse_args()
    has_segments = arguments.server == "segments"
    if has_segments and VARIABLE not in os.environ:
        parser.error(f"--server segments: {VARIABLE} names no cluster")
    if has_segments and arguments.cuts:
        parser.error(f"--cuts: got {arguments.cuts}; allowed with --server segments: 0")
    if arguments.cuts is None:
        arguments.cuts = int(not has_segments)
    return arguments


def _report(tally: Tally) -> int:
    moments = ", ".join(f"{count} {what}" for what, count in sorted(tally.moments.items()))
    lines = [
        f"{tally.moments.total()} workers stopped: {moments}",
        f"{tally.runs} runs, {tally.hops} hops of workers that have joined",
        *(f"DEVIATION: {one}" for one in tally.deviations),
        "something deviates" if tally.deviations else "all runs are equal to the bit",
    ]
    print("\n".join(lines), flush=True)  # noqa: T201
    return 1 if tally.deviations else 0


# -- the network ---------------------------------------------------------------------------
def _unable() -> str | None:
    """Reason that there can be no namespaces; None where there can."""
    if os.geteuid() != 0:
        return "network namespaces take root"
    if shutil.which("ip") is None:
        return "there is no ip: apt-get install iproute2"
    done = _ip("netns", "add", _NAMESPACE, check=False)
    if done.returncode:
        return f"network namespaces are not allowed here: {done.stderr.strip()}"
    _ip("netns", "del", _NAMESPACE)
    return None


def _ip(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *arguments], check=check, capture_output=True, text=True)


@contextmanager
def _network() -> Iterator[None]:
    """A bridge with an address of this side, and a namespace behind it."""
    try:
        _ip("netns", "add", _NAMESPACE)
        _ip("link", "add", _BRIDGE, "type", "bridge")
        _ip("addr", "add", f"{_HERE}/24", "dev", _BRIDGE)
        _ip("link", "set", _BRIDGE, "up")
        _ip("link", "add", _OUTER, "type", "veth", "peer", "name", "eth0", "netns", _NAMESPACE)
        _ip("link", "set", _OUTER, "master", _BRIDGE, "up")
        _ip("-n", _NAMESPACE, "addr", "add", f"{_THERE}/24", "dev", "eth0")
        _ip("-n", _NAMESPACE, "link", "set", "eth0", "up")
        _ip("-n", _NAMESPACE, "link", "set", "lo", "up")
        yield
    finally:
        _ip("netns", "del", _NAMESPACE, check=False)
        _ip("link", "del", _BRIDGE, check=False)


# -- where it is tried -----------------------------------------------------------------------
@dataclass(frozen=True)
class Place:
    """The server, and from where a worker reaches it.

    Attributes:
        server: as its superuser sees it.
        owner: as the owner of the runs sees it.
        dsn: with which the worker connects.
        prefix: of its command.
        environment: that it has beside ours.
    """

    server: Server
    owner: Server
    dsn: str
    prefix: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def _opened(running: Embedded) -> Iterator[Place]:
    """A namespace: the server listens on its bridge, to one role with a password."""
    cluster, password = running.cluster, secrets.token_hex(16)
    for statement in (
        f"ALTER SYSTEM SET listen_addresses = '{_HERE}'",
        "ALTER SYSTEM SET password_encryption = 'scram-sha-256'",
        f"CREATE ROLE {_OWNER} LOGIN IN ROLE cerebro_user",
        f"CREATE ROLE {_HELPER} LOGIN IN ROLE {_OWNER}",
        f"GRANT CREATE ON SCHEMA public TO {_OWNER}",
    ):
        running.fetch(statement)
    running.forget_session()
    hba = cluster.data / "pg_hba.conf"
    hba.write_text(f"{hba.read_text()}host all {_HELPER} {_NET} scram-sha-256\n")
    cluster.stop()
    cluster.start()
    running.fetch(f"ALTER ROLE {_HELPER} PASSWORD '{password}'")
    running.forget_session()
    owner = Embedded(cluster)
    owner.dsn = psycopg2.extensions.make_dsn(cluster.dsn(), user=_OWNER)
    with tempfile.TemporaryDirectory(prefix="cw-") as folder:
        passfile = Path(folder) / "passwords"
        passfile.write_text(f"*:*:*:{_HELPER}:{password}\n")
        passfile.chmod(0o600)
        yield Place(
            running,
            owner,
            f"host={_HERE} dbname=cerebro user={_HELPER}",
            ("ip", "netns", "exec", _NAMESPACE),
            {"PGPASSFILE": str(passfile)},
        )


# -- the trial -------------------------------------------------------------------------------
class Trial:
    """Runs of one owner, and a worker that does not live long.

    Args:
        place: the server, and from where the worker comes.
        arguments: of the program.
    """

    def __init__(self, place: Place, arguments: argparse.Namespace) -> None:
        self._place, self._arguments = place, arguments
        self._server, self._owner = place.server, place.owner
        self._random = random.Random(arguments.seed)
        self._tally = Tally()
        self._folder = Path(tempfile.mkdtemp(prefix="cw-", dir="/tmp"))

    def run(self) -> Tally:
        """All of it."""
        try:
            grid.load(self._owner)
            self._slow()
            calm = self._outcome(self._begun("calm"), "calm")
            stops = ["kill"] * self._arguments.kills + ["cut"] * self._arguments.cuts
            while stops:
                self._tally.runs += 1
                self._disturbed(f"run_{self._tally.runs}", stops, calm)
        finally:
            self._owner.forget_session()
            self._server.forget_session()
            shutil.rmtree(self._folder)
        return self._tally

    def _slow(self) -> None:
        """Configurations whose hops take a while."""
        self._owner.fetch("DROP TABLE configs, configs_summary")
        compiled = [
            f"loss='sparse_categorical_crossentropy',optimizer='Adam(lr={rate})',metrics=['accuracy']"
            for rate in (0.01, 0.003)
        ]
        self._owner.call(
            "SELECT cerebro_load_configs('models', 'configs', %s, %s, %s)",
            ([1, 2], compiled, [_FIT]),
        )

    def _job(self, output: str) -> Job:
        partitions = self._server.partitions
        return Job(output, self._arguments.epochs, predicts=False, workers=1, partitions=partitions)

    def _begun(self, output: str) -> subprocess.Popen[str]:
        """The driver of a run, in a process."""
        return subprocess.Popen(
            [*self._job(output).fit_command(self._owner.dsn), "--no-live"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def _outcome(self, driver: subprocess.Popen[str], output: str) -> Outcome:
        """Outcome of a run, once its driver has ended."""
        output_text, _ = driver.communicate(timeout=_RUN_SECONDS)
        job = self._job(output)
        run_id = self._run_id(output)
        if driver.returncode:
            self._tally.deviations.append(f"{output}: {output_text.strip().splitlines()[-1]}")
        self._tally.deviations += [
            f"{output}: {one}" for one in miscounted(self._server, job, run_id)
        ]
        return outcome(self._server, job, run_id)

    def _run_id(self, output: str) -> int:
        sql = "SELECT coalesce((SELECT max(run_id) FROM cerebro.runs WHERE model_output_table ~ %s), 0)"
        return int(self._owner.value(sql, (f"{output}$",)))

    def _disturbed(self, output: str, stops: list[str], calm: Outcome) -> None:
        """A run whose workers are stopped for as long as it goes on."""
        driver = self._begun(output)
        with suppress(TookTooLong):
            until(lambda: self._run_id(output), _UP_SECONDS, "the run begins")
        run_id = self._run_id(output)
        try:
            while stops and driver.poll() is None:
                self._stopped(run_id, driver, stops)
            found = self._outcome(driver, output)
        finally:
            if driver.poll() is None:
                driver.kill()
                driver.communicate()
        sql = "SELECT coalesce(sum(hops), 0) FROM cerebro.direct_workers WHERE run_id = %s"
        hops = int(self._owner.value(sql, (run_id,)))
        self._tally.hops += hops
        recorded = "SELECT count(*) FROM cerebro.hops WHERE run_id = %s AND worker > 0"
        if self._owner.value(recorded, (run_id,)) != hops:
            self._tally.deviations.append(f"{output}: hops of workers are miscounted")
        self._tally.deviations += [f"{output}: {one}" for one in differences(found, calm)]
        self._owner.fetch(f"DROP TABLE {', '.join(self._job(output).tables)}")
        print(  # noqa: T201
            f"{output}: {self._tally.moments.total()} stops so far, {hops} of "
            f"{self._job(output).hops} hops by workers that have joined", flush=True,
        )  # fmt: skip

    def _stopped(self, run_id: int, driver: subprocess.Popen[str], stops: list[str]) -> None:
        """Stop a worker after one life."""
        process = self._worker(run_id)
        try:
            if stops[0] == "cut" or self._random.random() < 0.7:  # else soon after its start
                going = lambda: driver.poll() is None  # noqa: E731
                if not self._works(run_id, process, going):
                    return
            if not self._sleeps(self._random.uniform(0.0, _LONGEST_LIFE / 2), driver):
                return
            moment = self._moment(run_id)
            if stops[0] == "cut":
                self._cut(run_id, process, driver)
                moment = f"cut off while {moment}"
            self._tally.moments[moment] += 1
            del stops[0]
        finally:
            process.kill()
            process.communicate()

    def _works(
        self, run_id: int, process: subprocess.Popen[str], going: Callable[[], bool]
    ) -> bool:
        """Wait until a worker has made a hop or two; False where the run ends before."""
        sql = (
            "SELECT coalesce((SELECT hops FROM cerebro.direct_workers WHERE run_id = %s "
            "ORDER BY joined DESC LIMIT 1), 0)"
        )
        wanted = self._random.randint(1, _LEAST_HOPS)
        end = time.monotonic() + _UP_SECONDS
        before = self._count(run_id)
        while going() and process.poll() is None:
            if self._count(run_id) > before or time.monotonic() > end:
                break
            time.sleep(0.02)
        while going() and process.poll() is None:
            if self._owner.value(sql, (run_id,)) >= wanted:
                return True
            if time.monotonic() > end:
                raise TookTooLong("a worker makes hops")
            time.sleep(0.02)
        if going():
            self._tally.deviations.append(f"a worker ended by itself: {process.communicate()[0]}")
        return False

    def _count(self, run_id: int) -> int:
        sql = "SELECT count(*) FROM cerebro.direct_workers WHERE run_id = %s AND facts IS NOT NULL"
        return int(self._owner.value(sql, (run_id,)))

    @staticmethod
    def _sleeps(seconds: float, driver: subprocess.Popen[str]) -> bool:
        """Sleep; False where the run ends meanwhile."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and driver.poll() is None:
            time.sleep(0.005)
        return driver.poll() is None

    def _moment(self, run_id: int) -> str:
        """Work of the worker that is killed now."""
        sql = (
            "SELECT coalesce((SELECT status FROM cerebro.direct_workers WHERE run_id = %s "
            "AND status IN ('joining', 'waiting', 'training') ORDER BY joined DESC LIMIT 1), 'starting')"
        )
        return str(self._owner.value(sql, (run_id,)))

    def _cut(
        self, run_id: int, process: subprocess.Popen[str], driver: subprocess.Popen[str]
    ) -> None:
        """Cut the network until the server knows that the worker is gone."""
        sql = (
            "SELECT count(*) FROM cerebro.direct_workers WHERE run_id = %s "
            "AND status IN ('joining', 'waiting', 'training')"
        )
        _ip("link", "set", _OUTER, "down")
        try:
            began = time.monotonic()
            until(
                lambda: driver.poll() is not None or not self._owner.value(sql, (run_id,)),
                _UP_SECONDS, "the server hears of a network that was cut",
            )  # fmt: skip
            print(f"cut off: known after {time.monotonic() - began:.0f} s", flush=True)  # noqa: T201
        finally:
            process.kill()
            _ip("link", "set", _OUTER, "up")

    def _worker(self, run_id: int) -> subprocess.Popen[str]:
        """A worker that joins a run."""
        command: Sequence[str] = (
            *self._place.prefix, _PROGRAM, "worker", "--dsn", self._place.dsn, "--run", str(run_id),
            "--keeper-directory", str(self._folder),
        )  # fmt: skip
        environment = {**os.environ, **self._place.environment}
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )


if __name__ == "__main__":
    sys.exit(main())
