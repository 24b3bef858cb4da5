ALTER TABLE model_version DROP COLUMN optimizer_state;
