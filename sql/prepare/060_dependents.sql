-- Views that users have made of ours are kept as statements, and made anew at the end of the same transaction.
CREATE TEMPORARY TABLE cerebro_dependents (
    place      integer,
    name       text,
    kind       text,
    populated  boolean,
    definition text,
    statements text[]
) ON COMMIT DROP;
DO $dependents$
DECLARE
    other record;
    reloptions text;
    texts text[];
BEGIN
    -- What else hangs on the row of a view goes with it, and cannot be made anew here.
    SELECT pg_describe_object(d.classid, d.objid, d.objsubid) AS what, c.relname INTO other
      FROM pg_catalog.pg_class c
      JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
      JOIN pg_catalog.pg_depend d ON d.refclassid = 'pg_catalog.pg_type'::regclass
       AND d.refobjid IN (c.reltype, (SELECT t.typarray FROM pg_catalog.pg_type t WHERE t.oid = c.reltype))
     WHERE n.nspname = 'cerebro' AND c.relkind = 'v' AND d.deptype = 'n'
       AND (d.classid <> 'pg_catalog.pg_proc'::regclass OR (SELECT p.pronamespace FROM pg_catalog.pg_proc p WHERE p.oid = d.objid) <> n.oid)
     ORDER BY 1 LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '2BP01',
            MESSAGE = format('%s depends on the type of the rows of cerebro.%s, which is made anew', other.what, other.relname),
            HINT = 'Drop it, and make it again afterwards; views and materialized views are kept.';
    END IF;
    FOR other IN
        WITH RECURSIVE edges(parent, child) AS (
            SELECT DISTINCT d.refobjid, w.ev_class
              FROM pg_catalog.pg_rewrite w
              JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = w.oid
             WHERE d.refclassid IN ('pg_catalog.pg_class'::regclass, 'pg_catalog.pg_proc'::regclass)
               AND d.refobjid <> w.ev_class),
        reached(oid, depth) AS (
            SELECT e.child, 1
              FROM edges e
             WHERE e.parent IN (SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                                 WHERE n.nspname = 'cerebro'
                                 UNION ALL
                                SELECT p.oid FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
                                 WHERE n.nspname = 'cerebro')
             UNION
            SELECT e.child, f.depth + 1 FROM reached f JOIN edges e ON e.parent = f.oid)
        SELECT c.oid, c.relkind, f.place, format('%I.%I', n.nspname, c.relname) AS name,
               (row_to_json(c) ->> 'relispopulated')::boolean AS populated, pg_get_userbyid(c.relowner) AS owner,
               c.reloptions, c.relacl, pg_get_viewdef(c.oid) AS definition,
               (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) FROM pg_catalog.pg_attribute a
                 WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) AS columns
          FROM (SELECT r.oid, max(r.depth) AS place FROM reached r GROUP BY r.oid) f
          JOIN pg_catalog.pg_class c ON c.oid = f.oid AND c.relkind IN ('v', 'm')
          JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname <> 'cerebro' AND n.nspname !~ '^pg_temp_'
    LOOP
        reloptions := CASE WHEN other.reloptions IS NULL THEN ''
                           ELSE format(' WITH (%s)', array_to_string(other.reloptions, ', ')) END;
        texts := ARRAY[format('ALTER %s %s OWNER TO %I',
                              CASE other.relkind WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE 'VIEW' END, other.name, other.owner)];
        -- Rights that the owner has by default are gone as well where they were revoked.
        IF other.relacl IS NOT NULL THEN
            texts := texts || format('REVOKE ALL ON %s FROM %I', other.name, other.owner);
        END IF;
        texts := texts || ARRAY(
            SELECT format('GRANT %s ON %s TO %s%s', g.privilege_type, other.name,
                          CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END,
                          CASE WHEN g.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
              FROM aclexplode(other.relacl) g
             ORDER BY g.grantee = 0);
        texts := texts || ARRAY(
            SELECT format('GRANT %s (%I) ON %s TO %s%s', g.privilege_type, a.attname, other.name,
                          CASE g.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END,
                          CASE WHEN g.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
              FROM pg_catalog.pg_attribute a, aclexplode(a.attacl) g WHERE a.attrelid = other.oid);
        texts := texts || ARRAY(
            SELECT CASE d.objsubid
                   WHEN 0 THEN format('COMMENT ON %s %s IS %L', CASE other.relkind WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE 'VIEW' END,
                                      other.name, d.description)
                   ELSE format('COMMENT ON COLUMN %s.%I IS %L', other.name,
                               (SELECT a.attname FROM pg_catalog.pg_attribute a WHERE a.attrelid = other.oid AND a.attnum = d.objsubid),
                               d.description) END
              FROM pg_catalog.pg_description d
             WHERE d.classoid = 'pg_catalog.pg_class'::regclass AND d.objoid = other.oid);
        texts := texts || ARRAY(
            SELECT format('ALTER VIEW %s ALTER COLUMN %I SET DEFAULT %s', other.name, a.attname, pg_get_expr(e.adbin, e.adrelid))
              FROM pg_catalog.pg_attrdef e JOIN pg_catalog.pg_attribute a ON a.attrelid = e.adrelid AND a.attnum = e.adnum
             WHERE e.adrelid = other.oid);
        texts := texts || ARRAY(SELECT pg_get_ruledef(w.oid) FROM pg_catalog.pg_rewrite w
                                 WHERE w.ev_class = other.oid AND w.rulename <> '_RETURN');
        texts := texts || ARRAY(SELECT pg_get_triggerdef(t.oid) FROM pg_catalog.pg_trigger t
                                 WHERE t.tgrelid = other.oid AND NOT t.tgisinternal);
        texts := texts || ARRAY(SELECT pg_get_indexdef(i.indexrelid) FROM pg_catalog.pg_index i WHERE i.indrelid = other.oid);
        INSERT INTO cerebro_dependents (place, name, kind, populated, definition, statements)
        VALUES (other.place, other.name, other.relkind, other.populated,
                format('CREATE %s %s (%s)%s AS %s%s', CASE other.relkind WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE 'VIEW' END,
                       other.name, other.columns, reloptions, rtrim(other.definition, '; '),
                       CASE other.relkind WHEN 'm' THEN ' WITH NO DATA' ELSE '' END), texts);
    END LOOP;
    FOR other IN SELECT * FROM cerebro_dependents d ORDER BY d.place DESC, d.name LOOP
        BEGIN
            EXECUTE format('DROP %s %s', CASE other.kind WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE 'VIEW' END, other.name);
        EXCEPTION WHEN dependent_objects_still_exist THEN
            RAISE EXCEPTION USING ERRCODE = '2BP01',
                MESSAGE = format('something that is no view depends on %s, which depends on Cerebro-DB', other.name),
                DETAIL = SQLERRM,
                HINT = format('DROP %s %s tells what; drop that, and make it again afterwards.',
                              CASE other.kind WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE 'VIEW' END, other.name);
        END;
    END LOOP;
END
$dependents$;
