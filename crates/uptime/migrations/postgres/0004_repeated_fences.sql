-- A store that goes back in time repeats fences. So an incident is known by the fence and the time of its check.
ALTER TABLE uptime_incident DROP CONSTRAINT uptime_incident_monitor_id_opened_fence_key;
ALTER TABLE uptime_incident ADD CONSTRAINT uptime_incident_key UNIQUE (monitor_id, opened_fence, confirmed_at);
