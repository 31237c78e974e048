-- The hosts of a server and their GPUs.

CREATE OR REPLACE FUNCTION cerebro._gpus(source text)
RETURNS text[] LANGUAGE plpython3u AS {{ plpython('return relay.trainer("settings.gpus_here", source)') }};
COMMENT ON FUNCTION cerebro._gpus(text) IS
'Internal: a line about each GPU of the host where it is called, as TensorFlow or nvidia-smi tells it.';

{{ function('cerebro_gpu_configuration') }}
