return relay.trainer("images.array", data, shape, format, max_pixels)
