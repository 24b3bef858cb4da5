DROP INDEX model_version_stored;
ALTER TABLE model_version DROP COLUMN removed_at;
ALTER TABLE model_version DROP COLUMN pinned_at;
