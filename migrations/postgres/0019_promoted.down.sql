ALTER TABLE task DROP COLUMN promoted_version;
