-- What follows is written for one dialect.
DO $$
DECLARE
    found text := {{ identity }};
BEGIN
    IF found <> {{ dialect.name | sql_string }} THEN
        RAISE EXCEPTION USING ERRCODE = '0A000',
            MESSAGE = format('this script is for %s, and the server is %s', {{ dialect.name | sql_string }}, found),
            HINT = format('cerebro print --dialect %s prints the one for this server; cerebro install asks it.', found);
    END IF;
END
$$;
