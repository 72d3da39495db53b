-- What is sent to webhooks. A delivery is deleted when it has arrived, so these are the ones that wait or have failed. `notice`
-- does not have the content of a message, so that a deleted message is deleted everywhere. A node that claims a delivery raises its
-- fence, so that a node that held it before cannot change it any more.
CREATE TABLE chat_delivery (
    id         TEXT COLLATE "C" PRIMARY KEY,
    webhook    TEXT COLLATE "C" NOT NULL,
    notice     TEXT NOT NULL,
    state      TEXT NOT NULL,
    attempts   BIGINT NOT NULL,
    error      TEXT NOT NULL,
    due_at     BIGINT NOT NULL,
    held_until BIGINT NOT NULL,
    fence      BIGINT NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE INDEX chat_delivery_waiting ON chat_delivery (webhook, due_at) WHERE state = 'waiting';
CREATE INDEX chat_delivery_failed ON chat_delivery (created_at, id) WHERE state = 'failed';

-- The presence of users as webhooks have it. Only a later version changes it.
CREATE TABLE chat_reported_presence (
    user_id TEXT COLLATE "C" PRIMARY KEY,
    online  BOOLEAN NOT NULL,
    version BIGINT NOT NULL
);

CREATE INDEX chat_reported_presence_online ON chat_reported_presence (user_id) WHERE online;
