-- The settings of the session that began a run: sessions that work for it have them, whoever resumes it.

ALTER TABLE cerebro.catalog_runs
    ADD COLUMN session text NOT NULL DEFAULT '{}' CHECK (length(session) <= 1048576);
