return relay.trainer("images.fault", data, shape, format, max_pixels)
