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

# Runs a function that takes no arguments once on each segment, in a process of that segment.
ON_SEGMENTS = """
SELECT c.hostname::text, s.content, (f.found).name, (f.found).version
  FROM (SELECT gp_segment_id AS content, {function} AS found
          FROM gp_dist_random('gp_id')) f
"""
