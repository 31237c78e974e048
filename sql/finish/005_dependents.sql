-- Views that users had made of ours, with their owners, rights and comments. To make a view runs nothing of it; a
-- materialized one is computed as its owner, by the server's own REFRESH.
DO $dependents$
DECLARE
    other record;
    statement text;
BEGIN
    FOR other IN SELECT * FROM cerebro_dependents d ORDER BY d.place, d.name LOOP
        BEGIN
            EXECUTE other.definition;
        EXCEPTION WHEN undefined_column OR undefined_table OR undefined_function OR datatype_mismatch THEN
            RAISE EXCEPTION USING ERRCODE = '2BP01',
                MESSAGE = format('%s cannot be made anew, as it takes what this version does not have: %s', other.name, SQLERRM),
                HINT = 'Nothing was changed. Drop it first, or make it without that.';
        END;
        FOREACH statement IN ARRAY other.statements LOOP
            EXECUTE statement;
        END LOOP;
        IF other.kind = 'm' AND other.populated THEN
            BEGIN
                EXECUTE format('REFRESH MATERIALIZED VIEW %s', other.name);
            EXCEPTION WHEN others THEN
                RAISE WARNING USING MESSAGE = format('materialized view %s was made anew, and has no rows: %s', other.name, SQLERRM),
                    HINT = format('REFRESH MATERIALIZED VIEW %s', other.name);
            END;
        END IF;
    END LOOP;
END
$dependents$;
