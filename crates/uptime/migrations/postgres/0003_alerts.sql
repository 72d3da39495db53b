-- Who is told. `spec` is a ChannelSpec.
CREATE TABLE uptime_channel (
    id         TEXT COLLATE "C" PRIMARY KEY,
    name       TEXT COLLATE "C" NOT NULL UNIQUE,
    spec       TEXT    NOT NULL,
    created_at BIGINT  NOT NULL,
    changed_at BIGINT  NOT NULL
);

-- What they are told: each notice once per channel. `id` goes along as the idempotency key. Whoever holds a delivery
-- raises its fence, so that another who held it before cannot say how it ended.
CREATE TABLE uptime_delivery (
    id          TEXT COLLATE "C" PRIMARY KEY,
    incident_id TEXT COLLATE "C" NOT NULL,
    channel_id  TEXT COLLATE "C" NOT NULL,
    kind        TEXT COLLATE "C" NOT NULL,
    number      BIGINT  NOT NULL,
    notice      TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    attempts    BIGINT  NOT NULL,
    due_at      BIGINT  NOT NULL,
    held_until  BIGINT  NOT NULL,
    fence       BIGINT  NOT NULL,
    created_at  BIGINT  NOT NULL,
    UNIQUE (incident_id, channel_id, kind, number)
);

CREATE INDEX uptime_delivery_waiting ON uptime_delivery (due_at, channel_id) WHERE state = 'waiting';
CREATE INDEX uptime_delivery_by_channel ON uptime_delivery (channel_id, created_at, id);
CREATE INDEX uptime_delivery_by_time ON uptime_delivery (created_at);

-- How each try went.
CREATE TABLE uptime_attempt (
    delivery_id TEXT COLLATE "C" NOT NULL,
    number      BIGINT  NOT NULL,
    at          BIGINT  NOT NULL,
    took_ms     BIGINT  NOT NULL,
    delivered   BOOLEAN NOT NULL,
    message     TEXT    NOT NULL,
    PRIMARY KEY (delivery_id, number)
);
