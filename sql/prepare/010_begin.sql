-- Names are the server's own from here on, whatever others have put into schemas of the search_path.
SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL standard_conforming_strings = on;
SET LOCAL client_min_messages = warning;
-- One installation at a time in a database.
DO $$ BEGIN PERFORM pg_catalog.pg_advisory_xact_lock(4820170531); END $$;
