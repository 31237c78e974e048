return relay.step(
    "scoring.measure_step",
    token,
    kind is None or kind <= 0,
    kind,
    task,
    state,
    buffer_id,
    x,
    x_shape,
    y,
    y_shape,
    like=relay.like(kind, task),
)
