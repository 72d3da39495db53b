CREATE TABLE notes_note (
    id         TEXT    COLLATE "C" PRIMARY KEY,
    author     TEXT    COLLATE "C" NOT NULL,
    title      TEXT    NOT NULL,
    state      TEXT    NOT NULL,
    pinned     BOOLEAN NOT NULL,
    version    BIGINT  NOT NULL,
    created_at BIGINT  NOT NULL
);

CREATE INDEX notes_note_by_age ON notes_note (author, created_at, id);
