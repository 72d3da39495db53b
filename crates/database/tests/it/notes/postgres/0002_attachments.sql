CREATE TABLE notes_attachment (
    note    TEXT   COLLATE "C" NOT NULL REFERENCES notes_note (id) ON DELETE CASCADE,
    number  BIGINT NOT NULL,
    content BYTEA  NOT NULL,
    quality DOUBLE PRECISION,
    PRIMARY KEY (note, number)
);
