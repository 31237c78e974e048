-- Roles by name beside their numbers, which are others in another cluster. See docs/decisions/owners-by-name.md.
-- home: number of this table where the row was written; elsewhere the row came by a dump, and its role is looked up anew.
-- mark: a view in schema cerebro_states that belongs to the role: a dump names its owner.

CREATE TABLE cerebro.catalog_roles (
    role   oid PRIMARY KEY,
    name   name NOT NULL,
    mark   text NOT NULL DEFAULT '' CHECK (length(mark) <= 63),
    marker oid NOT NULL DEFAULT 0,
    home   oid NOT NULL
);
ALTER TABLE cerebro.catalog_roles OWNER TO cerebro_owner;

-- A database of an earlier version may have come by a dump: then its tables have other numbers than its runs tell. Owners are
-- those of the tables that their runs made.
DO $$
DECLARE
    moved record;
    restored boolean;
BEGIN
    SELECT count(*) > 0 AND bool_and(c.oid <> r.source_oid) INTO restored
      FROM cerebro.catalog_runs r
      JOIN pg_catalog.pg_class c ON c.relkind IN ('r', 'p', 'f')
      JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
     WHERE r.source_oid IS NOT NULL AND quote_ident(n.nspname) || '.' || quote_ident(c.relname) = r.source_table;
    IF NOT restored THEN
        RETURN;
    END IF;
    FOR moved IN
        SELECT DISTINCT ON (r.owner) r.owner AS number, a.rolname AS name
          FROM cerebro.catalog_runs r
          JOIN pg_catalog.pg_class c ON c.relkind IN ('r', 'p')
          JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
          JOIN pg_catalog.pg_roles a ON a.oid = c.relowner
         WHERE n.nspname = r.output_schema AND c.relname LIKE '%\_summary' AND c.relname = r.output_name || '_summary'
            OR n.nspname = 'cerebro_states' AND left(c.relname, length(r.states) + 1) = r.states || '_'
         GROUP BY r.owner, a.rolname ORDER BY r.owner, count(*) DESC, a.rolname
    LOOP
        INSERT INTO cerebro.catalog_roles (role, name, home) VALUES (moved.number, moved.name, 0);
    END LOOP;
END
$$;
