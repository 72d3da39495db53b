-- What is watched. `spec` is a MonitorSpec; `token` lets a job report.
CREATE TABLE uptime_monitor (
    id         TEXT PRIMARY KEY,
    generation INTEGER NOT NULL,
    spec       TEXT    NOT NULL,
    token      TEXT UNIQUE,
    created_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Outages, from the first failed try to the recovery. The fences are those of the checks that found them.
CREATE TABLE uptime_incident (
    id              TEXT PRIMARY KEY,
    monitor_id      TEXT    NOT NULL,
    opened_fence    INTEGER NOT NULL,
    opened_at       INTEGER NOT NULL,
    confirmed_at    INTEGER NOT NULL,
    class           TEXT    NOT NULL,
    message         TEXT    NOT NULL,
    failures        INTEGER NOT NULL,
    maintenance     INTEGER NOT NULL,
    told_at         INTEGER,
    reminders       INTEGER NOT NULL,
    reminded_at     INTEGER,
    acknowledged_at INTEGER,
    acknowledged_by TEXT,
    resolved_fence  INTEGER,
    resolved_at     INTEGER,
    resolution      TEXT,
    UNIQUE (monitor_id, opened_fence)
) STRICT, WITHOUT ROWID;

-- A monitor is down once at a time.
CREATE UNIQUE INDEX uptime_incident_open ON uptime_incident (monitor_id) WHERE resolved_at IS NULL;
CREATE INDEX uptime_incident_newest ON uptime_incident (opened_at, id);
CREATE INDEX uptime_incident_by_monitor ON uptime_incident (monitor_id, opened_at);

CREATE TABLE uptime_note (
    id          TEXT PRIMARY KEY,
    incident_id TEXT    NOT NULL,
    written_at  INTEGER NOT NULL,
    author      TEXT    NOT NULL,
    text        TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX uptime_note_by_incident ON uptime_note (incident_id, written_at);

-- Times in which a failure is no news. `covers` is a JSON list of what it is for.
CREATE TABLE uptime_maintenance (
    id         TEXT PRIMARY KEY,
    title      TEXT    NOT NULL,
    covers     TEXT    NOT NULL,
    starts_at  INTEGER NOT NULL,
    ends_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX uptime_maintenance_by_end ON uptime_maintenance (ends_at);
