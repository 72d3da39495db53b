-- What may be called how often, and until when the API said to stay away.
CREATE TABLE pipeline_quota (
    name          TEXT COLLATE "C"    PRIMARY KEY,
    windows       TEXT    NOT NULL,
    buffer        BIGINT NOT NULL,
    blocked_until BIGINT NOT NULL,
    -- Raised whenever its hot state was lost: reservations of an earlier one are refused by the log.
    epoch         BIGINT NOT NULL,
    updated_at    BIGINT NOT NULL
);

-- The call log: what may have reached an API, written before the caller hears yes. Times are the hot store's.
CREATE TABLE pipeline_call (
    id          TEXT COLLATE "C"    PRIMARY KEY,
    quota       TEXT COLLATE "C"    NOT NULL,
    run         TEXT COLLATE "C"    NOT NULL,
    calls       BIGINT NOT NULL,
    reserved_at BIGINT NOT NULL,
    -- When the answer came; before that, when it must have come.
    until       BIGINT NOT NULL,
    settled     BOOLEAN NOT NULL
);

CREATE INDEX pipeline_call_by_end ON pipeline_call (quota, until);

CREATE TABLE pipeline_plan (
    name       TEXT COLLATE "C"    PRIMARY KEY,
    text       TEXT    NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

-- A run pins the text of its plan. `items` and `claims` count what was ever given out, so that a number never repeats.
CREATE TABLE pipeline_run (
    id         TEXT COLLATE "C"    PRIMARY KEY,
    plan       TEXT COLLATE "C"    NOT NULL,
    text       TEXT    NOT NULL,
    state      TEXT COLLATE "C"    NOT NULL,
    -- How often the state has changed: the fence of the public view.
    version    BIGINT NOT NULL,
    -- Bytes of the source's file that became items; -1 once all of the source did.
    seeded_to  BIGINT NOT NULL,
    items      BIGINT NOT NULL,
    claims     BIGINT NOT NULL,
    calls      BIGINT NOT NULL,
    trouble    TEXT    NOT NULL,
    started_at BIGINT NOT NULL,
    changed_at BIGINT NOT NULL
);

CREATE INDEX pipeline_run_by_start ON pipeline_run (started_at, id);

CREATE TABLE pipeline_item (
    run      TEXT COLLATE "C"    NOT NULL,
    seq      BIGINT NOT NULL,
    step     TEXT COLLATE "C"    NOT NULL,
    key      TEXT COLLATE "C"    NOT NULL,
    data     TEXT    NOT NULL,
    state    TEXT COLLATE "C"    NOT NULL,
    attempts BIGINT NOT NULL,
    due_at   BIGINT NOT NULL,
    -- The claim under which it is worked on: the fence of its commit.
    claim    BIGINT NOT NULL,
    class    TEXT    NOT NULL,
    error    TEXT    NOT NULL,
    PRIMARY KEY (run, seq)
);

CREATE UNIQUE INDEX pipeline_item_by_key ON pipeline_item (run, step, key);
CREATE INDEX pipeline_item_by_state ON pipeline_item (run, state, due_at, seq);

-- One lease for all items of a claim.
CREATE TABLE pipeline_claim (
    run    TEXT COLLATE "C"    NOT NULL,
    claim  BIGINT NOT NULL,
    worker TEXT    NOT NULL,
    begun  BIGINT NOT NULL,
    until  BIGINT NOT NULL,
    PRIMARY KEY (run, claim)
);

CREATE TABLE pipeline_attempt (
    run      TEXT COLLATE "C"    NOT NULL,
    seq      BIGINT NOT NULL,
    claim    BIGINT NOT NULL,
    begun_at BIGINT NOT NULL,
    ended_at BIGINT NOT NULL,
    status   BIGINT NOT NULL,
    class    TEXT    NOT NULL,
    PRIMARY KEY (run, seq, claim)
);

CREATE INDEX pipeline_attempt_by_end ON pipeline_attempt (run, ended_at);

-- What steps gave, until a sink has it.
CREATE TABLE pipeline_output (
    run  TEXT COLLATE "C"    NOT NULL,
    sink TEXT COLLATE "C"    NOT NULL,
    seq  BIGINT NOT NULL,
    line TEXT    NOT NULL,
    PRIMARY KEY (run, sink, seq)
);

-- How far a sink is: bytes of a file, rows of a table. One writer at a time, under a lease.
CREATE TABLE pipeline_sink (
    run     TEXT COLLATE "C"    NOT NULL,
    sink    TEXT COLLATE "C"    NOT NULL,
    length  BIGINT NOT NULL,
    rows    BIGINT NOT NULL,
    fence   BIGINT NOT NULL,
    writer  TEXT    NOT NULL,
    until   BIGINT NOT NULL,
    trouble TEXT    NOT NULL,
    PRIMARY KEY (run, sink)
);

-- What answers said of their version, so that a later run asks only for what changed.
CREATE TABLE pipeline_version (
    plan TEXT COLLATE "C" NOT NULL,
    step TEXT COLLATE "C" NOT NULL,
    key  TEXT COLLATE "C" NOT NULL,
    etag TEXT NOT NULL,
    PRIMARY KEY (plan, step, key)
);
