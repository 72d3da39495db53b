-- How many items are where, kept by every transaction that moves some: nobody counts a million rows.
CREATE TABLE pipeline_tally (
    run   TEXT    NOT NULL,
    step  TEXT    NOT NULL,
    class TEXT    NOT NULL,
    state TEXT    NOT NULL,
    items INTEGER NOT NULL,
    PRIMARY KEY (run, step, class, state)
) STRICT, WITHOUT ROWID;

INSERT INTO pipeline_tally (run, step, class, state, items)
SELECT run, step, class, state, COUNT(*) FROM pipeline_item GROUP BY run, step, class, state;

-- Items that were finished in a step of time.
CREATE TABLE pipeline_pace (
    run   TEXT    NOT NULL,
    at    INTEGER NOT NULL,
    items INTEGER NOT NULL,
    PRIMARY KEY (run, at)
) STRICT, WITHOUT ROWID;

-- Only what is looked for: an item that is done costs nothing here.
DROP INDEX pipeline_item_by_state;
CREATE INDEX pipeline_item_due ON pipeline_item (run, due_at, seq) WHERE state = 'waiting';
CREATE INDEX pipeline_item_failed ON pipeline_item (run, seq) WHERE class <> '';

-- The items of a claim lie between two numbers. Those of earlier ones may be anywhere.
ALTER TABLE pipeline_claim ADD COLUMN first_seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE pipeline_claim ADD COLUMN last_seq INTEGER NOT NULL DEFAULT 9223372036854775807;

-- Attempts are only ever looked for by their end: one order does.
DROP INDEX pipeline_attempt_by_end;
ALTER TABLE pipeline_attempt RENAME TO pipeline_attempt_before;
CREATE TABLE pipeline_attempt (
    run      TEXT    NOT NULL,
    seq      INTEGER NOT NULL,
    claim    INTEGER NOT NULL,
    begun_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    status   INTEGER NOT NULL,
    class    TEXT    NOT NULL,
    PRIMARY KEY (run, ended_at, seq, claim)
) STRICT, WITHOUT ROWID;
INSERT INTO pipeline_attempt (run, seq, claim, begun_at, ended_at, status, class)
SELECT run, seq, claim, begun_at, ended_at, status, class FROM pipeline_attempt_before;
DROP TABLE pipeline_attempt_before;
