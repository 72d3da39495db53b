-- When the job of a heartbeat last called, by the store's clock. Its deadline follows from it after the store lost its data.
ALTER TABLE uptime_monitor ADD COLUMN called_at INTEGER;
