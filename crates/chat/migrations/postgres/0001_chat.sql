CREATE TABLE chat_conversation (
    id         TEXT COLLATE "C" PRIMARY KEY,
    title      TEXT NOT NULL,
    created_by TEXT COLLATE "C" NOT NULL,
    created_at BIGINT NOT NULL,
    -- The last event, and the last message: both count from 1 without a gap.
    sequence   BIGINT NOT NULL,
    newest     BIGINT NOT NULL,
    changed_at BIGINT NOT NULL
);

-- A member who left keeps the row: its version must never begin again.
CREATE TABLE chat_member (
    conversation TEXT COLLATE "C" NOT NULL REFERENCES chat_conversation (id),
    user_id      TEXT COLLATE "C" NOT NULL,
    state        TEXT NOT NULL,
    joined_at    BIGINT NOT NULL,
    -- Everything up to these events was read by, or has reached, the member.
    read_sequence      BIGINT NOT NULL,
    delivered_sequence BIGINT NOT NULL,
    version      BIGINT NOT NULL,
    PRIMARY KEY (conversation, user_id)
);

CREATE INDEX chat_member_user ON chat_member (user_id, state, conversation);

CREATE TABLE chat_message (
    conversation TEXT COLLATE "C" NOT NULL REFERENCES chat_conversation (id),
    -- The event that it came with, and which message it is.
    sequence     BIGINT NOT NULL,
    number       BIGINT NOT NULL,
    id           TEXT COLLATE "C" NOT NULL UNIQUE,
    sender       TEXT COLLATE "C" NOT NULL,
    client_id    TEXT COLLATE "C",
    content      TEXT NOT NULL,
    sent_at      BIGINT NOT NULL,
    edited_at    BIGINT,
    deleted      BOOLEAN NOT NULL,
    PRIMARY KEY (conversation, sequence)
);

-- A client's own id of a message makes a repeated send the same message, for ever.
CREATE UNIQUE INDEX chat_message_client ON chat_message (conversation, sender, client_id);

CREATE TABLE chat_event (
    conversation TEXT COLLATE "C" NOT NULL REFERENCES chat_conversation (id),
    sequence     BIGINT NOT NULL,
    kind         TEXT NOT NULL,
    actor        TEXT COLLATE "C" NOT NULL,
    -- The sequence of the message that it is about, if it is about one.
    about        BIGINT,
    payload      TEXT NOT NULL,
    happened_at  BIGINT NOT NULL,
    PRIMARY KEY (conversation, sequence)
);

CREATE INDEX chat_event_message ON chat_event (conversation, about) WHERE about IS NOT NULL;

CREATE TABLE chat_block (
    blocker TEXT COLLATE "C" NOT NULL,
    blocked TEXT COLLATE "C" NOT NULL,
    since   BIGINT NOT NULL,
    PRIMARY KEY (blocker, blocked)
);

CREATE INDEX chat_block_blocked ON chat_block (blocked, blocker);

CREATE TABLE chat_last_seen (
    user_id TEXT COLLATE "C" PRIMARY KEY,
    seen_at BIGINT NOT NULL
);
