-- Variables in plans are written ${key} instead of {key}. Texts with {{ or ${ are left for their authors: {{ was a literal
-- brace, so a replacement could change what they mean. Such a plan is refused with what to write.
UPDATE pipeline_plan
SET text = replace(replace(replace(replace(
        text, '{key}', '${key}'), '{data.', '${data.'), '{secret.', '${secret.'), '{run}', '${run}')
WHERE text NOT LIKE '%{{%' AND text NOT LIKE '%${%';

UPDATE pipeline_run
SET text = replace(replace(replace(replace(
        text, '{key}', '${key}'), '{data.', '${data.'), '{secret.', '${secret.'), '{run}', '${run}')
WHERE text NOT LIKE '%{{%' AND text NOT LIKE '%${%';
