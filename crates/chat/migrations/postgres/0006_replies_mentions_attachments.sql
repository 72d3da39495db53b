-- `reply_to` is the id of the message that this one replies to, `thread` that of the first message of the thread. `mentions` and
-- `attachments` are JSON lists, or empty.
ALTER TABLE chat_message ADD COLUMN reply_to TEXT COLLATE "C";
ALTER TABLE chat_message ADD COLUMN thread TEXT COLLATE "C";
ALTER TABLE chat_message ADD COLUMN mentions TEXT NOT NULL DEFAULT '';
ALTER TABLE chat_message ADD COLUMN attachments TEXT NOT NULL DEFAULT '';

CREATE INDEX chat_message_thread ON chat_message (conversation, thread, sequence) WHERE thread IS NOT NULL;

-- The messages that mention a user, without those that are deleted.
CREATE TABLE chat_mention (
    user_id      TEXT COLLATE "C" NOT NULL,
    conversation TEXT COLLATE "C" NOT NULL REFERENCES chat_conversation (id),
    sequence     BIGINT NOT NULL,
    PRIMARY KEY (user_id, conversation, sequence)
);
