-- Events as their transactions wrote them, not numbered yet. Larger ids were written later.
CREATE TABLE hob_outbox_new (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    topic      TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    payload    TEXT    NOT NULL,
    written_at INTEGER NOT NULL
) STRICT;

-- Events in their final order.
CREATE TABLE hob_outbox_event (
    topic      TEXT    NOT NULL,
    number     INTEGER NOT NULL,
    key        TEXT    NOT NULL,
    payload    TEXT    NOT NULL,
    written_at INTEGER NOT NULL,
    PRIMARY KEY (topic, number)
) STRICT;

CREATE INDEX hob_outbox_event_by_key ON hob_outbox_event (topic, key, number);

-- How far each topic is: events up to `numbered` have a number, up to `published` were published, up to
-- `forgotten` are gone.
CREATE TABLE hob_outbox_topic (
    topic     TEXT    PRIMARY KEY,
    numbered  INTEGER NOT NULL,
    published INTEGER NOT NULL,
    forgotten INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- How far each named consumer is.
CREATE TABLE hob_outbox_consumer (
    name     TEXT    NOT NULL,
    topic    TEXT    NOT NULL,
    position INTEGER NOT NULL,
    acked_at INTEGER NOT NULL,
    PRIMARY KEY (name, topic)
) STRICT, WITHOUT ROWID;

-- Who relays: one row.
CREATE TABLE hob_outbox_lease (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    fence      INTEGER NOT NULL,
    held_until INTEGER NOT NULL
) STRICT;

INSERT INTO hob_outbox_lease (one, fence, held_until) VALUES (1, 0, 0);
