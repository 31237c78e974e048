"""Statements for the tables of architectures and of configurations that users keep."""

from __future__ import annotations

from cerebro_db.postgres.names import QualifiedName
from cerebro_db.postgres.tables.kinds import ARCHITECTURES, CONFIGURATIONS, OBJECTS

ARCHITECTURE_COLUMNS = ("model_id", "model_arch", "model_weights", "name", "description")
SELECTION_COLUMNS = ("mst_key", "model_id", "compile_params", "fit_params")
SELECTION_SUFFIX = "_summary"
OBJECT_COLUMNS = ("id", "name", "description", "object")


def create_architectures(table: QualifiedName) -> str:
    """The table of architectures, if it is not there."""
    return (
        f"CREATE TABLE IF NOT EXISTS {table.sql} (model_id integer PRIMARY KEY, "
        "model_arch json NOT NULL, model_weights bytea, name text, description text, "
        f"model_facts json); ALTER TABLE {table.sql} ALTER model_weights SET STORAGE EXTERNAL; "
        f"{ARCHITECTURES.comment(table)}"
    )


def add_architecture(table: QualifiedName, kind: str, kind_of_facts: str | None) -> str:
    """A new row, which takes the next model_id; returns that.

    Parameters: JSON, weights, name, description, and facts if the table has a column for them.

    Args:
        table: of architectures.
        kind: json or jsonb, as the column for that is.
        kind_of_facts: of that column, None where there is none.
    """
    facts, value = (", model_facts", f", %s::{kind_of_facts}") if kind_of_facts else ("", "")
    return (
        f"INSERT INTO {table.sql} ({', '.join(ARCHITECTURE_COLUMNS)}{facts}) "
        f"SELECT COALESCE(pg_catalog.max(t.model_id), 0) + 1, %s::{kind}, %s::bytea, %s, %s{value} "
        f"FROM {table.sql} t RETURNING model_id"
    )


def architectures(table: QualifiedName) -> str:
    """The JSON of some models. Parameter: their ids."""
    return (
        f"SELECT model_id, model_arch::text FROM {table.sql} "
        "WHERE model_id = ANY (%s::integer[]) ORDER BY model_id"
    )


def delete_architecture(table: QualifiedName) -> str:
    """Without a model; a row if it was there. Parameter: its id."""
    return f"DELETE FROM {table.sql} WHERE model_id = %s RETURNING 1"


def count_architectures(table: QualifiedName) -> str:
    """Number of models of a table."""
    return f"SELECT pg_catalog.count(*) FROM {table.sql}"


def create_selection(table: QualifiedName) -> str:
    """The table of configurations."""
    return (
        f"CREATE TABLE {table.sql} (mst_key integer PRIMARY KEY, model_id integer NOT NULL, "
        "compile_params text NOT NULL, fit_params text NOT NULL); "
        f"{CONFIGURATIONS.comment(table)}"
    )


def create_selection_summary(table: QualifiedName, anywhere: str) -> str:
    """Beside the configurations: where their models and functions are. Parameters: these two tables.

    Args:
        anywhere: what ends CREATE TABLE.
    """
    return (
        f"CREATE TABLE {table.sql} (model_arch_table text NOT NULL, object_table text){anywhere}; "
        f"{CONFIGURATIONS.comment(table, SELECTION_SUFFIX)}; "
        f"INSERT INTO {table.sql} (model_arch_table, object_table) VALUES (%s, %s)"
    )


def create_objects(table: QualifiedName) -> str:
    """The table of custom functions."""
    return (
        f"CREATE TABLE {table.sql} (id serial, name text PRIMARY KEY, description text, object bytea); "
        f"{OBJECTS.comment(table)}"
    )


def object_names(table: QualifiedName) -> str:
    """Names of custom functions."""
    return f"SELECT name FROM {table.sql}"


def add_object(table: QualifiedName) -> str:
    """A custom function without its object. Parameters: name and description."""
    return f"INSERT INTO {table.sql} (name, description) VALUES (%s, %s)"


def delete_object(table: QualifiedName, column: str) -> str:
    """Without a custom function; a row if it was there. Parameter: its name or its id."""
    return f"DELETE FROM {table.sql} WHERE {column} = %s RETURNING 1"


def selected_architectures(summary: QualifiedName) -> str:
    """The architecture table of a selection."""
    return f"SELECT model_arch_table FROM {summary.sql}"


def add_configurations(table: QualifiedName) -> str:
    """New rows, keys counted on; those that are there already are left out. Returns how many.

    Parameters: three arrays of the same length: model ids, compile and fit parameters.
    """
    return f"""
    WITH added AS (
        INSERT INTO {table.sql} (mst_key, model_id, compile_params, fit_params)
        SELECT (SELECT COALESCE(pg_catalog.max(m.mst_key), 0) FROM {table.sql} m)
               + pg_catalog.row_number() OVER (ORDER BY g.place),
               g.model_id, g.compile_params, g.fit_params
          FROM unnest(%s::integer[], %s::text[], %s::text[]) WITH ORDINALITY
               AS g(model_id, compile_params, fit_params, place)
         WHERE NOT EXISTS (
               SELECT 1 FROM {table.sql} s
                WHERE s.model_id = g.model_id AND s.compile_params = g.compile_params
                  AND s.fit_params = g.fit_params)
        RETURNING 1)
    SELECT pg_catalog.count(*) FROM added
    """
