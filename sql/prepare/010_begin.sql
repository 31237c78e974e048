-- One installation at a time in a database, and no other schema in the way of its names.
DO $$ BEGIN PERFORM pg_catalog.pg_advisory_xact_lock(4820170531); END $$;
SET LOCAL search_path = cerebro, pg_temp;
SET LOCAL client_min_messages = warning;
