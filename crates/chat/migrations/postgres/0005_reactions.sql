-- Which user has reacted to which message, and how.
CREATE TABLE chat_reaction (
    conversation TEXT COLLATE "C" NOT NULL REFERENCES chat_conversation (id),
    -- The sequence of the message.
    sequence     BIGINT NOT NULL,
    emoji        TEXT COLLATE "C" NOT NULL,
    user_id      TEXT COLLATE "C" NOT NULL,
    reacted_at   BIGINT NOT NULL,
    PRIMARY KEY (conversation, sequence, emoji, user_id)
);

CREATE INDEX chat_reaction_user ON chat_reaction (user_id, conversation, sequence);
