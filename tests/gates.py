"""A gate before the commit of hops: no run ends, or comes too far, before a test has seen what it waits for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from servers import connected

# Of the lock that hops share while they wait.
_KEY = 7_130_215

_MAKE = f"""
CREATE TABLE public.the_gate (epoch int, hops int);
CREATE FUNCTION public.pass_the_gate() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
DECLARE waits boolean := false;
BEGIN
  WHILE EXISTS (
    SELECT 1 FROM public.the_gate g WHERE NEW.epoch >= g.epoch
       AND g.hops <= (SELECT count(*) FROM cerebro.catalog_hops h WHERE h.run_id = NEW.run_id)
  ) LOOP
    IF NOT waits THEN
      PERFORM pg_advisory_xact_lock_shared({_KEY});
      waits := true;
    END IF;
    PERFORM pg_sleep(0.01);
  END LOOP;
  RETURN NEW;
END $$;
CREATE TRIGGER gate BEFORE INSERT ON cerebro.catalog_hops FOR EACH ROW EXECUTE PROCEDURE public.pass_the_gate()
"""
_WAITING = (
    "SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = 0 AND objid = %s AND granted "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


class Gate:
    """Keeps workers from committing hops while it is shut; where it is shut, they wait with a hop that they have made.

    Requests of others are followed all the while: a run can be paused or cancelled at a gate that is shut.

    Args:
        dsn: of a database with Cerebro-DB, as a superuser.
        works: False on segments, where no trigger sees rows of hops: there it is always open.
    """

    def __init__(self, dsn: str, *, works: bool = True) -> None:
        self._dsn, self._works = dsn, works
        self._run(_MAKE)

    def shut(self, *, epoch: int = 0, hops: int = 0) -> None:
        """Let only some hops through: without arguments, none.

        Args:
            epoch: from this one on they wait.
            hops: of a run that has so many, they wait; as many more as it has workers may come through.
        """
        self._run(
            "BEGIN; DELETE FROM public.the_gate; INSERT INTO public.the_gate VALUES (%s, %s); COMMIT",
            (epoch, hops),
        )

    def open(self) -> None:
        """Let all through."""
        self._run("DELETE FROM public.the_gate")

    def __enter__(self) -> None:
        self.shut()

    def __exit__(self, *_: object) -> None:
        self.open()

    def waiting(self) -> list[int]:
        """Process ids of the workers that wait."""
        return [int(pid) for (pid,) in self._run(_WAITING, (_KEY,))]

    def remove(self) -> None:
        """Open it for good."""
        self.open()  # or the lock that the next statement needs would wait for those at the gate
        self._run("DROP FUNCTION public.pass_the_gate() CASCADE; DROP TABLE public.the_gate")

    def _run(self, statement: str, values: tuple[Any, ...] | None = None) -> list[tuple[Any, ...]]:
        # In a session of its own: the server may have been restarted, and the test's one be lost.
        if not self._works:
            return []
        with closing(connected(self._dsn)) as connection, connection.cursor() as cursor:
            cursor.execute(statement, values)
            return list(cursor.fetchall()) if cursor.description else []


@contextmanager
def gate_at(dsn: str) -> Iterator[Gate]:
    """A gate that is open, for as long as it is needed."""
    made = Gate(dsn)
    try:
        yield made
    finally:
        made.remove()
