return relay.trainer("images.values", image, image_shape, image_format, normalizing_const)
