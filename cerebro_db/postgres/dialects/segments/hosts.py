"""The hosts of segments, and what an installation checks of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cerebro_db.errors import InstallationFailed
from cerebro_db.postgres.dialects.statements.hosts import Hosts, Rows
from cerebro_db.postgres.names import QualifiedName

# Every segment has a copy of the catalog: triggers can look into it there, and any columns can be unique.
REPLICATE_CATALOG = """
EXECUTE $replicate$
DO $do$
DECLARE
    spread regclass;
BEGIN
    FOR spread IN
        SELECT p.localoid FROM pg_catalog.gp_distribution_policy p
          JOIN pg_catalog.pg_class c ON c.oid = p.localoid
         WHERE c.relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = 'cerebro')
           AND p.policytype <> 'r'
    LOOP
        EXECUTE pg_catalog.format('ALTER TABLE %s SET DISTRIBUTED REPLICATED', spread);
    END LOOP;
END
$do$
$replicate$;
"""

_DIFFERENCES = "SELECT message, hint FROM cerebro._catalog_differences()"
# A function like that of the installation, but one that the planner does not call beforehand.
_VERSION_HERE = """
DO $do$
BEGIN
    EXECUTE pg_catalog.format(
        'CREATE FUNCTION pg_temp.cerebro_version_here() RETURNS text LANGUAGE plpython3u AS %L',
        (SELECT p.prosrc FROM pg_catalog.pg_proc p
          WHERE p.oid = 'cerebro.cerebro_version()'::pg_catalog.regprocedure));
END
$do$
"""

# What each segment runs on, asked of a process there: host, segment, name, version. The function
# of the installation comes first: it puts that process on its Python path.
_SEGMENT_VERSIONS = """
SELECT c.hostname::text, v.segment, v.package, (v.library).name, (v.library).version
  FROM (SELECT gp_segment_id AS segment, pg_temp.cerebro_version_here() AS package,
               pg_temp.cerebro_library_versions() AS library
          FROM gp_dist_random('gp_id')) v
  JOIN pg_catalog.gp_segment_configuration c ON c.content = v.segment AND c.role = 'p'
 ORDER BY 2, 4
"""

# What limits trainers beside each segment: host, name, value, warning. Parameter: the settings, as a literal.
_SURROUNDINGS = """
SELECT DISTINCT c.hostname::text, (v.found).name, (v.found).value, (v.found).warning
  FROM (SELECT gp_segment_id AS segment, pg_temp.cerebro_surroundings({settings}) AS found
          FROM gp_dist_random('gp_id')) v
  JOIN pg_catalog.gp_segment_configuration c ON c.content = v.segment AND c.role = 'p'
 ORDER BY 1, 2
"""

# What limits how many statements run at once: kind, name, how many.
_SLOTS = """
SELECT 'resource queue', q.rsqname::text, q.rsqcountlimit::integer FROM pg_catalog.pg_resqueue q
 WHERE q.rsqcountlimit > 0 AND pg_catalog.current_setting('gp_resource_manager') = 'queue'
UNION ALL
SELECT 'resource group', g.rsgname::text, c.value::integer
  FROM pg_catalog.pg_resgroup g
  JOIN pg_catalog.pg_resgroupcapability c ON c.resgroupid = g.oid AND c.reslimittype = 1
 WHERE c.value::integer > 0 AND pg_catalog.current_setting('gp_resource_manager') = 'group'
 ORDER BY 1, 2
"""
# Beside its workers, a run is a statement of its caller and one that looks after it.
_STATEMENTS_BESIDE_WORKERS = 2

# By how much processes of segments give way to others on their hosts.
_PRIORITY = "SELECT pg_catalog.current_setting('gp_segworker_relative_priority')::integer"


class SegmentHosts(Hosts):
    """Hosts of segments."""

    servers = """
    SELECT c.dbid::integer, c.content::integer, c.role::text, c.hostname::text
      FROM pg_catalog.gp_segment_configuration c ORDER BY c.dbid
    """

    def segments_of(self, table: QualifiedName) -> str | None:
        """The segments on which a table has rows."""
        return f"SELECT DISTINCT t.gp_segment_id FROM {table.sql} t"

    def places_of(self, table: QualifiedName) -> str | None:
        """Partition keys of a packed table, and the segment of each."""
        return f"SELECT DISTINCT t.partition_key, t.gp_segment_id FROM {table.sql} t"

    def gpus(self, segments: Sequence[int], source: str) -> tuple[str, list[Any]]:
        """The segment and the GPUs of its host, for each of ``segments``.

        There is no join, which might call the function elsewhere.
        """
        sql = (
            "SELECT gp_segment_id, cerebro._gpus(%s) FROM gp_dist_random('gp_id') "
            "WHERE gp_segment_id = ANY (%s::integer[])"
        )
        return sql, [source, list(segments)]

    def check_versions(self, rows: Rows, expected: Mapping[str, str]) -> int:
        """Check what segments run on, and return their number."""
        rows(_VERSION_HERE, "the versions")
        found = rows(_SEGMENT_VERSIONS, "the versions beside every segment")
        for host, segment, package, name, version in found:
            for what, got in (("Cerebro-DB", package), (str(name), version)):
                if got != expected[what]:
                    raise InstallationFailed(
                        f'segment {segment} on host "{host}" has {what} {got}, '
                        f"the coordinator has {expected[what]}",
                        "Install the same versions at the same place on every host.",
                    )
        return len({segment for _, segment, *_ in found})

    def warnings(self, rows: Rows, segments: int, settings: str) -> Iterator[str]:
        """Warnings about hosts, and about limits that hold runs up."""
        query = _SURROUNDINGS.format(settings=settings)
        for host, _, _, warning in rows(query, "the limits of trainers beside segments"):
            if warning:
                yield f"host {host}: {warning}"
        for message, hint in rows(_DIFFERENCES, "the copies of the catalog"):
            raise InstallationFailed(str(message), str(hint))
        statements = segments + _STATEMENTS_BESIDE_WORKERS
        for kind, name, limit in rows(_SLOTS, "the resource queues and groups"):
            yield (
                f"{kind} {name} allows {limit} active statements; a run on {segments} segments takes "
                f"{statements}, so {int(str(limit)) // statements} runs of its roles at a time"
            )
        ((priority,),) = rows(_PRIORITY, "the priority of segments")
        if priority:
            yield (
                f"segments train at nice {min(int(str(priority)), 19)} (gp_segworker_relative_priority); "
                'with "gpconfig -c gp_segworker_relative_priority -v 0" and a restart they do not give way'
            )
