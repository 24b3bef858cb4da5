ALTER TABLE enrollment_token DROP COLUMN participant;
