-- Workers that join a run from any machine, and what its driver gives them to do.

CREATE TABLE cerebro.catalog_direct_workers (
    worker_id bigserial PRIMARY KEY,
    run_id    bigint NOT NULL,
    login     name NOT NULL DEFAULT session_user,
    pid       integer NOT NULL DEFAULT pg_backend_pid(),
    lock_key  bigint NOT NULL,
    host      text NOT NULL CHECK (length(host) <= 255 AND host !~ '[\x01-\x1f\x7f]'),
    address   inet DEFAULT inet_client_addr(),
    number    integer CHECK (number BETWEEN 0 AND 1000000),
    told      json CHECK (length(told::text) <= 65536),
    facts     json CHECK (length(facts::text) <= 65536),
    joined    timestamptz NOT NULL DEFAULT clock_timestamp() CHECK (joined BETWEEN '2000-01-01' AND '3000-01-01'),
    departed  timestamptz CHECK (departed BETWEEN '2000-01-01' AND '3000-01-01'),
    reason    text CHECK (length(reason) <= 1000 AND reason !~ '[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]')
);
CREATE INDEX catalog_direct_workers_run_id ON cerebro.catalog_direct_workers (run_id);

-- One at a time for each worker; an order that is gone, or has an answer, is not to be followed any more.
CREATE TABLE cerebro.catalog_direct_orders (
    order_id  bigserial PRIMARY KEY,
    run_id    bigint NOT NULL,
    worker_id bigint NOT NULL,
    hop       text NOT NULL,
    answer    text CHECK (length(answer) <= 1048576)
);
CREATE INDEX catalog_direct_orders_run_id ON cerebro.catalog_direct_orders (run_id);

ALTER TABLE cerebro.catalog_direct_workers OWNER TO cerebro_owner;
ALTER TABLE cerebro.catalog_direct_orders OWNER TO cerebro_owner;
GRANT USAGE ON SEQUENCE cerebro.catalog_direct_workers_worker_id_seq, cerebro.catalog_direct_orders_order_id_seq
    TO cerebro_user;
