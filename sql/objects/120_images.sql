-- Packing of images.

CREATE OR REPLACE FUNCTION cerebro._image_array(data bytea, shape integer[], format text, max_pixels bigint)
RETURNS bytea LANGUAGE plpython3u AS {{ udf('_image_array') }};
COMMENT ON FUNCTION cerebro._image_array(bytea, integer[], text, bigint) IS
'Internal: what array_send() would give of the values of an image, as smallint[]. format: raw or encoded.';

CREATE OR REPLACE FUNCTION cerebro._image_fault(data bytea, shape integer[], format text, max_pixels bigint)
RETURNS text LANGUAGE plpython3u AS {{ udf('_image_fault') }};
COMMENT ON FUNCTION cerebro._image_fault(bytea, integer[], text, bigint) IS
'Internal: what is wrong with an image, or NULL.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_image_array(
    image bytea,
    image_shape integer[],
    image_format text DEFAULT 'encoded',
    normalizing_const double precision DEFAULT 255.0
) RETURNS real[] LANGUAGE plpython3u STABLE AS {{ udf('cerebro_image_array') }};
COMMENT ON FUNCTION cerebro.cerebro_image_array(bytea, integer[], text, double precision) IS
'The values of an image as an array of image_shape, each divided by normalizing_const: for queries and views that have images among several inputs. image_format as in cerebro_pack_images. NULL for NULL.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_pack_images(
    source_table text,
    output_table text,
    dependent_varname text,
    independent_varname text,
    image_shape integer[],
    image_format text DEFAULT 'encoded',
    buffer_size integer DEFAULT NULL,
    normalizing_const double precision DEFAULT 255.0,
    num_classes integer DEFAULT NULL,
    num_partitions integer DEFAULT NULL,
    seed bigint DEFAULT 0,
    sample_weight text DEFAULT NULL,
    distribution_rules text DEFAULT 'all_segments',
    replace boolean DEFAULT false,
    on_error text DEFAULT 'stop',
    encoding_of text DEFAULT NULL
) RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_pack_images') }};
COMMENT ON FUNCTION cerebro.cerebro_pack_images(
    text, text, text, text, integer[], text, integer, double precision, integer, integer, bigint,
    text, text, boolean, text, text) IS
'Packs a column of images of type bytea for training. image_format: encoded for JPEG and PNG, which are resized to image_shape (height, width, channels); raw for images of that shape, one byte a value. Every value is divided by normalizing_const. Makes output_table and <output_table>_summary, which records how, for validation tables and predictions. on_error: stop at an image that cannot be read, or ignore its row, which is told. encoding_of: a packed table or models, whose images, classes and normalizing constant hold here, too; image_shape may then be NULL.';
