ALTER TABLE check_in DROP COLUMN refusal;
