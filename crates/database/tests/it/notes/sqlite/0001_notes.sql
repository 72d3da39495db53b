CREATE TABLE notes_note (
    id         TEXT    PRIMARY KEY,
    author     TEXT    NOT NULL,
    title      TEXT    NOT NULL,
    state      TEXT    NOT NULL,
    pinned     INTEGER NOT NULL,
    version    INTEGER NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE INDEX notes_note_by_age ON notes_note (author, created_at, id);
