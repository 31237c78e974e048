-- What was found about a version when it was made, for its report.

ALTER TABLE cerebro.catalog_model_versions ADD COLUMN report json;
