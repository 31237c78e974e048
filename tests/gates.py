"""A gate before the commit of hops: no run ends, or comes too far, before a test has seen what it waits for.

Making a gate and removing it lock no table of a run, so neither can deadlock with a run that begins or ends beside it:
tables of states get their trigger from an event trigger when they are made, and only that one is ever dropped. The rest
stays in the database, without effect, and the next gate uses it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from servers import connected

# Of the lock that hops share while they wait.
_KEY = 7_130_215

# States are tables of a run's own, made while it goes on: each gets the trigger when it is made.
_MAKE = f"""
SET LOCAL client_min_messages = warning;
CREATE TABLE IF NOT EXISTS public.the_gate (epoch int, hops int);
CREATE TABLE IF NOT EXISTS public.pace_at_the_gate (seconds float8);
CREATE TABLE IF NOT EXISTS public.passed_the_gate (run_id bigint, hops int);
CREATE OR REPLACE FUNCTION public.pass_the_gate() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
DECLARE
  waits boolean := false;
  run record;
BEGIN
  SELECT r.run_id, (abs(NEW.version) - 1) / (r.num_partitions * r.rounds) + 1 AS epoch INTO run
    FROM cerebro.catalog_runs r WHERE left(TG_TABLE_NAME, length(r.states) + 1) = r.states || '_';
  WHILE EXISTS (
    SELECT 1 FROM public.the_gate g WHERE run.epoch >= g.epoch
       AND g.hops <= (SELECT coalesce(sum(p.hops), 0) FROM public.passed_the_gate p WHERE p.run_id = run.run_id)
  ) LOOP
    IF NOT waits THEN
      PERFORM pg_advisory_xact_lock_shared({_KEY});
      waits := true;
    END IF;
    PERFORM pg_sleep(0.01);
  END LOOP;
  PERFORM pg_sleep(p.seconds) FROM public.pace_at_the_gate p;
  INSERT INTO public.passed_the_gate VALUES (run.run_id, json_array_length(NEW.report::json -> 'hops'));
  RETURN NEW;
END $$;
CREATE OR REPLACE FUNCTION public.make_a_gate() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
DECLARE
  made record;
BEGIN
  FOR made IN SELECT c.objid::regclass AS name FROM pg_event_trigger_ddl_commands() c
               JOIN pg_attribute a ON a.attrelid = c.objid AND a.attname = 'report'
               WHERE c.schema_name = 'cerebro_states' AND c.object_type = 'table' LOOP
    EXECUTE format('CREATE TRIGGER gate BEFORE INSERT ON %s FOR EACH ROW WHEN (NEW.report IS NOT NULL) '
                   'EXECUTE PROCEDURE public.pass_the_gate()', made.name);
  END LOOP;
END $$;
DROP EVENT TRIGGER IF EXISTS gates;
CREATE EVENT TRIGGER gates ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE PROCEDURE public.make_a_gate()
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
        works: False on segments, where no event trigger is: there it is always open.
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

    def slow_down(self, seconds: float) -> None:
        """Have each hop take so many seconds more from now on, without use of a processor."""
        self._run(
            "BEGIN; DELETE FROM public.pace_at_the_gate; "
            "INSERT INTO public.pace_at_the_gate SELECT s FROM (VALUES (%s)) v(s) WHERE s > 0; COMMIT",
            (seconds,),
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
        self._run(
            "DELETE FROM public.the_gate; DELETE FROM public.pace_at_the_gate; "
            "DROP EVENT TRIGGER IF EXISTS gates"
        )

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
