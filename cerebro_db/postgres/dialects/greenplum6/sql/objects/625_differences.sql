-- Rows of the catalog that some segments have and others do not. Whoever can reach a segment itself may have written them
-- there: what they hold is never part of a statement that somebody is told to run. Rows and addresses are told to superusers only.
CREATE OR REPLACE FUNCTION cerebro._catalog_differences()
    RETURNS TABLE (message text, hint text) LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp AS $$
    DECLARE
        spread text;
        keys text;
        own text;
        found integer[];
        node record;
        in_full boolean := (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = session_user);
    BEGIN
        FOR spread, keys IN
            SELECT i.indrelid::regclass::text,
                   string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum)
              FROM pg_index i
              JOIN pg_class c ON c.oid = i.indrelid
              JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
             WHERE i.indisprimary AND c.relnamespace = (
                       SELECT n.oid FROM pg_namespace n WHERE n.nspname = 'cerebro')
               AND pg_get_userbyid(c.relowner) = current_user
             GROUP BY 1 ORDER BY 1
        LOOP
            FOR own, found IN EXECUTE format(
                'SELECT ROW(%s)::text, array_agg(s.segment) '
                'FROM (SELECT gp_execution_segment() AS segment, * FROM gp_dist_random(%L) '
                'OFFSET 0) s GROUP BY %s HAVING count(*) <> %s '
                'ORDER BY %s LIMIT 5', keys, spread, keys,
                (SELECT count(*) FROM gp_segment_configuration c
                  WHERE c.role = 'p' AND c.content >= 0), keys)
            LOOP
                FOR node IN SELECT c.content, c.address, c.port,
                                   c.content = ANY (found) AS has
                      FROM gp_segment_configuration c
                     WHERE c.role = 'p' AND c.content >= 0
                       AND (c.content = ANY (found)) = (2 * cardinality(found) <= (
                               SELECT count(*) FROM gp_segment_configuration o
                                WHERE o.role = 'p' AND o.content >= 0))
                     ORDER BY 1
                LOOP
                    IF in_full THEN
                        message := format(
                            'segment %s (%s:%s) %s the row of %s whose %s is %L, unlike the others',
                            node.content, node.address, node.port,
                            CASE WHEN node.has THEN 'has' ELSE 'lacks' END, spread, keys,
                            left(regexp_replace(own, '[[:cntrl:]]', '?', 'g'), 100));
                        hint := CASE WHEN node.has THEN format(
                            'as a superuser in utility mode (gp_session_role) on segment %1$s: SELECT ctid, '
                            '%2$s FROM %3$s shows where the row is, and DELETE FROM %3$s WHERE '
                            'gp_segment_id = %1$s AND ctid = <its ctid> removes it; ',
                            node.content, keys, spread)
                            ELSE 'copy it there in utility mode, or delete it on the others; ' END
                            || 'pg_hba.conf of segments should let in the coordinator only';
                    ELSE
                        message := format('copies of the catalog differ on segment %s', node.content);
                        hint := 'ask an administrator to run cerebro verify, which tells the row';
                    END IF;
                    RETURN NEXT;
                END LOOP;
            END LOOP;
        END LOOP;
    END
    $$;
ALTER FUNCTION cerebro._catalog_differences() OWNER TO cerebro_owner;
COMMENT ON FUNCTION cerebro._catalog_differences() IS
'Internal: rows of the catalog that some segments have and others do not.';
