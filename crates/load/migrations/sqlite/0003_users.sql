-- The planned users of a run, and its progress, which is set when it ends. States are in lower case, as in the API.
ALTER TABLE load_run ADD COLUMN target_users INTEGER NOT NULL DEFAULT 0;
ALTER TABLE load_run ADD COLUMN progress REAL NOT NULL DEFAULT 0;
UPDATE load_run SET state = lower(state), ending = lower(ending);
UPDATE load_run SET progress = 100 WHERE state = 'completed';
CREATE INDEX load_run_ended ON load_run (ended_at);
