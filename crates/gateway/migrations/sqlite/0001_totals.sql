-- What the shards' counters must at least be: all that was flushed and written here since.
CREATE TABLE gateway_total (
    shard INTEGER NOT NULL,
    kind  TEXT    NOT NULL,
    id    TEXT    NOT NULL,
    value INTEGER NOT NULL,
    PRIMARY KEY (shard, kind, id)
) STRICT, WITHOUT ROWID;

-- The epoch in which a shard's counters were last put back.
CREATE TABLE gateway_shard (
    shard INTEGER NOT NULL PRIMARY KEY,
    epoch INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The last checkpoint of each life of an instance: the same number again changes nothing.
CREATE TABLE gateway_instance (
    incarnation TEXT    NOT NULL PRIMARY KEY,
    instance    TEXT    NOT NULL,
    number      INTEGER NOT NULL,
    seen_at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
