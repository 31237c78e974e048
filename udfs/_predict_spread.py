if kind == 1 and relay.waits_for_more(number, id, data):
    return None
return relay.trainer(
    "scoring.predict_spread",
    kind,
    number,
    chunk,
    task,
    data,
    id,
    *relay.kept_rows(),
    like=relay.like(kind, task),
)
