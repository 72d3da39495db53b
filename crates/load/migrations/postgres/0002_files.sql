-- Files that versions of plans name.
CREATE TABLE load_plan_file (
    plan_id BIGINT NOT NULL,
    version BIGINT NOT NULL,
    name    TEXT NOT NULL,
    content TEXT NOT NULL,
    PRIMARY KEY (plan_id, version, name),
    FOREIGN KEY (plan_id, version) REFERENCES load_plan_version (plan_id, version)
);
