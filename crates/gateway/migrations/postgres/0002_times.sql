-- Response times at the last clean stop, for the embedded engine, which keeps nothing on disk. Numbers separated by spaces:
-- of each sample its time (Unix ms) and duration (us), of each bucket its minute since 1970, index and count.
CREATE TABLE gateway_times (
    shard    BIGINT NOT NULL,
    endpoint TEXT COLLATE "C" NOT NULL,
    samples  TEXT NOT NULL,
    buckets  TEXT NOT NULL,
    PRIMARY KEY (shard, endpoint)
);
