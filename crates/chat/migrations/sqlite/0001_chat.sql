CREATE TABLE chat_conversation (
    id         TEXT PRIMARY KEY,
    title      TEXT NOT NULL,
    created_by TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    -- The last event, and the last message: both count from 1 without a gap.
    sequence   INTEGER NOT NULL,
    newest     INTEGER NOT NULL,
    changed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A member who left keeps the row: its version must never begin again.
CREATE TABLE chat_member (
    conversation TEXT NOT NULL REFERENCES chat_conversation (id),
    user_id      TEXT NOT NULL,
    state        TEXT NOT NULL,
    joined_at    INTEGER NOT NULL,
    -- Everything up to these events was read by, or has reached, the member.
    read_sequence      INTEGER NOT NULL,
    delivered_sequence INTEGER NOT NULL,
    version      INTEGER NOT NULL,
    PRIMARY KEY (conversation, user_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX chat_member_user ON chat_member (user_id, state, conversation);

CREATE TABLE chat_message (
    conversation TEXT NOT NULL REFERENCES chat_conversation (id),
    -- The event that it came with, and which message it is.
    sequence     INTEGER NOT NULL,
    number       INTEGER NOT NULL,
    id           TEXT NOT NULL UNIQUE,
    sender       TEXT NOT NULL,
    client_id    TEXT,
    content      TEXT NOT NULL,
    sent_at      INTEGER NOT NULL,
    edited_at    INTEGER,
    deleted      INTEGER NOT NULL,
    PRIMARY KEY (conversation, sequence)
) STRICT, WITHOUT ROWID;

-- A client's own id of a message makes a repeated send the same message, for ever.
CREATE UNIQUE INDEX chat_message_client ON chat_message (conversation, sender, client_id);

CREATE TABLE chat_event (
    conversation TEXT NOT NULL REFERENCES chat_conversation (id),
    sequence     INTEGER NOT NULL,
    kind         TEXT NOT NULL,
    actor        TEXT NOT NULL,
    -- The sequence of the message that it is about, if it is about one.
    about        INTEGER,
    payload      TEXT NOT NULL,
    happened_at  INTEGER NOT NULL,
    PRIMARY KEY (conversation, sequence)
) STRICT, WITHOUT ROWID;

CREATE INDEX chat_event_message ON chat_event (conversation, about) WHERE about IS NOT NULL;

CREATE TABLE chat_block (
    blocker TEXT NOT NULL,
    blocked TEXT NOT NULL,
    since   INTEGER NOT NULL,
    PRIMARY KEY (blocker, blocked)
) STRICT, WITHOUT ROWID;

CREATE INDEX chat_block_blocked ON chat_block (blocked, blocker);

CREATE TABLE chat_last_seen (
    user_id TEXT PRIMARY KEY,
    seen_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
