-- Traffic by hour, for a month. An hour begins at started_at (Unix ms); every count is one of requests, except the sum of
-- response times (us).
CREATE TABLE gateway_hour (
    started_at    BIGINT NOT NULL,
    shard         BIGINT NOT NULL,
    requests      BIGINT NOT NULL,
    limited       BIGINT NOT NULL,
    errors        BIGINT NOT NULL,
    server_errors BIGINT NOT NULL,
    timed         BIGINT NOT NULL,
    time_us       BIGINT NOT NULL,
    PRIMARY KEY (started_at, shard)
);

-- The last day, of which only the requests are known.
INSERT INTO gateway_hour (started_at, shard, requests, limited, errors, server_errors, timed, time_us)
SELECT CAST(id AS BIGINT), shard, value, 0, 0, 0, 0, 0 FROM gateway_total WHERE kind = 'hour';
