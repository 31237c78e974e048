-- The hosts of a server and their GPUs.

CREATE OR REPLACE FUNCTION cerebro._gpus(source text)
RETURNS text[] LANGUAGE plpython3u AS {{ udf('_gpus') }};
COMMENT ON FUNCTION cerebro._gpus(text) IS
'Internal: a line about each GPU of the host where it is called, as TensorFlow or nvidia-smi tells it.';

CREATE OR REPLACE FUNCTION cerebro.cerebro_gpu_configuration(
    output_table text,
    source text DEFAULT 'tensorflow',
    replace boolean DEFAULT false
) RETURNS void LANGUAGE plpython3u AS {{ udf('cerebro_gpu_configuration') }};
COMMENT ON FUNCTION cerebro.cerebro_gpu_configuration(text, text, boolean) IS
'Lists the GPUs of each host that computes. source: tensorflow, or nvidia for what nvidia-smi tells. Makes output_table with hostname and gpu_descr, a row for each GPU.';
