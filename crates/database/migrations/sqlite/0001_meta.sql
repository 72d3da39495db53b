-- What the records know of themselves: one row.
CREATE TABLE hob_meta (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    id         TEXT    NOT NULL,
    epoch      INTEGER NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
