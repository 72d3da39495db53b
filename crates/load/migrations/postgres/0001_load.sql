-- Plans, and every version that they ever had.
CREATE TABLE load_plan (
    id         BIGINT NOT NULL PRIMARY KEY,
    name       TEXT NOT NULL,
    version    BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    deleted    BOOLEAN NOT NULL
);
CREATE TABLE load_plan_version (
    plan_id    BIGINT NOT NULL REFERENCES load_plan (id),
    version    BIGINT NOT NULL,
    format     TEXT NOT NULL,
    source     TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (plan_id, version)
);

-- Runs. A run waits in the order of its rank: when it was queued, earlier for a higher priority.
CREATE TABLE load_run (
    id           TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    plan_id      BIGINT NOT NULL REFERENCES load_plan (id),
    plan_version BIGINT NOT NULL,
    run_type     TEXT NOT NULL,
    priority     BIGINT NOT NULL,
    max_users    BIGINT,
    runners      BIGINT NOT NULL,
    seed         BIGINT NOT NULL,
    state        TEXT COLLATE "C" NOT NULL,
    ending       TEXT,
    message      TEXT NOT NULL,
    holder       TEXT,
    fence        BIGINT NOT NULL,
    epoch        BIGINT NOT NULL,
    lease_until  BIGINT NOT NULL,
    rank         BIGINT NOT NULL,
    queued_at    BIGINT NOT NULL,
    start_at     BIGINT,
    ended_at     BIGINT
);
CREATE INDEX load_run_waiting ON load_run (state, rank);
CREATE INDEX load_run_newest ON load_run (queued_at, id);
CREATE INDEX load_run_plan ON load_run (plan_id, queued_at, id);

-- Who works on a run.
CREATE TABLE load_runner (
    run_id      TEXT COLLATE "C" NOT NULL REFERENCES load_run (id),
    epoch       BIGINT NOT NULL,
    number      BIGINT NOT NULL,
    node        TEXT NOT NULL,
    state       TEXT NOT NULL,
    message     TEXT NOT NULL,
    lease_until BIGINT NOT NULL,
    PRIMARY KEY (run_id, epoch, number)
);

-- What was measured: a row for each step, and one for what concerns no step (-1).
CREATE TABLE load_second (
    run_id TEXT COLLATE "C" NOT NULL REFERENCES load_run (id),
    second BIGINT NOT NULL,
    step   BIGINT NOT NULL,
    runner TEXT COLLATE "C" NOT NULL,
    epoch  BIGINT NOT NULL,
    data   BYTEA NOT NULL,
    PRIMARY KEY (run_id, second, step, runner, epoch)
);

CREATE TABLE load_report (
    run_id TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES load_run (id),
    report TEXT NOT NULL
);
