"""What an installation does where tables are spread over segments: texts for its script."""

from __future__ import annotations

from cerebro_db.database.dialects.capabilities import HAS_SEGMENTS

# Statements of a PL/pgSQL block, run after each migration. Every segment has a copy of the catalog:
# triggers can look into it there, and any columns can be unique.
REPLICATE_CATALOG = f"""
IF {HAS_SEGMENTS} THEN
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
END IF;
"""

SEGMENTS = f"SELECT {HAS_SEGMENTS}"

# What each segment runs on, asked of a process there: host, segment, name, version. The function
# of the installation comes first: it puts that process on its Python path.
SEGMENT_VERSIONS = """
SELECT c.hostname::text, v.segment, v.package, (v.library).name, (v.library).version
  FROM (SELECT gp_segment_id AS segment, cerebro.cerebro_version() AS package,
               pg_temp.cerebro_library_versions() AS library
          FROM gp_dist_random('gp_id')) v
  JOIN pg_catalog.gp_segment_configuration c ON c.content = v.segment AND c.role = 'p'
 ORDER BY 2, 4
"""
