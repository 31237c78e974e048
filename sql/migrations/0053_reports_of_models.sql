-- What was found about a version when it was made, for its report. Owners write it, and others see it: it is bounded.

ALTER TABLE cerebro.catalog_model_versions ADD COLUMN report json,
    ADD CONSTRAINT bounded_report CHECK (length(report::text) <= 16777216);
