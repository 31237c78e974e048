-- Who could put a function of ours, under its name, where an unqualified call finds it first.
DO $$
DECLARE
    names text[] := {{ search_path.names_of('(' ~ search_path.SET_FOR_DATABASE ~ ')') | indent(4) }};
    earlier record;
BEGIN
    FOR earlier IN
        WITH before AS (
            SELECT n.name, n.place FROM unnest(names) WITH ORDINALITY AS n (name, place)
             WHERE n.place < (SELECT min(c.place) FROM unnest(names) WITH ORDINALITY AS c (name, place)
                               WHERE c.name = 'cerebro')
        ), home AS (
            SELECT datname, datdba, coalesce(datacl, acldefault('d', datdba)) AS acl
              FROM pg_catalog.pg_database WHERE datname = current_database()
        ), places AS (
            SELECT b.place, format('SCHEMA %I', s.nspname) AS what, s.nspowner AS owner,
                   coalesce(s.nspacl, acldefault('n', s.nspowner)) AS acl
              FROM before b JOIN pg_catalog.pg_namespace s ON s.nspname = b.name
             WHERE s.nspname <> 'pg_catalog'
             UNION ALL
            -- It stands for a schema with the name of the caller, which has yet to be made.
            SELECT b.place, format('DATABASE %I', h.datname), h.datdba, h.acl
              FROM before b CROSS JOIN home h WHERE b.name = '$user'
        ), creators AS (
            SELECT p.place, p.what, p.owner AS role FROM places p
             UNION
            SELECT p.place, p.what, a.grantee
              FROM places p CROSS JOIN LATERAL aclexplode(p.acl) a WHERE a.privilege_type = 'CREATE'
        ), roles AS (
            SELECT c.place, c.what, coalesce(quote_ident(r.rolname), 'PUBLIC') AS role
              FROM (SELECT c.place, c.what,
                           CASE WHEN pg_get_userbyid(c.role) = 'pg_database_owner'
                                THEN (SELECT datdba FROM home) ELSE c.role END AS role FROM creators c) c
              LEFT JOIN pg_catalog.pg_roles r ON r.oid = c.role
             WHERE r.rolsuper IS NOT TRUE
        )
        SELECT place, what, string_agg(DISTINCT role, ', ' ORDER BY role) AS roles
          FROM roles GROUP BY place, what ORDER BY place, what
    LOOP
        RAISE WARNING USING
            MESSAGE = format('schema cerebro comes last in the search_path, and these roles may create in %s, which comes '
                             'before: %s', earlier.what, earlier.roles),
            HINT = format('Call functions as cerebro.<name>: an unqualified call may run one of theirs. REVOKE CREATE ON '
                          '%s FROM %s; of an owner, change the owner.', earlier.what, earlier.roles);
    END LOOP;
END
$$;
