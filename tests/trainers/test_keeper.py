"""Keepers: who gets which trainer, what becomes of those that end, and of keepers that do."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from pace import stretched

from cerebro_db.relay.keepers import Installation
from cerebro_db.relay.machine import cores
from cerebro_db.relay.wire import Closed
from tests.fitting.conftest import PLAIN
from tests.server.conftest import _hop
from tests.trainers.conftest import DRIVER, Place, ask, installation, until

SETUP = {"run_id": 0, "threads": 1, "use_gpus": False, "cache_bytes": 0}


def prepared(place: Place, **named: Any) -> Any:
    """A trainer that has made its settings."""
    trainer = place.process(**named)
    task = json.dumps(SETUP | {"settings": {}})
    assert "result" in (answer := ask(trainer, "training.prepare_process", task)), answer
    return trainer


def hop(trainer: Any) -> Any:
    """Have a trainer do a hop; what it tells of that."""
    task, x, x_shape, y, y_shape = _hop(PLAIN, 1, False)
    nothing = [None] * 8
    token = ask(trainer, "training.train_step", None, 0, task, *nothing)["result"]
    buffer = [2, None, None, None, 0, 0, x, x_shape, y, y_shape]
    assert ask(trainer, "training.train_step", token, *buffer)["result"] == token
    assert ask(trainer, "training.train_final", token)["result"] == token
    ((_, _, report),) = ask(trainer, "training.saved_state", token)["result"]
    return json.loads(report)["hops"][0]


def given_back(place: Place, trainer: Any) -> None:
    """End a connection, and wait until the trainer is idle, or has ended."""
    process = Path(f"/proc/{trainer.pid}")
    trainer.close()

    def is_idle() -> bool:
        try:
            name, _, rest = (process / "stat").read_text().rpartition(")")
        except OSError:
            return True
        return name.endswith("(trainer idle") and rest.split()[0] == "S"

    until(is_idle)
    time.sleep(0.1)  # its keeper hears of it


def test_an_idle_trainer_is_for_its_owner_only(place: Place) -> None:
    first = prepared(place, role=21)
    pid = first.pid
    given_back(place, first)
    others = [place.process(role=22), place.process(role=21, database=2)]
    assert pid not in [other.pid for other in others]
    again = place.process(role=21)
    assert again.pid == pid
    assert place.process(role=21).pid != pid  # it is busy now


def test_a_trainer_that_is_set_up_otherwise_is_not_taken(place: Place) -> None:
    first = prepared(place, role=31, like=[1, False])
    pid = first.pid
    given_back(place, first)
    assert place.process(role=31, like=[2, False]).pid != pid
    assert place.process(role=31, like=[1, False]).pid == pid


def test_one_that_was_killed_while_it_was_idle_is_not_taken(place: Place) -> None:
    """Also where the keeper hears of it together with the next caller."""
    first, keeper = prepared(place, role=35), place.keeper()
    pid = first.pid
    given_back(place, first)
    assert keeper is not None
    os.kill(keeper, signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    goes_on = threading.Timer(0.5, os.kill, (keeper, signal.SIGCONT))
    goes_on.start()
    other = prepared(place, role=35)
    goes_on.join()
    assert other.pid != pid


def test_idle_ones_end(place: Place) -> None:
    trainer = place.process(role=41)
    settings = {"idle_seconds": "1"}
    ask(trainer, "training.prepare_process", json.dumps(SETUP | {"settings": settings}))
    pid = trainer.pid
    trainer.close()
    until(lambda: not Path(f"/proc/{pid}").exists(), 20)
    assert place.ended(pid) == "ended with exit code 0"


def test_only_a_few_stay_idle(place: Place) -> None:
    trainers = [prepared(place, role=51 + n) for n in range(cores() + 2)]
    pids = [trainer.pid for trainer in trainers]
    for trainer in trainers:
        given_back(place, trainer)
    until(lambda: sum(os.path.exists(f"/proc/{pid}") for pid in pids) <= cores(), 20)


def test_the_kernel_ends_trainers_before_the_server(place: Place) -> None:
    for kind, score in (("trainer", 900), (DRIVER, 600)):
        process = place.process(kind)
        keeper = place.keeper(kind)
        assert int(Path(f"/proc/{process.pid}/oom_score_adj").read_text()) == score
        assert int(Path(f"/proc/{keeper}/oom_score_adj").read_text()) == 300
        for pid in (process.pid, keeper):
            assert resource.prlimit(pid or 0, resource.RLIMIT_CORE) == (1, 1)
            command = Path(f"/proc/{pid}/cmdline").read_text() + Path(
                f"/proc/{pid}/environ"
            ).read_text(errors="replace")
            assert "password" not in command.lower()
            assert "PGHOST" not in command


def test_nobody_else_enters_the_folder(place: Place) -> None:
    place.process(DRIVER)
    folder = Path(installation(place.folder).folder())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in folder.iterdir():
        if path.suffix != ".lock":
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_another_package_means_another_keeper(tmp_path: Path) -> None:
    package = tmp_path / "cerebro_db"
    package.mkdir()
    file = package / "__init__.py"
    file.touch()

    def name(version: str = "1") -> str:
        known = Installation("/bin/sh", str(package), "/tmp", version)
        return known.socket_name("trainer")

    first = name()
    assert name() == first
    assert name("2") != first
    os.utime(file, ns=(1, 1))
    assert name() != first


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS])
def test_the_end_of_a_trainer_is_reported(place: Place, number: signal.Signals) -> None:
    trainer = place.process(role=61)
    os.kill(trainer.pid, number)
    with pytest.raises(Closed):
        trainer.receive()
    told = place.ended(trainer.pid)
    assert re.fullmatch(rf"was killed by {number.name}: it had \d\.\d GB", told), told


def test_what_it_was_allowed_is_reported_too(place: Place) -> None:
    trainer = prepared(place, role=62)
    os.kill(trainer.pid, signal.SIGKILL)
    with pytest.raises(Closed):
        trainer.receive()
    told = place.ended(trainer.pid)
    assert re.fullmatch(r"was killed by SIGKILL: it had \d\.\d GB of \d+\.\d GB allowed", told), (
        told
    )


def test_a_killed_keeper_disturbs_nobody(place: Place) -> None:
    trainer, keeper = prepared(place, role=71), place.keeper()
    assert keeper is not None
    os.kill(keeper, signal.SIGKILL)
    assert hop(trainer)["rows"] == 64
    other = prepared(place, role=71)
    assert other.pid != trainer.pid
    assert place.keeper() not in (None, keeper)
    pid = trainer.pid
    assert hop(trainer)["rows"] == 64
    trainer.close()  # nobody would give it to another caller
    until(lambda: not os.path.exists(f"/proc/{pid}"), 20)


def test_trainers_begin_and_train_side_by_side(place: Place) -> None:
    done: list[int] = []

    def work(role: int) -> None:
        trainer = prepared(place, role=role)
        done.append(hop(trainer)["rows"])
        trainer.close()

    threads = [threading.Thread(target=work, args=[1000 + number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == [64] * len(threads)


GRADIENTS = r"""
import gc, os, sys
from cerebro_db.trainers.keeper import preload

