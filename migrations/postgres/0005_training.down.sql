DROP TABLE buffered;
ALTER TABLE check_in DROP COLUMN is_ready;
ALTER TABLE check_in DROP COLUMN training;
DROP TABLE training;
