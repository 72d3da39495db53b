-- Who is told. `spec` is a ChannelSpec.
CREATE TABLE uptime_channel (
    id         TEXT PRIMARY KEY,
    name       TEXT    NOT NULL UNIQUE,
    spec       TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What they are told: each notice once per channel. `id` goes along as the idempotency key. Whoever holds a delivery
-- raises its fence, so that another who held it before cannot say how it ended.
CREATE TABLE uptime_delivery (
    id          TEXT PRIMARY KEY,
    incident_id TEXT    NOT NULL,
    channel_id  TEXT    NOT NULL,
    kind        TEXT    NOT NULL,
    number      INTEGER NOT NULL,
    notice      TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    attempts    INTEGER NOT NULL,
    due_at      INTEGER NOT NULL,
    held_until  INTEGER NOT NULL,
    fence       INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    UNIQUE (incident_id, channel_id, kind, number)
) STRICT, WITHOUT ROWID;

CREATE INDEX uptime_delivery_waiting ON uptime_delivery (due_at, channel_id) WHERE state = 'waiting';
CREATE INDEX uptime_delivery_by_channel ON uptime_delivery (channel_id, created_at, id);
CREATE INDEX uptime_delivery_by_time ON uptime_delivery (created_at);

-- How each try went.
CREATE TABLE uptime_attempt (
    delivery_id TEXT    NOT NULL,
    number      INTEGER NOT NULL,
    at          INTEGER NOT NULL,
    took_ms     INTEGER NOT NULL,
    delivered   INTEGER NOT NULL,
    message     TEXT    NOT NULL,
    PRIMARY KEY (delivery_id, number)
) STRICT, WITHOUT ROWID;
