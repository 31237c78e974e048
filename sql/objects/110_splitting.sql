-- Rows to train with, and rows to test with.

CREATE OR REPLACE FUNCTION cerebro.cerebro_train_test_split(
    source_table text,
    output_table text,
    train_proportion double precision,
    test_proportion double precision DEFAULT NULL,
    grouping_cols text DEFAULT NULL,
    target_cols text DEFAULT NULL,
    with_replacement boolean DEFAULT false,
    separate_output_tables boolean DEFAULT false,
    seed bigint DEFAULT 0,
    replace boolean DEFAULT false
) RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_train_test_split') }};
COMMENT ON FUNCTION cerebro.cerebro_train_test_split(
    text, text, double precision, double precision, text, text, boolean, boolean, bigint, boolean) IS
'Splits the rows of a table at random into rows to train with and rows to test with, the same for the same seed whatever the physical order of the rows. grouping_cols: columns by which the split is stratified. target_cols: columns of the output, by default all. Makes output_table with a column split, 1 to train with and 0 to test with; or, with separate_output_tables, <output_table>_train and <output_table>_test.';
