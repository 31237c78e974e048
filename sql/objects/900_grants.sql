-- Functions are for members of cerebro_user, and for nobody else; one is for other functions only.
DO $$
DECLARE
    function regprocedure;
BEGIN
    FOR function IN
        SELECT oid FROM pg_catalog.pg_proc WHERE pronamespace IN (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname IN ('cerebro'{{ ", 'madlib'" if madlib }}))
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', function);
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO cerebro_user', function);
    END LOOP;
END
$$;
REVOKE ALL ON FUNCTION cerebro._know_functions(text), cerebro._know_network(text) FROM cerebro_user;
GRANT EXECUTE ON FUNCTION cerebro._know_functions(text), cerebro._know_network(text) TO cerebro_owner;
-- Tables and views are written by functions of their owner; earlier versions let users write some.
REVOKE INSERT, UPDATE, DELETE, TRUNCATE ON ALL TABLES IN SCHEMA cerebro FROM cerebro_user, cerebro_admin;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA cerebro FROM cerebro_user, cerebro_admin;
-- As whom a driver connects is read from the catalog, by functions of its owner.
REVOKE ALL ON FUNCTION cerebro._start_job(bigint, text), cerebro._job_failed(bigint, text) FROM cerebro_user;
-- Of other roles nobody learns how many jobs they have, nor has them written down, which others would wait for.
REVOKE ALL ON FUNCTION cerebro._open_jobs(oid), cerebro._know_role(oid, name) FROM cerebro_user;
GRANT EXECUTE ON FUNCTION cerebro._open_jobs(oid) TO cerebro_owner;
GRANT EXECUTE ON FUNCTION cerebro._start_job(bigint, text), cerebro._job_failed(bigint, text), cerebro._held_locks(),
    cerebro._lock_number(), cerebro._role(), cerebro._writing_role() TO cerebro_owner;
-- These find roles of a restored catalog as its owner.
GRANT EXECUTE ON FUNCTION cerebro._adopt(), cerebro._know_role(oid, name), cerebro._role_columns(), cerebro._move_role(oid, oid),
    cerebro._free_number(), cerebro._is_told_of(oid), cerebro._relation(text), cerebro._role_name(oid) TO cerebro_owner;

-- Nobody else has rights here, whatever default privileges whoever installs has: one who may make a
-- trigger, or an object, would have it run by the next one who installs.
DO $$
DECLARE
    other record;
BEGIN
    FOR other IN
        SELECT o.what, coalesce(quote_ident(r.rolname), 'PUBLIC') AS role
          FROM (SELECT format('SCHEMA %I', nspname) AS what, nspowner AS owner, nspacl AS acl
                  FROM pg_catalog.pg_namespace WHERE nspname IN ('cerebro', 'cerebro_states'{{ ", 'madlib'" if madlib }})
                 UNION ALL
                SELECT format('%s %s', CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid::regclass),
                       c.relowner, c.relacl
                  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                 WHERE n.nspname = 'cerebro'
                 UNION ALL
                -- What is revoked on a table is revoked on its columns.
                SELECT format('TABLE %s', c.oid::regclass), c.relowner, t.attacl
                  FROM pg_catalog.pg_attribute t
                  JOIN pg_catalog.pg_class c ON c.oid = t.attrelid
                  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                 WHERE n.nspname = 'cerebro'
                 UNION ALL
                SELECT format('FUNCTION %s', p.oid::regprocedure), p.proowner, p.proacl
                  FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
                 WHERE n.nspname IN ('cerebro'{{ ", 'madlib'" if madlib }})) o
         CROSS JOIN LATERAL (SELECT DISTINCT a.grantee FROM aclexplode(o.acl) a) a
          LEFT JOIN pg_catalog.pg_roles r ON r.oid = a.grantee
         WHERE a.grantee <> o.owner
           AND (r.rolname IS NULL OR r.rolname NOT IN ('cerebro_user', 'cerebro_admin', 'cerebro_owner'))
    LOOP
        EXECUTE format('REVOKE ALL ON %s FROM %s CASCADE', other.what, other.role);
    END LOOP;
END
$$;
