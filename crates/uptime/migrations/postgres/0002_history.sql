-- Single results. One claim has one result, so writing it twice writes it once.
CREATE TABLE uptime_result (
    monitor_id TEXT COLLATE "C"    NOT NULL,
    at         BIGINT NOT NULL,
    fence      BIGINT NOT NULL,
    state      TEXT COLLATE "C"    NOT NULL,
    latency_us BIGINT NOT NULL,
    error      TEXT,
    PRIMARY KEY (monitor_id, at, fence)
);

CREATE INDEX uptime_result_by_time ON uptime_result (at);

-- Results of an hour ('h') or a day ('d') in one row, made again from its parts whenever one of them changes.
CREATE TABLE uptime_summary (
    monitor_id TEXT COLLATE "C"    NOT NULL,
    span       TEXT COLLATE "C"    NOT NULL,
    start      BIGINT NOT NULL,
    good       BIGINT NOT NULL,
    bad        BIGINT NOT NULL,
    latencies  BYTEA    NOT NULL,
    PRIMARY KEY (monitor_id, span, start)
);

CREATE INDEX uptime_summary_by_time ON uptime_summary (span, start);

-- Up to when results are in the summaries.
CREATE TABLE uptime_summed (
    span       TEXT COLLATE "C" PRIMARY KEY,
    until      BIGINT NOT NULL
);
