-- An UPDATE or DELETE locks a whole table, so that nobody else writes; a transaction that inserted into it before wants
-- a stronger lock than it has, and two that do so wait for each other. So it begins with this, in one order for everybody:
-- whoever begins a run inserts in it, too. A DELETE of no rows takes the lock that any other has.
CREATE OR REPLACE FUNCTION cerebro._lock_catalog(tables text[])
    RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    DECLARE
        context text;
        found   text;
    BEGIN
        GET DIAGNOSTICS context = PG_CONTEXT;
        PERFORM cerebro._writer(context);
        FOREACH found IN ARRAY ARRAY['runs', 'configurations', 'architectures', 'plan', 'decisions', 'direct_answers', 'hops',
            'updates', 'metrics', 'requests', 'direct_workers', 'direct_orders', 'models'] LOOP
            IF found = ANY ($1) THEN
                EXECUTE format('DELETE FROM cerebro.catalog_%s WHERE false', found);
            END IF;
        END LOOP;
    END
    $$;
ALTER FUNCTION cerebro._lock_catalog(text[]) OWNER TO cerebro_owner;
COMMENT ON FUNCTION cerebro._lock_catalog(text[]) IS
'Internal: locks tables of the catalog before a transaction writes into several, in one order for everybody.';
