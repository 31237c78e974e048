-- Where an UPDATE or DELETE locks a whole table, a transaction that inserted into it before wants a
-- stronger lock than it has; two that do so wait for each other. So it begins with this.
CREATE OR REPLACE FUNCTION cerebro._lock_catalog(tables text[]) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$ $$;
COMMENT ON FUNCTION cerebro._lock_catalog(text[]) IS
'Internal: locks tables of the catalog before a transaction writes into several, in one order for everybody.';
