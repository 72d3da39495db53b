-- Plans, and every version that they ever had.
CREATE TABLE load_plan (
    id         INTEGER NOT NULL PRIMARY KEY,
    name       TEXT NOT NULL,
    version    INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    deleted    INTEGER NOT NULL
) STRICT;
CREATE TABLE load_plan_version (
    plan_id    INTEGER NOT NULL REFERENCES load_plan (id),
    version    INTEGER NOT NULL,
    format     TEXT NOT NULL,
    source     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (plan_id, version)
) STRICT, WITHOUT ROWID;

-- Runs. A run waits in the order of its rank: when it was queued, earlier for a higher priority.
CREATE TABLE load_run (
    id           TEXT NOT NULL PRIMARY KEY,
    plan_id      INTEGER NOT NULL REFERENCES load_plan (id),
    plan_version INTEGER NOT NULL,
    run_type     TEXT NOT NULL,
    priority     INTEGER NOT NULL,
    max_users    INTEGER,
    runners      INTEGER NOT NULL,
    seed         INTEGER NOT NULL,
    state        TEXT NOT NULL,
    ending       TEXT,
    message      TEXT NOT NULL,
    holder       TEXT,
    fence        INTEGER NOT NULL,
    epoch        INTEGER NOT NULL,
    lease_until  INTEGER NOT NULL,
    rank         INTEGER NOT NULL,
    queued_at    INTEGER NOT NULL,
    start_at     INTEGER,
    ended_at     INTEGER
) STRICT;
CREATE INDEX load_run_waiting ON load_run (state, rank);
CREATE INDEX load_run_newest ON load_run (queued_at, id);
CREATE INDEX load_run_plan ON load_run (plan_id, queued_at, id);

-- Who works on a run.
CREATE TABLE load_runner (
    run_id      TEXT NOT NULL REFERENCES load_run (id),
    epoch       INTEGER NOT NULL,
    number      INTEGER NOT NULL,
    node        TEXT NOT NULL,
    state       TEXT NOT NULL,
    message     TEXT NOT NULL,
    lease_until INTEGER NOT NULL,
    PRIMARY KEY (run_id, epoch, number)
) STRICT, WITHOUT ROWID;

-- What was measured: a row for each step, and one for what concerns no step (-1).
CREATE TABLE load_second (
    run_id TEXT NOT NULL REFERENCES load_run (id),
    second INTEGER NOT NULL,
    step   INTEGER NOT NULL,
    runner TEXT NOT NULL,
    epoch  INTEGER NOT NULL,
    data   BLOB NOT NULL,
    PRIMARY KEY (run_id, second, step, runner, epoch)
) STRICT, WITHOUT ROWID;

CREATE TABLE load_report (
    run_id TEXT NOT NULL PRIMARY KEY REFERENCES load_run (id),
    report TEXT NOT NULL
) STRICT;
