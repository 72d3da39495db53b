-- What may be called how often, and until when the API said to stay away.
CREATE TABLE pipeline_quota (
    name          TEXT    PRIMARY KEY,
    windows       TEXT    NOT NULL,
    buffer        INTEGER NOT NULL,
    blocked_until INTEGER NOT NULL,
    -- Raised whenever its hot state was lost: reservations of an earlier one are refused by the log.
    epoch         INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL
) STRICT;

-- The call log: what may have reached an API, written before the caller hears yes. Times are the hot store's.
CREATE TABLE pipeline_call (
    id          TEXT    PRIMARY KEY,
    quota       TEXT    NOT NULL,
    run         TEXT    NOT NULL,
    calls       INTEGER NOT NULL,
    reserved_at INTEGER NOT NULL,
    -- When the answer came; before that, when it must have come.
    until       INTEGER NOT NULL,
    settled     INTEGER NOT NULL
) STRICT;

CREATE INDEX pipeline_call_by_end ON pipeline_call (quota, until);

CREATE TABLE pipeline_plan (
    name       TEXT    PRIMARY KEY,
    text       TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

-- A run pins the text of its plan. `items` and `claims` count what was ever given out, so that a number never repeats.
CREATE TABLE pipeline_run (
    id         TEXT    PRIMARY KEY,
    plan       TEXT    NOT NULL,
    text       TEXT    NOT NULL,
    state      TEXT    NOT NULL,
    -- How often the state has changed: the fence of the public view.
    version    INTEGER NOT NULL,
    -- Bytes of the source's file that became items; -1 once all of the source did.
    seeded_to  INTEGER NOT NULL,
    items      INTEGER NOT NULL,
    claims     INTEGER NOT NULL,
    calls      INTEGER NOT NULL,
    trouble    TEXT    NOT NULL,
    started_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL
) STRICT;

CREATE INDEX pipeline_run_by_start ON pipeline_run (started_at, id);

CREATE TABLE pipeline_item (
    run      TEXT    NOT NULL,
    seq      INTEGER NOT NULL,
    step     TEXT    NOT NULL,
    key      TEXT    NOT NULL,
    data     TEXT    NOT NULL,
    state    TEXT    NOT NULL,
    attempts INTEGER NOT NULL,
    due_at   INTEGER NOT NULL,
    -- The claim under which it is worked on: the fence of its commit.
    claim    INTEGER NOT NULL,
    class    TEXT    NOT NULL,
    error    TEXT    NOT NULL,
    PRIMARY KEY (run, seq)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX pipeline_item_by_key ON pipeline_item (run, step, key);
CREATE INDEX pipeline_item_by_state ON pipeline_item (run, state, due_at, seq);

-- One lease for all items of a claim.
CREATE TABLE pipeline_claim (
    run    TEXT    NOT NULL,
    claim  INTEGER NOT NULL,
    worker TEXT    NOT NULL,
    begun  INTEGER NOT NULL,
    until  INTEGER NOT NULL,
    PRIMARY KEY (run, claim)
) STRICT, WITHOUT ROWID;

CREATE TABLE pipeline_attempt (
    run      TEXT    NOT NULL,
    seq      INTEGER NOT NULL,
    claim    INTEGER NOT NULL,
    begun_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    status   INTEGER NOT NULL,
    class    TEXT    NOT NULL,
    PRIMARY KEY (run, seq, claim)
) STRICT, WITHOUT ROWID;

CREATE INDEX pipeline_attempt_by_end ON pipeline_attempt (run, ended_at);

-- What steps gave, until a sink has it.
CREATE TABLE pipeline_output (
    run  TEXT    NOT NULL,
    sink TEXT    NOT NULL,
    seq  INTEGER NOT NULL,
    line TEXT    NOT NULL,
    PRIMARY KEY (run, sink, seq)
) STRICT, WITHOUT ROWID;

-- How far a sink is: bytes of a file, rows of a table. One writer at a time, under a lease.
CREATE TABLE pipeline_sink (
    run     TEXT    NOT NULL,
    sink    TEXT    NOT NULL,
    length  INTEGER NOT NULL,
    rows    INTEGER NOT NULL,
    fence   INTEGER NOT NULL,
    writer  TEXT    NOT NULL,
    until   INTEGER NOT NULL,
    trouble TEXT    NOT NULL,
    PRIMARY KEY (run, sink)
) STRICT, WITHOUT ROWID;

-- What answers said of their version, so that a later run asks only for what changed.
CREATE TABLE pipeline_version (
    plan TEXT NOT NULL,
    step TEXT NOT NULL,
    key  TEXT NOT NULL,
    etag TEXT NOT NULL,
    PRIMARY KEY (plan, step, key)
) STRICT, WITHOUT ROWID;
