-- How many items are where, kept by every transaction that moves some: nobody counts a million rows.
CREATE TABLE pipeline_tally (
    run   TEXT COLLATE "C" NOT NULL,
    step  TEXT COLLATE "C" NOT NULL,
    class TEXT COLLATE "C" NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    items BIGINT NOT NULL,
    PRIMARY KEY (run, step, class, state)
);

INSERT INTO pipeline_tally (run, step, class, state, items)
SELECT run, step, class, state, COUNT(*) FROM pipeline_item GROUP BY run, step, class, state;

-- Items that were finished in a step of time.
CREATE TABLE pipeline_pace (
    run   TEXT COLLATE "C" NOT NULL,
    at    BIGINT NOT NULL,
    items BIGINT NOT NULL,
    PRIMARY KEY (run, at)
);

-- Only what is looked for: an item that is done costs nothing here.
DROP INDEX pipeline_item_by_state;
CREATE INDEX pipeline_item_due ON pipeline_item (run, due_at, seq) WHERE state = 'waiting';
CREATE INDEX pipeline_item_failed ON pipeline_item (run, seq) WHERE class <> '';

-- The items of a claim lie between two numbers. Those of earlier ones may be anywhere.
ALTER TABLE pipeline_claim ADD COLUMN first_seq BIGINT NOT NULL DEFAULT 0;
ALTER TABLE pipeline_claim ADD COLUMN last_seq BIGINT NOT NULL DEFAULT 9223372036854775807;

-- Attempts are only ever looked for by their end: one order does.
DROP INDEX pipeline_attempt_by_end;
ALTER TABLE pipeline_attempt RENAME TO pipeline_attempt_before;
CREATE TABLE pipeline_attempt (
    run      TEXT COLLATE "C" NOT NULL,
    seq      BIGINT NOT NULL,
    claim    BIGINT NOT NULL,
    begun_at BIGINT NOT NULL,
    ended_at BIGINT NOT NULL,
    status   BIGINT NOT NULL,
    class    TEXT NOT NULL,
    PRIMARY KEY (run, ended_at, seq, claim)
);
INSERT INTO pipeline_attempt (run, seq, claim, begun_at, ended_at, status, class)
SELECT run, seq, claim, begun_at, ended_at, status, class FROM pipeline_attempt_before;
DROP TABLE pipeline_attempt_before;
