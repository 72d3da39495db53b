-- The last result of an item, kept for steps that ask only for what changed and for the steps that follow them. A later
-- run writes it again when the API answers "not modified", so that every run's output is complete.
-- Versions without their results are of no use: the next run asks for everything once.
DROP TABLE pipeline_version;
CREATE TABLE pipeline_result (
    plan   TEXT NOT NULL,
    step   TEXT NOT NULL,
    key    TEXT NOT NULL,
    -- A hash of the step's definition: the result of another definition is not used.
    shape  TEXT NOT NULL,
    -- '' where the answer had none.
    etag   TEXT NOT NULL,
    -- '' where the step has no sink.
    line   TEXT NOT NULL,
    -- The items that it led to, in JSON.
    follow TEXT NOT NULL,
    PRIMARY KEY (plan, step, key)
) STRICT;

-- Whether the item follows one that did not change: then its last result is used again.
ALTER TABLE pipeline_item ADD COLUMN unchanged INTEGER NOT NULL DEFAULT 0;

-- The file that a run writes, relative to the folder of pipelines. '' until it is created, and for files that an
-- earlier version began: these have the name that is in the plan.
ALTER TABLE pipeline_sink ADD COLUMN file TEXT NOT NULL DEFAULT '';
