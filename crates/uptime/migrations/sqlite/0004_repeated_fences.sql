-- A store that goes back in time repeats fences. So an incident is known by the fence and the time of its check. SQLite
-- cannot change a constraint of a table, so the table is copied.
CREATE TABLE uptime_incident_next (
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
    UNIQUE (monitor_id, opened_fence, confirmed_at)
) STRICT, WITHOUT ROWID;

INSERT INTO uptime_incident_next SELECT
    id, monitor_id, opened_fence, opened_at, confirmed_at, class, message, failures, maintenance, told_at,
    reminders, reminded_at, acknowledged_at, acknowledged_by, resolved_fence, resolved_at, resolution
    FROM uptime_incident;
DROP TABLE uptime_incident;
ALTER TABLE uptime_incident_next RENAME TO uptime_incident;

-- A monitor is down once at a time.
CREATE UNIQUE INDEX uptime_incident_open ON uptime_incident (monitor_id) WHERE resolved_at IS NULL;
CREATE INDEX uptime_incident_newest ON uptime_incident (opened_at, id);
CREATE INDEX uptime_incident_by_monitor ON uptime_incident (monitor_id, opened_at);
