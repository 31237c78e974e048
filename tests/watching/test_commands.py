"""The commands: what they print, as pictures and as JSON."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from gates import gate_at
from pace import until
from typer.testing import CliRunner

from cerebro_db.cli.app import app
from cerebro_db.client import connect
from cerebro_db.errors import CerebroError, InvalidArgument, UndefinedModel, UndefinedRun
from cerebro_db.postgres.sessions import parts
from tests.fitting.sizes import PARTITIONS
from tests.watching.conftest import EPOCHS, Watched


def told(*arguments: object, **environment: str) -> str:
    """What a command prints."""
    environment = {"COLUMNS": "160", **environment}
    done = CliRunner(env=environment).invoke(app, [str(one) for one in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def told_json(*arguments: object) -> Any:
    """The same, read."""
    return json.loads(told(*arguments, "--json"))


def test_watch_once(watched: Watched) -> None:
    shown = told("watch", watched.run_id, "--once", "--dsn", watched.dsn)
    assert "finished · 4 configurations: 4 finished" in shown
    hops = 4 * EPOCHS * PARTITIONS
    assert f"100 % · {hops} of {hops} hops" in shown
    assert re.search(r"rank +mst_key +status +epoch +progress +val_accuracy +curve", shown)
    assert len(re.findall(r"3/3 +█{20}", shown)) == 4
    assert re.search(r"worker +pid +hops +idle +scoring +memory", shown)


def test_a_narrow_terminal_has_what_matters(watched: Watched) -> None:
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(
        app, ["watch", str(watched.run_id), "--once", "--dsn", watched.dsn]
    ).stdout  # fmt: skip
    assert re.search(r"rank +mst_key +status +epoch +val_accuracy +curve +configurat", shown)
    assert len(re.findall(r"^ +\d +\d +finished +3/3 ", shown, re.M)) == 4
    assert max(map(len, shown.splitlines())) <= 80


def test_in_a_log_nothing_is_cut(watched: Watched) -> None:
    for command in ("watch", "compare"):
        runs = [str(watched.run_id)] * (2 if command == "compare" else 1)
        once = ["--once"] if command == "watch" else []
        shown = CliRunner(env={"COLUMNS": None}).invoke(
            app, [command, *runs, *once, "--dsn", watched.dsn]
        ).stdout  # fmt: skip
        assert "…" not in shown
        assert max(map(len, shown.splitlines())) > 80


def test_watch_ends_with_the_run(watched: Watched) -> None:
    assert "finished · 4 configurations" in told("watch", watched.run_id, "--dsn", watched.dsn)


def test_watch_shows_the_newest_run_and_as_many_lines_as_there_is_room(watched: Watched) -> None:
    newest = watched.sql.value("SELECT max(run_id) FROM cerebro.runs")
    assert f"run {newest}" in told("watch", "--once", "--dsn", watched.dsn)
    shown = told("watch", watched.large, "--once", "--dsn", watched.dsn)
    assert "and 980 more" in shown
    found = told_json("watch", watched.large, "--dsn", watched.dsn)
    assert len(found["configurations"]) == 1000
    assert found["pace"]["done"] == 80_000
    assert [one["worker"] for one in found["workers"]] == list(range(8))
    assert 0.1 < found["workers"][0]["idle"] < 0.3


def test_a_search_is_watched_until_it_ends(watched: Watched, connect: Any) -> None:
    import io
    import threading

    from rich.console import Console

    from cerebro_db.cli import watching
    from cerebro_db.cli.commands import session_of

    other = connect(watched.dsn)
    before = watched.sql.value("SELECT max(run_id) FROM cerebro.runs")
    call = threading.Thread(
        target=other.run,
        args=(
            "SELECT cerebro_search('packed', 'watched_search', 'models', NULL, ARRAY[1], $$ {'loss': "
            "['sparse_categorical_crossentropy'], 'metrics': ['accuracy'], 'optimizer': ['Adam(lr=0.01)', 'SGD(lr=0.01)']} $$, "
            "$$ {'batch_size': [8, 16]} $$, 'hyperband', 'R=9, eta=3', objective := 'accuracy')",
        ),
    )
    with gate_at(watched.dsn) as gate:

        class Shown(io.StringIO):
            """Lets the search end when it was drawn while it went on: looks are rare on a slow machine."""

            def write(self, text: str) -> int:
                count = super().write(text)
                if all(one in self.getvalue() for one in ("hyperband · running", "training")):
                    gate.open()
                return count

        gate.shut(hops=20)
        call.start()
        until(lambda: watched.sql.value("SELECT max(run_id) FROM cerebro.runs") != before)
        console = Console(file=Shown(), force_terminal=True, width=160, height=40)
        session = session_of(watched.dsn)
        assert watching.watch(session, None, console, seconds=0.1) == "finished"
        call.join()
        session.close()
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for wanted in ("hyperband · running", "rung 1", "training", "accuracy", "memory"):
        assert wanted in shown, wanted


def test_runs(watched: Watched) -> None:
    shown = told("runs", "--dsn", watched.dsn)
    assert "public.watched_out" in shown
    found = told_json("runs", "--limit", "1000", "--dsn", watched.dsn)
    assert [one["run_id"] for one in found][-2:] == [watched.large, watched.run_id]
    with pytest.raises(InvalidArgument, match="limit: got 0"):
        told("runs", "--limit", "0", "--dsn", watched.dsn)


def test_show(watched: Watched) -> None:
    shown = told("show", watched.run_id, "--dsn", watched.dsn)
    assert "SELECT cerebro.cerebro_fit_multiple(" in shown
    assert "tensorflow" in shown
    found = told_json("show", watched.run_id, "--dsn", watched.dsn)
    assert found["leaderboard"][0]["rank"] == 1
    assert set(found["leaderboard"][0]["results"]) == {
        "loss", "accuracy", "val_loss", "val_accuracy",
    }  # fmt: skip
    with pytest.raises(UndefinedRun, match="run_id: got 99999"):
        told("show", 99999, "--dsn", watched.dsn)


def test_compare(watched: Watched) -> None:
    shown = told("compare", watched.run_id, watched.large, "--most", "3", "--dsn", watched.dsn)
    assert "public.packed" in shown
    assert "public.large" in shown
    assert "more" in shown
    assert re.search(r"data +rows of source_table +\d+ +4000\b", shown)
    assert re.search(r"configuration +run +rank +loss +accuracy +val_loss +val_accuracy", shown)
    assert "learning_rate=0.003" in shown
    found = told_json("compare", watched.run_id, watched.run_id, "--dsn", watched.dsn)
    assert found["differences"] == []
    assert all(len(set(one["keys"])) == 1 for one in found["configurations"])
    with pytest.raises(InvalidArgument, match="got 1 run; allowed: two or more"):
        told("compare", watched.run_id, "--dsn", watched.dsn)


def test_report(watched: Watched, own_folder: Path) -> None:
    pytest.importorskip("plotly", reason="reports need plotly")
    file = own_folder / "report.html"
    shown = told("report", watched.run_id, "-o", file, "--no-curves", "--dsn", watched.dsn)
    assert shown == f"{file}: {file.stat().st_size} bytes\n"
    with pytest.raises(InvalidArgument, match="--output: got /nowhere"):
        told("report", watched.run_id, "-o", "/nowhere/report.html", "--no-curves", "--dsn", watched.dsn)  # fmt: skip
    with pytest.raises(UndefinedModel, match="got model:nets"):
        told("report", "--model", "nets", "--dsn", watched.dsn)
    with pytest.raises(InvalidArgument, match="report: got nothing; allowed: RUN"):
        told("report", "--dsn", watched.dsn)


def test_what_is_handed_on_is_reported_to_programs(
    watched: Watched, own_folder: Path, tensorflow: None
) -> None:
    run_id, where = watched.run_id, ["--dsn", watched.dsn]
    found = told_json("tensorboard", run_id, "--logdir", own_folder, *where)
    assert found["run_id"] == run_id
    assert Path(found["folder"]).is_dir()
    file = own_folder / "one.npz"
    found = told_json("export", "watched_out", "--mst-key", 1, "--format", "npz", "--output", file, *where)  # fmt: skip
    assert found == {"file": str(file), "bytes": file.stat().st_size}


def test_files_go_and_come_in_parts(
    watched: Watched, own_folder: Path, monkeypatch: pytest.MonkeyPatch, tensorflow: None
) -> None:
    where, file = ["--dsn", watched.dsn], own_folder / "one.keras"
    monkeypatch.setattr(parts, "PART_BYTES", 100)
    monkeypatch.setattr(parts, "LARGE_BYTES", 100)
    told_json("export", "watched_out", "--mst-key", 1, "--output", file, *where)
    found = told_json("import", file, "imported_models", *where)
    assert found == {"model_id": 1, "model_arch_table": "imported_models"}
    assert watched.sql.value(
        "SELECT i.model_weights = o.model_weights FROM imported_models i, watched_out o WHERE o.mst_key = 1"
    )
    watched.sql.run("DROP TABLE imported_models")


def test_all_commands_but_a_few_have_json() -> None:
    import typer

    commands = typer.main.get_command(app).commands
    without = {
        name for name, one in commands.items() if "--json" not in {o for p in one.params for o in p.opts}
    }  # fmt: skip
    # What serves, what installs, and what has a format of its own.
    assert without == {"server", "install", "upgrade", "verify", "uninstall", "print", "worker", "daemon", "metrics"}  # fmt: skip


def test_metrics(watched: Watched, own_folder: Path) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    text = told("metrics", "--dsn", watched.dsn)
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert values["cerebro_runs", "finished"] == watched.sql.value(
        "SELECT count(*) FROM cerebro.runs WHERE status = 'finished'"
    )
    assert values["cerebro_runs", "running"] == 0
    assert values[("cerebro_hops_total",)] == watched.sql.value("SELECT count(*) FROM cerebro.hops")
    assert values[("cerebro_rows_total",)] == watched.sql.value(
        "SELECT sum(rows) FROM cerebro.hops"
    )
    assert values["cerebro_jobs", "queued"] == 0
    file = own_folder / "cerebro.prom"
    assert told("metrics", "-o", file, "--dsn", watched.dsn) == ""
    assert "cerebro_hops_total" in file.read_text()


def test_a_daemon_is_scraped(watched: Watched) -> None:
    import socket
    from urllib.request import urlopen

    from prometheus_client.parser import text_string_to_metric_families

    from cerebro_db.cli.commands import session_of
    from cerebro_db.watching.prometheus import serve

    sessions: list[int] = []

    def connected(dsn: str) -> Any:
        session = session_of(dsn)
        sessions.append(session.run("SELECT pg_backend_pid()")[0][0])
        return session

    def served(dsn: str) -> int:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
        serve(lambda: connected(dsn), "127.0.0.1", port)
        return port

    def scraped(port: int) -> dict[str, float]:
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            families = list(text_string_to_metric_families(answer.read().decode()))
        return {one.name: one.samples[0].value for one in families if one.samples}

    port = served(watched.dsn)
    values = scraped(port)
    assert values["cerebro_up"] == 1
    assert values["cerebro_hops"] == watched.sql.value("SELECT count(*) FROM cerebro.hops")
    assert scraped(port)["cerebro_up"] == 1
    assert len(sessions) == 1  # which the server may end
    watched.sql.run("SELECT pg_terminate_backend(%s)", (sessions[0],))
    assert scraped(port) == values
    assert len(sessions) == 2
    watched.sql.run("SELECT pg_terminate_backend(%s)", (sessions[1],))
    assert scraped(served("host=/nowhere dbname=none")) == {"cerebro_up": 0}
    for wrong, told_of in (("0", "allowed: 1 to 65535"), ("70000", "allowed: 1 to 65535")):
        with pytest.raises(InvalidArgument, match=told_of):
            told("daemon", "--once", "--metrics-port", wrong, "--dsn", watched.dsn)
    with pytest.raises(InvalidArgument, match=r"--metrics-port: got 9000 of 203\.0\.113\.1"):
        told("daemon", "--once", "--metrics-port", 9000, "--metrics-address", "203.0.113.1", "--dsn", watched.dsn)  # fmt: skip


def test_jobs(watched: Watched) -> None:
    run_id = watched.sql.value("SELECT cerebro_fit_multiple('packed', 'job_out', 'grid', 1, wait := false)")  # fmt: skip
    assert told_json("wait", run_id, "--dsn", watched.dsn) == {"run_id": run_id, "status": "finished"}  # fmt: skip
    (job,) = [one for one in told_json("jobs", "--dsn", watched.dsn) if one["run_id"] == run_id]
    assert (job["status"], job["priority"], job["error"]) == ("finished", 0, None)
    shown = told("jobs", "--limit", 1, "--dsn", watched.dsn)
    assert re.search(rf"{run_id} +finished +\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d ", shown)
    watched.sql.run("SELECT cerebro_drop_run(%s)", (run_id,))
    watched.sql.run("SELECT cerebro_drop_outputs('job_out')")


@pytest.fixture
def stopped(watched: Watched) -> int:
    """A run that was paused at once."""
    return int(
        watched.sql.value(
            "SELECT cerebro_fit_multiple('packed', 'stopped_out', 'grid', 1, max_seconds := 0.001)"
        )
    )


def test_what_stands_still_can_be_dropped(watched: Watched, stopped: int) -> None:
    with pytest.raises(CerebroError, match="which is paused"):
        told("pause", stopped, "--dsn", watched.dsn)
    assert told_json("drop", stopped, "--dsn", watched.dsn) == {
        "run_id": stopped, "status": "dropped",
    }  # fmt: skip
    with pytest.raises(CerebroError, match="you have no run of that number"):
        told("cancel", stopped, "--dsn", watched.dsn)


def test_what_was_paused_goes_on(watched: Watched, stopped: int) -> None:
    found = told_json("resume", stopped, "--dsn", watched.dsn)  # lines of its driver are none of it
    assert found == {"run_id": stopped, "status": "finished"}
    assert told_json("drop", stopped, "--dsn", watched.dsn)["status"] == "dropped"
    watched.sql.run("SELECT cerebro_drop_outputs('stopped_out')")


def test_pack_and_predict(watched: Watched) -> None:
    columns = ["blobs_test", "by_command", "label", "x"]
    shown = told("pack", *columns, "--training-table", "packed", "--dsn", watched.dsn)
    assert shown.endswith("by_command\n")
    shown = told("predict", "watched_out", "by_command", "answers", "--mst-key", 1, "--dsn", watched.dsn)  # fmt: skip
    assert shown.endswith("answers\n")
    assert watched.sql.value("SELECT count(DISTINCT (partition_key, buffer_id, row_number)) FROM answers") == 30  # fmt: skip
    with pytest.raises(InvalidArgument, match="got --seed with --training-table"):
        told("pack", *columns, "--training-table", "packed", "--seed", 1, "--dsn", watched.dsn)
    watched.sql.run(
        "SELECT cerebro_drop_outputs('answers'); SELECT cerebro_drop_outputs('by_command')"
    )


def test_pack_columns_with_an_earlier_encoding(watched: Watched) -> None:
    watched.sql.run(
        "CREATE TABLE mixed AS SELECT i AS id, i % 5 AS n, 'c' || i % 3 AS c, i % 2 AS y FROM generate_series(1, 30) i"
    )
    mixed = ["--columns", "--excluded", "id", "--dsn", watched.dsn]
    told("pack", "mixed", "mixed_p", "y", "*", *mixed)
    watched.sql.run("UPDATE mixed SET c = 'new' WHERE id > 20")
    told("pack", "mixed", "mixed_q", "y", "*", *mixed, "--encoding-of", "mixed_p")
    shapes = "SELECT input_shapes::text FROM {}_summary"
    assert (
        watched.sql.value(shapes.format("mixed_q"))
        == watched.sql.value(shapes.format("mixed_p"))
        == "[[4]]"
    )
    unseen = "SELECT unseen_rows FROM cerebro.drift WHERE output_table = 'public.mixed_q' AND column_name = 'c'"
    assert watched.sql.value(unseen) == 10
    with pytest.raises(InvalidArgument, match="got --excluded without --columns"):
        told("pack", "mixed", "o", "y", "n", "--excluded", "id", "--dsn", watched.dsn)
    with connect(watched.dsn) as db:
        assert (
            db.pack_columns(
                "mixed", "mixed_p", "y", "*", excluded="id", encodings={"n": "onehot"}, replace=True
            )
            == "mixed_p"
        )
    assert watched.sql.value(shapes.format("mixed_p")) == "[[9]]"
    watched.sql.run(
        "SELECT cerebro_drop_outputs('mixed_p'); SELECT cerebro_drop_outputs('mixed_q'); DROP TABLE mixed"
    )
