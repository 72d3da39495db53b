-- Traffic by hour, for a month. An hour begins at started_at (Unix ms); every count is one of requests, except the sum of
-- response times (us).
CREATE TABLE gateway_hour (
    started_at    INTEGER NOT NULL,
    shard         INTEGER NOT NULL,
    requests      INTEGER NOT NULL,
    limited       INTEGER NOT NULL,
    errors        INTEGER NOT NULL,
    server_errors INTEGER NOT NULL,
    timed         INTEGER NOT NULL,
    time_us       INTEGER NOT NULL,
    PRIMARY KEY (started_at, shard)
) STRICT, WITHOUT ROWID;

-- The last day, of which only the requests are known.
INSERT INTO gateway_hour (started_at, shard, requests, limited, errors, server_errors, timed, time_us)
SELECT CAST(id AS INTEGER), shard, value, 0, 0, 0, 0, 0 FROM gateway_total WHERE kind = 'hour';
