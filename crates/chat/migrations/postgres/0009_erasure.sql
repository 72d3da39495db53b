-- Users whose data is being deleted. `pseudonym` takes the place of the user id, `messages` says what happens to messages. The row is
-- deleted when nothing is left.
CREATE TABLE chat_erasure (
    user_id      TEXT COLLATE "C" PRIMARY KEY,
    pseudonym    TEXT COLLATE "C" NOT NULL,
    messages     TEXT NOT NULL,
    requested_at BIGINT NOT NULL
);
