-- The number of a reservation in its quota, from the store. A store that has lost reservations issues their numbers again.
ALTER TABLE pipeline_call ADD COLUMN number INTEGER;

CREATE UNIQUE INDEX pipeline_call_by_number ON pipeline_call (quota, number);
