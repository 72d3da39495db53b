-- Users whose data is being deleted. `pseudonym` takes the place of the user id, `messages` says what happens to messages. The row is
-- deleted when nothing is left.
CREATE TABLE chat_erasure (
    user_id      TEXT PRIMARY KEY,
    pseudonym    TEXT NOT NULL,
    messages     TEXT NOT NULL,
    requested_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
