-- `message_ttl` is the time in seconds after which messages of a conversation are deleted, `expires_at` when the oldest one is due, and
-- `expired_sequence` the last message that was deleted for this reason.
ALTER TABLE chat_conversation ADD COLUMN message_ttl BIGINT;
ALTER TABLE chat_conversation ADD COLUMN expires_at BIGINT;
ALTER TABLE chat_conversation ADD COLUMN expired_sequence BIGINT NOT NULL DEFAULT 0;

CREATE INDEX chat_conversation_expiry ON chat_conversation (expires_at) WHERE expires_at IS NOT NULL;
