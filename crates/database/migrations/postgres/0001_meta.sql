-- What the records know of themselves: one row.
CREATE TABLE hob_meta (
    one        BIGINT PRIMARY KEY CHECK (one = 1),
    id         TEXT   NOT NULL,
    epoch      BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);
