-- Expressions: registered beside functions, by name, as texts that are no code.

ALTER TABLE cerebro.catalog_functions ADD COLUMN expression text;
ALTER TABLE cerebro.catalog_functions ALTER COLUMN path DROP NOT NULL;
ALTER TABLE cerebro.catalog_functions ALTER COLUMN package DROP NOT NULL;
ALTER TABLE cerebro.catalog_functions ALTER COLUMN version DROP NOT NULL;
ALTER TABLE cerebro.catalog_functions ADD CONSTRAINT function_or_expression
    CHECK ((expression IS NULL) = (path IS NOT NULL AND package IS NOT NULL AND version IS NOT NULL));
