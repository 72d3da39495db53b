-- The words of the messages, by the id of the message. Only the id is stored; the texts are in chat_message. `message` has the id as
-- a word, so that the entry of a message is found in the index when the message changes.
CREATE VIRTUAL TABLE chat_search USING fts5 (
    words, message, id UNINDEXED,
    content = '', contentless_delete = 1, contentless_unindexed = 1, tokenize = 'unicode61 remove_diacritics 0'
);

CREATE TRIGGER chat_search_insert AFTER INSERT ON chat_message WHEN new.content <> ''
BEGIN
    INSERT INTO chat_search (words, message, id) VALUES (new.content, new.id, new.id);
END;

CREATE TRIGGER chat_search_update AFTER UPDATE OF content ON chat_message WHEN new.content <> old.content
BEGIN
    DELETE FROM chat_search WHERE rowid IN (
        SELECT rowid FROM chat_search WHERE chat_search MATCH 'message : "' || old.id || '"');
    INSERT INTO chat_search (words, message, id) SELECT new.content, new.id, new.id WHERE new.content <> '';
END;

CREATE TRIGGER chat_search_delete AFTER DELETE ON chat_message WHEN old.content <> ''
BEGIN
    DELETE FROM chat_search WHERE rowid IN (
        SELECT rowid FROM chat_search WHERE chat_search MATCH 'message : "' || old.id || '"');
END;

INSERT INTO chat_search (words, message, id) SELECT content, id, id FROM chat_message WHERE content <> '' ORDER BY sent_at;
