-- Status pages besides the default one. `spec` is a StatusPageSpec, `password` a salted hash.
CREATE TABLE uptime_status_page (
    slug       TEXT COLLATE "C" PRIMARY KEY,
    spec       TEXT    NOT NULL,
    password   TEXT,
    created_at BIGINT  NOT NULL,
    changed_at BIGINT  NOT NULL
);

-- What users write about an incident for the readers of status pages.
CREATE TABLE uptime_incident_update (
    id          TEXT COLLATE "C" PRIMARY KEY,
    incident_id TEXT COLLATE "C" NOT NULL,
    written_at  BIGINT  NOT NULL,
    author      TEXT    NOT NULL,
    status      TEXT    NOT NULL,
    text        TEXT    NOT NULL
);

CREATE INDEX uptime_incident_update_by_incident ON uptime_incident_update (incident_id, written_at);

-- Readers who receive e-mail. `token` confirms and ends a subscription.
CREATE TABLE uptime_subscriber (
    id           TEXT COLLATE "C" PRIMARY KEY,
    page         TEXT COLLATE "C" NOT NULL,
    email        TEXT COLLATE "C" NOT NULL,
    token        TEXT COLLATE "C" NOT NULL UNIQUE,
    language     TEXT    NOT NULL,
    base_url     TEXT    NOT NULL,
    asked_at     BIGINT  NOT NULL,
    confirmed_at BIGINT,
    UNIQUE (page, email)
);

-- A delivery to a status page has a recipient, the id of the subscriber.
ALTER TABLE uptime_delivery ADD COLUMN recipient TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE uptime_delivery DROP CONSTRAINT uptime_delivery_incident_id_channel_id_kind_number_key;
ALTER TABLE uptime_delivery ADD CONSTRAINT uptime_delivery_key UNIQUE (incident_id, channel_id, recipient, kind, number);
