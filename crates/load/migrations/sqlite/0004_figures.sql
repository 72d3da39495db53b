-- The key figures of a report, for lists of runs.
ALTER TABLE load_report ADD COLUMN requests INTEGER;
ALTER TABLE load_report ADD COLUMN failed INTEGER;
ALTER TABLE load_report ADD COLUMN rate REAL;
ALTER TABLE load_report ADD COLUMN p95 REAL;
UPDATE load_report SET
    requests = json_extract(report, '$.requests'),
    failed   = json_extract(report, '$.failed'),
    rate     = json_extract(report, '$.rate'),
    p95      = json_extract(report, '$.latency.p95');
