CREATE TABLE notes_attachment (
    note    TEXT    NOT NULL REFERENCES notes_note (id) ON DELETE CASCADE,
    number  INTEGER NOT NULL,
    content BLOB    NOT NULL,
    quality REAL,
    PRIMARY KEY (note, number)
) STRICT;