gc.disable()
preload("trainer")
gc.freeze()

def child():
    from cerebro_db.training.environment import configure
    import tensorflow as tf
    configure(threads=1)
    x = tf.Variable(3.0)
    with tf.GradientTape() as tape:
        y = x * x
    os._exit(0 if float(tape.gradient(y, x)) == 6 else 1)

side_by_side = int(sys.argv[2])
for _ in range(int(sys.argv[1]) // side_by_side):
    children = [os.fork() or child() for _ in range(side_by_side)]
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * side_by_side
"""


@pytest.mark.parametrize(("forks", "side_by_side"), [(20, 1), (100, 10)])
def test_many_forks_each_compute_a_gradient(forks: int, side_by_side: int) -> None:
    command = [sys.executable, "-c", GRADIENTS, str(forks), str(side_by_side)]
    subprocess.run(command, check=True, timeout=stretched(300), stderr=subprocess.DEVNULL)


def test_a_process_whose_caller_has_gone_in_the_middle_ends(place: Place) -> None:
    trainer = prepared(place, role=81)
    task, x, x_shape, y, y_shape = _hop(PLAIN, 10**6, False)
    nothing = [None] * 8
    token = ask(trainer, "training.train_step", None, 0, task, *nothing)["result"]
    arguments = [token, 2, None, None, None, 0, 0, x, x_shape, y, y_shape]
    for call, given in (("train_step", arguments), ("train_final", [token])):
        trainer.send(
            {"call": f"training.{call}", "arguments": given, "named": {}, "waits": True,
             "begins": False}
        )  # fmt: skip
    time.sleep(1.5)
    pid = trainer.pid
    trainer.close()
    until(lambda: not os.path.exists(f"/proc/{pid}") or place.process(role=81).pid == pid, 5)


def test_a_folder_that_was_removed_is_made_again(place: Place) -> None:
    place.process(DRIVER)
    before = place.keeper(DRIVER)
    place.end()  # those of trainers too: nobody could find them any more
    shutil.rmtree(installation(place.folder).folder())
    assert place.process(DRIVER).pid
    assert place.keeper(DRIVER) not in (None, before)
