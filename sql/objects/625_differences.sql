-- Where each segment has a copy of the catalog, copies may differ.
CREATE OR REPLACE FUNCTION cerebro._catalog_differences(OUT message text, OUT hint text) RETURNS SETOF record
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$ SELECT NULL::text, NULL::text WHERE false $$;
COMMENT ON FUNCTION cerebro._catalog_differences() IS
'Internal: rows of the catalog that some segments have and others do not.';
