-- Schema cerebro holds nothing but what superusers and cerebro_owner own: the functions, triggers, rules
-- and views of anyone else would run with the rights of who installs, verifies or uninstalls.
DO $$
DECLARE
    other record;
BEGIN
    FOR other IN
        SELECT o.what, r.rolname AS role
          FROM (SELECT 'schema ' || nspname AS what, nspowner AS owner, nspname
                  FROM pg_catalog.pg_namespace WHERE nspname IN ('cerebro', 'cerebro_states')
                 UNION ALL
                SELECT 'relation ' || c.oid::regclass, c.relowner, n.nspname
                  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                 WHERE n.nspname = 'cerebro'
                 UNION ALL
                SELECT 'function ' || p.oid::regprocedure, p.proowner, n.nspname
                  FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
                 WHERE n.nspname = 'cerebro'
                 UNION ALL
                SELECT format('function %s of trigger %I on %s', p.oid::regprocedure, t.tgname, c.oid::regclass),
                       p.proowner, n.nspname
                  FROM pg_catalog.pg_trigger t
                  JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
                  JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
                  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                 WHERE n.nspname = 'cerebro' AND NOT t.tgisinternal) o
          JOIN pg_catalog.pg_roles r ON r.oid = o.owner
         WHERE NOT r.rolsuper AND r.rolname <> 'cerebro_owner'
           AND NOT (o.nspname = 'cerebro_states' AND r.rolname = 'cerebro_admin')
         ORDER BY o.what LIKE 'schema %' DESC, o.what
         LIMIT 1
    LOOP
        RAISE EXCEPTION USING ERRCODE = '0A000',
            MESSAGE = format('%s belongs to role "%s"; allowed there: what superusers and cerebro_owner own',
                             other.what, other.role),
            HINT = 'Cerebro-DB makes its schemas itself: find out who made this one, then rename or drop it.';
    END LOOP;
END
$$;
