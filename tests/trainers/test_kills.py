"""Trainers, drivers and keepers are killed: no session of the server notices, runs end by themselves."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from gates import gate_at
from reasons import EMBEDDED_ONLY
from servers import Server, drop_database, make_database

from cerebro_db.install import installer
from cerebro_db.install.embedded import Cluster
from cerebro_db.install.script import Script
from tests.conftest import Sql
from tests.fitting.conftest import ADAM, select
from tests.server.conftest import DEEP, WORKERS, Caller, assert_good_ends, make_tables_at, until

pytestmark = [pytest.mark.slow, pytest.mark.not_on_segments(EMBEDDED_ONLY)]
EPOCHS = 30
FIT = (
    f"SELECT cerebro_fit_multiple('packed', %s, %s, {EPOCHS}, num_workers := 2, seed := 3,"
    " validation_table := 'val', metrics_compute_frequency := 10)"
)
OUTCOME = (
    "SELECT o.mst_key, md5(o.model_weights), i.training_loss_final, i.validation_loss_final"
    " FROM {0} o JOIN {0}_info i USING (mst_key) ORDER BY 1"
)


@pytest.fixture(scope="module")
def folder(short_folder: Path, cluster: Cluster) -> Iterator[Path]:
    """For keepers of these tests alone."""
    folder = short_folder / "kills"
    folder.mkdir()
    os.chown(folder, cluster.account.uid, cluster.account.gid)
    yield folder
    for pid in [pid for kind in ("trainer", "driver") for pid in _processes(folder, kind)]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    subprocess.run(["rm", "-rf", str(folder)], check=True)


@pytest.fixture(scope="module")
def place(cluster: Server, administrator: Sql, folder: Path) -> Iterator[str]:
    """A database whose processes are those of the folder."""
    name = f"kills_{os.getpid()}"
    make_database(administrator, name)
    installer.install(cluster.dsn(name), Script(keeper_directory=str(folder)))
    make_tables_at(cluster.dsn(name))
    yield cluster.dsn(name)
    drop_database(administrator, name)


@pytest.fixture
def caller(place: str) -> Iterator[Caller]:
    caller = Caller(place)
    yield caller
    caller.close()


def _processes(folder: Path, kind: str) -> list[int]:
    """The keeper of a kind, and all that it has started."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (path / "cmdline").read_bytes().split(b"\0")
            if b"cerebro_db.trainers" in words and os.fsencode(folder) in b" ".join(words):
                parent = int((path / "status").read_text().split("PPid:")[1].split()[0])
                found[int(path.name)] = (parent, words[words.index(b"cerebro_db.trainers") + 1])
    # Beside the keeper there is the process that orphans come to; it is nobody's child of ours.
    return sorted(p for p, (up, k) in found.items() if k == kind.encode() and up in found)


def _made(watching: Sql, out: str) -> int:
    """Hops of a run."""
    query = "SELECT count(*) FROM cerebro.hops JOIN cerebro.runs USING (run_id) WHERE model_output_table = %s"
    return int(watching.value(query, (f"work.{out}",)))


def _lost_drivers(caller: Caller) -> int:
    """How often the caller was told of one."""
    return sum("lost its driver" in notice for notice in caller.sql.notices)


def test_no_session_notices_and_the_bits_are_the_same(
    caller: Caller, place: str, folder: Path, connect: Callable[[str], Any], cluster: Cluster
) -> None:
    log = cluster.log.stat().st_size
    bystander = connect(place)
    bystander.run("PREPARE mine AS SELECT count(*) FROM pg_class; BEGIN; CREATE TABLE kept (a int)")
    backend, started = bystander.row("SELECT pg_backend_pid(), pg_postmaster_start_time()")
    caller.sql.run(FIT, ["calm", "short"])
    wanted = caller.sql.fetch(OUTCOME.format("calm"))

    generator = random.Random(5)
    watching = connect(place)
    with gate_at(place) as gate:
        gate.shut(hops=10)
        caller.start(caller.sql.run, FIT, ["stormy", "short"])
        # No hop loses its trainer twice, and none is the last one.
        for number, kind in enumerate(("trainer", "driver", "trainer", "driver", "trainer")):
            until(lambda number=number: _made(watching, "stormy") >= 20 * number + 10)
            gate.shut(hops=20 * number + 30)
            time.sleep(generator.random() / 10)
            pids = _processes(folder, kind)
            for pid in pids if kind == "driver" else [generator.choice(pids)]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        gate.open()
        caller.wait(120)
    assert caller.error is None
    assert _lost_drivers(caller) == 2
    assert caller.sql.fetch(OUTCOME.format("stormy")) == wanted

    bystander.run("INSERT INTO kept VALUES (1)")
    assert bystander.value("EXECUTE mine") > 0
    bystander.run("ROLLBACK")
    now = bystander.row("SELECT pg_backend_pid(), pg_postmaster_start_time()")
    assert now == (backend, started)
    assert_good_ends(cluster, log)


