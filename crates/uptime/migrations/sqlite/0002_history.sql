-- Single results. One claim has one result, so writing it twice writes it once.
CREATE TABLE uptime_result (
    monitor_id TEXT    NOT NULL,
    at         INTEGER NOT NULL,
    fence      INTEGER NOT NULL,
    state      TEXT    NOT NULL,
    latency_us INTEGER NOT NULL,
    error      TEXT,
    PRIMARY KEY (monitor_id, at, fence)
) STRICT, WITHOUT ROWID;

CREATE INDEX uptime_result_by_time ON uptime_result (at);

-- Results of an hour ('h') or a day ('d') in one row, made again from its parts whenever one of them changes.
CREATE TABLE uptime_summary (
    monitor_id TEXT    NOT NULL,
    span       TEXT    NOT NULL,
    start      INTEGER NOT NULL,
    good       INTEGER NOT NULL,
    bad        INTEGER NOT NULL,
    latencies  BLOB    NOT NULL,
    PRIMARY KEY (monitor_id, span, start)
) STRICT, WITHOUT ROWID;

CREATE INDEX uptime_summary_by_time ON uptime_summary (span, start);

-- Up to when results are in the summaries.
CREATE TABLE uptime_summed (
    span       TEXT PRIMARY KEY,
    until      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
