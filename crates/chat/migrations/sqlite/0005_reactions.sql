-- Which user has reacted to which message, and how.
CREATE TABLE chat_reaction (
    conversation TEXT NOT NULL REFERENCES chat_conversation (id),
    -- The sequence of the message.
    sequence     INTEGER NOT NULL,
    emoji        TEXT NOT NULL,
    user_id      TEXT NOT NULL,
    reacted_at   INTEGER NOT NULL,
    PRIMARY KEY (conversation, sequence, emoji, user_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX chat_reaction_user ON chat_reaction (user_id, conversation, sequence);
