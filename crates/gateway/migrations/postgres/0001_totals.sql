-- What the shards' counters must at least be: all that was flushed and written here since.
CREATE TABLE gateway_total (
    shard BIGINT NOT NULL,
    kind  TEXT COLLATE "C" NOT NULL,
    id    TEXT COLLATE "C" NOT NULL,
    value BIGINT NOT NULL,
    PRIMARY KEY (shard, kind, id)
);

-- The epoch in which a shard's counters were last put back.
CREATE TABLE gateway_shard (
    shard BIGINT NOT NULL PRIMARY KEY,
    epoch BIGINT NOT NULL
);

-- The last checkpoint of each life of an instance: the same number again changes nothing.
CREATE TABLE gateway_instance (
    incarnation TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    instance    TEXT COLLATE "C" NOT NULL,
    number      BIGINT NOT NULL,
    seen_at     BIGINT NOT NULL
);
