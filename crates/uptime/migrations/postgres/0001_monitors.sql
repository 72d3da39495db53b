-- What is watched. `spec` is a MonitorSpec; `token` lets a job report.
CREATE TABLE uptime_monitor (
    id         TEXT COLLATE "C" PRIMARY KEY,
    generation BIGINT NOT NULL,
    spec       TEXT    NOT NULL,
    token      TEXT COLLATE "C" UNIQUE,
    created_at BIGINT NOT NULL,
    changed_at BIGINT NOT NULL
);

-- Outages, from the first failed try to the recovery. The fences are those of the checks that found them.
CREATE TABLE uptime_incident (
    id              TEXT COLLATE "C" PRIMARY KEY,
    monitor_id      TEXT COLLATE "C"    NOT NULL,
    opened_fence    BIGINT NOT NULL,
    opened_at       BIGINT NOT NULL,
    confirmed_at    BIGINT NOT NULL,
    class           TEXT COLLATE "C"    NOT NULL,
    message         TEXT    NOT NULL,
    failures        BIGINT NOT NULL,
    maintenance     BOOLEAN NOT NULL,
    told_at         BIGINT,
    reminders       BIGINT NOT NULL,
    reminded_at     BIGINT,
    acknowledged_at BIGINT,
    acknowledged_by TEXT,
    resolved_fence  BIGINT,
    resolved_at     BIGINT,
    resolution      TEXT,
    UNIQUE (monitor_id, opened_fence)
);

-- A monitor is down once at a time.
CREATE UNIQUE INDEX uptime_incident_open ON uptime_incident (monitor_id) WHERE resolved_at IS NULL;
CREATE INDEX uptime_incident_newest ON uptime_incident (opened_at, id);
CREATE INDEX uptime_incident_by_monitor ON uptime_incident (monitor_id, opened_at);

CREATE TABLE uptime_note (
    id          TEXT COLLATE "C" PRIMARY KEY,
    incident_id TEXT COLLATE "C"    NOT NULL,
    written_at  BIGINT NOT NULL,
    author      TEXT    NOT NULL,
    text        TEXT    NOT NULL
);

CREATE INDEX uptime_note_by_incident ON uptime_note (incident_id, written_at);

-- Times in which a failure is no news. `covers` is a JSON list of what it is for.
CREATE TABLE uptime_maintenance (
    id         TEXT COLLATE "C" PRIMARY KEY,
    title      TEXT    NOT NULL,
    covers     TEXT    NOT NULL,
    starts_at  BIGINT NOT NULL,
    ends_at    BIGINT NOT NULL
);

CREATE INDEX uptime_maintenance_by_end ON uptime_maintenance (ends_at);
