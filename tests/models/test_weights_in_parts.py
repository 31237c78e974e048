"""Large values go to the server and come from it in parts, so that no statement has them as text of twice their size."""

from __future__ import annotations

import json
import resource
from types import SimpleNamespace

import keras
import numpy as np
import psycopg2
import pytest

from cerebro_db.models import architectures
from cerebro_db.postgres.sessions import parts
from cerebro_db.postgres.sessions.session import Session
from cerebro_db.server import joined, models
from tests.security.conftest import NET


class Watched:
    """A session that keeps the sizes of values that are sent."""

    def __init__(self, session: Session) -> None:
        self.session, self.sizes = session, list[int]()

    def run(self, sql: str, parameters: tuple[object, ...] = ()) -> object:
        """The rows of a statement."""
        self.sizes += [len(one) for one in parameters if isinstance(one, memoryview)]
        return self.session.run(sql, parameters)


WEIGHTS = np.arange(6, dtype="<f4").tobytes()


@pytest.fixture
def watched(db):
    session = Session(db.dsn, "test")
    session.run("SET search_path = pg_catalog")
    yield Watched(session)
    session.close()


@pytest.mark.parametrize(
    ("part", "sizes"), [(1, [1] * 24), (7, [7, 7, 7, 3]), (24, [24]), (2**20, [24])]
)
def test_no_value_is_larger_than_a_part(watched, monkeypatch, part, sizes):
    monkeypatch.setattr(parts, "PART_BYTES", part)
    facts = architectures.inspect(watched, NET, WEIGHTS)
    assert watched.sizes == sizes
    assert facts == architectures.inspect(watched, NET, None)
    with pytest.raises(Exception, match="weights"):
        architectures.inspect(watched, NET, WEIGHTS[:-4])


def test_no_weights_are_none_of_any_size(watched):
    with pytest.raises(Exception, match="weights"):
        architectures.inspect(watched, NET, b"")
    assert watched.sizes == [0]


@pytest.mark.usefixtures("tensorflow")
@pytest.mark.parametrize("part", [100, 4096, 2**24])
def test_a_file_goes_there_in_parts_and_its_weights_come_back(watched, monkeypatch, tmp_path, part):
    net = keras.models.model_from_json(NET)
    net.set_weights([np.arange(4).reshape(2, 2), np.arange(4, 6)])
    net.save(tmp_path / "net.keras")
    file = (tmp_path / "net.keras").read_bytes()
    monkeypatch.setattr(parts, "PART_BYTES", part)
    text, weights = architectures.read_file(watched, file)
    assert watched.sizes == [part] * (len(file) // part) + [len(file) % part]
    assert weights == WEIGHTS
    assert json.loads(text)["class_name"] == "Sequential"
    assert watched.session.run("SELECT f FROM cerebro._read_model_file(NULL) f") == [("(,)",)]


def test_weights_of_a_file_come_in_parts(monkeypatch):
    """Each part once, then nothing; a new file forgets what is left of an old one."""
    monkeypatch.setattr(joined, "PART_BYTES", 7)
    kept: dict[str, object] = {}
    assert joined.first_part(kept, bytes(8)) == bytes(7)
    found = [joined.first_part(kept, WEIGHTS)]
    found += [models.read_file(None, kept, None)[1] for _ in range(4)]
    assert [len(part or b"") for part in found] == [7, 7, 7, 3, 0]
    assert b"".join(part or b"" for part in found) == WEIGHTS
    assert kept == {}


def test_loaded_weights_are_what_was_given(db):
    db.fetch("SELECT cerebro_load_model('in_parts', %s, %s)", (NET, psycopg2.Binary(WEIGHTS)))
    assert bytes(db.value("SELECT model_weights FROM in_parts")) == WEIGHTS
    assert 2 * parts.LARGE_BYTES < 2**29  # as text, with room for the statement


@pytest.mark.parametrize(
    ("sizes", "bounds"),
    [
        ((10, 10), []),
        ((2**20, 10), ["asked"]),
        ((10, 2**25, 2**25), ["default"]),
        ((2**20, 2**26), ["asked"]),
    ],
)
def test_what_is_joined_is_bounded_like_what_computes(monkeypatch, sizes, bounds):
    """A process whose first work it is gets the limit of the setting before it takes much."""
    done: list[str] = []
    monkeypatch.setattr(joined, "settings_of", lambda plpy: "asked")
    monkeypatch.setattr(joined, "Settings", lambda: "default")
    monkeypatch.setattr(joined, "limit_memory", done.append)
    unlimited = resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda _: (unlimited, unlimited if not done else 1))
    token, kept = None, {}
    for size in sizes:
        token = joined.join_state(SimpleNamespace(segment=None), kept, token, bytes(size))
    assert done == bounds
    assert len(joined.take_joined(kept, token)) == sum(sizes)


def made_small(monkeypatch, size):
    """From so many bytes on values are large, and go in parts of that size."""
    monkeypatch.setattr(parts, "PART_BYTES", size)
    monkeypatch.setattr(parts, "LARGE_BYTES", size)


def test_a_large_value_is_one_in_its_statement(watched, monkeypatch):
    """Whatever is around it, and however often the statement reads it."""
    made_small(monkeypatch, 10)
    rows = watched.session.run(
        "SELECT g, %s::bytea, %s, '%%s', %s::bytea FROM pg_catalog.generate_series(1, 3) g WHERE g > %s",
        (WEIGHTS, "a", b"short", 1),
    )
    found = [(g, bytes(a), *rest, bytes(b)) for g, a, *rest, b in rows]
    assert found == [(g, WEIGHTS, "a", "%s", b"short") for g in (2, 3)]


@pytest.mark.parametrize("size", [10, 11])
def test_values_above_a_part_are_sent_before_their_statement(size, monkeypatch):
    made_small(monkeypatch, 10)
    sent = []

    def run(sql, values):
        sent.append(bytes(values[1]))
        return [(7,)]

    sql, values = parts.in_parts(run, "SELECT %s, '%%', %s", (bytes(3), bytes(size)))
    if size == 10:
        assert (sql, values, sent) == ("SELECT %s, '%%', %s", (bytes(3), bytes(10)), [])
    else:
        assert sql == "SELECT %s, '%%', (SELECT cerebro._joined_bytes(%s, %s))"
        assert (values, sent) == ([bytes(3), 7, 11], [bytes(10), bytes(1)])


def test_a_part_that_was_lost_is_noticed(watched):
    token = parts.joined(watched.session.run, WEIGHTS)
    with pytest.raises(Exception, match="25 bytes were sent, and 24 have come"):
        watched.session.run("SELECT cerebro._joined_bytes(%s, 25)", (token,))
