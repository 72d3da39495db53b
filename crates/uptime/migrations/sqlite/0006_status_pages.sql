-- Status pages besides the default one. `spec` is a StatusPageSpec, `password` a salted hash.
CREATE TABLE uptime_status_page (
    slug       TEXT PRIMARY KEY,
    spec       TEXT    NOT NULL,
    password   TEXT,
    created_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What users write about an incident for the readers of status pages.
CREATE TABLE uptime_incident_update (
    id          TEXT PRIMARY KEY,
    incident_id TEXT    NOT NULL,
    written_at  INTEGER NOT NULL,
    author      TEXT    NOT NULL,
    status      TEXT    NOT NULL,
    text        TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX uptime_incident_update_by_incident ON uptime_incident_update (incident_id, written_at);

-- Readers who receive e-mail. `token` confirms and ends a subscription.
CREATE TABLE uptime_subscriber (
    id           TEXT PRIMARY KEY,
    page         TEXT    NOT NULL,
    email        TEXT    NOT NULL,
    token        TEXT    NOT NULL UNIQUE,
    language     TEXT    NOT NULL,
    base_url     TEXT    NOT NULL,
    asked_at     INTEGER NOT NULL,
    confirmed_at INTEGER,
    UNIQUE (page, email)
) STRICT, WITHOUT ROWID;

-- A delivery to a status page has a recipient, the id of the subscriber. SQLite cannot change a constraint of a table, so
-- the table is copied.
CREATE TABLE uptime_delivery_next (
    id          TEXT PRIMARY KEY,
    incident_id TEXT    NOT NULL,
    channel_id  TEXT    NOT NULL,
    recipient   TEXT    NOT NULL,
    kind        TEXT    NOT NULL,
    number      INTEGER NOT NULL,
    notice      TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    attempts    INTEGER NOT NULL,
    due_at      INTEGER NOT NULL,
    held_until  INTEGER NOT NULL,
    fence       INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    UNIQUE (incident_id, channel_id, recipient, kind, number)
) STRICT, WITHOUT ROWID;

INSERT INTO uptime_delivery_next SELECT
    id, incident_id, channel_id, '', kind, number, notice, state, attempts, due_at, held_until, fence, created_at
    FROM uptime_delivery;
DROP TABLE uptime_delivery;
ALTER TABLE uptime_delivery_next RENAME TO uptime_delivery;

CREATE INDEX uptime_delivery_waiting ON uptime_delivery (due_at, channel_id) WHERE state = 'waiting';
CREATE INDEX uptime_delivery_by_channel ON uptime_delivery (channel_id, created_at, id);
CREATE INDEX uptime_delivery_by_time ON uptime_delivery (created_at);
