-- Users of the OpenID Connect provider. The subject is the issuer and the subject of its ID tokens; the groups are a list
-- in JSON.
ALTER TABLE web_session ADD COLUMN user_subject TEXT;
ALTER TABLE web_session ADD COLUMN user_name TEXT;
ALTER TABLE web_session ADD COLUMN user_groups TEXT;
ALTER TABLE web_audit ADD COLUMN subject TEXT;
