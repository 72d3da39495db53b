-- The key figures of a report, for lists of runs.
ALTER TABLE load_report ADD COLUMN requests BIGINT;
ALTER TABLE load_report ADD COLUMN failed BIGINT;
ALTER TABLE load_report ADD COLUMN rate DOUBLE PRECISION;
ALTER TABLE load_report ADD COLUMN p95 DOUBLE PRECISION;
UPDATE load_report SET
    requests = (report::json ->> 'requests')::bigint,
    failed   = (report::json ->> 'failed')::bigint,
    rate     = (report::json ->> 'rate')::double precision,
    p95      = (report::json -> 'latency' ->> 'p95')::double precision
WHERE report <> 'null';
