-- Packing of images.

CREATE OR REPLACE FUNCTION cerebro._image_array(data bytea, shape integer[], format text, max_pixels bigint)
RETURNS bytea LANGUAGE plpython3u AS {{ plpython('return relay.trainer("packing_rows.array", data, shape, format, max_pixels)') }};
COMMENT ON FUNCTION cerebro._image_array(bytea, integer[], text, bigint) IS
'Internal: what array_send() would give of the values of an image, as smallint[]. format: raw or encoded.';

CREATE OR REPLACE FUNCTION cerebro._image_fault(data bytea, shape integer[], format text, max_pixels bigint)
RETURNS text LANGUAGE plpython3u AS {{ plpython('return relay.trainer("packing_rows.fault", data, shape, format, max_pixels)') }};
COMMENT ON FUNCTION cerebro._image_fault(bytea, integer[], text, bigint) IS
'Internal: what is wrong with an image, or NULL.';

{{ function('cerebro_image_array') }}

{{ function('cerebro_pack_images') }}
