-- Tokens of a user that were issued up to this time are revoked.
CREATE TABLE chat_token_revocation (
    user_id    TEXT PRIMARY KEY,
    revoked_at INTEGER NOT NULL,
    -- Counts the revocations of all users in the order of their commits: nodes read those after the last one they know.
    number     INTEGER NOT NULL UNIQUE
) STRICT, WITHOUT ROWID;