def test_a_call_outlives_each_of_its_drivers(
    caller: Caller, place: str, folder: Path, connect: Callable[[str], Any]
) -> None:
    watching = connect(place)
    killed: set[int] = set()
    with gate_at(place) as gate:
        gate.shut(hops=10)
        caller.start(caller.sql.run, FIT, ["driven", "short"])
        for number in range(3):
            until(lambda number=number: _lost_drivers(caller) == number)
            until(lambda number=number: _made(watching, "driven") >= 30 * number + 10)
            for pid in set(_processes(folder, "driver")) - killed:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                killed.add(pid)
            gate.shut(hops=30 * number + 40)
        until(lambda: _lost_drivers(caller) == 3)
        gate.open()
        caller.wait(120)
    assert caller.error is None
    caller.sql.run(FIT, ["calmly", "short"])
    assert caller.sql.fetch(OUTCOME.format("driven")) == caller.sql.fetch(OUTCOME.format("calmly"))


def test_a_configuration_whose_trainer_dies_twice_fails_alone(
    caller: Caller, place: str, folder: Path, connect: Callable[[str], Any]
) -> None:
    """The one endless configuration of three, when the hops of the others have been made."""
    watcher = connect(place)
    watcher.run("SET search_path = work, public, cerebro")
    select(
        watcher,
        "mixed",
        [1],
        [ADAM],
        ["batch_size=8", "batch_size=16", "batch_size=8,epochs=1000000"],
    )
    caller.start(
        caller.sql.run,
        FIT.replace(f" {EPOCHS},", " 1,").replace(":= 10", ":= 1"),
        ["twice", "mixed"],
    )
    until(lambda: _made(watcher, "twice") == 4)
    _kill_one(watcher, "%cerebro_train%")
    until(lambda: any("done again" in notice for notice in caller.sql.notices))
    _kill_one(watcher, "%cerebro_train%")
    caller.wait()
    assert caller.error is None
    told = watcher.fetch(
        "SELECT status, error FROM cerebro.leaderboard WHERE run_id = (SELECT max(run_id) FROM cerebro.runs)"
    )
    assert [status for status, _ in told].count("finished") == 2, told
    (error,) = [error for status, error in told if status == "failed"]
    assert "the trainer was killed by SIGKILL: it had " in error


QUESTIONS = {
    "predict": ("SELECT cerebro_predict('asked', 'many', 'id', 'x', %s, mst_key := 1)", "%_predict_%"),
    "evaluate": ("SELECT cerebro_evaluate('asked', 'packed_many', %s)", "%cerebro_measure%"),
    "confusion": ("SELECT cerebro_confusion_matrix('asked', 'packed_many', %s)", "%cerebro_measure%"),
}  # fmt: skip


@pytest.fixture(scope="module")
def asked(place: str) -> None:
    """Models, and rows that keep their trainers busy for seconds."""
    caller = Caller(place)
    try:
        caller.sql.run("SELECT cerebro_load_model('deep', %s)", (DEEP,))
        select(caller.sql, "one", [1], [ADAM], ["batch_size=8"], "deep")
        caller.sql.run("SELECT cerebro_fit_multiple('packed', 'asked', 'one', 1)")
        caller.sql.run(
            "CREATE TABLE many AS SELECT id + 64 * i AS id, label, x FROM points, generate_series(1, 12000) AS i"
        )
        caller.sql.run(
            "SELECT cerebro_pack_validation('many', 'packed_many', 'label', 'x', 'packed')"
        )
    finally:
        caller.close()


def _kill_one(watcher: Sql, query: str) -> None:
    """End the trainer of a worker that has been at such a statement for a moment."""
    working = WORKERS.replace("ORDER", "AND state = 'active' AND query LIKE %s ORDER")

    def trainers() -> list[Path]:
        names = {f"trainer {pid}" for pid in watcher.column(working, [query])}
        return [one for one in Path("/proc").glob("[0-9]*") if _name(one) in names]

    found = until(trainers)
    time.sleep(0.1)
    os.kill(int(found[0].name), signal.SIGKILL)


def _name(process: Path) -> str:
    with suppress(OSError):
        return (process / "comm").read_text().strip()
    return ""


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_whose_trainer_dies_is_sent_again(
    question: str, caller: Caller, place: str, connect: Callable[[str], Any], asked: None
) -> None:
    watcher, (sql, query) = connect(place), QUESTIONS[question]
    rows = f"SELECT md5(string_agg(t::text, ',' ORDER BY t::text)) FROM work.{question}_%s t"
    caller.sql.run(sql, [f"{question}_1"])
    wanted = caller.sql.value(rows, [1])

    caller.start(caller.sql.run, sql, [f"{question}_2"])
    _kill_one(watcher, query)
    caller.wait()
    assert caller.error is None
    assert caller.sql.value(rows, [2]) == wanted
    (told,) = [notice for notice in caller.sql.notices if "done again" in notice]
    assert "the trainer was killed by SIGKILL: it had " in told

    caller.start(caller.sql.run, sql, [f"{question}_3"])
    _kill_one(watcher, query)
    until(lambda: len([notice for notice in caller.sql.notices if "done again" in notice]) == 2)
    _kill_one(watcher, query)
    caller.wait()
    assert caller.error is not None
    assert caller.error.pgcode == "YC001"
    assert watcher.value("SELECT to_regclass(%s)", [f"work.{question}_3"]) is None
