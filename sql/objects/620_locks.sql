-- Called before rows of the catalog are changed or deleted, where a server locks the whole table for
-- that: the weak lock of the view, or of an earlier insertion, would be made a strong one otherwise, and
-- two sessions that do so wait for each other.
CREATE OR REPLACE FUNCTION cerebro._lock_catalog(tables text[]) RETURNS void
LANGUAGE sql AS $$ $$;
DO $locks$
BEGIN
    {{ lock_catalog | trim | indent(4) }}
END
$locks$;
COMMENT ON FUNCTION cerebro._lock_catalog(text[]) IS
'Internal: locks tables of the catalog before rows of them are changed, in one order for everybody.';
