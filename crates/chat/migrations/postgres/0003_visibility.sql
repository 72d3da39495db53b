-- `visibility` grows when events that were hidden from a member become visible: a position from before cannot be recovered.
-- `returned_sequence` is the event with which the member was last added again; 0 if the member never left.
ALTER TABLE chat_member ADD COLUMN visibility BIGINT NOT NULL DEFAULT 0;
ALTER TABLE chat_member ADD COLUMN returned_sequence BIGINT NOT NULL DEFAULT 0;

-- Between these two events, a user was not a member. The second is missing until the user is added again.
CREATE TABLE chat_absence (
    conversation      TEXT COLLATE "C" NOT NULL REFERENCES chat_conversation (id),
    user_id           TEXT COLLATE "C" NOT NULL,
    left_sequence     BIGINT NOT NULL,
    returned_sequence BIGINT,
    PRIMARY KEY (conversation, user_id, left_sequence)
);

INSERT INTO chat_absence (conversation, user_id, left_sequence)
SELECT m.conversation, m.user_id, COALESCE(
    (SELECT max(e.sequence) FROM chat_event e WHERE e.conversation = m.conversation AND e.kind = 'left'
         AND e.payload = '{"type":"left","userId":"' || m.user_id || '"}'), c.sequence)
FROM chat_member m JOIN chat_conversation c ON c.id = m.conversation WHERE m.state = 'out';

-- Who was a member at an earlier event.
CREATE INDEX chat_event_membership ON chat_event (conversation, sequence) WHERE kind IN ('joined', 'left');
