-- The words of a message. Punctuation separates words, as in SQLite's index; otherwise PostgreSQL would keep URLs, e-mail addresses and
-- words with hyphens together.
ALTER TABLE chat_message ADD COLUMN search tsvector NOT NULL GENERATED ALWAYS AS (
    to_tsvector('simple', translate(content, '!"#$%&''()*+,-./:;<=>?@[\]^_`{|}~“”„‘’«»–—…¡¿、。！？',
                                             '                                                '))) STORED;

CREATE INDEX chat_message_search ON chat_message USING gin (search);
