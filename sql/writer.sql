{#- A function that writes the catalog with the rights of its owner: variables, and what it does behind BEGIN. Its body has PG_CONTEXT
    in context, from which _writer tells who calls. See docs/decisions/writing-the-catalog.md. #}
{% macro writer(name, arguments, note, returns='void', variables='') %}
CREATE OR REPLACE FUNCTION cerebro.{{ name }}({{ arguments }}) RETURNS {{ returns }}
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    context text;
    role    oid;
    owner   oid;
    {{- variables and "\n    " ~ variables }}
BEGIN
    GET DIAGNOSTICS context = PG_CONTEXT;
    {{- caller() }}
END
$$;
ALTER FUNCTION cerebro.{{ name }}({{ arguments }}) OWNER TO cerebro_owner;
COMMENT ON FUNCTION cerebro.{{ name }}({{ arguments }}) IS 'Internal: {{ note }}.';
{% endmacro %}
