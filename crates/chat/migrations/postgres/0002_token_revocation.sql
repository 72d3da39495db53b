-- Tokens of a user that were issued up to this time are revoked.
CREATE TABLE chat_token_revocation (
    user_id    TEXT COLLATE "C" PRIMARY KEY,
    revoked_at BIGINT NOT NULL,
    -- Counts the revocations of all users in the order of their commits: nodes read those after the last one they know.
    number     BIGINT NOT NULL UNIQUE
);
